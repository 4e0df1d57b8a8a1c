/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes items from a source, converts them on several threads and gives them to a writer. */
#ifndef BETON_WRITE_PIPELINE_H
#define BETON_WRITE_PIPELINE_H

#include <stdatomic.h>

#include <beton/beton.h>

#include "convert.h"
#include "faults.h"
#include "tools/beton-write/sources/selection.h"
#include "tools/common/progress.h"

typedef struct pipeline_job {
	const converter *convert;
	source *from; /* that of convert */
	const selection *selected;
	int threads;
	beton_writer *writer;
	progress *progress;   /* told of each sample */
	fault_policy *faults; /* what to do about a bad item */
	uint32_t page_size;   /* of the writer */
	bool compressed;      /* a field is, so that a sample takes less of a page than its values */
	bool quiet;
	bool sources;                /* store where samples come from */
	const atomic_int *interrupt; /* not 0: stop, with CANCELLED */
} pipeline_job;

/* Writes every selected item from the writer's position on. The outcome is the same for any number of threads: the
 * first item that fails is the one reported. In memory: an item for each thread, and the writer's window. */
int pipeline_run(const pipeline_job *job, beton_error *err);

#endif
