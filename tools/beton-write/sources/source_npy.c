/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy and .npz files: the first axis counts the samples. A .npz file has several arrays, each a column, which
 * must have the same number of samples. */
#include <stdlib.h>
#include <string.h>

#include "array_file.h"
#include "common/error.h"
#include "common/system.h"
#include "npy.h"
#include "paths.h"
#include "sources.h"

#define ARRAYS_MAX 1024

typedef struct npy_source {
	source base;
	array_file *arrays; /* one for each column */
	uint32_t num_arrays;
} npy_source;

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const npy_source *self = (const npy_source *)base;
	item->name = bt_format("%s: sample %llu", base->name, (unsigned long long)index);
	if (!item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	int result = BETON_OK;
	for (uint32_t i = 0; i < self->num_arrays && result == BETON_OK; i++)
		if (base->columns[i].wanted)
			result = array_file_read(&self->arrays[i], index, &item->values[i], err);
	return result == BETON_OK ? source_item_set_record(item, base->name, index, err) : result;
}

static void close_npy(source *base)
{
	npy_source *self = (npy_source *)base;
	for (uint32_t i = 0; i < self->num_arrays; i++)
		array_file_close(&self->arrays[i]);
	free(self->arrays);
	free(self);
}

static const source_ops npy_ops = {.at = at, .close = close_npy};

static int make_source(const source_spec *spec, const char *kind, source **train, npy_source **out, beton_error *err)
{
	npy_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	*out = self;
	return source_init(&self->base, kind, &npy_ops, spec->argument, err);
}

/* Room for one more array, which is not counted yet. */
static int add_array(npy_source *self, array_file **added, beton_error *err)
{
	if (self->num_arrays == ARRAYS_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: more than %d arrays", self->base.name, ARRAYS_MAX);
	array_file *arrays = reallocarray(self->arrays, self->num_arrays + 1, sizeof(*arrays));
	if (!arrays)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	self->arrays = arrays;
	*added = &arrays[self->num_arrays];
	return BETON_OK;
}

static int add_column(npy_source *self, const char *name, beton_error *err)
{
	const array_file *added = &self->arrays[self->num_arrays - 1];
	if (source_find_column(&self->base, name) >= 0)
		return bt_fail(err, BETON_FORMAT, "%s: two arrays are called '%s'", self->base.name, name);
	if (self->num_arrays > 1 && added->count != self->base.count)
		return bt_fail(err, BETON_FORMAT, "%s: '%s' has %llu samples, and '%s' has %llu", self->base.name, name,
			       (unsigned long long)added->count, self->base.columns[0].name,
			       (unsigned long long)self->base.count);
	self->base.count = added->count;
	return array_file_add_column(added, &self->base, name, name, err);
}

int npy_source_open(const source_spec *spec, source **train, beton_error *err)
{
	npy_source *self = NULL;
	array_file *added = NULL;
	int result = make_source(spec, "npy", train, &self, err);
	if (result == BETON_OK)
		result = add_array(self, &added, err);
	if (result == BETON_OK)
		result = array_file_open(added, spec->argument, npy_parse, err);
	if (result != BETON_OK)
		return result;
	self->num_arrays++;
	return add_column(self, "data", err);
}

/* A member x.npy becomes the column x; numpy writes no others. */
static int add_member(npy_source *self, archive_input *input, const archive_member *member, const char *folder,
		      beton_error *err)
{
	array_file *added = NULL;
	size_t length = strlen(member->name);
	if (!member->regular || length < 5 || strcmp(member->name + length - 4, ".npy") != 0)
		return bt_fail(err, BETON_FORMAT, "%s: the member '%s' is not a .npy file", self->base.name,
			       member->name);
	char *name = strndup(member->name, length - 4);
	char *full_name = bt_format("%s: %s", self->base.name, member->name);
	int result = name && full_name ? add_array(self, &added, err)
				       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	if (result == BETON_OK)
		result = array_file_unpack(added, full_name, input, folder, npy_parse, err);
	if (result == BETON_OK) {
		self->num_arrays++;
		result = add_column(self, name, err);
	}
	free(name);
	free(full_name);
	return result;
}

static int add_members(npy_source *self, archive_input *input, const char *folder, beton_error *err)
{
	archive_member member;
	int result;
	while ((result = archive_input_next(input, &member, err)) == BETON_OK) {
		result = add_member(self, input, &member, folder, err);
		if (result != BETON_OK)
			return result;
	}
	if (result == BETON_END && self->num_arrays == 0)
		return bt_fail(err, BETON_FORMAT, "%s: no arrays in it", self->base.name);
	return result == BETON_END ? BETON_OK : result;
}

int npz_source_open(const source_spec *spec, source **train, beton_error *err)
{
	npy_source *self = NULL;
	archive_input *input = NULL;
	char *folder = path_folder(spec->output);
	int result = folder ? make_source(spec, "npz", train, &self, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	if (result == BETON_OK)
		result = archive_input_open(&input, spec->argument, ARCHIVE_ZIP, spec->interrupt, err);
	if (result == BETON_OK)
		result = add_members(self, input, folder, err);
	archive_input_close(&input);
	free(folder);
	return result;
}
