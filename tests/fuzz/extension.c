/* SPDX-License-Identifier: Apache-2.0
 *
 * A good file with an extension block and compressed fields, edited, with checksums that match the edits: what is
 * behind the checksums. The input: a byte that chooses the file and what is sealed, then edits of 2 bytes of place, one
 * of length and the bytes. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system.h"
#include "exercise.h"
#include "tests/beton/made_file.h"

/* The parts that hold anything: the head with the metadata, the beginning of the page, what is behind it. */
typedef struct part {
	uint64_t from, size;
} part;

enum { SAMPLES = 3, PAGE_USED = 2048, PARTS = 3 };

static void list_parts(const made_file *file, part *parts)
{
	parts[0] = (part){0, MADE_METADATA + SAMPLES * MADE_RECORD};
	parts[1] = (part){MADE_PAGE, PAGE_USED};
	parts[2] = (part){file->sections[1], file->size - file->sections[1]};
}

static void apply(made_file *file, const part *parts, uint64_t place, const uint8_t *bytes, size_t size)
{
	place %= parts[0].size + parts[1].size + parts[2].size;
	for (int i = 0; i < PARTS; i++) {
		if (place < parts[i].size) {
			uint64_t room = parts[i].size - place;
			memcpy(file->data + parts[i].from + place, bytes, size < room ? size : room);
			return;
		}
		place -= parts[i].size;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	made_file file = make_file(&(made_options){.samples = SAMPLES,
						   .dictionary = data[0] & 16,
						   .unordered = data[0] & 32,
						   .facts = "{\"classes\": [\"a\", \"b\"]}"});
	part parts[PARTS];
	list_parts(&file, parts);
	int seal = data[0] & SEAL_ALL;
	uint8_t sizes[5][8];
	for (int i = 0; i < 5; i++)
		memcpy(sizes[i], file.data + file.directory + i * MADE_DIRECTORY_ENTRY + 16, 8);
	for (size_t at = 1; at + 3 < size;) {
		size_t length = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
		apply(&file, parts, (uint64_t)data[at] | (uint64_t)data[at + 1] << 8, data + at + 3, length);
		at += 3 + length;
	}
	/* The sections' checksums are taken over what the directory says, which must be in the file. */
	if (seal & SEAL_SECTIONS)
		for (int i = 0; i < 5; i++)
			memcpy(file.data + file.directory + i * MADE_DIRECTORY_ENTRY + 16, sizes[i], 8);
	seal_file(&file, seal);
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && ftruncate(fd, (off_t)file.size) == 0, "there is a file");
	for (int i = 0; i < PARTS; i++)
		require(bt_pwrite_full(fd, file.data + parts[i].from, (size_t)parts[i].size, parts[i].from) == 0,
			"it can be written");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	exercise_reader(path);
	close(fd);
	free(file.data);
	return 0;
}
