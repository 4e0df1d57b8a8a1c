/* SPDX-License-Identifier: Apache-2.0 */
#include "file_kind.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define FOR_BETON_WRITE "beton-write makes a .beton file of it"

static const bt_file_kind
	beton = {"a .beton file", "dtrain-ffcv takes it with --data or --val, beton-info shows it, and beton-subset "
				  "copies samples of it"},
	set = {"the index of a set of shards", "beton-set lists it, and beton-merge makes a .beton file of it"},
	folder = {"a folder", "beton-write makes a .beton file of a folder of pictures"},
	picture = {"a picture", "beton-write makes a .beton file of a folder of pictures"},
	safetensors = {"a safetensors file", "dtrain-ffcv takes it with --init"},
	torch = {"a file of torch.save",
		 "dtrain-ffcv takes weights with --init, as safetensors files, to which it must be converted"},
	tokens = {"a stream of tokens", "beton-info shows it, and dtrain-ffcv takes it with --task lm"},
	table = {"a table of text", FOR_BETON_WRITE},
	lines = {"a file of JSON lines", "beton-write makes a .beton file of it if it is a manifest"},
	archive = {"an archive", FOR_BETON_WRITE}, numpy = {"a file of NumPy", FOR_BETON_WRITE};

static const struct {
	const char *ending;
	const bt_file_kind *kind;
} endings[] = {{".betonset", &set},   {".csv", &table},   {".tsv", &table},       {".jsonl", &lines},
	       {".ndjson", &lines},   {".pt", &torch},    {".pth", &torch},       {".npz", &numpy},
	       {".tar.gz", &archive}, {".tgz", &archive}, {".tar.zst", &archive}, {".tar.xz", &archive}};

static const struct {
	const char *bytes;
	size_t size;
	size_t offset;
	const bt_file_kind *kind;
} magics[] = {{"\xff\xd8\xff", 3, 0, &picture},
	      {"\x89PNG", 4, 0, &picture},
	      {"GIF8", 4, 0, &picture},
	      {"WEBP", 4, 8, &picture},
	      {"II*", 4, 0, &picture},
	      {"MM\0*", 4, 0, &picture},
	      {"\x93NUMPY", 6, 0, &numpy},
	      {"ustar", 5, 257, &archive},
	      {"{\"beton_set\":", 13, 0, &set},
	      /* llm.c's, of 16 and 32 bits: see beton/tokens.c. */
	      {"\x88\xd8\x34\x01", 4, 0, &tokens},
	      {"\xa1\xd9\x34\x01", 4, 0, &tokens}};

static uint64_t load(const uint8_t *bytes, int count)
{
	uint64_t number = 0;
	while (count-- > 0)
		number = number << 8 | bytes[count];
	return number;
}

/* The header of docs/format.md: version 2, fields, and a page size that is a power of two. */
static bool is_beton(const uint8_t *head, size_t size)
{
	uint64_t page = size < 24 ? 0 : load(head + 4, 4);
	return page >= 1 << 21 && (page & (page - 1)) == 0 && load(head, 2) == 2 && load(head + 2, 2) > 0;
}

/* The length of a JSON object, and the object. */
static bool is_safetensors(const uint8_t *head, size_t size)
{
	return size > 9 && load(head, 8) < UINT64_C(1) << 40 && head[8] == '{' && strchr("\"} ", head[9]);
}

const bt_file_kind *bt_file_kind_of(const char *path, const void *head, size_t size)
{
	size_t length = strlen(path);
	if (is_beton(head, size))
		return &beton;
	if (is_safetensors(head, size))
		return &safetensors;
	for (size_t i = 0; i < sizeof(magics) / sizeof(*magics); i++)
		if (magics[i].offset + magics[i].size <= size &&
		    memcmp((const char *)head + magics[i].offset, magics[i].bytes, magics[i].size) == 0)
			return magics[i].kind;
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
		size_t own = strlen(endings[i].ending);
		if (length > own && strcasecmp(path + length - own, endings[i].ending) == 0)
			return endings[i].kind;
	}
	return NULL;
}

bool bt_file_kind_is_safetensors(const bt_file_kind *kind)
{
	return kind == &safetensors;
}

const bt_file_kind *bt_file_kind_folder(void)
{
	return &folder;
}
