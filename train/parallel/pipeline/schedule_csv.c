/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists as text, in the form of torch.distributed.pipelining: a line for each rank, a cell for each action.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "parallel/pipeline/schedules.h"

enum { BYTES_MAX = 1 << 28, NUMBER_MAX = (1 << 24) - 1 };

/* Actions of PyTorch that a list here does not have: a send is waited for when its memory is needed, and the strategy
 * of the parameters decides when they are gathered and reduced. */
static const char *const ignored[] = {"UNSHARD",          "RESHARD",     "REDUCE_GRAD",
				      "WAIT_REDUCE_GRAD", "WAIT_SEND_F", "WAIT_SEND_B"};
/* Actions that run at once, in brackets before this name. They are read as one after the other. */
static const char overlapped[] = "OVERLAP_F_B";

typedef struct csv_reader {
	const char *name; /* of the file */
	int32_t line;     /* 0: the first one; the rank */
	int32_t cell;     /* 1: the first one of the line */
	int32_t stages, micro_batches;
	int64_t actions;
	dtrain_action_list *list; /* of the line; NULL: actions are counted alone */
} csv_reader;

typedef struct csv_text {
	const char *at, *end;
} csv_text;

static csv_text trim(csv_text text)
{
	while (text.at < text.end && isspace((unsigned char)*text.at))
		text.at++;
	while (text.at < text.end && isspace((unsigned char)text.end[-1]))
		text.end--;
	return text;
}

/* Cuts the text before the first separator off; the rest begins after it. False: nothing is left. */
static bool next_part(csv_text *rest, char separator, csv_text *out)
{
	if (!rest->at)
		return false;
	const char *end = memchr(rest->at, separator, (size_t)(rest->end - rest->at));
	*out = (csv_text){rest->at, end ? end : rest->end};
	rest->at = end ? end + 1 : NULL;
	return true;
}

static bool is_word(csv_text text, const char *word)
{
	const size_t length = strlen(word);
	return (size_t)(text.end - text.at) == length && memcmp(text.at, word, length) == 0;
}

/* A number at the beginning; -1: none, or a larger one than any. */
static int32_t take_number(csv_text *text)
{
	int32_t value = 0;
	if (text->at == text->end || !isdigit((unsigned char)*text->at))
		return -1;
	for (; text->at < text->end && isdigit((unsigned char)*text->at); text->at++) {
		value = value * 10 + (*text->at - '0');
		if (value > NUMBER_MAX)
			return -1;
	}
	return value;
}

static int fail_cell(const csv_reader *c, csv_text cell, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: line %d, cell %d: '%.*s' is not an action such as 0F1, 2B0 or 1SEND_F3",
		       c->name, c->line + 1, c->cell, (int)(cell.end - cell.at < 40 ? cell.end - cell.at : 40),
		       cell.at);
}

static void take_action(csv_reader *c, const dtrain_action *action)
{
	c->actions++;
	c->stages = action->stage >= c->stages ? action->stage + 1 : c->stages;
	c->micro_batches = action->micro_batch >= c->micro_batches ? action->micro_batch + 1 : c->micro_batches;
	if (c->list)
		c->list->actions[c->list->count++] = *action;
}

static int read_action(csv_reader *c, csv_text cell, beton_error *err)
{
	csv_text rest = cell, name;
	dtrain_action action = {.stage = take_number(&rest)};
	name.at = rest.at;
	while (rest.at < rest.end && !isdigit((unsigned char)*rest.at))
		rest.at++;
	name.end = rest.at;
	action.micro_batch = take_number(&rest);
	if (action.stage < 0 || rest.at < rest.end)
		return fail_cell(c, cell, err);
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		if (is_word(name, ignored[i]))
			return BETON_OK;
	int kind = 0;
	while (kind < DTRAIN__ACTION_KINDS && !is_word(name, dtrain__action_names[kind]))
		kind++;
	if (kind == DTRAIN__ACTION_KINDS || action.micro_batch < 0)
		return fail_cell(c, cell, err);
	action.kind = (dtrain_action_kind)kind;
	take_action(c, &action);
	return BETON_OK;
}

static int read_cell(csv_reader *c, csv_text cell, beton_error *err)
{
	csv_text part;
	int status = BETON_OK;
	cell = trim(cell);
	if (cell.end - cell.at >= 2 && *cell.at == '"' && cell.end[-1] == '"')
		cell = trim((csv_text){cell.at + 1, cell.end - 1});
	if (cell.at == cell.end)
		return BETON_OK;
	if (*cell.at != '(')
		return read_action(c, cell, err);
	const char *close = memchr(cell.at, ')', (size_t)(cell.end - cell.at));
	if (!close || !is_word((csv_text){close + 1, cell.end}, overlapped))
		return fail_cell(c, cell, err);
	csv_text rest = {cell.at + 1, close};
	while (status == BETON_OK && next_part(&rest, ';', &part))
		status = read_action(c, trim(part), err);
	return status;
}

