/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the index of a set of shards: refused with a message that names it, or a set whose shards are below its
 * folder and whose numbers agree. Then the same with a right checksum, to reach the later checks. */
#include <stdlib.h>
#include <string.h>

#include "exercise.h"
#include "fuzz.h"
#include "tests/support/set_files.h"

static void check_shard(const beton_set *set, uint32_t i)
{
	const beton_shard *shard = beton_set_shard(set, i);
	char padded[BETON_SET_PATH_MAX + 3];
	require(strncmp(shard->path, "folder/", 7) == 0 && shard->name == shard->path + 7, "a path is in the folder");
	require(*shard->name && strlen(shard->name) <= BETON_SET_PATH_MAX, "a name has its length");
	padded[0] = '/';
	strcpy(padded + 1, shard->name);
	strcat(padded, "/");
	require(!strstr(padded, "/../") && !strstr(padded, "/./") && !strstr(padded, "//"),
		"a path goes straight down");
	require(shard->bytes <= INT64_MAX && shard->data_bytes <= shard->bytes, "the values are in the file");
	require(shard->samples <= (shard->bytes - shard->data_bytes) / shard->record_size, "and so are the records");
	require(shard->page_size >= BETON_PAGE_SIZE_MIN && !(shard->page_size & (shard->page_size - 1)), "pages");
}

static void check_set(const beton_set *set)
{
	const beton_set_info *info = beton_set_get_info(set);
	uint64_t samples = 0;
	require(info->num_shards > 0 && info->num_fields > 0, "there are shards and fields");
	for (uint32_t i = 0; i < info->num_shards; i++) {
		const beton_shard *shard = beton_set_shard(set, i);
		uint32_t found;
		uint64_t index;
		check_shard(set, i);
		require(shard->first == samples, "shards follow each other");
		if (shard->samples > 0) {
			require(beton_set_locate(set, samples, &found, &index, NULL) == BETON_OK && found == i &&
					index == 0,
				"the first sample of a shard is found");
			samples += shard->samples;
			require(beton_set_locate(set, samples - 1, &found, &index, NULL) == BETON_OK && found == i &&
					index == shard->samples - 1,
				"and the last");
		}
	}
	require(samples == info->num_samples && samples <= INT64_MAX, "the sum is right");
	for (uint32_t i = 0; i < info->num_fields; i++)
		require(*beton_set_field(set, i)->name != 0, "a field has a name");
	for (uint32_t i = 0; i < info->num_classes; i++)
		require(beton_set_class(set, i) != NULL, "a class has a name");
}

static void try_text(const char *text, size_t size)
{
	beton_set *set;
	beton_error err = {0};
	if (beton_set_parse(&set, "folder/x.betonset", text, size, &err) != BETON_OK) {
		require(!set && strncmp(err.message, "folder/x.betonset: ", 19) == 0, "a refusal names the index");
		return;
	}
	check_set(set);
	beton_set_close(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_text((const char *)data, size);
	char *text = sealed((const char *)data, size);
	if (text)
		try_text(text, strlen(text));
	free(text);
	return 0;
}
