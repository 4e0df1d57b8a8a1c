/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for archive_input.c in a build without libarchive. */
#include "archive_input.h"

#include "common/error.h"

static int missing(const char *path, beton_error *err)
{
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: this program was built without libarchive (Debian: libarchive-dev), which archives need",
		       path);
}

int archive_input_open(archive_input **out, const char *path, archive_kind kind, const atomic_int *interrupt,
		       beton_error *err)
{
	(void)kind;
	(void)interrupt;
	*out = NULL;
	return missing(path, err);
}

void archive_input_close(archive_input **self)
{
	*self = NULL;
}

int archive_input_next(archive_input *self, archive_member *member, beton_error *err)
{
	(void)self;
	(void)member;
	return missing("archive", err);
}

int archive_input_read(archive_input *self, void *data, size_t size, size_t *got, beton_error *err)
{
	(void)self;
	(void)data;
	(void)size;
	*got = 0;
	return missing("archive", err);
}
