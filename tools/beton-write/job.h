/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_JOB_H
#define BETON_WRITE_JOB_H

#include "options.h"
#include "tools/beton-write/sources/source.h"

/* Identifies a job by lines "what: value", so that one run may continue another's file (beton_writer_options.job). It
 * covers facts (with the options that affect the stored data), the selection, and the source's name with the names of a
 * folder's files, or a file's size and time, but not the content of pipes or of a pattern's shards. The caller frees
 * it; NULL: no memory. */
char *job_make(const char *facts, const write_options *options, source *from, const selection *selected);

#endif
