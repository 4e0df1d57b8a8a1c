/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <errno.h>

#include "common/error.h"

int fault_policy_open(fault_policy *self, bool skip, const char *path, bool append, beton_error *err)
{
	*self = (fault_policy){.skip = skip, .path = path, .list = stderr};
	if (!path)
		return BETON_OK;
	self->list = fopen(path, append ? "ae" : "we");
	/* A run that is killed is continued behind the items that it left out: its lines must be in the file by then.
	 */
	if (!self->list || setvbuf(self->list, NULL, _IOLBF, BUFSIZ) != 0)
		return bt_fail_errno(err, errno, "--error-list: %s: cannot create", path);
	return BETON_OK;
}

bool fault_is_of_item(int code)
{
	return code == BETON_SAMPLE_CORRUPT || code == BETON_INVALID_ARGUMENT || code == BETON_NOT_FOUND ||
	       code == BETON_ACCESS || code == BETON_FILE_CHANGED;
}

int fault_policy_note(fault_policy *self, uint64_t index, const beton_error *fault, beton_error *err)
{
	self->skipped++;
	int printed = fprintf(self->list, "%s%llu\t%s\t%s\n",
			      self->path ? "" : "beton-write: left out: ", (unsigned long long)index,
			      beton_status_name(fault->code), fault->message);
	if (printed < 0 && self->path)
		return bt_fail_errno(err, errno, "--error-list: %s: cannot write", self->path);
	return BETON_OK;
}

int fault_policy_close(fault_policy *self, beton_error *err)
{
	FILE *list = self->path ? self->list : NULL;
	self->list = NULL;
	if (!list)
		return BETON_OK;
	bool bad = ferror(list);
	if (fclose(list) != 0 || bad)
		return bt_fail_errno(err, errno ? errno : EIO, "--error-list: %s: cannot write", self->path);
	return BETON_OK;
}
