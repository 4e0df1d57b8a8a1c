/* SPDX-License-Identifier: Apache-2.0 */
#include "complete.h"

#include <sys/stat.h>

#include <jansson.h>

#include <beton/beton.h>

#include "common/error.h"

/* Their order does not count. */
static bool same_facts(const char *ours, const char *theirs)
{
	json_t *one = json_loads(ours, 0, NULL), *other = json_loads(theirs, 0, NULL);
	bool same = one && other && json_equal(one, other);
	json_decref(one);
	json_decref(other);
	return same;
}

int complete_check(const char *path, const char *facts, uint64_t samples, bool *there, beton_error *err)
{
	struct stat status;
	beton_reader *reader = NULL;
	*there = lstat(path, &status) == 0;
	if (!*there)
		return BETON_OK;
	const char *theirs =
		beton_reader_open(&reader, path, NULL) == BETON_OK ? beton_reader_facts(reader, NULL) : NULL;
	bool same = theirs && same_facts(facts, theirs) &&
		    (samples == UINT64_MAX || samples == beton_reader_info(reader)->num_samples);
	beton_reader_close(&reader);
	return same ? BETON_OK
		    : bt_fail(err, BETON_EXISTS, "%s: exists, and is not what this command writes; --force replaces it",
			      path);
}
