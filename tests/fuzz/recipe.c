/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a recipe: refused with a message that names the file, or options that are each refused by name, or have
 * a value whose text means the same again. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system.h"
#include "exercise.h"
#include "fuzz.h"
#include "train/options/options_table.h"

static void forget(run_options *options)
{
	for (int i = 0; i < options->kept_count; i++)
		free(options->kept[i]);
	free(options->kept);
}

/* The text of the row's value; NULL: it has none. */
static char *text_of(const option_row *row, const run_options *options)
{
	beton_error err = {0};
	char *text = NULL;
	require(run_row_text(row, options, &text, &err) == BETON_OK, "a value has a text");
	return text;
}

static void check_option(const run_recipe_option *line)
{
	run_options options = {0}, again = {0};
	beton_error err = {0};
	int number = run_row_find(line->name);
	if (number < 0)
		return;
	const option_row *row = &run_rows[number];
	if (!line->value && row->kind != OPTION_FLAG && row->kind != OPTION_SWITCH)
		return;
	int result = run_row_parse(row, line->value, &options, &err);
	if (result != BETON_OK) {
		require(result == BETON_INVALID_ARGUMENT && strstr(err.message, line->name),
			"what is refused is named");
	} else {
		char *text = text_of(row, &options);
		require(!text || run_row_parse(row, text, &again, &err) == BETON_OK, "the text of a value is one");
		char *second = text ? text_of(row, &again) : NULL;
		require(!text || (second && strcmp(text, second) == 0), "and means the same");
		free(text);
		free(second);
	}
	forget(&options);
	forget(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	beton_error err = {0};
	run_recipe *recipe = NULL;
	int fd = memfd_create("recipe", MFD_CLOEXEC);
	require(fd >= 0 && bt_write_full(fd, data, size) == 0, "there is a file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int result = run_recipe_read(path, &recipe, &err);
	if (result != BETON_OK)
		require(!recipe && result == BETON_INVALID_ARGUMENT && strstr(err.message, path),
			"a refusal names the file");
	for (int i = 0; recipe && i < recipe->count; i++) {
		const run_recipe_option *line = &recipe->options[i];
		require(line->line >= 1 && *line->name && !strpbrk(line->name, " \t\n"), "a line has a name");
		check_option(line);
	}
	run_recipe_free(&recipe);
	close(fd);
	return 0;
}
