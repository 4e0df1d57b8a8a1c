/* SPDX-License-Identifier: Apache-2.0
 *
 * Each policy about bad samples with each kind of output, wherever in a batch the bad samples are: what is not bad
 * comes, and is what it is without them. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 12, BATCH = 4, VALUE = 48, VECTOR = 12, FIELDS = 9, OUTPUTS_MAX = 12 };

/* Far beyond the room of a batch. */
enum { LARGE_VALUE = 200 * VALUE };

/* The fields of the file, in this order. All values of bytes and texts have VALUE bytes, so that a batch has room for
 * its own, and for not one more. */
static const beton_field fields[FIELDS] = {
	{.name = "label", .type = BETON_FIELD_INT},
	{.name = "weight", .type = BETON_FIELD_FLOAT},
	{.name = "jpeg", .type = BETON_FIELD_IMAGE},
	{.name = "raw", .type = BETON_FIELD_IMAGE},
	{.name = "note", .type = BETON_FIELD_BYTES},
	{.name = "text", .type = BETON_FIELD_JSON},
	{.name = "vector", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 1, .shape = {VECTOR}},
	{.name = "packed", .type = BETON_FIELD_BYTES, .compression = BETON_COMPRESSION_ZSTD},
	{.name = "packed text", .type = BETON_FIELD_JSON, .compression = BETON_COMPRESSION_ZSTD},
};

typedef enum damage {
	FLIPPED,   /* a stored byte; its checksum tells */
	CUT,       /* a picture, with a checksum that is right */
	NO_TEXT,   /* a text that is not UTF-8, with a checksum that is right */
	LARGE,     /* flipped, and larger than all that a batch has room for */
	NO_RECORD, /* a byte of the sample's metadata: of all samples, since they share the checksum */
} damage;

typedef struct kind {
	const char *name;
	const char *outputs[4]; /* fields, up to NULL */
	const char *damaged;    /* the field */
	damage damage;
	bool ragged;
	bool drawn;
	bool mixed;
	uint32_t views;
	bool stored; /* of views the second, else all pictures */
} kind;

static const kind kinds[] = {
	{"picture, flipped", {"label", "jpeg"}, "jpeg", FLIPPED},
	{"picture, cut", {"jpeg"}, "jpeg", CUT},
	{"raw picture", {"raw", "weight"}, "raw", FLIPPED},
	{"views", {"jpeg"}, "jpeg", CUT, .views = 3},
	{"drawn numbers", {"jpeg"}, "jpeg", CUT, .drawn = true},
	{"stored picture", {"jpeg", "label"}, "jpeg", FLIPPED, .stored = true},
	{"stored raw picture", {"raw"}, "raw", FLIPPED, .drawn = true, .stored = true},
	{"stored picture and ragged bytes", {"jpeg", "note"}, "note", FLIPPED, .ragged = true, .stored = true},
	{"views, one of them stored", {"jpeg"}, "jpeg", CUT, .views = 3, .drawn = true, .stored = true},
	{"mixed pictures", {"label", "jpeg"}, "jpeg", CUT, .mixed = true},
	{"array", {"vector", "label"}, "vector", FLIPPED},
	{"bytes", {"note", "label"}, "note", FLIPPED},
	{"large bytes", {"note"}, "note", LARGE},
	{"text, flipped", {"text"}, "text", FLIPPED},
	{"text, no UTF-8", {"label", "text"}, "text", NO_TEXT},
	{"compressed bytes", {"packed"}, "packed", FLIPPED},
	{"compressed text, no UTF-8", {"packed text"}, "packed text", NO_TEXT},
	{"ragged bytes", {"note"}, "note", FLIPPED, .ragged = true},
	{"large ragged bytes", {"note"}, "note", LARGE, .ragged = true},
	{"ragged text, flipped", {"text"}, "text", FLIPPED, .ragged = true},
	{"ragged text, no UTF-8", {"text"}, "text", NO_TEXT, .ragged = true},
	{"large ragged text, no UTF-8", {"text"}, "text", NO_TEXT, .ragged = true},
	{"compressed ragged bytes", {"packed"}, "packed", FLIPPED, .ragged = true},
	{"large compressed ragged bytes", {"packed"}, "packed", LARGE, .ragged = true},
	{"compressed ragged text, no UTF-8", {"packed text"}, "packed text", NO_TEXT, .ragged = true},
	{"ragged bytes before a bad value", {"note", "text"}, "text", FLIPPED, .ragged = true},
	{"compressed ragged bytes in front", {"note", "packed", "packed text"}, "packed text", NO_TEXT, .ragged = true},
	{"ragged bytes after a bad picture", {"jpeg", "note"}, "jpeg", CUT, .ragged = true},
	{"metadata", {"label", "jpeg", "note"}, "label", NO_RECORD, .ragged = true},
};

