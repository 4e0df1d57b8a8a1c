/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes the sources of a data set, and the shards of its sets when they are needed.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "class_names.h"
#include "dataset.h"

/* Most files: enough for 16 sets of the largest size. */
enum { FILES_MAX = 1 << 24 };

/* ---- one file ---- */

/* Puts sources[i] before a message about one of its members. */
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

/* Opens a file that the caller's functions read: sources[number]. */
static int open_source(bt_file *file, uint32_t number, const beton_reader_options *options, beton_reader **out,
		       beton_error *err)
{
	beton_io io = bt_metadata_source(file);
	int result = beton_reader_open_io(out, &io, options, err);
	/* Strings of the caller. */
	file->io->name = file->io->identity = NULL;
	if (result)
		return result == BETON_INVALID_ARGUMENT ? refuse_source(number, result, err) : result;
	file->source = *out;
	file->in_flight = io.in_flight;
	file->immediate = io.flags & BETON_IO_IMMEDIATE;
	return BETON_OK;
}

static beton_reader_options reader_options(const bt_dataset *dataset)
{
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.cache_bytes = dataset->cache_bytes;
	options.cache = dataset->cache;
	return options;
}

static int open_path(bt_file *file, beton_reader_options *options, beton_reader **out, beton_error *err)
{
	options->read = bt_metadata_read;
	options->borrow = bt_files_lend;
	options->give_back = bt_files_end_loan;
	options->context = file;
	options->folder = file->files->folder;
	return beton_reader_open_with(out, file->path, options, err);
}

/* Adds a file's hash to that of all. */
static void add_fingerprint(bt_dataset *dataset, uint64_t fingerprint)
{
	dataset->fingerprint = XXH3_64bits_withSeed(&fingerprint, sizeof(fingerprint), dataset->fingerprint);
}

/* Compares the fields of a file or a set with the data set's, which come from the first file. Frees other. */
static int agree(bt_dataset *dataset, bt_schema *other, beton_error *err)
{
	int result = BETON_OK;
	if (dataset->schema.fields) {
		result = bt_schema_compare(&dataset->schema, other, err);
		bt_schema_free(other);
	} else {
		dataset->schema = *other;
	}
	return result;
}

static int open_samples(bt_dataset *dataset, uint32_t i, uint32_t number, const beton_loader_options *given,
			beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	beton_reader_options options = reader_options(dataset);
	options.custom = given->custom;
	options.custom_context = given->custom_context;
	beton_reader *reader;
	uint64_t fingerprint = 0;
	int result =
		file->io ? open_source(file, number, &options, &reader, err) : open_path(file, &options, &reader, err);
	if (result)
		return result;
	atomic_store(&dataset->readers[i], reader);
	bt_schema schema;
	result = bt_schema_of_reader(&schema, reader, err);
	if (result == BETON_OK)
		result = agree(dataset, &schema, err);
	if (result == BETON_OK)
		result = beton_reader_fingerprint(reader, &fingerprint, err);
	if (result)
		return result;
	const beton_file_info *info = beton_reader_info(reader);
	uint64_t head = info->metadata_offset + info->num_samples * info->record_size;
	file->size = info->file_size;
	file->end = info->data_end;
	file->largest = info->page_size;
	file->data_bytes = info->alloc_entries > 0 && info->pages_end > head ? info->pages_end - head : 0;
	file->record_size = info->record_size;
	add_fingerprint(dataset, fingerprint);
	dataset->first[i + 1] = dataset->first[i] + info->num_samples;
	return BETON_OK;
}

