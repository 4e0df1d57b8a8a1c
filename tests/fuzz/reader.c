/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a .beton file: refused with a message, or read within its bounds. */
#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system.h"
#include "exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && bt_write_full(fd, data, size) == 0, "the input can be written");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	exercise_reader(path);
	close(fd);
	return 0;
}
