/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/error.h"
#include "common/sized.h"

/* ---- opening ---- */

static bool same_shape(const beton_field *a, const beton_field *b)
{
	return a->ndim == b->ndim && strcmp(a->dtype, b->dtype) == 0 &&
	       memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

static int compare_schemas(const beton_reader *one, const beton_reader *other, beton_error *err)
{
	uint32_t fields = beton_reader_info(one)->num_fields;
	uint32_t others = beton_reader_info(other)->num_fields;
	if (fields != others)
		return bt_fail(err, BETON_MISMATCH, "%s has %u fields, but %s has %u", beton_reader_path(other), others,
			       beton_reader_path(one), fields);
	for (uint32_t i = 0; i < fields; i++) {
		const beton_field *a = beton_reader_field(one, i);
		const beton_field *b = beton_reader_field(other, i);
		if (strcmp(a->name, b->name) != 0)
			return bt_fail(err, BETON_MISMATCH, "%s: field %u is '%s', but in %s it is '%s'",
				       beton_reader_path(other), i, b->name, beton_reader_path(one), a->name);
		if (a->type != b->type || !same_shape(a, b))
			return bt_fail(err, BETON_MISMATCH,
				       "%s: field '%s' is not of the type or shape that it has in %s",
				       beton_reader_path(other), b->name, beton_reader_path(one));
	}
	return BETON_OK;
}

/* Puts sources[i] in front of a message about one of its members. */
static int refuse_source(uint32_t i, int result, beton_error *err)
{
	bt_prefix(err, "sources[%u]", i);
	return result;
}

/* Takes the description of a file that the caller's functions read. */
static int take_source(bt_file *file, uint32_t i, const beton_io *given, beton_error *err)
{
	file->io = malloc(sizeof(*file->io));
	if (!file->io)
		return bt_fail(err, BETON_NO_MEMORY, "sources[%u]: out of memory", i);
	beton_io_init(file->io);
	int result = bt_sized_take(file->io, given, "io", err);
	if (result == BETON_OK && (!file->io->name || !file->io->read_at))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "io.%s is NULL", file->io->name ? "read_at" : "name");
	return result ? refuse_source(i, result, err) : BETON_OK;
}

/* Opens a file that the caller's functions read. */
static int open_source(bt_dataset *dataset, uint32_t i, const beton_reader_options *options, beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	beton_io io = bt_metadata_source(file);
	int result = beton_reader_open_io(&dataset->readers[i], &io, options, err);
	/* Strings of the caller. */
	file->io->name = file->io->identity = NULL;
	if (result)
		return result == BETON_INVALID_ARGUMENT ? refuse_source(i, result, err) : result;
	file->source = dataset->readers[i];
	file->in_flight = io.in_flight;
	file->immediate = io.flags & BETON_IO_IMMEDIATE;
	return BETON_OK;
}

static int open_samples(bt_dataset *dataset, uint32_t i, const beton_loader_options *given, uint64_t cache_bytes,
			beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.cache_bytes = cache_bytes;
	options.cache = dataset->cache;
	options.custom = given->custom;
	options.custom_context = given->custom_context;
	int result;
	if (file->io) {
		result = open_source(dataset, i, &options, err);
	} else {
		options.read = bt_metadata_read;
		options.borrow = bt_files_lend;
		options.give_back = bt_files_end_loan;
		options.context = file;
		result = beton_reader_open_with(&dataset->readers[i], file->path, &options, err);
	}
	uint64_t fingerprint = 0;
	if (result == BETON_OK && i > 0)
		result = compare_schemas(dataset->readers[0], dataset->readers[i], err);
	if (result == BETON_OK)
		result = beton_reader_fingerprint(dataset->readers[i], &fingerprint, err);
	if (result)
		return result;
	const beton_file_info *info = beton_reader_info(dataset->readers[i]);
	file->size = info->file_size;
	file->end = info->data_end;
	file->largest = info->page_size;
	dataset->fingerprint = XXH3_64bits_withSeed(&fingerprint, sizeof(fingerprint), dataset->fingerprint);
	dataset->first[i + 1] = dataset->first[i] + info->num_samples;
	return BETON_OK;
}

