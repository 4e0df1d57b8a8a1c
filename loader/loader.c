/* SPDX-License-Identifier: Apache-2.0 */
#include <beton/loader.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/isa.h"
#include "common/system.h"
#include "iterator.h"
#include "log.h"
#include "options.h"
#include "io/pages.h"
#include "state.h"
#include "workers.h"

/* Clears pointers that are borrowed until open returns. Fields' names live as long as the data set. */
static void drop_borrowed(beton_loader *loader)
{
	beton_loader_options *options = &loader->options;
	options->indices = NULL;
	options->weights = NULL;
	options->fields = NULL;
	options->tokens.field = NULL;
	options->tokens.special = NULL;
	options->cpus = NULL;
	options->custom = NULL;
	options->custom_context = NULL;
	options->replacements = NULL;
	options->num_indices = options->num_weights = 0;
	options->joined = NULL;
	options->geometry = NULL;
	options->num_fields = options->num_cpus = options->num_replacements = options->num_joined = 0;
	options->num_geometry = 0;
	if (options->class_field) {
		int field = bt_schema_find(&loader->dataset.schema, options->class_field);
		options->class_field = loader->dataset.schema.fields[field].name;
	}
}

/* Copies the caller's list, which is borrowed until open returns. */
static int keep_batch_operations(beton_loader *loader, beton_error *err)
{
	beton_loader_options *options = &loader->options;
	size_t bytes = options->num_batch_operations * sizeof(*options->batch_operations);
	loader->batch_operations = bytes > 0 ? malloc(bytes) : NULL;
	if (bytes > 0 && !loader->batch_operations)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u batch operations",
			       options->num_batch_operations);
	if (bytes > 0)
		memcpy(loader->batch_operations, options->batch_operations, bytes);
	options->batch_operations = loader->batch_operations;
	return BETON_OK;
}

/* Logs a line about the loader's files, while it is opened or later. */
static void tell(void *context, beton_log_level level, const char *line)
{
	const beton_loader *loader = context;
	const bt_log_target log = bt_log_target_of(&loader->options);
	/* Without a pool, the thread that opens the loader calls. */
	bt_lent *lent = loader->pool ? &loader->pool->lent : NULL;
	if (lent && !bt_lent_begin(lent))
		return;
	bt_log_tell(&log, level, line);
	if (lent)
		bt_lent_end(lent);
}

static int open_dataset(beton_loader *loader, const beton_source *sources, uint32_t num_sources, beton_error *err)
{
	const beton_loader_options *options = &loader->options;
	const bt_files_config config = {.open_max = options->files_open_max,
					.direct = options->direct,
					.log = options->log ? tell : NULL,
					.log_context = loader,
					.io = loader->io};
	return bt_dataset_open(&loader->dataset, sources, num_sources, options, &config, bt_cache_bytes(options), err);
}

/* Opens the engine, for `ahead` concurrent reads of each worker. */
static int open_engine(beton_loader *loader, uint32_t ahead, beton_error *err)
{
	beton_loader_options *options = &loader->options;
	bt_engine_config config = {.files = loader->dataset.files, .lanes = options->num_threads, .depth = ahead};
	int result = bt_engine_open(&loader->api, &loader->engine, options->engine, &config, err);
	if (result == BETON_OK)
		options->engine = loader->api->kind;
	return result;
}

/* Initialises the outputs, and opens the pool of batches. */
static int open_pool(beton_loader *loader, beton_error *err)
{
	bt_outputs outputs;
	const bt_windows *windows = &loader->dataset.windows;
	bool samples = loader->dataset.readers != NULL;
	uint64_t room = samples ? bt_dataset_room(&loader->dataset, loader->options.batch_size) : 0;
	int result = samples ? bt_outputs_init(&outputs, &loader->dataset.schema, &loader->options, room, err)
			     : bt_outputs_init_windows(&outputs, bt_dataset_name(&loader->dataset), windows->parts,
						       &loader->options, err);
	if (result)
		return result;
	result = bt_pool_open(&loader->pool, &outputs, &loader->options.allocator, err);
	if (result)
		bt_outputs_free(&outputs);
	else
		loader->outputs = &loader->pool->outputs;
	return result;
}

