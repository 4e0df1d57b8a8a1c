/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a run's log, as JSON objects; docs/reference/log.md describes each member, and
 * docs/reference/log.schema.json is their JSON schema. Every record has a type, the time of day and the number of
 * completed steps. */
#ifndef REPORT_RECORD_H
#define REPORT_RECORD_H

#include <jansson.h>

#include "metrics.h"

/* Returned records belong to the caller. NULL: out of memory. */
json_t *run_record_beginning(const run_beginning *beginning);
json_t *run_record_step(const engine_task *task, const run_step_metrics *step);
json_t *run_record_tuning(const run_tuning_metrics *tuning);
json_t *run_record_activity(int64_t step, const dtrain_device_activity *activity);
/* names: of the classes, an array; NULL: none. classes: of the model. */
json_t *run_record_evaluation(const run_evaluation *evaluation, int64_t classes, const json_t *names);
json_t *run_record_epoch(const run_epoch_metrics *epoch);

/* The names of the parts of an epoch's time without "_seconds", and of what limits the loader. */
extern const char *const run_part_names[RUN_PARTS];
extern const char *const run_limit_names[];

/* A record as one line with its newline, malloc'ed: each number with as few digits as read back as the same number.
 * NULL: out of memory. */
char *run_record_text(const json_t *record);

#endif
