/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <beton/set.h>
#include <jansson.h>
#include <xxhash.h>

#include "bench.h"
#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/common/program.h"

typedef struct load_run {
	const load_options *options;
	beton_loader *loader;
	XXH3_state_t *digest; /* NULL: not wanted */
	double *seconds;      /* of each epoch */
	uint64_t samples;     /* of an epoch; or windows */
	const char *unit;     /* of a rate */
	double first_batch_ms;
} load_run;

static size_t tensor_bytes(const beton_tensor *tensor)
{
	static const size_t sizes[] = {
		[BETON_UINT8] = 1,    [BETON_FLOAT32] = 4, [BETON_INT64] = 8, [BETON_FLOAT64] = 8, [BETON_FLOAT16] = 2,
		[BETON_BFLOAT16] = 2, [BETON_INT8] = 1,    [BETON_INT16] = 2, [BETON_INT32] = 4,   [BETON_UINT16] = 2,
		[BETON_UINT32] = 4,   [BETON_UINT64] = 8,  [BETON_BOOL] = 1};
	size_t bytes = sizes[tensor->dtype];
	for (uint32_t i = 0; i < tensor->ndim; i++)
		bytes *= (size_t)tensor->shape[i];
	return bytes;
}

static void add_batch(XXH3_state_t *digest, const beton_batch *batch)
{
	XXH3_128bits_update(digest, batch->sample_ids, batch->count * sizeof(*batch->sample_ids));
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		XXH3_128bits_update(digest, batch->tensors[i].data, tensor_bytes(&batch->tensors[i]));
}

static int run_epoch(load_run *self, uint32_t epoch, uint64_t opened_ns, beton_error *err)
{
	uint64_t started = bt_now_ns();
	beton_iterator *iterator;
	int result = beton_iterator_open(&iterator, self->loader, epoch, 0, err);
	self->samples = 0;
	while (result == BETON_OK) {
		beton_batch *batch;
		result = beton_iterator_next(iterator, &batch, -1, err);
		if (result != BETON_OK)
			break;
		if (epoch == 0 && self->samples == 0)
			self->first_batch_ms = (double)(bt_now_ns() - opened_ns) * 1e-6;
		self->samples += batch->count;
		if (self->digest)
			add_batch(self->digest, batch);
		beton_batch_release(&batch);
		result = program_check_signals(err);
	}
	self->seconds[epoch] = (double)(bt_now_ns() - started) * 1e-9;
	beton_iterator_close(&iterator);
	return result == BETON_END ? BETON_OK : result;
}

/* Whether a file, or a set of shards, has images or rasters. *raster: the field of rasters that it has in place of
 * images. What is wrong with the file, the loader says. */
static bool find_pictures(const char *path, beton_field *raster)
{
	beton_reader *reader = NULL;
	beton_set *set = NULL;
	uint32_t count = 0;
	bool images = false, found = false;
	if (beton_reader_open(&reader, path, NULL) == BETON_OK)
		count = beton_reader_info(reader)->num_fields;
	else if (beton_set_open(&set, path, NULL) == BETON_OK)
		count = beton_set_get_info(set)->num_fields;
	for (uint32_t i = 0; i < count; i++) {
		const beton_field *field = set ? beton_set_field(set, i) : beton_reader_field(reader, i);
		bt_form form = bt_form_of(field->type);
		images |= form == BT_FORM_IMAGE;
		if (form == BT_FORM_RASTER && !found)
			*raster = *field;
		found |= form == BT_FORM_RASTER;
	}
	beton_set_close(&set);
	beton_reader_close(&reader);
	if (images)
		*raster = (beton_field){0};
	return found || images;
}

/* Opens the loader. ImageNet's numbers are of RGB: rasters, of any channels, are normalized to 0..1. */
static int open_loader(load_run *self, beton_error *err)
{
	const load_options *options = self->options;
	beton_loader_options loader = options->loader;
	float statistics[2 * BETON_CHANNELS_MAX];
	beton_field raster = {0};
	if (loader.image.normalize && !loader.tokens.window)
		find_pictures(options->path, &raster);
	if (raster.shape[0]) {
		loader.image.statistics = statistics;
		loader.image.num_statistics = (uint32_t)raster.shape[0];
		for (uint32_t i = 0; i < loader.image.num_statistics; i++) {
			statistics[2 * i] = 0;
			statistics[2 * i + 1] = raster.item_size == 2 ? UINT16_MAX : UINT8_MAX;
		}
	}
	return beton_loader_open(&self->loader, options->path, &loader, err);
}

static int run_epochs(load_run *self, beton_error *err)
{
	const load_options *options = self->options;
	uint64_t opened = bt_now_ns();
	self->seconds = calloc(options->epochs, sizeof(*self->seconds));
	if (options->digest)
		self->digest = XXH3_createState();
	if (!self->seconds || (options->digest && !self->digest))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (self->digest)
		XXH3_128bits_reset(self->digest);
	int result = open_loader(self, err);
	for (uint32_t epoch = 0; epoch < options->epochs && result == BETON_OK; epoch++)
		result = run_epoch(self, epoch, opened, err);
	return result;
}

/* The unit of a rate: tokens of windows, images, or samples of a file without pictures. */
static const char *find_unit(const load_options *options)
{
	beton_field raster;
	if (options->loader.tokens.window)
		return "tokens";
	return find_pictures(options->path, &raster) ? "images" : "samples";
}

