/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "core/shape.h"
#include "safetensors.h"

void dtrain__index_free_set(struct index_set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		free(set->tensors[i].name);
		free(set->tensors[i].parts);
	}
	free(set->tensors);
	*set = (struct index_set){0};
}

void dtrain__index_free(checkpoint_index *index)
{
	for (size_t i = 0; i < index->file_count; i++) {
		free(index->files[i].name);
		dtrain__digest_free(&index->files[i].digest);
	}
	free(index->files);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		dtrain__index_free_set(&index->sets[set]);
	*index = (checkpoint_index){0};
}

int dtrain__index_add_file(checkpoint_index *index, const char *name, beton_error *err)
{
	index_file *grown = realloc(index->files, (index->file_count + 1) * sizeof(*grown));
	if (grown)
		index->files = grown;
	char *copy = grown ? strdup(name) : NULL;
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of files");
	grown[index->file_count++] = (index_file){.name = copy};
	return BETON_OK;
}

static int compare_name(const void *name, const void *tensor)
{
	return strcmp(name, ((const index_tensor *)tensor)->name);
}

const index_tensor *dtrain__index_find(const struct index_set *set, const char *name)
{
	return set->count ? bsearch(name, set->tensors, set->count, sizeof(*set->tensors), compare_name) : NULL;
}

static int compare_tensors(const void *a, const void *b)
{
	return strcmp(((const index_tensor *)a)->name, ((const index_tensor *)b)->name);
}

static int compare_parts(const void *a, const void *b, void *ndim)
{
	return dtrain__box_compare(*(int *)ndim, &((const index_part *)a)->box, &((const index_part *)b)->box);
}

int64_t dtrain__index_cover(index_tensor *tensor, size_t clash[2])
{
	int ndim = tensor->shape.ndim;
	int64_t covered = 0;
	checkpoint_box shared;
	qsort_r(tensor->parts, tensor->part_count, sizeof(*tensor->parts), compare_parts, &ndim);
	for (size_t i = 0; i < tensor->part_count; i++) {
		const checkpoint_box *box = &tensor->parts[i].box;
		covered += dtrain__box_count(ndim, box);
		for (size_t k = i + 1; k < tensor->part_count; k++) {
			const checkpoint_box *other = &tensor->parts[k].box;
			/* Later boxes do not begin earlier. */
			if (ndim && other->offset[0] >= box->offset[0] + box->extent[0])
				break;
			if (dtrain__box_intersect(ndim, box, other, &shared)) {
				clash[0] = i;
				clash[1] = k;
				return -1;
			}
		}
	}
	return covered;
}

int dtrain__index_from_file(checkpoint_index *index, int set, const char *folder, size_t file, beton_error *err)
{
	char *path = bt_format("%s/%s", folder, index->files[file].name);
	safetensors_file opened = {.fd = -1};
	struct index_set *out = &index->sets[set];
	int status = path ? dtrain__safetensors_open(&opened, path, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	if (status == BETON_OK) {
		out->tensors = calloc(opened.count + 1, sizeof(*out->tensors));
		if (!out->tensors)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	}
	for (size_t i = 0; i < opened.count && status == BETON_OK; i++) {
		const safetensors_entry *entry = &opened.entries[i];
		index_tensor *tensor = &out->tensors[out->count++];
		*tensor = (index_tensor){.name = strdup(entry->name),
					 .dtype = (int)entry->dtype,
					 .type = entry->type,
					 .shape = entry->shape,
					 .parts = calloc(1, sizeof(*tensor->parts)),
					 .part_count = 1};
		if (!tensor->name || !tensor->parts) {
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
			break;
		}
		tensor->parts[0] = (index_part){.file = file, .at = entry->offset};
		memcpy(tensor->parts[0].box.extent, entry->shape.dim, sizeof(entry->shape.dim));
	}
	if (status == BETON_OK) {
		qsort(out->tensors, out->count, sizeof(*out->tensors), compare_tensors);
		out->known = true;
	} else {
		dtrain__index_free_set(out);
	}
	dtrain__safetensors_close(&opened);
	free(path);
	return status;
}
