/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of options: its rows are in files by subject. Help, manual page, completion and docs/reference/options.md
 * are made of it. */
#include "options_table.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

#include <dtrain/comm.h>
#include <dtrain/stage.h>

#include "engine/memory/recompute_option.h"
#include "options_choices.h"

#define AT(member) offsetof(run_options, member)
#define GROUP(title, more)                                                                 \
	{                                                                                  \
		.name = title, .manual = more, .kind = OPTION_GROUP, .change = OPTION_FREE \
	}
#define ROW(title, change_, type, member, value, standard_, help, more, ...)                                         \
	{                                                                                                            \
		.name = title, .argument = value, .standard = standard_, .text = help, .manual = more, .kind = type, \
		.change = OPTION_##change_, .offset = AT(member), __VA_ARGS__                                        \
	}
#define TEXT(name, change, member, argument, standard, text, manual, ...) \
	ROW(name, change, OPTION_TEXT, member, argument, standard, text, manual, __VA_ARGS__)
#define PATH(name, change, member, argument, text, manual, ...) \
	ROW(name, change, OPTION_PATH, member, argument, NULL, text, manual, __VA_ARGS__)
#define WHOLE(name, change, member, argument, low, high, standard, text, ...) \
	ROW(name, change, OPTION_WHOLE, member, argument, standard, text, __VA_ARGS__, .least = low, .most = high)
#define SEED(name, change, member, argument, standard, text, manual) \
	ROW(name, change, OPTION_SEED, member, argument, standard, text, manual, .least = 0)
#define REALS(name, change, member, argument, number, low, high, standard, text, ...)                                 \
	ROW(name, change, OPTION_REALS, member, argument, standard, text, __VA_ARGS__, .count = number, .least = low, \
	    .most = high)
#define CHOICE(name, change, member, argument, list, standard, text, ...) \
	ROW(name, change, OPTION_CHOICE, member, argument, standard, text, __VA_ARGS__, .choices = list)
#define FLAG(name, change, member, text, ...) \
	ROW(name, change, OPTION_FLAG, member, NULL, NULL, text, __VA_ARGS__, .choices = flags)
/* Numbers of the optimizer. */
#define NUMBER(name, change, member, low, high, standard, text, manual)                                              \
	ROW(name, change, OPTION_REALS, member, "X", standard, text, manual, .count = 1, .least = low, .most = high, \
	    .of_kind = true)
#define KIND_FLAG(name, change, member, text, ...) \
	ROW(name, change, OPTION_FLAG, member, NULL, NULL, text, __VA_ARGS__, .choices = flags, .of_kind = true)
#define SWITCH(name, change, member, list, argument, text, ...) \
	ROW(name, change, OPTION_SWITCH, member, argument, NULL, text, __VA_ARGS__, .choices = list)

const option_row run_rows[] = {
#include "rows/data.inc"
#include "rows/ranks.inc"
#include "rows/optimizer.inc"
#include "rows/loading.inc"
#include "rows/output.inc"
};

const int run_row_count = sizeof(run_rows) / sizeof(run_rows[0]);

_Static_assert(sizeof(run_rows) / sizeof(run_rows[0]) <= RUN_ROWS_MAX, "RUN_ROWS_MAX is too small");

int run_row_find(const char *name)
{
	for (int i = 0; i < run_row_count; i++)
		if (run_rows[i].kind != OPTION_GROUP && strcmp(run_rows[i].name, name) == 0)
			return i;
	return -1;
}

const char *run_row_possible(const option_row *row, int index)
{
	bool lists = row->kind == OPTION_CHOICE || row->kind == OPTION_SWITCH;
	if (row->name_at)
		return row->name_at(index);
	return lists ? row->choices[index] : NULL;
}
