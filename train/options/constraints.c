/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/system.h"
#include "options_table.h"

enum { TEXT_BYTES = RUN_CONSTRAINT_BYTES };

/* A constraint, with the option in whose row it is; NULL: it is in the table of several. */
typedef struct constraint_check {
	const option_values *values;
	const option_constraint *constraint;
	const char *owner;
} constraint_check;

static bool has_word(const char *words, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = words; (at = strstr(at, word)); at += length)
		if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
			return true;
	return false;
}

/* *known: whether the program has the option; NULL: not asked. */
static bool holds(const constraint_check *check, const option_test *test, option_value *out, bool *known)
{
	bool ignored, *has = known ? known : &ignored;
	*out = (option_value){.number = test->bound, .set = true};
	*has = test->is == OPTION_LITERAL ||
	       check->values->find(check->values->context, test->option ? test->option : check->owner, out);
	if (!*has)
		return false;
	switch (test->is) {
	case OPTION_SET:
		return out->set;
	case OPTION_GIVEN:
		return out->given && (out->set || !out->toggles);
	case OPTION_USED:
		return out->given && out->set;
	case OPTION_IS:
		return out->text && has_word(test->values, out->text);
	case OPTION_ABOVE:
		return out->number > test->bound;
	case OPTION_AT_LEAST:
		return out->number >= test->bound;
	case OPTION_LITERAL:
		break;
	}
	return true;
}

static bool is_last(const option_test *tests, int index)
{
	return index == OPTION_TESTS_MAX || !tests[index].option;
}

/* "--ema", "--order list", "--mesh tensor=2"; numbers: "--image-size 32" */
static void append_option(const constraint_check *check, const option_test *test, const option_value *value,
			  bool numbers, char *text)
{
	const char *name = test->option ? test->option : check->owner;
	const size_t length = strcspn(name, ".");
	if (test->is == OPTION_LITERAL)
		bt_append(text, TEXT_BYTES, "%g", value->number);
	else
		bt_append(text, TEXT_BYTES, "--%.*s", (int)length, name);
	if (name[length])
		bt_append(text, TEXT_BYTES, " %s=%.15g", name + length + 1, value->number);
	else if (test->is == OPTION_IS && !value->toggles)
		bt_append(text, TEXT_BYTES, " %s", value->text);
	else if (numbers && test->is != OPTION_LITERAL)
		bt_append(text, TEXT_BYTES, " %.15g", value->number);
}

/* " zero3, fsdp or hsdp" for "zero3 fsdp hsdp"; mark: around each */
static void append_words(const char *words, const char *mark, char *text)
{
	for (const char *at = words; *at;) {
		size_t length = strcspn(at, " ");
		const char *next = at + length + strspn(at + length, " ");
		bt_append(text, TEXT_BYTES, "%s%s%.*s%s",
			  at == words ? " "
			  : *next     ? ", "
				      : " or ",
			  mark, (int)length, at, mark);
		at = next;
	}
}

/* "--val", "--strategy ddp or local", "a --momentum above 0" */
static void append_wanted(const option_test *test, const char *mark, char *text)
{
	bool bounds = test->is == OPTION_ABOVE || test->is == OPTION_AT_LEAST;
	const char *article = !bounds ? "" : strchr("aeiou", test->option[0]) ? "an " : "a ";
	const size_t length = strcspn(test->option, ".");
	if (test->is == OPTION_LITERAL)
		bt_append(text, TEXT_BYTES, "%g", test->bound);
	else
		bt_append(text, TEXT_BYTES, "%s--%.*s", article, (int)length, test->option);
	if (test->option[length])
		bt_append(text, TEXT_BYTES, " %s", test->option + length + 1);
	if (test->is == OPTION_IS)
		append_words(test->values, mark, text);
	else if (bounds)
		bt_append(text, TEXT_BYTES, test->is == OPTION_ABOVE ? " above %.15g" : " of %.15g at least",
			  test->bound);
}

static int count_tests(const option_test *tests)
{
	int count = 0;
	while (!is_last(tests, count))
		count++;
	return count;
}

/* between: the last two */
static void append_tests(const option_test *tests, const char *between, const char *mark, char *text)
{
	const int count = count_tests(tests);
	bool nested = false;
	for (int i = 0; i < count; i++)
		nested = nested || (tests[i].is == OPTION_IS && strchr(tests[i].values, ' '));
	for (int i = 0; i < count; i++) {
		if (i)
			bt_append(text, TEXT_BYTES, "%s %s", i + 1 < count || nested ? "," : "",
				  i + 1 < count ? "" : between);
		append_wanted(&tests[i], mark, text);
	}
}

