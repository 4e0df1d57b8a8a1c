/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .beton file: refused with a message, or read within its bounds. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exercise.h"

enum { BLOCK = 4096 };

/* Blocks of zeros, which most pages of a small dataset are, stay holes: they cost no memory. */
static int write_sparse(int fd, const uint8_t *data, size_t size)
{
	static const uint8_t zeros[BLOCK];
	if (ftruncate(fd, (off_t)size))
		return -1;
	for (size_t at = 0; at < size; at += BLOCK) {
		size_t part = size - at < BLOCK ? size - at : BLOCK;
		if (memcmp(data + at, zeros, part) && pwrite(fd, data + at, part, (off_t)at) != (ssize_t)part)
			return -1;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && write_sparse(fd, data, size) == 0, "the input can be written");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	exercise_reader(path);
	close(fd);
	return 0;
}