static int open_workers(beton_loader *loader, beton_error *err)
{
	/* AUTO is never MMAP. */
	bool buffers = loader->options.engine != BETON_ENGINE_MMAP;
	int result = bt_resources_plan(&loader->resources, &loader->options, &loader->dataset, loader->outputs, buffers,
				       err);
	uint32_t reads = loader->outputs->num_reads;
	if (result == BETON_OK)
		result = open_engine(loader, loader->resources.tickets * (reads ? reads : 1), err);
	if (result == BETON_OK)
		result = bt_pool_grow(loader->pool, bt_slots_of(&loader->options, 1), err);
	if (result == BETON_OK)
		result = bt_workers_start(loader, err);
	if (result == BETON_OK)
		result = bt_pages_start(loader, err);
	loader->cpus = NULL;
	return result;
}

/* Tokens that no window has should not go unnoticed. */
static void tell_rest(const beton_loader *loader)
{
	const beton_loader_options *options = &loader->options;
	const bt_windows *windows = &loader->dataset.windows;
	uint64_t rest = 0;
	for (uint32_t i = 0; windows->streams && i < loader->dataset.count; i++)
		rest += bt_windows_rest(beton_tokens_get_info(windows->streams[i])->num_tokens, windows->window,
					windows->stride);
	const bt_log_target log = bt_log_target_of(options);
	if (rest == 0 || !bt_log_wants(&log, BETON_LOG_INFO) || options->tokens.ignore_rest)
		return;
	beton_error line;
	char place[64] = "its end";
	if (loader->dataset.count > 1)
		snprintf(place, sizeof(place), "the ends of the %u files", loader->dataset.count);
	bt_fail(&line, BETON_OK,
		"%s: %llu windows of %llu tokens; %llu token%s at %s fill%s no window, and %s left out",
		bt_dataset_name(&loader->dataset), (unsigned long long)bt_dataset_samples(&loader->dataset),
		(unsigned long long)windows->window, (unsigned long long)rest, bt_plural(rest), place,
		rest == 1 ? "s" : "", rest == 1 ? "is" : "are");
	bt_log_tell(&log, BETON_LOG_INFO, line.message);
}

/* A side file that is not used costs speed, but no pixel. One line, however many files there are. A shard tells when it
 * is opened. */
static void tell_side_files(const beton_loader *loader)
{
	const bt_dataset *dataset = &loader->dataset;
	const bt_log_target log = bt_log_target_of(&loader->options);
	const char *first = NULL;
	uint32_t more = 0;
	for (uint32_t i = 0; dataset->readers && i < dataset->count; i++) {
		const beton_reader *reader = dataset->files->list[i].set ? NULL : dataset->readers[i];
		const char *fault = reader ? beton_reader_jpeg_index_fault(reader) : NULL;
		more += fault && first;
		first = first ? first : fault;
	}
	if (!first || !bt_log_wants(&log, BETON_LOG_WARNING))
		return;
	beton_error line;
	if (more)
		bt_fail(&line, BETON_OK, "%s (and %u more like it)", first, more);
	else
		bt_fail(&line, BETON_OK, "%s", first);
	bt_log_tell(&log, BETON_LOG_WARNING, line.message);
}

/* Says what the loader has chosen where the options leave it the choice. */
static void tell_choices(const beton_loader *loader)
{
	const beton_loader_options *options = &loader->options;
	const bt_log_target log = bt_log_target_of(options);
	if (!bt_log_wants(&log, BETON_LOG_DEBUG))
		return;
	beton_error line;
	bt_fail(&line, BETON_OK,
		"%s: %llu samples in %u file%s; %u worker threads, I/O engine %s, batches of %llu bytes",
		bt_dataset_name(&loader->dataset), (unsigned long long)bt_dataset_samples(&loader->dataset),
		loader->dataset.count, bt_plural(loader->dataset.count), options->num_threads, loader->api->name,
		(unsigned long long)loader->outputs->slot_bytes);
	bt_log_tell(&log, BETON_LOG_DEBUG, line.message);
}