static int open_stream(bt_dataset *dataset, uint32_t i, const beton_token_options *options, beton_error *err)
{
	bt_windows *windows = &dataset->windows;
	bt_file *file = &dataset->files->list[i];
	beton_token_options how = *options;
	uint64_t fingerprint = 0;
	/* The name of a shard need not tell. */
	if (file->set)
		how.format = BETON_TOKENS_BETON;
	int result = bt_windows_open(windows, i, file->path, &how, dataset->cache, dataset->cache_bytes, file, err);
	if (result == BETON_OK && file->set)
		result = beton_set_check(file->set, file->shard, beton_tokens_reader(windows->streams[i]), err);
	if (result == BETON_OK)
		result = beton_tokens_fingerprint(windows->streams[i], &fingerprint, err);
	if (result)
		return result;
	const beton_tokens_info *info = beton_tokens_get_info(windows->streams[i]);
	file->size = info->file_size;
	file->end = info->data_end;
	file->largest = info->chunk_tokens ? info->chunk_bytes : (windows->window + 1) * info->token_size;
	add_fingerprint(dataset, fingerprint);
	dataset->first[i + 1] = dataset->first[i] + bt_windows_in(info->num_tokens, windows->window, windows->stride);
	return BETON_OK;
}

/* ---- shards ---- */

/* Takes what the index says about a shard for the shard. */
static void plan_shard(bt_dataset *dataset, uint32_t i)
{
	bt_file *file = &dataset->files->list[i];
	const beton_shard *shard = beton_set_shard(file->set, file->shard);
	file->size = file->end = shard->bytes;
	file->largest = shard->page_size;
	file->data_bytes = shard->data_bytes;
	file->record_size = shard->record_size;
	add_fingerprint(dataset, shard->fingerprint);
	dataset->first[i + 1] = dataset->first[i] + shard->samples;
}

/* The size first: of a file that was cut off, a reader would say less. */
static int check_bytes(bt_file *file, beton_error *err)
{
	bt_lease lease;
	struct stat status;
	int result = bt_files_borrow(file, &lease, err);
	if (result)
		return result;
	if (fstat(lease.fd, &status) != 0)
		result = bt_fail(err, BETON_IO, "%s: cannot read its status", file->path);
	else if ((uint64_t)status.st_size != file->size)
		result = bt_fail(err, BETON_FILE_CHANGED, "%s: has %llu bytes, but %llu in the index %s", file->path,
				 (unsigned long long)status.st_size, (unsigned long long)file->size,
				 beton_set_path(file->set));
	bt_files_give_back(file);
	return result;
}

static int open_shard(const bt_dataset *dataset, bt_file *file, beton_reader **out, beton_error *err)
{
	beton_reader_options options = reader_options(dataset);
	int result = check_bytes(file, err);
	*out = NULL;
	if (result == BETON_OK)
		result = open_path(file, &options, out, err);
	if (result == BETON_OK)
		result = beton_set_check(file->set, file->shard, *out, err);
	if (result) {
		beton_reader_close(out);
		/* The right one may still come. */
		bt_files_forget(file);
		return result;
	}
	file->end = beton_reader_info(*out)->data_end;
	const char *fault = beton_reader_jpeg_index_fault(*out);
	if (fault)
		bt_files_log(dataset->files, fault);
	return BETON_OK;
}

int bt_dataset_reader(const bt_dataset *constant, uint32_t i, beton_reader **out, beton_error *err)
{
	bt_dataset *dataset = (bt_dataset *)constant;
	bt_file *file = &dataset->files->list[i];
	int result = BETON_OK;
	*out = atomic_load_explicit(&dataset->readers[i], memory_order_acquire);
	if (*out)
		return BETON_OK;
	pthread_mutex_lock(&dataset->lock);
	while (!(*out = atomic_load_explicit(&dataset->readers[i], memory_order_relaxed)) && file->opening)
		pthread_cond_wait(&dataset->opened, &dataset->lock);
	if (!*out) {
		file->opening = true;
		pthread_mutex_unlock(&dataset->lock);
		result = open_shard(dataset, file, out, err);
		pthread_mutex_lock(&dataset->lock);
		file->opening = false;
		atomic_store_explicit(&dataset->readers[i], *out, memory_order_release);
		pthread_cond_broadcast(&dataset->opened);
	}
	pthread_mutex_unlock(&dataset->lock);
	return result;
}

/* ---- all sources ---- */

