/* SPDX-License-Identifier: Apache-2.0 */
#include "notes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/error.h"
#include "common/system.h"

static bool is_litter(const char *name, size_t length)
{
	static const char *const names[] = {
		"Thumbs.db",  "ehthumbs.db", "desktop.ini", "$RECYCLE.BIN", "System Volume Information", /* Windows */
		"__MACOSX",   "Icon\r",                                                                  /* macOS */
		"lost+found", "@eaDir", /* ext4; Synology's drives */
	};
	if (length == 0 || name[0] == '.')
		return length > 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i]) == length && strncasecmp(name, names[i], length) == 0)
			return true;
	return false;
}

bool name_is_litter(const char *name)
{
	return is_litter(name, strlen(name));
}

bool path_is_litter(const char *path)
{
	while (*path) {
		size_t length = strcspn(path, "/");
		bool dots = length <= 2 && strncmp(path, "..", length) == 0;
		if (!dots && is_litter(path, length))
			return true;
		path += length + (path[length] == '/');
	}
	return false;
}

void passed_over_add(passed_over *self, const char *folder, const char *name)
{
	if (self->count++ == 0)
		self->first = folder ? bt_format("%s/%s", folder, name) : strdup(name);
}

int source_notes_add_fault(source_notes *self, const beton_error *fault, beton_error *err)
{
	beton_error *faults = list_grow(self->faults, self->num_faults, &self->capacity, sizeof(*faults));
	if (!faults)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the list of what is left out");
	self->faults = faults;
	faults[self->num_faults++] = *fault;
	return BETON_OK;
}

void source_notes_free(source_notes *self)
{
	free(self->litter.first);
	free(self->beside.first);
	free(self->faults);
	name_list_free(&self->remarks);
	*self = (source_notes){0};
}