static int open_stream(bt_dataset *dataset, uint32_t i, const beton_token_options *options, uint64_t cache_bytes,
		       beton_error *err)
{
	bt_windows *windows = &dataset->windows;
	bt_file *file = &dataset->files->list[i];
	uint64_t fingerprint = 0;
	int result = bt_windows_open(windows, i, file->path, options, dataset->cache, cache_bytes, file, err);
	if (result == BETON_OK)
		result = beton_tokens_fingerprint(windows->streams[i], &fingerprint, err);
	if (result)
		return result;
	const beton_tokens_info *info = beton_tokens_get_info(windows->streams[i]);
	file->size = info->file_size;
	file->end = info->data_end;
	file->largest = info->chunk_tokens ? info->chunk_bytes : (windows->window + 1) * info->token_size;
	dataset->fingerprint = XXH3_64bits_withSeed(&fingerprint, sizeof(fingerprint), dataset->fingerprint);
	dataset->first[i + 1] = dataset->first[i] + bt_windows_in(info->num_tokens, windows->window, windows->stride);
	return BETON_OK;
}

static int check_source(const bt_dataset *dataset, uint32_t i, const beton_source *source,
			const beton_loader_options *options, beton_error *err)
{
	if (!source->path == !source->io)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: path is %s", i,
			       source->path ? "given, and io too" : "NULL, and there is no io");
	if (!BT_RESERVED_IS_ZERO(source))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: reserved is not 0", i);
	if (source->io && (options->direct || !dataset->readers))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: io is given, which does not work with %s", i,
			       options->direct ? "option direct" : "windows of tokens");
	return BETON_OK;
}

static int open_file(bt_dataset *dataset, uint32_t i, const beton_source *source, const beton_loader_options *options,
		     uint64_t cache_bytes, beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	int result = check_source(dataset, i, source, options, err);
	if (result == BETON_OK && source->io)
		result = take_source(file, i, source->io, err);
	if (result == BETON_OK)
		result = bt_files_name(dataset->files, i, source->io ? file->io->name : source->path, err);
	if (result)
		return result;
	dataset->count++;
	result = dataset->readers ? open_samples(dataset, i, options, cache_bytes, err)
				  : open_stream(dataset, i, &options->tokens, cache_bytes, err);
	if (result)
		return result;
	/* No overflow before: a file has fewer than 2^62 samples, because each has a record, an allocation or a token
	 * in it. */
	if (dataset->first[i + 1] > INT64_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the sources have 2^63 samples or more", file->path);
	return BETON_OK;
}

static int allocate(bt_dataset *out, uint32_t count, bool streams, bool mixed, beton_error *err)
{
	if (streams)
		out->windows.streams = calloc(count, sizeof(*out->windows.streams));
	else
		out->readers = calloc(count, sizeof(*out->readers));
	out->first = calloc((size_t)count + 1, sizeof(*out->first));
	out->mix = mixed ? calloc(count, sizeof(*out->mix)) : NULL;
	if (!(streams ? (void *)out->windows.streams : (void *)out->readers) || !out->first || (mixed && !out->mix))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u sources", count);
	return BETON_OK;
}

int bt_dataset_open(bt_dataset *out, const beton_source *sources, const beton_loader_options *options,
		    uint64_t cache_bytes, beton_error *err)
{
	const beton_token_options *tokens = &options->tokens;
	uint32_t count = out->files->count;
	bool mixed = false;
	for (uint32_t i = 0; i < count; i++)
		mixed |= sources[i].weight != 0;
	int result = allocate(out, count, tokens->window > 0, mixed, err);
	out->windows.window = tokens->window;
	out->windows.stride = tokens->stride;
	out->fingerprint = count;
	if (tokens->num_special)
		memcpy(out->windows.special, tokens->special, tokens->num_special * sizeof(*tokens->special));
	/* A file that is alone knows how much it needs. */
	if (result == BETON_OK && count > 1)
		result = beton_cache_open(&out->cache, cache_bytes > BETON_CACHE_MIN ? cache_bytes : BETON_CACHE_MIN,
					  err);
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		if (mixed)
			out->mix[i] = sources[i].weight;
		result = open_file(out, i, &sources[i], options, cache_bytes, err);
	}
	return result;
}

