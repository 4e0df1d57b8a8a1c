/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/error.h"

void bt_dataset_cancel(const bt_dataset *dataset)
{
	for (uint32_t i = 0; i < dataset->count; i++)
		if (dataset->files->list[i].source)
			beton_reader_cancel(dataset->files->list[i].source);
}

const char *bt_dataset_name(const bt_dataset *dataset)
{
	return dataset->sets[0] ? beton_set_path(dataset->sets[0]) : dataset->files->list[0].path;
}

uint64_t bt_dataset_samples(const bt_dataset *dataset)
{
	return dataset->first[dataset->count];
}

/* The last of `count` parts that begins at or before a sample, and the sample's number in it. */
static uint32_t find_part(const uint64_t *first, uint32_t count, uint64_t sample, uint64_t *index)
{
	uint32_t low = 0, high = count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (first[middle] <= sample)
			low = middle;
		else
			high = middle;
	}
	*index = sample - first[low];
	return low;
}

uint32_t bt_dataset_locate(const bt_dataset *dataset, uint64_t sample, uint64_t *index)
{
	return find_part(dataset->first, dataset->count, sample, index);
}

uint32_t bt_dataset_source(const bt_dataset *dataset, uint64_t sample, uint64_t *index)
{
	return find_part(dataset->source_first, dataset->sources, sample, index);
}

int bt_dataset_look_up(const bt_dataset *dataset, uint32_t file, uint64_t number, beton_value *values, beton_error *err)
{
	const bt_windows *windows = &dataset->windows;
	if (dataset->readers) {
		beton_reader *reader;
		int result = bt_dataset_reader(dataset, file, &reader, err);
		return result == BETON_OK ? beton_reader_sample(reader, number, values, err) : result;
	}
	/* A window of this file may have fewer values than one of another file: the rest must be empty. */
	memset(values, 0, windows->parts * sizeof(*values));
	return beton_tokens_locate(windows->streams[file], number * windows->stride, windows->window + 1, values, err);
}

uint64_t bt_dataset_room(const bt_dataset *dataset, uint64_t n)
{
	uint64_t mean = 0, largest = 0, room;
	for (uint32_t i = 0; i < dataset->count; i++) {
		uint64_t samples = dataset->first[i + 1] - dataset->first[i];
		uint64_t bytes = samples ? dataset->files->list[i].data_bytes / samples + 1 : 0;
		mean = bytes > mean ? bytes : mean;
		largest = dataset->files->list[i].largest > largest ? dataset->files->list[i].largest : largest;
	}
	bool overflow = __builtin_mul_overflow(mean, 2 * n, &room) || __builtin_add_overflow(room, largest, &room);
	return overflow ? UINT64_MAX : room;
}

/* ---- what orders need ---- */

/* Mean number of samples in a page of data, or of records if nothing else is stored. Streams are read in pieces of the
 * default page's size. */
static uint64_t samples_per_page(const bt_dataset *dataset)
{
	double bytes = 0, page = dataset->readers ? 0 : BETON_PAGE_SIZE_DEFAULT;
	for (uint32_t i = 0; !dataset->readers && i < dataset->count; i++) {
		const beton_tokens_info *info = beton_tokens_get_info(dataset->windows.streams[i]);
		bytes += (double)info->num_tokens * info->token_size;
	}
	for (uint32_t i = 0; dataset->readers && i < dataset->count; i++) {
		const bt_file *file = &dataset->files->list[i];
		uint64_t records = (dataset->first[i + 1] - dataset->first[i]) * file->record_size;
		bytes += (double)(file->data_bytes ? file->data_bytes : records);
		page = (double)file->largest > page ? (double)file->largest : page;
	}
	double samples = (double)bt_dataset_samples(dataset);
	double run = bytes > 0 ? page / bytes * samples + 0.5 : 1;
	return run < 1 ? 1 : run < samples ? (uint64_t)run : bt_dataset_samples(dataset);
}

/* *part: see beton_reader_storage_order. Of a shard whose index says that it is in order, nothing is read. */
static int storage_order_of(const bt_dataset *dataset, uint32_t i, uint64_t **part, beton_error *err)
{
	const bt_file *file = &dataset->files->list[i];
	beton_reader *reader;
	*part = NULL;
	if (file->set && beton_set_shard(file->set, file->shard)->ordered)
		return BETON_OK;
	int result = bt_dataset_reader(dataset, i, &reader, err);
	return result == BETON_OK ? beton_reader_storage_order(reader, part, err) : result;
}

