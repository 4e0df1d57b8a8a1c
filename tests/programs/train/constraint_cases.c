/* SPDX-License-Identifier: Apache-2.0
 *
 * constraint-cases PLAN_OPTION...: a line for each way to violate a constraint of dtrain-ffcv's options, and no other
 * one:
 *
 *   message|options of dtrain-ffcv|options of dtrain-plan, or -
 *
 * PLAN_OPTION: the options that dtrain-plan has, without dashes. Fails for a row that names an unknown option, and for
 * one that cannot be violated alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "train/options/tasks.h"

enum { TEXT_BYTES = 64, REPAIRS_MAX = 40 };

/* A command line; by row of the table. */
typedef struct command_line {
	char text[RUN_ROWS_MAX][TEXT_BYTES]; /* empty: not given */
	bool fixed[RUN_ROWS_MAX];            /* what violates the constraint: repairs leave it as it is */
} command_line;

typedef struct trial {
	const option_constraint *constraint;
	const char *owner;
	int subject; /* index; -1: none */
} trial;

static char **plan_options;
static int failures, lines;

static int row_of(const char *name)
{
	char whole[TEXT_BYTES];
	snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(name, "."), name);
	return run_row_find(whole);
}

static const char *part_of(const char *name)
{
	const char *part = strchr(name, '.');
	return part ? part + 1 : NULL;
}

static bool is_last(const option_test *tests, int index)
{
	return index == OPTION_TESTS_MAX || !tests[index].option;
}

/* The number of a part: the one after NAME=, or at the place of the name in the argument. */
static double part_number(const option_row *row, const char *text, const char *part)
{
	const char *named = strstr(text, part), *at = row->argument;
	if (!text[0])
		text = row->standard ? row->standard : "0";
	if (row->kind != OPTION_REALS)
		return named ? strtod(named + strlen(part) + 1, NULL) : 0;
	for (; strncmp(at, part, strlen(part)) != 0; at++)
		if (*at == ',')
			text = strchr(text, ',') + 1;
	return strtod(text, NULL);
}

static bool find(const void *context, const char *name, option_value *out)
{
	const command_line *line = context;
	const int index = row_of(name);
	*out = (option_value){.text = NULL};
	if (index < 0)
		return false;
	const option_row *row = &run_rows[index];
	const char *text = line->text[index][0] ? line->text[index] : row->standard, *part = part_of(name);
	bool number = row->kind == OPTION_WHOLE || row->kind == OPTION_REALS || row->kind == OPTION_SEED;
	out->given = line->text[index][0];
	out->toggles = row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH;
	out->text = number ? NULL : text;
	out->number = part ? part_number(row, line->text[index], part) : text ? strtod(text, NULL) : 0;
	out->set = number || part ? out->number != 0 : text && strcmp(text, "none") != 0 && strcmp(text, "no") != 0;
	return true;
}

static bool is_violated(const command_line *line, const option_constraint *constraint, const char *owner,
			beton_error *err)
{
	const option_values values = {.context = line, .find = find, .what = "run"};
	return run_constraint_check(&values, constraint, owner, err) != BETON_OK;
}

static bool holds(const command_line *line, const option_test *test)
{
	const option_constraint one = {.relation = OPTION_ONE, .objects = {*test}};
	return !is_violated(line, &one, NULL, NULL);
}

/* A value of an option that is set, other than the default. */
static void sample(const option_row *row, char *text)
{
	const char *value = "x";
	int64_t least = row->most <= 0 ? -1 : row->least > 1 ? (int64_t)row->least : 1;
	switch (row->kind) {
	case OPTION_FLAG:
		value = "yes";
		break;
	case OPTION_SWITCH:
		value = row->choices[1];
		break;
	case OPTION_CHOICE:
		value = strcmp(row->choices[0], row->standard) == 0 ? row->choices[1] : row->choices[0];
		break;
	case OPTION_WHOLE:
	case OPTION_SEED:
		snprintf(text, TEXT_BYTES, "%d", (int)least);
		return;
	case OPTION_REALS:
		value = row->count == 1 ? "0.5" : row->standard;
		break;
	default:
		value = strcmp(row->name, "model") == 0 ? "mlp" : value;
		break;
	}
	snprintf(text, TEXT_BYTES, "%s", value);
}

