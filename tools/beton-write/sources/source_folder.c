/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "folder.h"
#include "sources.h"

enum { COLUMN_OF_IMAGE, COLUMN_OF_LABEL };

typedef struct folder_source {
	source base;
	folder_list list;
} folder_source;

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const folder_file *file = &((folder_source *)base)->list.files[index];
	item->name = strdup(file->path);
	if (!item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file->path);
	const char *below = file->path + strlen(base->name);
	item->source = strdup(below + strspn(below, "/"));
	if (!item->source)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file->path);
	item->values[COLUMN_OF_IMAGE] = (raw_value){.kind = RAW_PATH, .data = file->path, .size = strlen(file->path)};
	if (base->num_columns > COLUMN_OF_LABEL)
		item->values[COLUMN_OF_LABEL] = (raw_value){.kind = RAW_INT, .integer = file->label};
	return BETON_OK;
}

static void close_folder(source *base)
{
	folder_source *self = (folder_source *)base;
	folder_list_free(&self->list);
	free(self);
}

static const source_ops folder_ops = {.at = at, .close = close_folder};

/* Takes *list; name: of the folder. */
static int make_source(folder_list *list, bool labels, const char *name, source **out, beton_error *err)
{
	folder_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	*out = &self->base;
	self->list = *list;
	*list = (folder_list){0};
	self->base.count = self->list.count;
	int result = source_init(&self->base, "folder", &folder_ops, name, err);
	if (result == BETON_OK)
		result = source_add_column(&self->base, "image", "image", COLUMN_IMAGE, err);
	if (result == BETON_OK && labels)
		result = source_add_column(&self->base, "label", "label", COLUMN_INT, err);
	return result;
}

int folder_source_open(const source_spec *spec, source *sets[], beton_error *err)
{
	folder_plan plan;
	const folder_request request = {.root = spec->argument,
					.holds_out = spec->holds_out,
					.wants_label = spec->wants_label,
					.skip = spec->skip_bad,
					.interrupt = spec->interrupt};
	int result = folder_plan_make(&plan, &request, err);
	for (int i = 0; i < NUM_SETS && result == BETON_OK; i++)
		if (plan.has[i])
			result = make_source(&plan.sets[i], !plan.flat, spec->argument, &sets[i], err);
	if (result == BETON_OK) {
		sets[SET_TRAIN]->classes = plan.classes;
		sets[SET_TRAIN]->notes = plan.notes;
		plan.classes = (name_list){0};
		plan.notes = (source_notes){0};
	}
	folder_plan_free(&plan);
	return result;
}