static int open_parts(beton_loader *loader, const beton_source *sources, uint32_t num_sources,
		      const beton_loader_options *options, beton_error *err)
{
	int result = bt_isa_check(err);
	if (result == BETON_OK)
		result = bt_options_resolve(&loader->options, options, err);
	if (result == BETON_OK)
		result = open_dataset(loader, sources, num_sources, err);
	if (result)
		return result;
	loader->fingerprint = bt_dataset_fingerprint(&loader->dataset);
	result = open_pool(loader, err);
	if (result == BETON_OK)
		result = bt_dataset_orders(&loader->dataset, &loader->options, &loader->orders, err);
	if (result == BETON_OK)
		result = bt_replacements_open(&loader->replacements, &loader->options, loader->outputs,
					      &loader->dataset.schema, err);
	if (result)
		return result;
	loader->cpus = loader->options.cpus;
	loader->num_cpus = loader->options.num_cpus;
	drop_borrowed(loader);
	result = bt_views_open(&loader->views, &loader->options, loader->outputs, &loader->dataset.schema, err);
	if (result == BETON_OK)
		result = keep_batch_operations(loader, err);
	if (result == BETON_OK)
		result = open_workers(loader, err);
	if (result)
		return result;
	tell_rest(loader);
	tell_side_files(loader);
	tell_choices(loader);
	return BETON_OK;
}

int bt_loader_open(beton_loader **out, const beton_source *sources, uint32_t num_sources,
		   const beton_loader_options *options, const struct bt_io *io, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, sources))
		return BETON_INVALID_ARGUMENT;
	beton_loader *loader = calloc(1, sizeof(*loader));
	*out = loader;
	if (!loader)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a loader");
	loader->owner = getpid();
	loader->io = io;
	int result = open_parts(loader, sources, num_sources, options, err);
	if (result)
		beton_loader_close(out);
	else
		loader->dataset.owns_sources = true;
	return result;
}

int beton_loader_open_many(beton_loader **out, const beton_source *sources, uint32_t num_sources,
			   const beton_loader_options *options, beton_error *err)
{
	return bt_loader_open(out, sources, num_sources, options, NULL, err);
}

int beton_loader_open(beton_loader **out, const char *path, const beton_loader_options *options, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path))
		return BETON_INVALID_ARGUMENT;
	return beton_loader_open_many(out, &(beton_source){.path = path}, 1, options, err);
}

const char *beton_loader_version(void)
{
	return BETON_VERSION;
}

uint64_t beton_loader_num_samples(const beton_loader *loader)
{
	if (!loader)
		return 0;
	return bt_dataset_samples(&loader->dataset);
}

uint64_t beton_loader_epoch_length(const beton_loader *loader)
{
	if (!loader)
		return 0;
	return bt_orders_length(loader->orders);
}

uint64_t beton_loader_num_batches(const beton_loader *loader)
{
	if (!loader)
		return 0;
	bt_shard shard = bt_shard_of(loader, 0);
	return bt_shard_batches(&shard);
}

int beton_loader_samples_at(const beton_loader *loader, uint64_t epoch, uint64_t position, uint64_t count,
			    uint64_t *samples, beton_error *err)
{
	if (BT_MISSING(err, loader))
		return BETON_INVALID_ARGUMENT;
	if (count && BT_MISSING(err, samples))
		return BETON_INVALID_ARGUMENT;
	int result = bt_refuse_child(loader->pool, err);
	if (result) {
		bt_prefix(err, "%s", bt_dataset_name(&loader->dataset));
		return result;
	}
	uint64_t length = bt_orders_length(loader->orders);
	if (position > length || count > length - position)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: %llu positions from %llu on are beyond the %llu of an epoch",
			       bt_dataset_name(&loader->dataset), (unsigned long long)count,
			       (unsigned long long)position, (unsigned long long)length);
	bt_order order;
	result = bt_order_begin(&order, loader->orders, epoch, err);
	for (uint64_t i = 0; i < count && result == BETON_OK; i++)
		result = bt_order_sample(&order, position + i, &samples[i], err);
	bt_order_end(&order);
	return result;
}

uint64_t beton_loader_sample_at(const beton_loader *loader, uint64_t epoch, uint64_t position)
{
	uint64_t sample;
	return beton_loader_samples_at(loader, epoch, position, 1, &sample, NULL) == BETON_OK ? sample : UINT64_MAX;
}

int beton_loader_locate(const beton_loader *loader, uint64_t sample, uint32_t *source, uint64_t *index,
			beton_error *err)
{
	if (BT_MISSING(err, loader, source, index))
		return BETON_INVALID_ARGUMENT;
	if (sample >= bt_dataset_samples(&loader->dataset))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "no sample %llu: the data set has %llu",
			       (unsigned long long)sample, (unsigned long long)bt_dataset_samples(&loader->dataset));
	*source = bt_dataset_source(&loader->dataset, sample, index);
	return BETON_OK;
}

const beton_loader_options *beton_loader_get_options(const beton_loader *loader)
{
	if (!loader)
		return NULL;
	return &loader->options;
}