/* Sets NAME=NUMBER in a list of such parts, whose other parts stay. */
static void set_named(char *text, const char *part, double number)
{
	char made[TEXT_BYTES] = "";
	const size_t length = strlen(part);
	for (const char *at = text; *at;) {
		const size_t size = strcspn(at, ",");
		if (!(strncmp(at, part, length) == 0 && at[length] == '='))
			bt_append(made, sizeof(made), "%.*s,", (int)size, at);
		at += size + (at[size] == ',');
	}
	bt_append(made, sizeof(made), "%s=%g", part, number);
	snprintf(text, TEXT_BYTES, "%s", made);
}

/* Sets a part of several reals to a number. */
static void set_part(const option_row *row, char *text, const char *part, double number)
{
	char made[TEXT_BYTES] = "";
	const char *names = row->argument;
	if (row->kind != OPTION_REALS) {
		set_named(text, part, number);
		return;
	}
	for (int i = 0; i < row->count; i++, names += strcspn(names, ","), names += *names == ',') {
		char name[TEXT_BYTES];
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(names, ","), names);
		bool this = strncmp(names, part, strlen(part)) == 0;
		bt_append(made, sizeof(made), "%s%g", i ? "," : "", this ? number : part_number(row, text, name));
	}
	snprintf(text, TEXT_BYTES, "%s", made);
}

static void set_number(command_line *line, const char *name, double number)
{
	const int index = row_of(name);
	if (part_of(name))
		set_part(&run_rows[index], line->text[index], part_of(name), number);
	else
		snprintf(line->text[index], TEXT_BYTES, "%.15g", number);
}

/* The place-th of the test's values. */
static bool make_hold(command_line *line, const option_test *test, const char *owner, int place)
{
	const char *name = test->option ? test->option : owner, *word = test->values;
	const int index = row_of(name);
	char *text = line->text[index];
	switch (test->is) {
	case OPTION_IS:
		for (; place > 0 && word; place--)
			word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL;
		if (!word)
			return false;
		snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(word, " "), word);
		return true;
	case OPTION_ABOVE:
		set_number(line, name, test->bound + (run_rows[index].kind == OPTION_REALS ? 0.5 : 1));
		return place == 0;
	case OPTION_AT_LEAST:
		set_number(line, name, test->bound);
		return place == 0;
	default:
		if (part_of(name))
			set_number(line, name, run_rows[index].kind == OPTION_REALS ? 0.5 : 2);
		else
			sample(&run_rows[index], text);
		return place == 0;
	}
}

static void make_fail(command_line *line, const option_test *test)
{
	const int index = row_of(test->option);
	const option_row *row = &run_rows[index];
	line->text[index][0] = 0;
	line->fixed[index] = true;
	for (int i = 0; holds(line, test) && test->is == OPTION_IS; i++)
		snprintf(line->text[index], TEXT_BYTES, "%s", run_row_possible(row, i));
	if (test->is == OPTION_ABOVE || test->is == OPTION_AT_LEAST)
		set_number(line, test->option, test->bound - (test->is == OPTION_AT_LEAST));
}

static void fix(command_line *line, const option_test *test, const char *owner)
{
	line->fixed[row_of(test->option ? test->option : owner)] = true;
}

/* ---- other constraints, which are to be met ---- */

/* Another named part may join a fixed list of parts. */
static bool joins(const command_line *line, const option_test *test)
{
	const int index = row_of(test->option);
	const char *part = part_of(test->option);
	return part && run_rows[index].kind != OPTION_REALS && !strstr(line->text[index], part);
}

static bool try_hold(command_line *line, const option_test *test)
{
	command_line tried = *line;
	if ((line->fixed[row_of(test->option)] && !joins(line, test)) || !make_hold(&tried, test, NULL, 0))
		return false;
	*line = tried;
	return true;
}

static void drop(command_line *line, const option_test *tests)
{
	for (int i = 0; !is_last(tests, i); i++)
		if (!line->fixed[row_of(tests[i].option)])
			line->text[row_of(tests[i].option)][0] = 0;
}

