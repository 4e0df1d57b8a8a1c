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
	/* A killed run is continued after the items that it left out: its lines must be in the file by then. */
	if (!self->list || setvbuf(self->list, NULL, _IOLBF, BUFSIZ) != 0)
		return bt_fail_errno(err, errno, "--error-list: %s: cannot create", path);
	return BETON_OK;
}

bool fault_is_of_item(int code)
{
	return code == BETON_SAMPLE_CORRUPT || code == BETON_INVALID_ARGUMENT || code == BETON_NOT_FOUND ||
	       code == BETON_ACCESS || code == BETON_FILE_CHANGED;
}

void fault_name_option(beton_error *err)
{
	static const char option[] = "; --on-error=skip leaves it out";
	beton_error given = *err;
	int room = (int)(sizeof(err->message) - sizeof(option));
	bt_fail_sample(err, given.code, given.sample, "%.*s%s", room, given.message, option);
}

int fault_policy_note(fault_policy *self, uint64_t index, const beton_error *fault, beton_error *err)
{
	char number[24] = "-";
	if (index != FAULT_OF_NO_ITEM)
		snprintf(number, sizeof(number), "%llu", (unsigned long long)index);
	self->skipped++;
	int printed = fprintf(self->list, "%s%s\t%s\t%s\n", self->path ? "" : "beton-write: left out: ", number,
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