static int refuse(const constraint_check *check, const char *text, beton_error *err)
{
	const char *reason = check->constraint->reason;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s%s%s", text, reason ? ": " : "", reason ? reason : "");
}

static int check_needs(const constraint_check *check, const option_test *subject, const option_value *value,
		       beton_error *err)
{
	const option_test *objects = check->constraint->objects;
	const bool all = check->constraint->relation == OPTION_NEEDS_ALL;
	char text[TEXT_BYTES] = "";
	option_value found, has = {.text = NULL};
	int count = 0, held = 0;
	for (bool known; !is_last(objects, count); count++) {
		held += holds(check, &objects[count], &found, &known);
		if (!known)
			return BETON_OK;
		if (objects[count].is == OPTION_IS && !has.text)
			has = found;
	}
	if (all ? held == count : held > 0)
		return BETON_OK;
	append_option(check, subject, value, false, text);
	bt_append(text, sizeof(text), " needs ");
	append_tests(objects, all ? "and " : "or ", "", text);
	if (has.text)
		bt_append(text, sizeof(text), "; this %s has %s", check->values->what, has.text);
	return refuse(check, text, err);
}

static int check_excludes(const constraint_check *check, const option_test *subject, const option_value *value,
			  beton_error *err)
{
	const option_test *objects = check->constraint->objects;
	char text[TEXT_BYTES] = "";
	for (int i = 0; !is_last(objects, i); i++) {
		option_value found;
		if (!holds(check, &objects[i], &found, NULL))
			continue;
		append_option(check, &objects[i], &found, false, text);
		bt_append(text, sizeof(text), " and ");
		append_option(check, subject, value, false, text);
		bt_append(text, sizeof(text), " cannot be combined");
		return refuse(check, text, err);
	}
	return BETON_OK;
}

/* subject NULL: none. */
static int check_one(const constraint_check *check, const option_test *subject, const option_value *value,
		     beton_error *err)
{
	const option_constraint *constraint = check->constraint;
	char text[TEXT_BYTES] = "";
	option_value found;
	int count = 0, held = 0;
	for (bool known; !is_last(constraint->objects, count); count++) {
		held += holds(check, &constraint->objects[count], &found, &known);
		if (!known)
			return BETON_OK;
	}
	if (held == 1 || (held == 0 && constraint->relation == OPTION_AT_MOST_ONE))
		return BETON_OK;
	if (count == 1) {
		append_wanted(&constraint->objects[0], "", text);
		bt_append(text, sizeof(text), " is missing");
		return refuse(check, text, err);
	}
	const bool needs = subject && constraint->relation == OPTION_ONE;
	if (needs)
		append_option(check, subject, value, false, text);
	bt_append(text, sizeof(text), "%s %s ", needs ? " needs" : "give", count == 2 ? "either" : "one of");
	append_tests(constraint->objects, count == 2 ? "or " : "and ", "", text);
	return refuse(check, text, err);
}

static int check_numbers(const constraint_check *check, const option_test *subject, const option_value *value,
			 beton_error *err)
{
	static const char *const faults[] = {[OPTION_BELOW] = " is not below ",
					     [OPTION_AT_MOST] = " is above ",
					     [OPTION_DIVIDES] = " does not divide "};
	const option_constraint *constraint = check->constraint;
	char text[TEXT_BYTES] = "";
	option_value bound;
	holds(check, &constraint->objects[0], &bound, NULL);
	bool good = !bound.set || (constraint->relation == OPTION_BELOW     ? value->number < bound.number
				   : constraint->relation == OPTION_AT_MOST ? value->number <= bound.number
									    : fmod(bound.number, value->number) == 0);
	if (good)
		return BETON_OK;
	append_option(check, subject, value, true, text);
	bt_append(text, sizeof(text), "%s", faults[constraint->relation]);
	append_option(check, &constraint->objects[0], &bound, true, text);
	return refuse(check, text, err);
}

static int check_power(const constraint_check *check, const option_test *subject, const option_value *value,
		       beton_error *err)
{
	char text[TEXT_BYTES] = "";
	if ((int64_t)value->number > 0 && ((int64_t)value->number & ((int64_t)value->number - 1)) == 0)
		return BETON_OK;
	append_option(check, subject, value, true, text);
	bt_append(text, sizeof(text), " is not a power of two");
	return refuse(check, text, err);
}

