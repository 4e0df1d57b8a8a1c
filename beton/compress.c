/* SPDX-License-Identifier: Apache-2.0 */
#include "compress.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <zdict.h>
#include <zstd.h>

#include "common/error.h"
#include "common/hash.h"
#include "format.h"

/* Idle contexts that are kept; further threads create and free their own. */
#define SPARE_CONTEXTS 16

/* Bytes of values to train a field's dictionary from; less if many fields share the limit. */
#define TRAINING_BYTES ((size_t)1 << 20)
#define TRAINING_BYTES_ALL ((size_t)16 << 20)

/* Least size of a dictionary: zstd advises a hundredth to a tenth of the training data, and makes none below 256 bytes.
 */
#define DICTIONARY_MIN 256
#define DICTIONARY_MAX ((size_t)64 << 10)
#define DICTIONARY_SHARE 16

typedef struct packed_field {
	uint32_t field; /* index in the schema */
	int level;
	uint8_t *values; /* to train from, concatenated */
	size_t values_size;
	size_t sizes[TRAINING_SAMPLES];
	unsigned values_count;
	void *dictionary;
	size_t dictionary_size;
	ZSTD_CDict *prepared; /* NULL: no dictionary */
} packed_field;

struct compressor {
	const sample_schema *schema;
	size_t training_bytes; /* for each field */
	atomic_bool trained;
	_Atomic(ZSTD_CCtx *) spare[SPARE_CONTEXTS];
	uint32_t count;
	packed_field fields[];
};

static int no_memory(const compressor *self, const char *what, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: no memory %s", self->schema->path, what);
}

int bt_compressor_open(compressor **out, const sample_schema *schema, beton_error *err)
{
	uint32_t count = 0;
	*out = NULL;
	for (uint32_t i = 0; i < schema->num_fields; i++)
		count += schema->fields[i].compression != BETON_COMPRESSION_NONE;
	if (count == 0)
		return BETON_OK;
	compressor *self = calloc(1, sizeof(*self) + count * sizeof(*self->fields));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u compressed fields", schema->path, count);
	self->schema = schema;
	self->training_bytes =
		TRAINING_BYTES_ALL / count < TRAINING_BYTES ? TRAINING_BYTES_ALL / count : TRAINING_BYTES;
	int result = BETON_OK;
	for (uint32_t i = 0; i < schema->num_fields && result == BETON_OK; i++) {
		const beton_field *field = &schema->fields[i];
		if (field->compression == BETON_COMPRESSION_NONE)
			continue;
		packed_field *packed = &self->fields[self->count++];
		*packed = (packed_field){.field = i,
					 .level = field->compression_level ? field->compression_level
									   : ZSTD_CLEVEL_DEFAULT,
					 .values = malloc(self->training_bytes)};
		if (!packed->values)
			result = no_memory(self, "to train dictionaries", err);
		else if (packed->level < ZSTD_minCLevel() || packed->level > ZSTD_maxCLevel())
			result =
				bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field '%s': zstd has levels %d to %d, not %d",
					schema->path, field->name, ZSTD_minCLevel(), ZSTD_maxCLevel(), packed->level);
	}
	if (result == BETON_OK)
		*out = self;
	else
		bt_compressor_close(&self);
	return result;
}

static void forget_values(compressor *self)
{
	for (uint32_t i = 0; i < self->count; i++) {
		free(self->fields[i].values);
		self->fields[i].values = NULL;
	}
}

static void drop_dictionary(packed_field *packed)
{
	ZSTD_freeCDict(packed->prepared);
	free(packed->dictionary);
	packed->prepared = NULL;
	packed->dictionary = NULL;
	packed->dictionary_size = 0;
}

void bt_compressor_close(compressor **out)
{
	compressor *self = *out;
	if (!self)
		return;
	forget_values(self);
	for (uint32_t i = 0; i < self->count; i++)
		drop_dictionary(&self->fields[i]);
	for (int i = 0; i < SPARE_CONTEXTS; i++)
		ZSTD_freeCCtx(atomic_load(&self->spare[i]));
	free(self);
	*out = NULL;
}

uint32_t bt_compressor_version(const compressor *self)
{
	return self ? ZSTD_versionNumber() : 0;
}

bool bt_compressor_trained(const compressor *self)
{
	return atomic_load_explicit(&self->trained, memory_order_acquire);
}

void bt_compressor_ready(compressor *self)
{
	forget_values(self);
	atomic_store_explicit(&self->trained, true, memory_order_release);
}

static ZSTD_CCtx *take_context(compressor *self)
{
	for (int i = 0; i < SPARE_CONTEXTS; i++) {
		ZSTD_CCtx *context = atomic_exchange(&self->spare[i], NULL);
		if (context)
			return context;
	}
	return ZSTD_createCCtx();
}