/* False: it is met. */
static bool repair(command_line *line, const option_constraint *c, const char *owner)
{
	bool held = false;
	if (c->objects[0].option && row_of(c->objects[0].option) < 0 && c->objects[0].is != OPTION_LITERAL)
		return false;
	if (!is_violated(line, c, owner, NULL))
		return false;
	for (int i = 0; !is_last(c->objects, i); i++)
		held = held || (c->objects[i].is != OPTION_LITERAL && holds(line, &c->objects[i]));
	bool needs = c->relation == OPTION_NEEDS || (c->relation == OPTION_ONE && !held);
	if (c->relation == OPTION_EXCLUDES || c->relation == OPTION_AT_MOST_ONE ||
	    (c->relation == OPTION_ONE && held)) {
		drop(line, c->objects);
		if (!owner)
			drop(line, c->subjects);
	}
	if (c->relation == OPTION_DIVIDES && !line->fixed[row_of(c->objects[0].option)])
		set_number(line, c->objects[0].option, 2);
	for (int i = 0; (needs || c->relation == OPTION_NEEDS_ALL) && !is_last(c->objects, i); i++)
		if (try_hold(line, &c->objects[i]) && needs)
			break;
	return true;
}

static bool repair_all(command_line *line, const option_constraint *but)
{
	bool changed = false;
	for (const option_constraint *c = run_constraints; c->relation != OPTION_NO_MORE; c++)
		changed = (c != but && repair(line, c, NULL)) || changed;
	for (int i = 0; i < run_row_count; i++)
		for (const option_constraint *c = run_rows[i].constraints; c && c->relation != OPTION_NO_MORE; c++)
			changed = (c != but && repair(line, c, run_rows[i].name)) || changed;
	return changed;
}

/* Options of one task imply it, and the model is one of the task's. */
static void set_task(command_line *line)
{
	const int task = run_row_find("task"), model = run_row_find("model");
	for (int i = 0; i < run_row_count; i++)
		if (line->text[i][0] && run_task_of(&run_rows[i]) == RUN_TASK_LM)
			snprintf(line->text[task], TEXT_BYTES, "lm");
	if (!line->fixed[model] && strcmp(line->text[task], "lm") == 0)
		snprintf(line->text[model], TEXT_BYTES, "gpt2");
}

/* ---- output ---- */

static bool is_of_plan(const char *name)
{
	for (char **at = plan_options; *at; at++)
		if (strcmp(*at, name) == 0)
			return true;
	return false;
}

static void print_line(const command_line *line, const trial *now, const char *message)
{
	const option_constraint *c = now->constraint;
	bool plans = !now->owner || is_of_plan(now->owner);
	for (int i = 0; !now->owner && !is_last(c->subjects, i); i++)
		plans = plans && is_of_plan(c->subjects[i].option);
	for (int i = 0; !is_last(c->objects, i); i++)
		plans = plans && is_of_plan(c->objects[i].option);
	printf("%s|", message);
	for (int i = 0; i < run_row_count; i++)
		if (line->text[i][0])
			printf(" --%s=%s", run_rows[i].name, line->text[i]);
	printf("|");
	for (int i = 0; plans && i < run_row_count; i++)
		if (line->text[i][0] && is_of_plan(run_rows[i].name))
			printf(run_rows[i].kind == OPTION_FLAG ? " --%s" : " --%s=%s", run_rows[i].name, line->text[i]);
	puts(plans ? "" : "-");
	lines++;
}

static void finish(command_line *line, const trial *now)
{
	beton_error err = {0};
	set_task(line);
	int repairs = 0;
	while (repairs < REPAIRS_MAX && repair_all(line, now->constraint)) {
		set_task(line);
		repairs++;
	}
	if (is_violated(line, now->constraint, now->owner, &err) && repairs < REPAIRS_MAX) {
		print_line(line, now, err.message);
		return;
	}
	fprintf(stderr, "the constraint %d of %s, subject %d, cannot be violated alone: '%s', with",
		(int)now->constraint->relation, now->owner ? now->owner : "several", now->subject, err.message);
	for (int i = 0; i < run_row_count; i++)
		if (line->text[i][0])
			fprintf(stderr, " --%s=%s", run_rows[i].name, line->text[i]);
	fprintf(stderr, "\n");
	failures++;
}