/* Bit i: in place of sample i comes its bad twin, sample N + i. All of a batch are bad in three of them. */
static const uint32_t patterns[] = {1u << 4, 1u << 6, 1u << 7, 0x0a2, 0x0f0, 0x9f1, (1u << N) - 1};

static const beton_on_error policies[] = {BETON_ON_ERROR_FAIL, BETON_ON_ERROR_SKIP, BETON_ON_ERROR_SUBSTITUTE};

static uint32_t num_fields = FIELDS; /* fewer in a build that cannot compress */

/* ---- files ---- */

/* A text that is a JSON string, of VALUE bytes with its NUL, or large ones. */
static void make_text(char *text, uint64_t sample, uint32_t field, size_t size)
{
	for (size_t i = 0; i < size; i++)
		text[i] = (char)('a' + (sample * 7 + field * 3 + i * (1 + sample % 4)) % 26);
	text[0] = text[size - 1] = '"';
}

static void put_sample(beton_writer *writer, const kind *of, uint64_t sample, bool bad)
{
	uint8_t *pixels = fixture_pixels(sample, 40, 30);
	unsigned long size;
	uint8_t *jpeg = fixture_jpeg(pixels, 40, 30, (fixture_jpeg_options){0}, &size);
	float vector[VECTOR];
	for (uint32_t i = 0; i < VECTOR; i++)
		vector[i] = (float)(sample * 100 + i);
	char *texts = malloc((size_t)FIELDS * LARGE_VALUE);
	assert_non_null(texts);
	beton_input inputs[FIELDS] = {
		{.integer = (int64_t)sample * 3},
		{.real = (double)sample / 2},
		{.data = jpeg, .size = size, .width = 40, .height = 30},
		{.data = pixels, .size = 40 * 30 * 3, .mode = BETON_IMAGE_RAW, .width = 40, .height = 30},
		[6] = {.data = vector, .size = sizeof(vector)},
	};
	for (uint32_t i = 0; i < num_fields; i++) {
		if (fields[i].type != BETON_FIELD_BYTES && fields[i].type != BETON_FIELD_JSON)
			continue;
		bool it = bad && strcmp(fields[i].name, of->damaged) == 0;
		size_t length = it && (of->damage == LARGE || strncmp(of->name, "large", 5) == 0) ? LARGE_VALUE : VALUE;
		length -= fields[i].type == BETON_FIELD_JSON;
		make_text(texts + i * LARGE_VALUE, sample, i, length);
		if (it && of->damage == NO_TEXT)
			texts[i * LARGE_VALUE + length / 2] = '\xff';
		inputs[i] = (beton_input){.data = texts + i * LARGE_VALUE, .size = length};
	}
	if (bad && of->damage == CUT)
		inputs[2].size /= 2;
	assert_ok(beton_writer_append(writer, inputs, err));
	free(texts);
	free(jpeg);
	free(pixels);
}