static int read_line(csv_reader *c, csv_text line, beton_error *err)
{
	csv_text cell;
	int status = BETON_OK;
	for (c->cell = 1; status == BETON_OK && next_part(&line, ',', &cell); c->cell++)
		status = read_cell(c, cell, err);
	return status;
}

/* As many actions as a line has at most. */
static size_t most_actions(csv_text line)
{
	size_t count = 1;
	for (; line.at < line.end; line.at++)
		count += *line.at == ',' || *line.at == ';';
	return count;
}

static int count_actions(csv_reader *c, csv_text text, beton_error *err)
{
	csv_text line;
	int status = BETON_OK;
	for (c->line = 0; status == BETON_OK && next_part(&text, '\n', &line); c->line++) {
		const int64_t before = c->actions;
		status = read_line(c, line, err);
		if (status == BETON_OK && c->actions == before)
			status = bt_fail(err, BETON_FORMAT, "%s: line %d has no actions", c->name, c->line + 1);
	}
	return status;
}

static int fill_lists(csv_reader *c, csv_text text, dtrain_pipeline_schedule *schedule, beton_error *err)
{
	csv_text line;
	int status = BETON_OK;
	for (c->line = 0; status == BETON_OK && next_part(&text, '\n', &line); c->line++) {
		c->list = &schedule->lists[c->line];
		c->list->actions = malloc(most_actions(line) * sizeof(dtrain_action));
		status = c->list->actions ? read_line(c, line, err)
					  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", c->name);
	}
	return status;
}

/* The rank of a stage is that of its first action. */
static int place_stages(const csv_reader *c, dtrain_pipeline_schedule *schedule, beton_error *err)
{
	for (int32_t stage = 0; stage < schedule->stages; stage++)
		schedule->rank_of_stage[stage] = -1;
	for (int32_t rank = schedule->ranks - 1; rank >= 0; rank--)
		for (int32_t i = 0; i < schedule->lists[rank].count; i++)
			schedule->rank_of_stage[schedule->lists[rank].actions[i].stage] = rank;
	for (int32_t stage = 0; stage < schedule->stages; stage++)
		if (schedule->rank_of_stage[stage] < 0)
			return bt_fail(err, BETON_FORMAT, "%s: stage %d of %d has no actions", c->name, stage,
				       schedule->stages);
	return BETON_OK;
}

static int read_lists(csv_reader *c, csv_text text, dtrain_pipeline_schedule **out, beton_error *err)
{
	int status = count_actions(c, text, err);
	if (status != BETON_OK)
		return status;
	if (c->stages > c->actions)
		return bt_fail(err, BETON_FORMAT, "%s: %lld actions are too few for %d stages", c->name,
			       (long long)c->actions, c->stages);
	*out = dtrain__schedule_new(c->line, c->stages, c->micro_batches);
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", c->name);
	status = fill_lists(c, text, *out, err);
	if (status == BETON_OK)
		status = place_stages(c, *out, err);
	return status == BETON_OK ? dtrain__schedule_verify(*out, c->name, err) : status;
}

int dtrain_pipeline_schedule_parse(const char *text, const char *name, dtrain_pipeline_schedule **out, beton_error *err)
{
	if (BT_MISSING(err, text, name, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	/* Blank lines at the end are ignored. */
	csv_text all = {text, text + strlen(text)};
	all.end = trim(all).end;
	csv_reader reader = {.name = name};
	int status = read_lists(&reader, all, out, err);
	if (status != BETON_OK)
		dtrain_pipeline_schedule_destroy(out);
	return status;
}

int dtrain_pipeline_schedule_read(const char *path, dtrain_pipeline_schedule **out, beton_error *err)
{
	char *text = NULL;
	if (BT_MISSING(err, path, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	int status = bt_read_text(path, BYTES_MAX, &text, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_schedule_parse(text, path, out, err);
	free(text);
	return status;
}

int dtrain_pipeline_schedule_text(const dtrain_pipeline_schedule *schedule, char **out, beton_error *err)
{
	char action[DTRAIN__ACTION_TEXT];
	size_t size;
	if (BT_MISSING(err, schedule, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	FILE *stream = open_memstream(out, &size);
	for (int32_t rank = 0; stream && rank < schedule->ranks; rank++) {
		const dtrain_action_list *list = &schedule->lists[rank];
		for (int32_t i = 0; i < list->count; i++)
			fprintf(stream, "%s%s", i ? "," : "", dtrain__action_text(&list->actions[i], action));
		fputc('\n', stream);
	}
	if (stream && fclose(stream) == 0)
		return BETON_OK;
	free(*out);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
}
