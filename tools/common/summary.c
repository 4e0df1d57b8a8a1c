/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "text.h"

/* Takes the object over. */
static void print_line(json_t *object, const char *output)
{
	char *name = text_utf8(output);
	json_object_set_new(object, "output", json_string(name));
	if (json_dumpf(object, stdout, JSON_REAL_PRECISION(6) | JSON_SORT_KEYS) == 0)
		putchar('\n');
	json_decref(object);
	free(name);
}

void summary_print(const char *output, const progress *bar, bool json)
{
	double seconds = progress_seconds(bar);
	text_buffer samples;
	text_buffer size;
	if (json)
		print_line(json_pack("{s:I, s:I, s:f}", "samples", (json_int_t)bar->done, "bytes",
				     (json_int_t)bar->bytes, "seconds", seconds),
			   output);
	else
		printf("%s: %s, %s, %.2f s\n", output, text_count(samples, bar->done, "sample", "samples"),
		       text_size(size, bar->bytes), seconds);
}

void summary_print_file(const char *output, uint64_t samples, bool json)
{
	text_buffer count;
	if (json)
		print_line(json_pack("{s:I}", "samples", (json_int_t)samples), output);
	else
		printf("%s: %s\n", output, text_count(count, samples, "sample", "samples"));
}
