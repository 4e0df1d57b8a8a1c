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
	if (json)
		print_line(json_pack("{s:I, s:I, s:f}", "samples", (json_int_t)bar->done, "bytes",
				     (json_int_t)bar->bytes, "seconds", seconds),
			   output);
	else
		printf("%s: %llu samples, %.1f MB, %.2f s\n", output, (unsigned long long)bar->done,
		       (double)bar->bytes / 1e6, seconds);
}

void summary_print_file(const char *output, uint64_t samples, bool json)
{
	if (json)
		print_line(json_pack("{s:I}", "samples", (json_int_t)samples), output);
	else
		printf("%s: %llu samples\n", output, (unsigned long long)samples);
}
