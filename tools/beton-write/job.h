/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_JOB_H
#define BETON_WRITE_JOB_H

#include "options.h"
#include "source.h"

/* What makes two runs the same job, one of which may continue what the other left (beton_writer_options.job): facts
 * (with the options that decide what is stored), selection, and of the source its name, and the names of a folder's
 * files, or a file's size and time. What a pipe or the shards of a pattern give is not looked at. The caller frees it;
 * NULL: no memory. */
char *job_make(const char *facts, const write_options *options, source *from, const selection *selected);

#endif
