/* SPDX-License-Identifier: Apache-2.0
 *
 * An edited file under the reader. The input: see edited.h. */
#include "fuzz.h"

#include <unistd.h>

#include "edited.h"
#include "exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[EDITED_PATH];
	if (size == 0)
		return 0;
	int fd = edited_open(data, size, path);
	exercise_reader(path);
	close(fd);
	return 0;
}
