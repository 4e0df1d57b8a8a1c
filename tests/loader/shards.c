/* SPDX-License-Identifier: Apache-2.0 */
#include "shards.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EACH = SHARD_SAMPLES, BATCH = 50 };

char shards_folder[] = "/tmp/beton-shards-XXXXXX";
beton_source *shards;
size_t shards_bytes;

static int num_shards;
static uint8_t *bytes;                         /* of the file that the others are made like */
static uint64_t label_at[EACH], note_at[EACH]; /* where its samples have their number */
static double *weights;                        /* of the samples */
static uint64_t *indices;                      /* half of the samples */

/* ---- files ---- */

/* Writes what is not zero. */
static void write_file(const char *path)
{
	enum { PART = 4096 };
	static const uint8_t zeros[PART];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	for (size_t at = 0; at < shards_bytes; at += PART) {
		size_t part = shards_bytes - at < PART ? shards_bytes - at : PART;
		if (memcmp(bytes + at, zeros, part) != 0)
			assert_int_equal(pwrite(fd, bytes + at, part, (off_t)at), part);
	}
	assert_int_equal(ftruncate(fd, (off_t)shards_bytes), 0);
	close(fd);
}

void shards_write(const char *path, uint64_t number)
{
	for (uint64_t i = 0; i < EACH; i++) {
		uint64_t sample = number * EACH + i, label = sample % 10;
		memcpy(bytes + label_at[i], &label, sizeof(label));
		memcpy(bytes + note_at[i], &sample, sizeof(sample));
	}
	write_file(path);
}

static void write_model(const char *path)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "note", .type = BETON_FIELD_BYTES}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = BETON_WRITER_NO_EXTENSION;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (int64_t i = 0; i < EACH; i++) {
		const beton_input inputs[] = {{.integer = i}, {.data = &i, .size = sizeof(i)}};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void read_model(const char *path)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info *info = beton_reader_info(reader);
	shards_bytes = (size_t)info->file_size;
	for (uint64_t i = 0; i < EACH; i++) {
		beton_value value;
		assert_ok(beton_reader_value(reader, i, 1, &value, err));
		note_at[i] = value.blob.offset;
		label_at[i] =
			info->metadata_offset + i * info->record_size + beton_reader_field(reader, 0)->record_offset;
	}
	bytes = malloc(shards_bytes);
	assert_non_null(bytes);
	assert_int_equal(pread(beton_reader_fd(reader), bytes, shards_bytes, 0), shards_bytes);
	beton_reader_close(&reader);
}

void shards_make(int count)
{
	assert_non_null(mkdtemp(shards_folder));
	assert_int_equal(chdir(shards_folder), 0);
	write_model("model.beton");
	read_model("model.beton");
	unlink("model.beton");
	num_shards = count;
	shards = calloc((size_t)count, sizeof(*shards));
	weights = malloc((size_t)count * EACH * sizeof(*weights));
	indices = malloc((size_t)count * EACH * sizeof(*indices));
	assert_true(shards && weights && indices);
	for (int i = 0; i < count; i++) {
		char *path;
		assert_true(asprintf(&path, "%s/%04d.beton", shards_folder, i) > 0);
		shards_write(path, (uint64_t)i);
		shards[i].path = path;
	}
}

void shards_remove(void)
{
	for (int i = 0; i < num_shards; i++) {
		unlink(shards[i].path);
		free((char *)shards[i].path);
	}
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(shards_folder), 0);
	free(shards);
	free(weights);
	free(indices);
	free(bytes);
}

void shards_allow_descriptors(uint64_t count)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- loaders ---- */

const shards_variant shards_variants[SHARDS_VARIANTS] = {{"mmap", BETON_ENGINE_MMAP, false},
							 {"threads", BETON_ENGINE_THREADS, false},
							 {"threads, direct", BETON_ENGINE_THREADS, true},
							 {"uring", BETON_ENGINE_URING, false},
							 {"uring, direct", BETON_ENGINE_URING, true}};

const beton_order shards_orders[SHARDS_ORDERS] = {BETON_ORDER_SEQUENTIAL,
						  BETON_ORDER_RANDOM,
						  BETON_ORDER_QUASI_RANDOM,
						  BETON_ORDER_WEIGHTED,
						  BETON_ORDER_WEIGHTED_UNIQUE,
						  BETON_ORDER_BALANCED,
						  BETON_ORDER_LIST,
						  BETON_ORDER_CALLBACK,
						  BETON_ORDER_FFCV_RANDOM,
						  BETON_ORDER_TORCH_DISTRIBUTED,
						  BETON_ORDER_UNIFORM};

static uint64_t choose(void *context, uint64_t epoch, uint64_t position)
{
	return (position * 7919 + epoch) % (uint64_t)(uintptr_t)context;
}

beton_loader_options shards_options(beton_order order, const shards_variant *v, int count)
{
	uint64_t samples = (uint64_t)count * EACH;
	beton_loader_options options = fixture_options(BATCH, SHARDS_THREADS);
	options.order = order;
	options.seed = 5;
	options.max_bytes = 8;
	options.engine = v->engine;
	options.direct = v->direct;
	options.window_pages = 40;
	if (order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_WEIGHTED_UNIQUE) {
		for (uint64_t i = 0; i < samples; i++)
			weights[i] = 1 + (double)(i % 5);
		options.weights = weights;
		options.num_weights = samples;
	}
	if (order == BETON_ORDER_LIST) {
		for (uint64_t i = 0; i < samples / 2; i++)
			indices[i] = i * 4001 % samples;
		options.indices = indices;
		options.num_indices = samples / 2;
	}
	if (order == BETON_ORDER_CALLBACK) {
		options.order_callback = choose;
		options.order_context = (void *)(uintptr_t)samples;
	}
	return options;
}

void shards_check(const beton_batch *batch)
{
	const int64_t *labels = batch->tensors[0].data;
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = batch->sample_ids[i], note;
		memcpy(&note, (const char *)batch->tensors[1].data + i * 8, sizeof(note));
		assert_int_equal(labels[i], sample % 10);
		assert_int_equal(note, sample);
	}
}

uint64_t shards_run(beton_iterator *iterator, uint64_t *order)
{
	uint64_t count = 0;
	for (;;) {
		beton_batch *batch;
		beton_error fault;
		int result = beton_iterator_next(iterator, &batch, -1, &fault);
		if (result == BETON_END)
			return count;
		if (result != BETON_OK)
			fail_msg("%s: %s", beton_status_name(result), fault.message);
		shards_check(batch);
		memcpy(order + count, batch->sample_ids, batch->count * sizeof(*order));
		count += batch->count;
		beton_batch_release(&batch);
	}
}

uint64_t shards_run_epoch(beton_loader *loader, uint64_t *order)
{
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 1, 0);
	uint64_t count = shards_run(iterator, order);
	fixture_close(&loader, &iterator);
	return count;
}