static void flip_byte(const char *path, uint64_t offset)
{
	FILE *stream = fopen(path, "r+b");
	assert_non_null(stream);
	assert_int_equal(fseek(stream, (long)offset, SEEK_SET), 0);
	int byte = fgetc(stream);
	assert_int_equal(fseek(stream, (long)offset, SEEK_SET), 0);
	fputc(byte ^ 4, stream);
	assert_int_equal(fclose(stream), 0);
}

/* Flips values of the second half of the samples. */
static void flip_values(const char *path, const kind *of)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, path, err));
	const beton_file_info info = *beton_reader_info(reader);
	int field = beton_reader_find_field(reader, of->damaged);
	beton_value value[N];
	for (uint64_t i = 0; i < N; i++)
		assert_ok(beton_reader_value(reader, N + i, (uint32_t)field, &value[i], err));
	beton_reader_close(&reader);
	if (of->damage == NO_RECORD)
		flip_byte(path, info.metadata_offset + 5 * info.record_size);
	for (uint64_t i = 0; i < N && of->damage != NO_RECORD; i++)
		flip_byte(path, value[i].blob.offset + value[i].blob.size / 2);
}

/* N samples that are good, and the same once more, bad. Freed by fixture_remove. */
static char *write_file(const kind *of)
{
	char *path = fixture_write(1, -1);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	beton_error fault;
	if (beton_writer_open(&writer, path, fields, num_fields, &options, &fault) == BETON_UNSUPPORTED)
		num_fields -= 2;
	if (!writer)
		assert_ok(beton_writer_open(&writer, path, fields, num_fields, &options, err));
	for (uint64_t i = 0; i < 2 * N; i++)
		put_sample(writer, of, i % N, i >= N);
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	if (of->damage == FLIPPED || of->damage == LARGE)
		flip_values(path, of);
	return path;
}

/* ---- what a sample's outputs are without damage ---- */

typedef struct row {
	size_t bytes;
	uint8_t *data;
} row;

static row expected[N][OUTPUTS_MAX];

/* Whether a tensor has offsets: its rows belong to the values before it. */
static bool is_offsets(const beton_batch *batch, uint32_t number)
{
	return number < batch->num_tensors && strstr(batch->tensors[number].name, ".offsets");
}

static row find_row(const beton_batch *batch, uint32_t number, uint32_t index)
{
	const beton_tensor *tensor = &batch->tensors[number];
	if (is_offsets(batch, number))
		return (row){0};
	size_t bytes = fixture_row_bytes(tensor), start = index * bytes;
	if (is_offsets(batch, number + 1)) {
		const int64_t *offsets = batch->tensors[number + 1].data;
		start = (size_t)offsets[index];
		bytes = (size_t)(offsets[index + 1] - offsets[index]);
	}
	return (row){bytes, (uint8_t *)tensor->data + start};
}

static void forget_expected(void)
{
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < OUTPUTS_MAX; k++) {
			free(expected[i][k].data);
			expected[i][k] = (row){0};
		}
}

static void keep_expected(const beton_batch *batch)
{
	assert_true(batch->num_tensors <= OUTPUTS_MAX);
	for (uint32_t i = 0; i < batch->count; i++)
		for (uint32_t k = 0; k < batch->num_tensors; k++) {
			row found = find_row(batch, k, i);
			row *kept = &expected[batch->sample_ids[i]][k];
			*kept = (row){found.bytes, malloc(found.bytes + 1)};
			assert_non_null(kept->data);
			memcpy(kept->data, found.data ? found.data : kept->data, found.bytes);
		}
}

/* ---- one epoch ---- */

typedef struct run {
	const kind *kind;
	uint32_t pattern;
	beton_on_error policy;
	uint32_t threads;
	beton_engine engine;
} run;

