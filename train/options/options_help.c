/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --help. */
#include <string.h>

#include "common/system.h"
#include "optimizer_options.h"
#include "options_table.h"
#include "recipes.h"
#include "tasks.h"

enum { HELP_COLUMNS = 110 };

/* "a, b or c" */
static void list_possible(const option_row *row, char *out, size_t size)
{
	*out = 0;
	for (int i = 0; run_row_possible(row, i); i++) {
		const char *between = i == 0 ? "" : run_row_possible(row, i + 1) ? ", " : " or ";
		bt_append(out, size, "%s%s", between, run_row_possible(row, i));
	}
}

/* " (default 0.1 with sgd, 0.001 with adam, adamw, ...)", or " (with sgd, lars)" for a flag. */
static void list_defaults(const option_row *row, char *out, size_t size)
{
	const dtrain_optimizer_kind *kind;
	double value, last = -1;
	const char *before = row->kind == OPTION_FLAG ? " (with " : " (default ";
	for (int i = 0; (kind = dtrain_optimizer_kind_at(i)); i++) {
		if (!run_optimizer_default(kind, row, &value))
			continue;
		if (row->kind == OPTION_FLAG || value == last)
			bt_append(out, size, "%s%s", before, kind->name);
		else
			bt_append(out, size, "%s%g with %s", before, value, kind->name);
		last = value;
		before = ", ";
	}
	bt_append(out, size, ")");
}

/* " (default sgd, adamw with --task lm)", or " (default with --task lm)" for a flag. */
static void list_task_defaults(const option_row *row, char *out, size_t size)
{
	const engine_task *task;
	const char *before = row->standard ? ", " : " (default ";
	if (row->standard)
		bt_append(out, size, " (default %s", row->standard);
	for (int i = 0; (task = run_task_at(i)); i++) {
		const char *value = run_task_default(task, row);
		if (value)
			bt_append(out, size, "%s%s%swith --task %s", before, row->kind == OPTION_FLAG ? "" : value,
				  row->kind == OPTION_FLAG ? "" : " ", task->name);
		before = value ? ", " : before;
	}
	bt_append(out, size, row->standard || *before == ',' ? ")" : "");
}

void run_row_describe(const option_row *row, bool marks, char *out, size_t size)
{
	char list[400], text[2] = "";
	*out = 0;
	list_possible(row, list, sizeof(list));
	for (const char *at = row->text; *at; at++) {
		bool whole = strncmp(at, "%s", 2) == 0;
		text[0] = *at;
		if (whole || *at != '`' || marks)
			bt_append(out, size, "%s", whole ? list : text);
		at += whole;
	}
	if (row->of_kind)
		list_defaults(row, out, size);
	else
		list_task_defaults(row, out, size);
}

void run_recipe_print(FILE *out, const run_recipe *recipe, const char *indent, int columns)
{
	int column = 0;
	for (int i = 0; i < recipe->count; i++) {
		const run_recipe_option *o = &recipe->options[i];
		int length = (int)(strlen(o->name) + (o->value ? 1 + strlen(o->value) : 0)) + 3;
		if (column == 0 || column + length > columns)
			column = fprintf(out, "%s%s", column ? "\n" : "", indent) - (column > 0);
		else
			column += fprintf(out, " ");
		column += fprintf(out, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
	}
	fputs("\n", out);
}

static void print_recipes(FILE *out)
{
	char **names = run_recipe_names();
	fputs("\nRecipes (--batch-size is per rank: on N ranks, divide it by N):\n", out);
	for (int i = 0; names && names[i]; i++) {
		beton_error err;
		run_recipe *recipe = NULL;
		int status = run_recipe_read(names[i], &recipe, &err);
		fprintf(out, "  --recipe %s: %s\n", names[i], status == BETON_OK ? recipe->title : err.message);
		if (recipe)
			run_recipe_print(out, recipe, "    ", HELP_COLUMNS);
		run_recipe_free(&recipe);
	}
	run_recipe_names_free(names);
}

void run_options_help(FILE *out)
{
	fputs("Usage: dtrain-ffcv --data FILE --model NAME --epochs X|--steps N [OPTION...]\n"
	      "       dtrain-ffcv --data FILE --recipe NAME|FILE [OPTION...]\n"
	      "       dtrain-ffcv --checkpoint DIR --resume [OPTION...]\n"
	      "       dtrain-ffcv --evaluate --val FILE --init FILE|--checkpoint DIR [OPTION...]\n"
	      "Trains an image classifier or, with --task lm, a language model, on any number of ranks.\n",
	      out);
	for (int i = 0; i < run_row_count; i++) {
		const option_row *row = &run_rows[i];
		char left[64], text[512];
		if (row->kind == OPTION_GROUP) {
			fprintf(out, "\n%s:\n", row->name);
			continue;
		}
		const char *form = !row->argument ? "--%s" : row->kind == OPTION_SWITCH ? "--%s[=%s]" : "--%s %s";
		snprintf(left, sizeof(left), form, row->name, row->argument);
		run_row_describe(row, false, text, sizeof(text));
		if (row->alias)
			bt_append(text, sizeof(text), " (or --%s)", row->alias);
		fprintf(out, "  %-24s %s\n", left, text);
	}
	fputs("\n--OPTION=no turns off what a recipe or the resumed run has turned on.\n", out);
	print_recipes(out);
	fputs("\nExit status: 0 success, 1 failure, 2 wrong usage, 75 another rank was lost,\n"
	      "128 + N stopped by signal N.\n",
	      out);
}
