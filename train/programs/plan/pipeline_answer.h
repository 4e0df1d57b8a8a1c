/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_PLAN_PIPELINE_ANSWER_H
#define PROGRAMS_PLAN_PIPELINE_ANSWER_H

/* dtrain-plan pipeline: prints the lists of a schedule and its times. argv[0] is the command. Returns the exit status.
 */
int plan_pipeline(int argc, char **argv);

#endif
