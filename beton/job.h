/* SPDX-License-Identifier: Apache-2.0
 *
 * The job of a writer as text, which its journal keeps: a later writer continues only the same job, and can say what
 * differs. */
#ifndef BETON_JOB_H
#define BETON_JOB_H

#include "writer.h"

/* *text: everything but the samples that the file depends on, a line "what: value" for each; the caller's to free.
 * Errors: NO_MEMORY. */
int bt_job_describe(const beton_writer *writer, const beton_writer_options *options, char **text, beton_error *err);

/* MISMATCH naming the first line of one text that the other has not. theirs: the earlier writer's; NULL: of a version
 * of this library that wrote no text. */
int bt_job_refuse(const char *path, const char *theirs, const char *ours, beton_error *err);

#endif
