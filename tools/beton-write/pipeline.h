/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads pictures on several threads and appends them to a writer in the order of the list. */
#ifndef BETON_WRITE_PIPELINE_H
#define BETON_WRITE_PIPELINE_H

#include <signal.h>

#include <beton/beton.h>

#include "folder.h"
#include "image.h"
#include "tools/common/progress.h"

typedef struct pipeline_job {
	const source_list *list;
	const image_settings *settings;
	int threads;
	beton_writer *writer;
	progress *progress;                     /* told of each sample */
	const volatile sig_atomic_t *interrupt; /* not 0: stop, with CANCELLED */
} pipeline_job;

/* Appends every file of the list; the outcome is the same for any number of threads: the file of lowest index that
 * fails is the one reported. At most a few samples for each thread are in memory. */
int pipeline_run(const pipeline_job *job, beton_error *err);

#endif