/* Violates the constraint in each way. */
static void violate(const command_line *begun, const trial *now)
{
	const option_constraint *c = now->constraint;
	const option_test *objects = c->objects, *subject = now->subject < 0 ? NULL : &c->subjects[now->subject];
	const char *name = subject && subject->option ? subject->option : now->owner;
	command_line line = *begun;
	switch (c->relation) {
	case OPTION_NEEDS_ALL:
		for (int i = 0; !is_last(objects, i); i++) {
			line = *begun;
			for (int k = 0; !is_last(objects, k); k++)
				make_hold(&line, &objects[k], NULL, 0);
			make_fail(&line, &objects[i]);
			finish(&line, now);
		}
		break;
	case OPTION_NEEDS:
	case OPTION_ONE:
		for (int i = 0; !is_last(objects, i); i++)
			make_fail(&line, &objects[i]);
		finish(&line, now);
		if (c->relation == OPTION_NEEDS || is_last(objects, 1))
			break;
		/* fall through */
	case OPTION_AT_MOST_ONE:
		for (int i = 0; !is_last(objects, i); i++)
			for (int k = 0; k < i; k++) {
				line = *begun;
				make_hold(&line, &objects[i], NULL, 0);
				make_hold(&line, &objects[k], NULL, 0);
				fix(&line, &objects[i], NULL);
				fix(&line, &objects[k], NULL);
				finish(&line, now);
			}
		break;
	case OPTION_EXCLUDES:
		for (int i = 0; !is_last(objects, i); i++)
			for (int place = 0; line = *begun, make_hold(&line, &objects[i], NULL, place); place++) {
				fix(&line, &objects[i], NULL);
				finish(&line, now);
			}
		break;
	default:
		/* 3 is not a power of two, 3 does not divide 4, and 5 is above 4. */
		if (objects[0].option && objects[0].is != OPTION_LITERAL) {
			set_number(&line, objects[0].option, run_rows[row_of(name)].kind == OPTION_REALS ? 0.25 : 4);
			fix(&line, &objects[0], NULL);
		}
		set_number(&line, name,
			   run_rows[row_of(name)].kind == OPTION_REALS           ? 0.75
			   : c->relation == OPTION_DIVIDES || !objects[0].option ? 3
										 : 5);
		finish(&line, now);
	}
}

static bool knows(const option_constraint *c)
{
	bool known = true;
	const option_test *const lists[] = {c->subjects, c->objects, c->unless};
	for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
		for (int i = 0; !is_last(lists[k], i); i++) {
			const char *name = lists[k][i].option;
			if (!*name || row_of(name) >= 0)
				continue;
			known = false;
			if (is_of_plan(name))
				continue;
			fprintf(stderr, "no program has an option --%s\n", name);
			failures++;
		}
	return known;
}

static void try_constraint(const option_constraint *c, const char *owner)
{
	const trial none = {c, owner, -1};
	command_line begun = {0};
	if (!knows(c))
		return;
	snprintf(begun.text[run_row_find("data")], TEXT_BYTES, "d");
	snprintf(begun.text[run_row_find("model")], TEXT_BYTES, "mlp");
	snprintf(begun.text[run_row_find("steps")], TEXT_BYTES, "1");
	if (!owner && is_last(c->subjects, 0))
		violate(&begun, &none);
	for (int i = 0; i < OPTION_TESTS_MAX && (owner ? i == 0 : !is_last(c->subjects, i)); i++) {
		const trial now = {c, owner, i};
		command_line line = begun;
		for (int place = 0; make_hold(&line, &c->subjects[i], owner, place); place++, line = begun) {
			fix(&line, &c->subjects[i], owner);
			violate(&line, &now);
		}
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	plan_options = argv + 1;
	for (const option_constraint *c = run_constraints; c->relation != OPTION_NO_MORE; c++)
		try_constraint(c, NULL);
	for (int i = 0; i < run_row_count; i++)
		for (const option_constraint *c = run_rows[i].constraints; c && c->relation != OPTION_NO_MORE; c++)
			try_constraint(c, run_rows[i].name);
	return failures || !lines || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