static int check_subject(const constraint_check *check, const option_test *subject, const option_value *value,
			 beton_error *err)
{
	switch (check->constraint->relation) {
	case OPTION_NEEDS:
	case OPTION_NEEDS_ALL:
		return check_needs(check, subject, value, err);
	case OPTION_EXCLUDES:
		return check_excludes(check, subject, value, err);
	case OPTION_ONE:
	case OPTION_AT_MOST_ONE:
		return check_one(check, subject, value, err);
	case OPTION_BELOW:
	case OPTION_AT_MOST:
	case OPTION_DIVIDES:
		return check_numbers(check, subject, value, err);
	case OPTION_POWER_OF_TWO:
		return check_power(check, subject, value, err);
	case OPTION_NO_MORE:
		break;
	}
	return BETON_OK;
}

static int check_constraint(const constraint_check *check, beton_error *err)
{
	const option_constraint *constraint = check->constraint;
	const option_test *subjects = constraint->subjects;
	option_value value;
	int status = BETON_OK;
	for (int i = 0; !is_last(constraint->unless, i); i++)
		if (holds(check, &constraint->unless[i], &value, NULL))
			return BETON_OK;
	if (check->owner)
		return holds(check, &subjects[0], &value, NULL) ? check_subject(check, &subjects[0], &value, err)
								: BETON_OK;
	if (is_last(subjects, 0))
		return check_subject(check, NULL, NULL, err);
	for (int i = 0; !is_last(subjects, i) && status == BETON_OK; i++)
		if (holds(check, &subjects[i], &value, NULL))
			status = check_subject(check, &subjects[i], &value, err);
	return status;
}

int run_constraint_check(const option_values *values, const option_constraint *constraint, const char *owner,
			 beton_error *err)
{
	const constraint_check check = {values, constraint, owner};
	return check_constraint(&check, err);
}

static int check_list(const option_values *values, const option_constraint *list, const char *owner, bool early,
		      beton_error *err)
{
	int status = BETON_OK;
	for (; list && list->relation != OPTION_NO_MORE && status == BETON_OK; list++)
		if (list->early || !early)
			status = run_constraint_check(values, list, owner, err);
	return status;
}

int run_constraints_check(const option_values *values, bool early, beton_error *err)
{
	int status = check_list(values, run_constraints, NULL, early, err);
	for (int i = 0; i < run_row_count && status == BETON_OK; i++)
		status = check_list(values, run_rows[i].constraints, run_rows[i].name, early, err);
	return status;
}

void run_constraint_describe(const option_constraint *constraint, char *out)
{
	static const char *const verbs[][2] = {
		[OPTION_NEEDS] = {"needs ", "need "},
		[OPTION_NEEDS_ALL] = {"needs ", "need "},
		[OPTION_EXCLUDES] = {"excludes ", "exclude "},
		[OPTION_ONE] = {"needs ", "need "},
		[OPTION_BELOW] = {"is below ", "are below "},
		[OPTION_AT_MOST] = {"is at most ", "are at most "},
		[OPTION_DIVIDES] = {"divides ", "divide "},
		[OPTION_POWER_OF_TWO] = {"is a power of two", "are powers of two"},
	};
	const option_test *subjects = constraint->subjects;
	const int others = count_tests(constraint->objects), owners = count_tests(subjects);
	const bool all = constraint->relation == OPTION_NEEDS_ALL || constraint->relation == OPTION_EXCLUDES;
	const bool most = constraint->relation == OPTION_AT_MOST_ONE, one = constraint->relation == OPTION_ONE;
	*out = 0;
	append_tests(subjects, "and ", "`", out);
	if (most)
		bt_append(out, TEXT_BYTES, "%sonly one of ", owners ? " allow " : "");
	else if (!(one && !owners))
		bt_append(out, TEXT_BYTES, " %s%s", verbs[constraint->relation][owners > 1],
			  one && others > 1 ? "either " : "");
	append_tests(constraint->objects, all || most ? "and " : "or ", "`", out);
	if (one && !owners)
		bt_append(out, TEXT_BYTES, " is required");
	if (!is_last(constraint->unless, 0))
		bt_append(out, TEXT_BYTES, ", except with ");
	append_tests(constraint->unless, "or ", "`", out);
	if (constraint->reason)
		bt_append(out, TEXT_BYTES, ": %s", constraint->reason);
}
