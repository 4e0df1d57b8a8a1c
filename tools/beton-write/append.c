/* SPDX-License-Identifier: Apache-2.0 */
#include "append.h"

#include <stdio.h>

#include <beton/set.h>

#include "common/error.h"
#include "tools/common/set_writer.h"
#include "tools/common/text.h"

int append_check(const char *path, const char *output, const beton_field *fields, uint32_t num_fields,
		 const char *facts, beton_error *err)
{
	beton_set *set;
	int result = beton_set_open(&set, path, err);
	if (result == BETON_OK)
		result = beton_set_accepts(set, output, fields, num_fields, facts, err);
	beton_set_close(&set);
	if (result != BETON_OK)
		bt_prefix(err, "--append");
	return result;
}

int append_output(const char *path, const char *output, bool quiet, beton_error *err)
{
	beton_set *set = NULL;
	text_buffer shards, samples;
	int result = set_write(path, BETON_SET_APPEND, &output, 1, err);
	if (result != BETON_OK)
		bt_prefix(err, "%s is written, but not added to the set", output);
	if (result == BETON_OK && !quiet)
		result = beton_set_open(&set, path, err);
	if (set) {
		text_print_utf8(stdout, path, 0);
		printf(": %s, %s\n", text_count(shards, beton_set_get_info(set)->num_shards, "shard", "shards"),
		       text_count(samples, beton_set_get_info(set)->num_samples, "sample", "samples"));
	}
	beton_set_close(&set);
	return result;
}