static void explain(const run *self, const char *what, uint64_t batch, const char *message)
{
	fail_msg("%s; bad samples %#x, policy %d, %u threads, engine %d: batch %llu: %s%s%s", self->kind->name,
		 self->pattern, self->policy, self->threads, self->engine, (unsigned long long)batch, what,
		 message ? ": " : "", message ? message : "");
}

static beton_loader *open_loader(const run *self, const char *path)
{
	const kind *of = self->kind;
	beton_loader_options options = fixture_options(BATCH, self->threads);
	beton_image_options views[3];
	beton_batch_operation mixup;
	options.on_error = self->policy;
	options.engine = self->engine;
	options.fields = of->outputs;
	while (options.num_fields < 4 && of->outputs[options.num_fields])
		options.num_fields++;
	options.max_bytes = VALUE;
	options.ragged = of->ragged;
	options.drawn = of->drawn;
	options.image.crop = BETON_CROP_RANDOM;
	if (of->stored && !of->views)
		options.image.output = BETON_IMAGE_STORED;
	uint64_t indices[N];
	for (uint64_t i = 0; i < N; i++)
		indices[i] = self->pattern >> i & 1 ? N + i : i;
	options.order = BETON_ORDER_LIST;
	options.indices = indices;
	options.num_indices = N;
	for (uint32_t i = 0; i < options.num_fields; i++)
		if (strcmp(of->outputs[i], "raw") == 0)
			options.image.field = "raw";
	for (uint32_t i = 0; i < of->views; i++) {
		views[i] = options.image;
		views[i].width += i;
		views[i].output = of->stored && i == 1 ? BETON_IMAGE_STORED : BETON_IMAGE_DECODED;
	}
	options.views = of->views ? views : NULL;
	options.num_views = of->views;
	beton_loader_batch_operation_init(&mixup, BETON_BATCH_MIXUP);
	options.batch_operations = of->mixed ? &mixup : NULL;
	options.num_batch_operations = of->mixed;
	beton_loader *loader = NULL;
	beton_error fault;
	if (beton_loader_open(&loader, path, &options, &fault) != BETON_OK)
		explain(self, "open", 0, fault.message);
	return loader;
}

static void check_mixing(const run *self, const beton_batch *batch, uint64_t number)
{
	const int64_t *label = batch->tensors[0].data, *mixed = batch->tensors[1].data, *partner = NULL;
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strstr(batch->tensors[i].name, ".partner"))
			partner = batch->tensors[i].data;
	for (uint32_t i = 0; i < batch->count; i++)
		if (partner[i] < 0 || partner[i] >= batch->count || mixed[i] != label[partner[i]] ||
		    label[i] != (int64_t)batch->sample_ids[i] * 3)
			explain(self, "labels are not the partners'", number, NULL);
}

static void check_rows(const run *self, const beton_batch *batch, uint64_t number)
{
	for (uint32_t i = 0; i < batch->count; i++)
		for (uint32_t k = 0; k < batch->num_tensors; k++) {
			row found = find_row(batch, k, i), *wanted = &expected[batch->sample_ids[i]][k];
			if (found.bytes != wanted->bytes ||
			    (found.bytes && memcmp(found.data, wanted->data, found.bytes) != 0))
				explain(self, "a row is not its sample's", number, batch->tensors[k].name);
		}
}

/* The rows of a batch, and which samples they are of. */
static void check_batch(const run *self, const beton_batch *batch, uint64_t number)
{
	bool skip = self->policy == BETON_ON_ERROR_SKIP;
	uint32_t bad = 0, at = 0;
	for (uint32_t i = 0; i < BATCH; i++) {
		uint64_t sample = number * BATCH + i;
		bool is_bad = self->pattern >> sample & 1;
		bad += is_bad;
		if (is_bad && skip)
			continue;
		if (at >= batch->count)
			explain(self, "rows are missing", number, NULL);
		uint64_t found = batch->sample_ids[at++];
		if (is_bad ? found >= N || self->pattern >> found & 1 : found != sample)
			explain(self, "another sample came", number, NULL);
	}
	if (at != batch->count || batch->bad != bad)
		explain(self, "there are too many rows, or bad ones are not counted", number, NULL);
	if (self->kind->mixed)
		check_mixing(self, batch, number);
	else if (self->pattern)
		check_rows(self, batch, number);
	else
		keep_expected(batch);
}