static double units_of(const load_run *self)
{
	uint64_t window = self->options->loader.tokens.window;
	return (double)self->samples * (double)(window ? window : 1);
}

static double peak_rss_mb(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_maxrss * 1024e-6;
}

static void digest_text(const load_run *self, char text[33])
{
	XXH128_hash_t hash = XXH3_128bits_digest(self->digest);
	snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
}

/* Shares of the workers' time, and waits of workers and consumer. */
static const struct {
	const char *name;
	size_t offset;
} stages[] = {
	{"order", offsetof(beton_loader_stats, order_ns)},   {"submit", offsetof(beton_loader_stats, submit_ns)},
	{"read", offsetof(beton_loader_stats, read_ns)},     {"verify", offsetof(beton_loader_stats, verify_ns)},
	{"decode", offsetof(beton_loader_stats, decode_ns)}, {"transform", offsetof(beton_loader_stats, transform_ns)},
	{"batch", offsetof(beton_loader_stats, batch_ns)},   {"idle", offsetof(beton_loader_stats, idle_ns)},
	{"wait", offsetof(beton_loader_stats, wait_ns)}};

enum { STAGES = sizeof(stages) / sizeof(stages[0]) };

static double stage_seconds(const beton_loader_stats *stats, int stage)
{
	uint64_t ns;
	memcpy(&ns, (const char *)stats + stages[stage].offset, sizeof(ns));
	return (double)ns * 1e-9;
}

static json_t *stages_json(const beton_loader_stats *stats)
{
	json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "batches", (json_int_t)stats->batches, "samples",
				   (json_int_t)stats->samples, "errors", (json_int_t)stats->errors, "bad_samples",
				   (json_int_t)stats->bad_samples, "bytes_read", (json_int_t)stats->bytes_read,
				   "read_ahead", (json_int_t)stats->read_ahead);
	for (int i = 0; i < STAGES; i++) {
		char key[32];
		snprintf(key, sizeof(key), "%s_seconds", stages[i].name);
		json_object_set_new(object, key, json_real(stage_seconds(stats, i)));
	}
	return object;
}

static int print_json(const load_run *self, const beton_loader_stats *stats, beton_error *err)
{
	json_t *epochs = json_array();
	char rate[32];
	snprintf(rate, sizeof(rate), "%s_per_second", self->unit);
	for (uint32_t i = 0; i < self->options->epochs; i++)
		json_array_append_new(epochs, json_pack("{s:f, s:f}", rate, units_of(self) / self->seconds[i],
							"seconds", self->seconds[i]));
	json_t *root = json_pack("{s:o, s:f, s:f, s:o}", "epochs", epochs, "peak_rss_mb", peak_rss_mb(),
				 "first_batch_ms", self->first_batch_ms, "stages", stages_json(stats));
	char digest[33], diagnosis[512];
	beton_loader_diagnose(self->loader, diagnosis, sizeof(diagnosis));
	json_object_set_new(root, "diagnosis", json_string(diagnosis));
	if (root && self->digest) {
		digest_text(self, digest);
		json_object_set_new(root, "digest", json_string(digest));
	}
	int result = BETON_OK;
	if (!root || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
		result = bt_fail(err, BETON_IO, "cannot write the figures");
	else
		puts("");
	json_decref(root);
	return result;
}

static void print_text(const load_run *self, const beton_loader_stats *stats)
{
	for (uint32_t i = 0; i < self->options->epochs; i++)
		printf("epoch %u: %.0f %s/s (%.0f %s, %.3f s)\n", i, units_of(self) / self->seconds[i], self->unit,
		       units_of(self), self->unit, self->seconds[i]);
	printf("first batch after %.1f ms, peak memory %.0f MB\n", self->first_batch_ms, peak_rss_mb());
	printf("%u threads, seconds in all:", beton_loader_get_options(self->loader)->num_threads);
	for (int i = 0; i < STAGES; i++)
		printf(" %s %.2f%s", stages[i].name, stage_seconds(stats, i), i + 1 < STAGES ? "," : "\n");
	char diagnosis[512];
	beton_loader_diagnose(self->loader, diagnosis, sizeof(diagnosis));
	printf("what limits it: %s\n", diagnosis);
	if (self->digest) {
		char digest[33];
		digest_text(self, digest);
		printf("digest %s\n", digest);
	}
}

int bench_load(int argc, char **argv)
{
	load_options options;
	int status = load_options_parse(&options, argc, argv);
	if (status >= 0)
		return status;
	program_start();
	load_run run = {.options = &options};
	beton_error err;
	int result = run_epochs(&run, &err);
	if (result == BETON_OK) {
		beton_loader_stats stats = {.struct_size = sizeof(stats)};
		beton_loader_get_stats(run.loader, &stats);
		run.unit = find_unit(&options);
		if (options.json)
			result = print_json(&run, &stats, &err);
		else
			print_text(&run, &stats);
	}
	beton_loader_close(&run.loader);
	XXH3_freeState(run.digest);
	free(run.seconds);
	/* The loader's message names its own option: name the command line's. */
	if (result == BETON_INVALID_ARGUMENT)
		load_options_rename(&err);
	int exit_status = program_end("beton-bench", result, &err);
	return result == BETON_INVALID_ARGUMENT ? 2 : exit_status;
}
