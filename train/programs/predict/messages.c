/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns beton-write's messages about the list of pictures into messages about the pictures. */
#include "predict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

/* The text after its beginning; NULL: it begins otherwise. */
static const char *behind(const char *text, const char *beginning)
{
	size_t length = strlen(beginning);
	return strncmp(text, beginning, length) == 0 ? text + length : NULL;
}

/* Row `number`, from 1, of the list. NULL: there is none. */
static json_t *read_row(const char *list, uint64_t number)
{
	FILE *file = fopen(list, "r");
	char *line = NULL;
	size_t size = 0;
	uint64_t at = 0;
	while (file && at < number && getline(&line, &size, file) >= 0)
		at++;
	json_t *row = at == number ? json_loads(line, 0, NULL) : NULL;
	free(line);
	if (file)
		fclose(file);
	return row;
}

/* text: the message after the name of the list. The result is malloc'ed. */
static char *name_picture(const predict_list *list, const char *text)
{
	uint64_t number;
	int length = 0;
	if (sscanf(text, "row %" SCNu64 ": %n", &number, &length) != 1 || length == 0)
		return bt_format("%s: %s", list->given, text);
	text += length;
	json_t *row = read_row(list->path, number);
	const char *name = json_string_value(json_object_get(row, "image"));
	char *path = bt_format("%s%s", list->root, name ? name : "");
	/* The message may have the picture's name, with or without the folder. */
	const char *rest = path ? behind(text, path) : NULL;
	if (!rest && name)
		rest = behind(text, name);
	rest = rest ? behind(rest, ": ") : NULL;
	char *message = path ? bt_format("%s: %s", path, rest ? rest : text) : NULL;
	free(path);
	json_decref(row);
	return message;
}

/* A line of the program's, malloc'ed. */
static char *translate(const predict_list *list, const char *line)
{
	const char *text = behind(line, "beton-write: "), *left_out = text ? behind(text, "left out: ") : NULL;
	text = text ? text : line;
	/* After it come the number, the code and the message. */
	for (int i = 0; left_out && i < 2; i++) {
		const char *tab = strchr(left_out, '\t');
		left_out = tab ? tab + 1 : NULL;
	}
	text = left_out ? left_out : text;
	const char *of_list = behind(text, list->path);
	of_list = of_list ? behind(of_list, ": ") : NULL;
	char *message = of_list ? name_picture(list, of_list) : strdup(text);
	char *whole = message ? bt_format("%s%s", left_out ? "left out " : "", message) : NULL;
	free(message);
	return whole;
}

int predict_messages_tell(const char *path, const predict_list *list, bool failed, beton_error *err)
{
	FILE *file = fopen(path, "r");
	char *line = NULL, *last = NULL;
	size_t size = 0;
	ssize_t length;
	if (!file)
		return bt_fail_errno(err, errno, "%s", path);
	while ((length = getline(&line, &size, file)) >= 0) {
		if (last)
			fprintf(stderr, "dtrain-predict: %s\n", last);
		free(last);
		line[strcspn(line, "\n")] = 0;
		last = translate(list, line);
	}
	int status = BETON_OK;
	if (failed)
		status = last ? bt_fail(err, BETON_IO, "%s", last)
			      : bt_fail(err, BETON_IO, "%s: beton-write, which makes a data set of it, has failed",
					list->given);
	else if (last)
		fprintf(stderr, "dtrain-predict: %s\n", last);
	free(last);
	free(line);
	fclose(file);
	return status;
}
