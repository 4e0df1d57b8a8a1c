/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of an option: from a text, and back to one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "axes.h"
#include "common/list.h"
#include "common/suggest.h"
#include "common/system.h"
#include "options_table.h"

static int parse_reals(const option_row *row, const char *what, const char *text, double *out, beton_error *err)
{
	char *copy = strdup(text);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", what);
	int status = BETON_OK;
	char *rest = copy;
	for (int i = 0; i < row->count && status == BETON_OK; i++) {
		char *part = i + 1 < row->count ? strsep(&rest, ",") : rest;
		if (!rest || !part)
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not %s", what, text, row->argument);
		else
			status = bt_parse_double(what, part, row->least, row->most, &out[i], err);
	}
	free(copy);
	return status;
}

const char *run_options_keep(run_options *options, const char *text)
{
	char **more = realloc(options->kept, ((size_t)options->kept_count + 1) * sizeof(*more));
	if (!more)
		return NULL;
	options->kept = more;
	more[options->kept_count] = strdup(text);
	return more[options->kept_count] ? more[options->kept_count++] : NULL;
}

/* Copies the file that the text begins with to path, unescaped; returns the rest of the text. */
static const char *cut_path(const char *text, char *path)
{
	for (; *text && *text != ','; text++) {
		text += *text == '\\' && text[1];
		*path++ = *text;
	}
	*path = 0;
	return text + (*text == ',');
}

/* A name may contain commas: an existing file of the whole name has priority. */
static int parse_paths(const char *what, const char *text, run_options *options, run_files *files, beton_error *err)
{
	*files = (run_files){.count = 1, .paths = {text}};
	if (access(text, F_OK) == 0)
		return BETON_OK;
	files->count = 0;
	char *room = malloc(strlen(text) + 1);
	int status = room ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", what);
	for (const char *rest = text; *rest && status == BETON_OK;) {
		rest = cut_path(rest, room);
		const char *path = run_options_keep(options, room);
		if (!path)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", what);
		else if (!*path || files->count == RUN_FILES_MAX)
			status = *path ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' has more than %d files", what,
						 text, RUN_FILES_MAX)
				       : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' has an empty name", what, text);
		else
			files->paths[files->count++] = path;
	}
	free(room);
	return status;
}

static int parse_tokens(const option_row *row, const char *what, const char *text, lm_tokens *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (lm_tokens){.count = 0};
	for (const char *at = *text ? text : NULL; at && status == BETON_OK;) {
		char part[32];
		uint64_t token;
		status = bt_list_next(what, &at, part, sizeof(part), err);
		if (status == BETON_OK)
			status = bt_parse_u64(what, part, (uint64_t)row->least, (uint64_t)row->most, &token, err);
		if (status == BETON_OK && out->count == LM_TOKENS_MAX)
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' has more than %d tokens", what, text,
					 LM_TOKENS_MAX);
		if (status == BETON_OK)
			out->list[out->count++] = (uint32_t)token;
	}
	return status;
}

/* A range with numbers below 0 ends at 0. */
static int parse_whole(const option_row *row, const char *what, const char *text, int64_t *out, beton_error *err)
{
	const bool negative = row->least < 0 && *text == '-';
	uint64_t number;
	int status = bt_parse_u64(what, text + negative,
				  negative         ? 1
				  : row->least < 0 ? 0
						   : (uint64_t)row->least,
				  negative ? (uint64_t)-row->least : (uint64_t)row->most, &number, err);
	if (status == BETON_OK)
		*out = negative ? -(int64_t)number : (int64_t)number;
	else if (row->least < 0)
		bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not a whole number from %.0f to %.0f", what, text,
			row->least, row->most);
	return status;
}

int run_row_parse(const option_row *row, const char *text, run_options *options, beton_error *err)
{
	char what[64];
	void *member = (char *)options + row->offset;
	int choice = 0;
	int status = BETON_OK;
	snprintf(what, sizeof(what), "--%s", row->name);
	switch (row->kind) {
	case OPTION_TEXT:
	case OPTION_PATH:
	case OPTION_NAME:
		if (!*text && !row->none)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is empty", what);
		*(const char **)member = *text ? text : NULL;
		return BETON_OK;
	case OPTION_PATHS:
		if (!*text)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is empty", what);
		return parse_paths(what, text, options, member, err);
	case OPTION_WHOLE:
		return parse_whole(row, what, text, member, err);
	case OPTION_TOKENS:
		return parse_tokens(row, what, text, member, err);
	case OPTION_SEED:
		return bt_parse_u64(what, text, 0, UINT64_MAX, member, err);
	case OPTION_REALS:
		return parse_reals(row, what, text, member, err);
	case OPTION_CHOICE:
		return bt_parse_choice(what, text, row->choices, member, err);
	case OPTION_FLAG:
		status = bt_parse_choice(what, text ? text : "yes", row->choices, &choice, err);
		if (status == BETON_OK)
			*(bool *)member = choice != 0;
		return status;
	case OPTION_SWITCH:
		return bt_parse_choice(what, text ? text : "yes", row->choices, member, err);
	case OPTION_GROUP:
		break;
	}
	return status;
}

