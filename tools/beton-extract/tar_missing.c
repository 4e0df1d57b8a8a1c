/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of tar_target.c where libarchive is missing. */
#include "common/error.h"
#include "target.h"

int target_open_tar(extract_target **out, const char *path, beton_error *err)
{
	*out = NULL;
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: this beton-extract was built without libarchive, which tar files need", path);
}