static int storage_order(const bt_dataset *dataset, uint64_t **out, beton_error *err)
{
	uint64_t n = bt_dataset_samples(dataset);
	uint64_t *all = NULL;
	for (uint32_t i = 0; i < dataset->count; i++) {
		uint64_t *part;
		int result = storage_order_of(dataset, i, &part, err);
		bool missing = part && !all && !(all = malloc(n * sizeof(*all)));
		if (missing)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the places of %llu samples",
					 dataset->files->list[i].path, (unsigned long long)n);
		/* At the first file that is out of order, also fill in the files before it. */
		uint64_t from = part && !*out ? 0 : dataset->first[i];
		for (uint64_t k = from; all && !result && k < dataset->first[i + 1]; k++)
			all[k] = part && k >= dataset->first[i] ? dataset->first[i] + part[k - dataset->first[i]] : k;
		*out = all;
		beton_free(part);
		if (result)
			return result;
	}
	return BETON_OK;
}

static int find_class_field(const bt_dataset *dataset, const char *name, uint32_t *field, beton_error *err)
{
	const bt_schema *schema = &dataset->schema;
	int index = name ? bt_schema_find(schema, name) : bt_schema_find_type(schema, BETON_FIELD_INT);
	if (index < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option class_field)", schema->path,
			       name ? name : "of integers");
	if (schema->fields[index].type != BETON_FIELD_INT)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s' (option class_field) holds no integers",
			       schema->path, name);
	*field = (uint32_t)index;
	return BETON_OK;
}

static int read_classes(const bt_dataset *dataset, const char *name, int64_t **out, beton_error *err)
{
	uint32_t field = 0;
	uint64_t n = bt_dataset_samples(dataset);
	int result = find_class_field(dataset, name, &field, err);
	if (result)
		return result;
	*out = n <= SIZE_MAX / sizeof(**out) ? malloc((n ? n : 1) * sizeof(**out)) : NULL;
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the classes of %llu samples",
			       bt_dataset_name(dataset), (unsigned long long)n);
	for (uint32_t i = 0; i < dataset->count && result == BETON_OK; i++) {
		uint64_t first = dataset->first[i];
		beton_reader *reader;
		result = bt_dataset_reader(dataset, i, &reader, err);
		if (result == BETON_OK)
			result = beton_reader_integers(reader, field, 0, dataset->first[i + 1] - first, *out + first,
						       err);
	}
	return result;
}

/* Positions of an epoch of the order UNIFORM: windows that overlap are not needed for an epoch to have as many tokens
 * as the streams. */
static uint64_t default_draws(const bt_dataset *dataset)
{
	const bt_windows *windows = &dataset->windows;
	uint64_t draws = dataset->readers ? bt_dataset_samples(dataset) : 0;
	for (uint32_t i = 0; !dataset->readers && i < dataset->count; i++)
		draws += bt_windows_in(beton_tokens_get_info(windows->streams[i])->num_tokens, windows->window,
				       windows->window);
	return draws;
}

int bt_dataset_orders(const bt_dataset *dataset, const beton_loader_options *options, bt_orders **out, beton_error *err)
{
	int64_t *classes = NULL;
	uint64_t *storage = NULL;
	int result = BETON_OK;
	if (options->order == BETON_ORDER_BALANCED && !dataset->readers)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: order is BALANCED, but windows of tokens have no classes");
	if (options->order == BETON_ORDER_BALANCED)
		result = read_classes(dataset, options->class_field, &classes, err);
	if (options->order == BETON_ORDER_QUASI_RANDOM && dataset->readers)
		result = storage_order(dataset, &storage, err);
	bt_order_data data = {.name = bt_dataset_name(dataset),
			      .num_samples = bt_dataset_samples(dataset),
			      .draws = default_draws(dataset),
			      .run = samples_per_page(dataset),
			      .storage = storage,
			      .classes = classes,
			      .sources = dataset->sources,
			      .first = dataset->source_first,
			      .mix = dataset->mix};
	if (result == BETON_OK)
		result = bt_orders_open(out, options, &data, err);
	free(classes);
	free(storage);
	return result;
}

uint64_t bt_dataset_fingerprint(const bt_dataset *dataset)
{
	/* Windows of another length or stride are other samples. */
	const uint64_t shape[] = {dataset->windows.window, dataset->windows.stride};
	return dataset->readers ? dataset->fingerprint
				: XXH3_64bits_withSeed(shape, sizeof(shape), dataset->fingerprint);
}