/* Appends the fewest digits that parse to the same number. */
static void append_real(char *text, size_t size, double value)
{
	char digits[32];
	for (int precision = 6; precision <= 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	bt_append(text, size, "%s%s", *text ? "," : "", digits);
}

static char *full_path(const char *path)
{
	while (strncmp(path, "./", 2) == 0)
		path += 2 + strspn(path + 2, "/");
	char *folder = *path == '/' ? NULL : getcwd(NULL, 0);
	char *full = folder ? bt_format("%s/%s", folder, path) : strdup(path);
	free(folder);
	return full;
}

/* A copy with a backslash before each comma and backslash. */
static char *escape(const char *path)
{
	char *text = malloc(2 * strlen(path) + 1), *at = text;
	for (; text && *path; path++) {
		if (*path == ',' || *path == '\\')
			*at++ = '\\';
		*at++ = *path;
	}
	if (text)
		*at = 0;
	return text;
}

static char *full_paths(const run_files *files)
{
	char *all = strdup("");
	for (int i = 0; i < files->count && all; i++) {
		char *path = full_path(files->paths[i]);
		char *escaped = path ? escape(path) : NULL;
		char *longer = escaped ? bt_format("%s%s%s", all, i ? "," : "", escaped) : NULL;
		free(path);
		free(escaped);
		free(all);
		all = longer;
	}
	return all;
}

static bool is_path(const option_row *row, const char *name)
{
	return strchr(name, '/') || (row->suffix && bt_ends_with(name, row->suffix));
}

static char *tokens_text(const lm_tokens *tokens)
{
	char text[LM_TOKENS_MAX * 11 + 1] = "";
	for (int i = 0; i < tokens->count; i++)
		bt_append(text, sizeof(text), "%s%" PRIu32, i ? "," : "", tokens->list[i]);
	return strdup(text);
}

/* The text of a value; NULL: no memory. */
static char *text_of(const option_row *row, const void *member)
{
	char text[128] = "";
	switch (row->kind) {
	case OPTION_TEXT:
		return strdup(*(const char *const *)member);
	case OPTION_NAME:
		if (!is_path(row, *(const char *const *)member))
			return strdup(*(const char *const *)member);
		return full_path(*(const char *const *)member);
	case OPTION_PATH:
		return full_path(*(const char *const *)member);
	case OPTION_PATHS:
		return full_paths(member);
	case OPTION_WHOLE:
		return bt_format("%" PRId64, *(const int64_t *)member);
	case OPTION_TOKENS:
		return tokens_text(member);
	case OPTION_SEED:
		return bt_format("%" PRIu64, *(const uint64_t *)member);
	case OPTION_REALS:
		for (int i = 0; i < row->count; i++)
			append_real(text, sizeof(text), ((const double *)member)[i]);
		return strdup(text);
	case OPTION_CHOICE:
	case OPTION_SWITCH:
		return strdup(row->choices[*(const int *)member]);
	case OPTION_FLAG:
		return strdup(row->choices[*(const bool *)member]);
	case OPTION_GROUP:
		break;
	}
	return strdup("");
}

/* Not given, and no default: the value is below the smallest allowed one. */
static bool is_none(const option_row *row, const void *member)
{
	switch (row->kind) {
	case OPTION_TEXT:
	case OPTION_PATH:
	case OPTION_NAME:
		return !*(const char *const *)member;
	case OPTION_WHOLE:
		return (double)*(const int64_t *)member < row->least;
	case OPTION_REALS:
		return row->count == 1 && *(const double *)member < row->least;
	case OPTION_TOKENS:
		return ((const lm_tokens *)member)->count == 0;
	default:
		return false;
	}
}

int run_row_text(const option_row *row, const run_options *options, char **out, beton_error *err)
{
	const void *member = (const char *)options + row->offset;
	*out = NULL;
	if (is_none(row, member))
		return BETON_OK;
	*out = text_of(row, member);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "--%s: out of memory", row->name);
}

/* A part of several reals, by its name in the argument: MAX of MIN,MAX. */
static double real_at(const option_row *row, const double *reals, const char *part)
{
	int index = 0;
	size_t length = strlen(part);
	for (const char *at = row->argument; strncmp(at, part, length) != 0; at++)
		index += *at == ',';
	return reals[index];
}

/* part NULL: the option as a whole. */
static void look(const option_row *row, const char *part, const run_options *options, option_value *out)
{
	const void *member = (const char *)options + row->offset;
	switch (row->kind) {
	case OPTION_TEXT:
	case OPTION_PATH:
	case OPTION_NAME:
		out->text = *(const char *const *)member;
		if (part)
			out->number = (double)run_axes_size(options, part);
		break;
	case OPTION_PATHS:
		out->number = ((const run_files *)member)->count;
		break;
	case OPTION_WHOLE:
		out->number = (double)*(const int64_t *)member;
		break;
	case OPTION_SEED:
		out->number = (double)*(const uint64_t *)member;
		break;
	case OPTION_REALS:
		out->number = part ? real_at(row, member, part) : *(const double *)member;
		break;
	case OPTION_CHOICE:
	case OPTION_SWITCH:
		out->text = row->choices[*(const int *)member];
		break;
	case OPTION_FLAG:
		out->text = row->choices[*(const bool *)member];
		break;
	case OPTION_TOKENS:
	case OPTION_GROUP:
		break;
	}
}

static bool find_value(const void *context, const char *name, option_value *out)
{
	const run_options *options = context;
	const char *part = strchr(name, '.');
	char whole[64];
	snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(name, "."), name);
	int row = run_row_find(whole);
	*out = (option_value){.text = NULL};
	if (row < 0)
		return false;
	out->given = options->given[row];
	out->toggles = run_rows[row].kind == OPTION_FLAG || run_rows[row].kind == OPTION_SWITCH;
	if (!is_none(&run_rows[row], (const char *)options + run_rows[row].offset))
		look(&run_rows[row], part ? part + 1 : NULL, options, out);
	/* A path may be called none. */
	bool chosen = out->text && run_rows[row].choices;
	out->set = chosen ? strcmp(out->text, "none") != 0 && strcmp(out->text, "no") != 0
			  : (out->text && !part) || out->number != 0;
	return true;
}

option_values run_options_values(const run_options *options)
{
	return (option_values){.context = options, .find = find_value, .what = "run"};
}