static int check_source(uint32_t i, const beton_source *source, const beton_loader_options *options, beton_error *err)
{
	bool streams = options->tokens.window > 0;
	if (!source->path == !source->io)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: path is %s", i,
			       source->path ? "given, and io too" : "NULL, without an io");
	if (!BT_RESERVED_IS_ZERO(source))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: reserved is not 0", i);
	if (source->io && (options->direct || streams))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: io is given, which does not work with %s", i,
			       options->direct ? "option direct" : "windows of tokens");
	return BETON_OK;
}

/* Opens the sources that are sets, and counts the files of all sources. */
static int open_sets(bt_dataset *out, const beton_source *sources, const beton_loader_options *options, uint32_t *count,
		     beton_error *err)
{
	uint64_t files = 0;
	int result = BETON_OK;
	out->sets = calloc(out->sources, sizeof(*out->sets));
	if (!out->sets)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u sources", out->sources);
	for (uint32_t i = 0; i < out->sources && result == BETON_OK; i++) {
		result = check_source(i, &sources[i], options, err);
		bool is_set = sources[i].path && bt_ends_with(sources[i].path, BETON_SET_ENDING);
		if (result == BETON_OK && is_set)
			result = beton_set_open(&out->sets[i], sources[i].path, err);
		files += out->sets[i] ? beton_set_get_info(out->sets[i])->num_shards : 1;
	}
	if (result == BETON_OK && files > FILES_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "the sources have %llu files, more than %d",
				 (unsigned long long)files, FILES_MAX);
	*count = (uint32_t)files;
	return result;
}

/* Opens file i, which is sources[number] or one of its shards. */
static int open_file(bt_dataset *dataset, uint32_t i, uint32_t number, const beton_loader_options *options,
		     beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	int result = BETON_OK;
	if (!dataset->readers)
		result = open_stream(dataset, i, &options->tokens, err);
	else if (file->set)
		plan_shard(dataset, i);
	else
		result = open_samples(dataset, i, number, options, err);
	/* No overflow before: a file has fewer than 2^62 samples, because each has a record, an allocation or a token
	 * in it. */
	if (result == BETON_OK && dataset->first[i + 1] > INT64_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the sources have 2^63 samples or more", file->path);
	return result;
}

static int check_format(const beton_set *set, const beton_token_options *options, beton_error *err)
{
	if (options->format != BETON_TOKENS_AUTO && options->format != BETON_TOKENS_BETON)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.format is %d, but the shards of %s are .beton files",
			       (int)options->format, beton_set_path(set));
	return BETON_OK;
}

/* Opens the files of a set: those from number i on. */
static int open_set(bt_dataset *dataset, uint32_t i, uint32_t number, const beton_loader_options *options,
		    beton_error *err)
{
	const beton_set *set = dataset->sets[number];
	bt_schema schema;
	int result = check_format(set, &options->tokens, err);
	if (result == BETON_OK)
		result = bt_schema_of_set(&schema, set, err);
	if (result == BETON_OK)
		result = agree(dataset, &schema, err);
	for (uint32_t k = 0; k < beton_set_get_info(set)->num_shards && result == BETON_OK; k++) {
		bt_file *file = &dataset->files->list[i + k];
		file->set = set;
		file->shard = k;
		result = bt_files_name(dataset->files, i + k, beton_set_shard(set, k)->path, err);
		if (result == BETON_OK)
			result = open_file(dataset, i + k, number, options, err);
	}
	return result;
}

static int open_one(bt_dataset *dataset, uint32_t i, uint32_t number, const beton_source *source,
		    const beton_loader_options *options, beton_error *err)
{
	bt_file *file = &dataset->files->list[i];
	int result = source->io ? take_source(file, number, source->io, err) : BETON_OK;
	if (result == BETON_OK)
		result = bt_files_name(dataset->files, i, source->io ? file->io->name : source->path, err);
	return result == BETON_OK ? open_file(dataset, i, number, options, err) : result;
}

