/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

#include <string.h>

bool target_is_tar(const char *path)
{
	static const char *const endings[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz"};
	size_t length = strlen(path);
	if (strcmp(path, "-") == 0)
		return true;
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (length > strlen(endings[i]) && strcmp(path + length - strlen(endings[i]), endings[i]) == 0)
			return true;
	return false;
}
