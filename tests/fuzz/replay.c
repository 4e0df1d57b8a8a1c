/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over files, without a fuzzing engine and for the tests: replay ROUNDS FILE... Each file (a .zst is
 * unpacked; of a folder, each file in it) is run unchanged, and then ROUNDS times with a fixed sequence of edits, most
 * of them at its beginning and its end, where structure is. Without a FILE the input comes from the standard input.
 * AFL++ drives it as `afl-fuzz -i seeds/reader -o out -- replay-reader 0`. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

typedef struct input {
	uint8_t *data; /* in memory of its own size, so that sanitizers see each byte beyond */
	size_t size;
} input;

static void fail(const char *path, const char *what)
{
	fprintf(stderr, "%s: %s\n", path, what);
	exit(1);
}

static input read_stream(FILE *file, const char *path)
{
	input in = {0};
	for (size_t room = 0;;) {
		if (in.size == room) {
			room = room * 2 + 65536;
			in.data = realloc(in.data, room);
			if (!in.data)
				fail(path, "does not fit the memory");
		}
		size_t got = fread(in.data + in.size, 1, room - in.size, file);
		in.size += got;
		if (got == 0)
			break;
	}
	if (ferror(file))
		fail(path, "cannot be read");
	in.data = realloc(in.data, in.size ? in.size : 1);
	if (!in.data)
		fail(path, "does not fit the memory");
	return in;
}

static input read_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		fail(path, "cannot be opened");
	input raw = read_stream(file, path);
	fclose(file);
	if (strlen(path) < 4 || strcmp(path + strlen(path) - 4, ".zst") != 0)
		return raw;
	unsigned long long unpacked = ZSTD_getFrameContentSize(raw.data, raw.size);
	if (unpacked > 1u << 30)
		fail(path, "is not a zstd file of a known size");
	input result = {malloc(unpacked ? (size_t)unpacked : 1), (size_t)unpacked};
	if (!result.data || ZSTD_decompress(result.data, result.size, raw.data, raw.size) != result.size)
		fail(path, "cannot be unpacked");
	free(raw.data);
	return result;
}

static void run(input in)
{
	LLVMFuzzerTestOneInput(in.data, in.size);
}

static void run_beginning(input in, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		fail("replay", "out of memory");
	memcpy(copy, in.data, size);
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
		if (draw(&random) % 8)
			run(in);
		else
			run_beginning(in, draw(&random) % in.size);
		for (int i = 4; i-- > 0;)
			in.data[edits[i].at] = edits[i].old;
	}
}

static void replay(input in, unsigned long rounds)
{
	run(in);
	run_edited(in, rounds);
	free(in.data);
}

static int replay_path(const char *path, unsigned long rounds)
{
	DIR *folder = opendir(path);
	if (!folder) {
		replay(read_input(path), rounds);
		return 1;
	}
	int count = 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		char name[4096];
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] == '.')
			continue;
		replay(read_input(name), rounds);
		count++;
	}
	closedir(folder);
	return count;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fputs("usage: replay ROUNDS [FILE|FOLDER]...\n", stderr);
		return 2;
	}
	unsigned long rounds = strtoul(argv[1], NULL, 10);
	int count = 0;
	if (argc == 2) {
		replay(read_stream(stdin, "the standard input"), rounds);
		return 0;
	}
	for (int i = 2; i < argc; i++)
		count += replay_path(argv[i], rounds);
	printf("%d files\n", count);
	return count > 0 ? 0 : 1;
}