static void give_context(compressor *self, ZSTD_CCtx *context)
{
	for (int i = 0; i < SPARE_CONTEXTS && context; i++)
		context = atomic_exchange(&self->spare[i], context);
	ZSTD_freeCCtx(context);
}

/* Compresses one value; returns its size, or an error of zstd. */
static size_t pack(ZSTD_CCtx *context, const packed_field *packed, bool with_dictionary, void *to, size_t room,
		   const void *from, size_t size)
{
	if (with_dictionary && packed->prepared)
		return ZSTD_compress_usingCDict(context, to, room, from, size, packed->prepared);
	return ZSTD_compressCCtx(context, to, room, from, size, packed->level);
}

static void learn(const compressor *self, packed_field *packed, const void *value, size_t size)
{
	if (size == 0 || size > self->training_bytes - packed->values_size || packed->values_count == TRAINING_SAMPLES)
		return;
	memcpy(packed->values + packed->values_size, value, size);
	packed->values_size += size;
	packed->sizes[packed->values_count++] = size;
}

/* Compresses all values to be compressed into `to`, which has room for any result; fresh[b]: new blob b. */
static int pack_all(compressor *self, const sample *one, ZSTD_CCtx *context, uint8_t *to, sample_blob *fresh,
		    beton_error *err)
{
	const sample_schema *schema = self->schema;
	const packed_field *packed = self->fields;
	for (uint32_t b = 0; b < schema->blob_fields; b++) {
		const beton_field *field = &schema->fields[schema->field_of_blob[b]];
		fresh[b] = one->blobs[b];
		if (field->compression == BETON_COMPRESSION_NONE)
			continue;
		size_t size = pack(context, packed++, one->index >= TRAINING_SAMPLES, to,
				   ZSTD_compressBound((size_t)fresh[b].size), fresh[b].data, (size_t)fresh[b].size);
		if (ZSTD_isError(size)) /* the only possible failure is lack of memory */
			return bt_fail_sample(err, BETON_NO_MEMORY, (int64_t)one->index,
					      "%s: sample %llu, field '%s': cannot be compressed: %s", schema->path,
					      (unsigned long long)one->index, field->name, ZSTD_getErrorName(size));
		fresh[b] = (sample_blob){.data = to, .size = size, .sum = XXH3_64bits(to, size)};
		to += size;
	}
	return BETON_OK;
}

static int check_fit(const sample_schema *schema, const sample *one, const sample_blob *fresh, uint64_t *used,
		     beton_error *err)
{
	*used = 0;
	for (uint32_t b = 0; b < schema->blob_fields; b++)
		*used += bt_blob_used(fresh[b].size);
	if (*used <= schema->page_size)
		return BETON_OK;
	return bt_fail_sample(
		err, BETON_INVALID_ARGUMENT, (int64_t)one->index,
		"%s: sample %llu takes %llu bytes when it is compressed, more than a page of %u bytes; raise "
		"the page size",
		schema->path, (unsigned long long)one->index, (unsigned long long)*used, schema->page_size);
}

/* Keeps the values for training, then replaces the blobs by the new ones. */
static void replace_blobs(compressor *self, sample *one, const sample_blob *fresh)
{
	const sample_schema *schema = self->schema;
	bool learning = one->index < TRAINING_SAMPLES && !bt_compressor_trained(self);
	packed_field *packed = self->fields;
	for (uint32_t b = 0; b < schema->blob_fields; b++) {
		const beton_field *field = &schema->fields[schema->field_of_blob[b]];
		if (field->compression != BETON_COMPRESSION_NONE) {
			if (learning)
				learn(self, packed, one->blobs[b].data, (size_t)one->blobs[b].size);
			packed++;
			store_u64(one->record + field->record_offset + 8, fresh[b].size);
		}
		one->blobs[b] = fresh[b];
	}
}

/* Upper bound of the compressed bytes. */
static size_t room_for(const sample_schema *schema, const sample *one)
{
	size_t room = 0;
	for (uint32_t b = 0; b < schema->blob_fields; b++)
		if (schema->fields[schema->field_of_blob[b]].compression != BETON_COMPRESSION_NONE)
			room += ZSTD_compressBound((size_t)one->blobs[b].size);
	return room;
}

bool bt_compressed_fits(const sample_schema *schema, const sample *one)
{
	return one->used + room_for(schema, one) <= schema->page_size;
}

