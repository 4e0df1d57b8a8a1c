/* SPDX-License-Identifier: Apache-2.0 */
#include "set_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xxhash.h>

int make_shard(const char *path, shard_kind kind)
{
	beton_field fields[] = {{.name = "number", .type = BETON_FIELD_INT},
				{.name = "text", .type = BETON_FIELD_BYTES}};
	if (kind.name)
		snprintf(fields[1].name, sizeof(fields[1].name), "%s", kind.name);
	fields[1].compression = kind.compressed ? BETON_COMPRESSION_ZSTD : BETON_COMPRESSION_NONE;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.facts = kind.facts;
	options.flags = kind.plain ? BETON_WRITER_NO_EXTENSION : 0;
	beton_writer *writer = NULL;
	int result = beton_writer_open(&writer, path, fields, kind.numbers ? 1 : 2, &options, NULL);
	for (uint64_t i = 0; i < kind.samples && result == BETON_OK; i++) {
		char text[32];
		int size = snprintf(text, sizeof(text), "sample %llu", (unsigned long long)(kind.first + i));
		const beton_input values[] = {{.integer = (int64_t)(kind.first + i)},
					      {.data = text, .size = (uint64_t)size}};
		result = beton_writer_append(writer, values, NULL);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, NULL);
	beton_writer_close(&writer);
	return result == BETON_OK ? 0 : -1;
}

char *sealed(const char *text, size_t size)
{
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	char sum[17] = "", *made = NULL, *canonical = NULL;
	if (json_is_object(root)) {
		json_object_del(root, "checksum");
		canonical = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	}
	if (canonical) {
		snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)XXH3_64bits(canonical, strlen(canonical)));
		json_object_set_new(root, "checksum", json_string(sum));
		made = json_dumps(root, 0);
	}
	free(canonical);
	json_decref(root);
	return made;
}
