/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over files, for where there is no fuzzing engine and for the tests: replay ROUNDS FILE...
 * Each file (a .zst is unpacked) is run as it is, and then ROUNDS times with a fixed sequence of edits, most of them at
 * its beginning and its end, where structure is. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

typedef struct input {
	uint8_t *data;
	size_t size;
} input;

static void fail(const char *path, const char *what)
{
	fprintf(stderr, "%s: %s\n", path, what);
	exit(1);
}

static input read_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	if (size < 0)
		fail(path, "cannot be opened");
	rewind(file);
	input raw = {malloc((size_t)size + 1), (size_t)size};
	if (!raw.data || fread(raw.data, 1, raw.size, file) != raw.size)
		fail(path, "cannot be read");
	fclose(file);
	if (strlen(path) < 4 || strcmp(path + strlen(path) - 4, ".zst") != 0)
		return raw;
	unsigned long long unpacked = ZSTD_getFrameContentSize(raw.data, raw.size);
	if (unpacked > 1u << 30)
		fail(path, "is no zstd file of a known size");
	input result = {malloc((size_t)unpacked + 1), (size_t)unpacked};
	if (!result.data || ZSTD_decompress(result.data, result.size, raw.data, raw.size) != result.size)
		fail(path, "cannot be unpacked");
	free(raw.data);
	return result;
}

/* In memory of its own size, so that sanitizers see each byte beyond. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		fail("replay", "out of memory");
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static uint64_t draw(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static void run_edited(input in, unsigned long rounds)
{
	uint64_t random = 88172645463325252u;
	for (unsigned long round = 0; round < rounds && in.size; round++) {
		struct {
			size_t at;
			uint8_t old;
		} edits[4];
		for (int i = 0; i < 4; i++) {
			size_t near = in.size < 4096 || draw(&random) % 4 == 0 ? in.size : 2048;
			size_t from = draw(&random) % 2 ? 0 : in.size - near;
			edits[i].at = from + draw(&random) % near;
			edits[i].old = in.data[edits[i].at];
			in.data[edits[i].at] = (uint8_t)(draw(&random) % 4 ? draw(&random) >> 9 : 0xff);
		}
		run(in.data, draw(&random) % 8 ? in.size : draw(&random) % in.size);
		for (int i = 4; i-- > 0;)
			in.data[edits[i].at] = edits[i].old;
	}
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fputs("usage: replay ROUNDS FILE...\n", stderr);
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		input in = read_input(argv[i]);
		run(in.data, in.size);
		run_edited(in, strtoul(argv[1], NULL, 10));
		free(in.data);
	}
	printf("%d files\n", argc - 2);
	return 0;
}