static int allocate(bt_dataset *out, bool streams, bool mixed, beton_error *err)
{
	uint32_t count = out->files->count;
	if (streams)
		out->windows.streams = calloc(count, sizeof(*out->windows.streams));
	else
		out->readers = calloc(count, sizeof(*out->readers));
	out->first = calloc((size_t)count + 1, sizeof(*out->first));
	out->source_first = calloc((size_t)out->sources + 1, sizeof(*out->source_first));
	out->mix = mixed ? calloc(out->sources, sizeof(*out->mix)) : NULL;
	if (!(streams ? (void *)out->windows.streams : (void *)out->readers) || !out->first || !out->source_first ||
	    (mixed && !out->mix))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u files", count);
	out->count = count;
	return BETON_OK;
}

/* Opens what all files need: the table of files, arrays, the cache. */
static int open_common(bt_dataset *out, const beton_loader_options *options, bool mixed, const bt_files_config *files,
		       beton_error *err)
{
	int result = bt_files_open(&out->files, files, err);
	if (result == BETON_OK)
		result = allocate(out, options->tokens.window > 0, mixed, err);
	/* A file that is alone knows how much it needs. */
	if (result == BETON_OK && out->count > 1)
		result = beton_cache_open(&out->cache, out->cache_bytes, err);
	return result;
}

int bt_dataset_open(bt_dataset *out, const beton_source *sources, uint32_t count, const beton_loader_options *options,
		    const bt_files_config *files, uint64_t cache_bytes, beton_error *err)
{
	const beton_token_options *tokens = &options->tokens;
	bt_files_config config = *files;
	if (count == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "no sources were given");
	/* With default attributes these calls cannot fail. */
	pthread_mutex_init(&out->lock, NULL);
	pthread_cond_init(&out->opened, NULL);
	out->sources = count;
	out->cache_bytes = cache_bytes > BETON_CACHE_MIN ? cache_bytes : BETON_CACHE_MIN;
	out->windows.window = tokens->window;
	out->windows.stride = tokens->stride;
	if (tokens->num_special)
		memcpy(out->windows.special, tokens->special, tokens->num_special * sizeof(*tokens->special));
	bool mixed = false;
	for (uint32_t i = 0; i < count; i++)
		mixed |= sources[i].weight != 0;
	int result = open_sets(out, sources, options, &config.count, err);
	if (result == BETON_OK)
		result = open_common(out, options, mixed, &config, err);
	out->fingerprint = config.count;
	bool compared = count > 1 && !tokens->window && !options->ignore_classes;
	bt_class_names names = {0};
	uint32_t file = 0;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		if (mixed)
			out->mix[i] = sources[i].weight;
		result = out->sets[i] ? open_set(out, file, i, options, err)
				      : open_one(out, file, i, &sources[i], options, err);
		if (result == BETON_OK && compared)
			result = bt_class_names_agree(&names, out->sets[i], out->sets[i] ? NULL : out->readers[file],
						      err);
		file += out->sets[i] ? beton_set_get_info(out->sets[i])->num_shards : 1;
		out->source_first[i + 1] = result == BETON_OK ? out->first[file] : 0;
	}
	bt_class_names_free(&names);
	return result;
}

void bt_dataset_close(bt_dataset *dataset)
{
	for (uint32_t i = 0; i < dataset->count; i++) {
		beton_reader *reader = dataset->readers ? atomic_load(&dataset->readers[i]) : NULL;
		beton_reader_close(&reader);
		if (dataset->windows.streams)
			beton_tokens_close(&dataset->windows.streams[i]);
		const beton_io *source = dataset->files->list[i].io;
		if (dataset->owns_sources && source && source->close)
			source->close(source->context);
	}
	beton_cache_close(&dataset->cache);
	bt_files_close(&dataset->files);
	bt_schema_free(&dataset->schema);
	for (uint32_t i = 0; dataset->sets && i < dataset->sources; i++)
		beton_set_close(&dataset->sets[i]);
	if (dataset->sources > 0) {
		pthread_cond_destroy(&dataset->opened);
		pthread_mutex_destroy(&dataset->lock);
	}
	free(dataset->sets);
	free(dataset->readers);
	free(dataset->windows.streams);
	free(dataset->first);
	free(dataset->source_first);
	free(dataset->mix);
	*dataset = (bt_dataset){0};
}
