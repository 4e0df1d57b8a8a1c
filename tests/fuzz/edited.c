/* SPDX-License-Identifier: Apache-2.0 */
#include "edited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system.h"
#include "exercise.h"
#include "tests/support/made_file.h"

enum { SAMPLES = 3 };

int edited_open(const uint8_t *data, size_t size, char path[EDITED_PATH])
{
	made_file file = make_file(&(made_options){.samples = SAMPLES,
						   .dictionary = data[0] & 16,
						   .unordered = data[0] & 32,
						   .raster = data[0] & 64,
						   .compact = true,
						   .facts = "{\"classes\": [\"a\", \"b\"]}"});
	int seal = data[0] & SEAL_ALL;
	uint8_t sizes[5][8];
	for (int i = 0; i < 5; i++)
		memcpy(sizes[i], file.data + file.directory + i * MADE_DIRECTORY_ENTRY + 16, 8);
	for (size_t at = 1; at + 3 < size;) {
		size_t length = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
		size_t place = (data[at] | (size_t)data[at + 1] << 8) % file.size;
		memcpy(file.data + place, data + at + 3, length < file.size - place ? length : file.size - place);
		at += 3 + length;
	}
	/* The sections' checksums are taken over what the directory says, which must be in the file. */
	if (seal & SEAL_SECTIONS)
		for (int i = 0; i < 5; i++)
			memcpy(file.data + file.directory + i * MADE_DIRECTORY_ENTRY + 16, sizes[i], 8);
	seal_file(&file, seal);
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && bt_write_full(fd, file.data, file.size) == 0, "the file can be written");
	snprintf(path, EDITED_PATH, "/proc/self/fd/%d", fd);
	free(file.data);
	return fd;
}
