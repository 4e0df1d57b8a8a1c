/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the lists of a pipeline's schedule: refused with a message that names the file, or lists that can be
 * simulated, drawn and lowered, and whose text means the same again. */
#include <dtrain/pipeline.h>
#include <stdlib.h>
#include <string.h>

#include "exercise.h"
#include "fuzz.h"

static char *text_of(const dtrain_pipeline_schedule *schedule)
{
	beton_error err = {0};
	char *text = NULL;
	require(dtrain_pipeline_schedule_text(schedule, &text, &err) == BETON_OK, "lists have a text");
	return text;
}

static void check_text(const dtrain_pipeline_schedule *schedule)
{
	beton_error err = {0};
	dtrain_pipeline_schedule *again = NULL;
	char *text = text_of(schedule);
	require(dtrain_pipeline_schedule_parse(text, "again", &again, &err) == BETON_OK, "the text of lists is read");
	char *second = text_of(again);
	require(strcmp(text, second) == 0, "and means the same");
	free(text);
	free(second);
	dtrain_pipeline_schedule_destroy(&again);
}

static void check_times(const dtrain_pipeline_schedule *schedule)
{
	beton_error err = {0};
	dtrain_pipeline_timeline *timeline = NULL;
	dtrain_stage_cost *costs = calloc((size_t)schedule->stages, sizeof(*costs));
	char *text = NULL;
	for (int32_t stage = 0; costs && stage < schedule->stages; stage++)
		costs[stage] = (dtrain_stage_cost){1, stage % 3, 2, 0.5};
	require(costs && dtrain_pipeline_simulate(schedule, costs, &timeline, &err) == BETON_OK, "lists are simulated");
	require(dtrain_pipeline_schedule_svg(schedule, timeline, "title", &text, &err) == BETON_OK, "and drawn");
	free(text);
	free(costs);
	dtrain_pipeline_timeline_destroy(&timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	beton_error err = {0};
	dtrain_pipeline_schedule *schedule = NULL;
	char *text = malloc(size + 1);
	require(text != NULL, "there is memory");
	memcpy(text, data, size);
	text[size] = '\0';
	int result = dtrain_pipeline_schedule_parse(text, "my.csv", &schedule, &err);
	free(text);
	if (result != BETON_OK) {
		require(!schedule && (result == BETON_FORMAT || result == BETON_INVALID_ARGUMENT) &&
				strncmp(err.message, "my.csv: ", 8) == 0,
			"a refusal names the file");
		return 0;
	}
	check_text(schedule);
	check_times(schedule);
	if (dtrain_pipeline_schedule_lower(schedule, &err) == BETON_OK) {
		check_text(schedule);
		check_times(schedule);
	}
	dtrain_pipeline_schedule_destroy(&schedule);
	return 0;
}