void bt_dataset_close(bt_dataset *dataset)
{
	for (uint32_t i = 0; i < dataset->count; i++) {
		if (dataset->readers)
			beton_reader_close(&dataset->readers[i]);
		else
			beton_tokens_close(&dataset->windows.streams[i]);
		const beton_io *source = dataset->files->list[i].io;
		if (dataset->owns_sources && source && source->close)
			source->close(source->context);
	}
	beton_cache_close(&dataset->cache);
	bt_files_close(&dataset->files);
	free(dataset->readers);
	free(dataset->windows.streams);
	free(dataset->first);
	free(dataset->mix);
	*dataset = (bt_dataset){0};
}

void bt_dataset_cancel(const bt_dataset *dataset)
{
	for (uint32_t i = 0; i < dataset->count; i++)
		if (dataset->files->list[i].source)
			beton_reader_cancel(dataset->files->list[i].source);
}

const char *bt_dataset_name(const bt_dataset *dataset)
{
	return dataset->files->list[0].path;
}

uint64_t bt_dataset_samples(const bt_dataset *dataset)
{
	return dataset->first[dataset->count];
}

uint32_t bt_dataset_locate(const bt_dataset *dataset, uint64_t sample, uint64_t *index)
{
	uint32_t low = 0, high = dataset->count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (dataset->first[middle] <= sample)
			low = middle;
		else
			high = middle;
	}
	*index = sample - dataset->first[low];
	return low;
}

int bt_dataset_look_up(const bt_dataset *dataset, uint32_t file, uint64_t number, beton_value *values, beton_error *err)
{
	const bt_windows *windows = &dataset->windows;
	if (dataset->readers)
		return beton_reader_sample(dataset->readers[file], number, values, err);
	/* A window of this file may have fewer values than one of another file: the rest must be empty. */
	memset(values, 0, windows->parts * sizeof(*values));
	return beton_tokens_locate(windows->streams[file], number * windows->stride, windows->window + 1, values, err);
}

/* Bytes of all samples' blobs, with the gaps between them. */
static uint64_t blob_bytes(const beton_reader *reader)
{
	const beton_file_info *info = beton_reader_info(reader);
	uint64_t head = info->metadata_offset + info->num_samples * info->record_size;
	return info->alloc_entries > 0 && info->data_end > head ? info->data_end - head : 0;
}

uint64_t bt_dataset_room(const bt_dataset *dataset, uint64_t n)
{
	uint64_t mean = 0, largest = 0, room;
	for (uint32_t i = 0; i < dataset->count; i++) {
		uint64_t samples = dataset->first[i + 1] - dataset->first[i];
		uint64_t bytes = samples ? blob_bytes(dataset->readers[i]) / samples + 1 : 0;
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
		const beton_file_info *info = beton_reader_info(dataset->readers[i]);
		uint64_t blobs = blob_bytes(dataset->readers[i]);
		bytes += (double)(blobs ? blobs : info->num_samples * info->record_size);
		page = info->page_size > page ? info->page_size : page;
	}
	double samples = (double)bt_dataset_samples(dataset);
	double run = bytes > 0 ? page / bytes * samples + 0.5 : 1;
	return run < 1 ? 1 : run < samples ? (uint64_t)run : bt_dataset_samples(dataset);
}

static int storage_order(const bt_dataset *dataset, uint64_t **out, beton_error *err)
{
	uint64_t n = bt_dataset_samples(dataset);
	uint64_t *all = NULL;
	for (uint32_t i = 0; i < dataset->count; i++) {
		uint64_t *part;
		int result = beton_reader_storage_order(dataset->readers[i], &part, err);
		bool missing = part && !all && !(all = malloc(n * sizeof(*all)));
		if (missing)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the places of %llu samples",
					 beton_reader_path(dataset->readers[i]), (unsigned long long)n);
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
	const beton_reader *reader = dataset->readers[0];
	int index = name ? beton_reader_find_field(reader, name) : beton_reader_find_type(reader, BETON_FIELD_INT);
	if (index < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option class_field)",
			       beton_reader_path(reader), name ? name : "of integers");
	if (beton_reader_field(reader, (uint32_t)index)->type != BETON_FIELD_INT)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s' (option class_field) holds no integers",
			       beton_reader_path(reader), name);
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
			       beton_reader_path(dataset->readers[0]), (unsigned long long)n);
	for (uint32_t i = 0; i < dataset->count && result == BETON_OK; i++)
		result = beton_reader_integers(dataset->readers[i], field, 0, dataset->first[i + 1] - dataset->first[i],
					       *out + dataset->first[i], err);
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
			      .sources = dataset->count,
			      .first = dataset->first,
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