int bt_compress_sample(compressor *self, sample *one, beton_error *err)
{
	/* The list of new blobs, then their bytes. */
	size_t list = self->schema->blob_fields * sizeof(sample_blob);
	sample_blob *fresh = malloc(list + room_for(self->schema, one));
	ZSTD_CCtx *context = take_context(self);
	uint64_t used = 0;
	int result = BETON_OK;
	if (!fresh || !context)
		result = no_memory(self, "to compress a sample", err);
	if (result == BETON_OK)
		result = pack_all(self, one, context, (uint8_t *)fresh + list, fresh, err);
	if (result == BETON_OK)
		result = check_fit(self->schema, one, fresh, &used, err);
	give_context(self, context);
	if (result != BETON_OK) {
		free(fresh);
		return result;
	}
	replace_blobs(self, one, fresh);
	one->packed = fresh;
	one->raw = false;
	one->used = used;
	return BETON_OK;
}

/* Whether a dictionary makes the training values smaller by more than a twentieth. */
static int pays(compressor *self, const packed_field *packed, bool *out, beton_error *err)
{
	size_t room = ZSTD_compressBound(packed->values_size);
	uint8_t *to = malloc(room);
	ZSTD_CCtx *context = take_context(self);
	const uint8_t *from = packed->values;
	size_t without = 0;
	size_t with = 0;
	int result = to && context ? BETON_OK : no_memory(self, "to try a dictionary", err);
	for (unsigned i = 0; i < packed->values_count && result == BETON_OK; i++) {
		size_t plain = pack(context, packed, false, to, room, from, packed->sizes[i]);
		size_t trained = pack(context, packed, true, to, room, from, packed->sizes[i]);
		if (ZSTD_isError(plain) || ZSTD_isError(trained))
			result = no_memory(self, "to try a dictionary", err);
		without += plain;
		with += trained;
		from += packed->sizes[i];
	}
	*out = with < without - without / 20;
	give_context(self, context);
	free(to);
	return result;
}

static int train_field(compressor *self, uint32_t number, beton_error *err)
{
	packed_field *packed = &self->fields[number];
	size_t size = packed->values_size / DICTIONARY_SHARE;
	size = size < DICTIONARY_MAX ? size : DICTIONARY_MAX;
	if (size < DICTIONARY_MIN)
		return BETON_OK;
	void *dictionary = malloc(size);
	if (!dictionary)
		return no_memory(self, "to train a dictionary", err);
	size = ZDICT_trainFromBuffer(dictionary, size, packed->values, packed->sizes, packed->values_count);
	/* Values may have too little in common, or be too few: go on without a dictionary. */
	int result = ZDICT_isError(size) ? BETON_OK : bt_compressor_set(self, number, dictionary, size, err);
	free(dictionary);
	bool kept = false;
	if (result == BETON_OK && packed->prepared)
		result = pays(self, packed, &kept, err);
	if (!kept)
		drop_dictionary(packed);
	return result;
}

int bt_compressor_train(compressor *self, beton_error *err)
{
	int result = BETON_OK;
	for (uint32_t i = 0; i < self->count && result == BETON_OK; i++)
		result = train_field(self, i, err);
	return result;
}

uint32_t bt_compressor_fields(const compressor *self)
{
	return self ? self->count : 0;
}

const void *bt_compressor_dictionary(const compressor *self, uint32_t number, size_t *size)
{
	*size = self->fields[number].dictionary_size;
	return self->fields[number].dictionary;
}

int bt_compressor_set(compressor *self, uint32_t number, const void *bytes, size_t size, beton_error *err)
{
	packed_field *packed = &self->fields[number];
	drop_dictionary(packed);
	if (size == 0)
		return BETON_OK;
	packed->dictionary = malloc(size);
	if (packed->dictionary) {
		memcpy(packed->dictionary, bytes, size);
		packed->dictionary_size = size;
		packed->prepared = ZSTD_createCDict(bytes, size, packed->level);
	}
	return packed->prepared ? BETON_OK : no_memory(self, "for a dictionary", err);
}

int bt_compressor_section(const compressor *self, uint8_t **out, size_t *size, beton_error *err)
{
	*out = NULL;
	*size = 0;
	for (uint32_t i = 0; self && i < self->count; i++)
		if (self->fields[i].dictionary_size)
			*size += 8 + self->fields[i].dictionary_size;
	if (*size == 0)
		return BETON_OK;
	uint8_t *to = malloc(*size);
	if (!to)
		return no_memory(self, "for the dictionaries", err);
	*out = to;
	for (uint32_t i = 0; i < self->count; i++) {
		const packed_field *packed = &self->fields[i];
		if (packed->dictionary_size == 0)
			continue;
		store_u32(to, packed->field);
		store_u32(to + 4, (uint32_t)packed->dictionary_size);
		memcpy(to + 8, packed->dictionary, packed->dictionary_size);
		to += 8 + packed->dictionary_size;
	}
	return BETON_OK;
}
