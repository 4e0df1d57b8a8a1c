/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a pipeline's measured step: a picture (.svg), events for a trace viewer (.json), or a table (.csv). */
#ifndef REPORT_STAGE_TIMES_H
#define REPORT_STAGE_TIMES_H

#include <dtrain/pipeline_run.h>

/* Whether a file of that name can be written. Errors: INVALID_ARGUMENT (its ending), and of the file system. */
int run_stage_times_check(const char *path, beton_error *err);

/* title: of the picture. Errors: NO_MEMORY, and of the file system. */
int run_stage_times_write(const char *path, const dtrain_pipeline_step *step, const char *title, beton_error *err);

#endif