static bool may_come(const run *self, uint64_t number)
{
	uint32_t bad = self->pattern >> (number * BATCH) & ((1u << BATCH) - 1);
	if (self->policy == BETON_ON_ERROR_SKIP)
		return bad != (1u << BATCH) - 1;
	if (self->policy == BETON_ON_ERROR_SUBSTITUTE)
		return self->pattern != (1u << N) - 1 || bad == 0;
	return bad == 0;
}

static void check_bad_list(const run *self, const beton_loader *loader)
{
	uint64_t ids[N];
	size_t count;
	uint32_t seen = 0;
	beton_loader_bad_samples(loader, ids, N, &count);
	assert_true(count <= N);
	for (size_t i = 0; i < count; i++)
		seen |= ids[i] < N ? 1u << 31 : 1u << (ids[i] - N);
	if (seen != self->pattern)
		explain(self, "other samples are listed as bad", 0, NULL);
}

static void run_epoch(const run *self, const char *path)
{
	beton_loader *loader = open_loader(self, path);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	for (uint64_t i = 0; i < N / BATCH; i++) {
		beton_batch *batch;
		beton_error fault = {0};
		int result = beton_iterator_next(iterator, &batch, -1, &fault);
		if (may_come(self, i)) {
			if (result != BETON_OK)
				explain(self, "it is lost", i, fault.message);
			check_batch(self, batch, i);
		} else if (result != BETON_SAMPLE_CORRUPT) {
			explain(self, "it is not lost for a bad sample", i, result ? fault.message : NULL);
		} else if (fault.sample < N || !(self->pattern >> (fault.sample - N) & 1)) {
			explain(self, "it names another sample", i, fault.message);
		}
		beton_batch_release(&batch);
	}
	assert_int_equal(beton_iterator_next(iterator, &(beton_batch *){NULL}, -1, NULL), BETON_END);
	check_bad_list(self, loader);
	fixture_close(&loader, &iterator);
}

static bool is_possible(const kind *of)
{
	for (uint32_t i = 0; i < 4 && of->outputs[i]; i++)
		if (num_fields < FIELDS && strncmp(of->outputs[i], "packed", 6) == 0)
			return false;
	return true;
}

static void check_kind(void **state)
{
	const kind *of = *state;
	char *path = write_file(of);
	bool possible = is_possible(of);
	if (possible)
		run_epoch(&(run){.kind = of, .threads = 1}, path);
	/* All samples share the checksum, and so are bad together. */
	if (of->damage == NO_RECORD)
		flip_values(path, of);
	for (size_t p = 0; p < sizeof(patterns) / sizeof(*patterns) && possible; p++) {
		uint32_t pattern = of->damage == NO_RECORD ? (1u << N) - 1 : patterns[p];
		for (int policy = 0; policy < 3; policy++)
			for (uint32_t threads = 1; threads <= 3; threads += 2) {
				/* Rings take long to open and close. */
				bool ring = p == 3 && policy == 2 && threads == 1;
				beton_engine engine = ring    ? BETON_ENGINE_URING
						      : p % 2 ? BETON_ENGINE_MMAP
							      : BETON_ENGINE_THREADS;
				run_epoch(&(run){of, pattern, policies[policy], threads, engine}, path);
			}
	}
	fixture_remove(path);
	forget_expected();
}

int main(void)
{
	enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
	struct CMUnitTest tests[KINDS];
	for (size_t i = 0; i < KINDS; i++)
		tests[i] = (struct CMUnitTest){kinds[i].name, check_kind, NULL, NULL, (void *)&kinds[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
