/* SPDX-License-Identifier: Apache-2.0 */
#include "decompress.h"

#include "common/error.h"
#include "extension.h"
#include "format.h"
#include "reader.h"

#ifdef HAVE_ZSTD
#include <stdlib.h>

#include <zstd.h>

struct dictionary_table {
	dictionary_table *next;
	uint32_t users; /* readers; guarded by the pool's lock */
	/* Identity of the section. */
	uint64_t size, sum;
	uint32_t count;
	ZSTD_DDict *of_field[]; /* [count], by field; NULL: no dictionary */
};

bool bt_can_decompress(beton_compression compression)
{
	return compression == BETON_COMPRESSION_NONE || compression == BETON_COMPRESSION_ZSTD;
}

static void free_table(dictionary_table *table)
{
	for (uint32_t i = 0; table && i < table->count; i++)
		ZSTD_freeDDict(table->of_field[i]);
	free(table);
}

static int bad_dictionaries(const beton_reader *reader, const char *what, uint64_t offset, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: extension block: dictionary at offset %llu: %s", reader->path,
		       (unsigned long long)offset, what);
}

/* Reads the dictionary whose head is at offset; `room` bytes follow the head. */
static int read_dictionary(const beton_reader *reader, const uint8_t *head, uint64_t offset, uint64_t room,
			   dictionary_table *table, beton_error *err)
{
	uint32_t field = load_u32(head);
	uint32_t size = load_u32(head + 4);
	if (field >= reader->info.num_fields || reader->fields[field].compression == BETON_COMPRESSION_NONE)
		return bad_dictionaries(reader, "its field is not compressed", offset, err);
	if (table->of_field[field])
		return bad_dictionaries(reader, "its field has two", offset, err);
	if (size == 0 || size > room)
		return bad_dictionaries(reader, "its size is wrong", offset, err);
	void *bytes = malloc(size);
	int result = bytes ? bt_read_section(reader, "dictionaries", bytes, size, offset + 8, err)
			   : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a dictionary", reader->path);
	if (result == BETON_OK) {
		table->of_field[field] = ZSTD_createDDict(bytes, size);
		/* Either the dictionary is damaged or memory is short: zstd does not tell. */
		if (!table->of_field[field])
			result = bad_dictionaries(reader, "zstd refuses it, or out of memory", offset, err);
	}
	free(bytes);
	return result;
}

static int read_dictionaries(const beton_reader *reader, dictionary_table *table, beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_DICTIONARIES];
	int result = BETON_OK;
	for (uint64_t at = 0; at < section->size && result == BETON_OK;) {
		uint8_t head[8];
		if (section->size - at < sizeof(head))
			return bad_dictionaries(reader, "the section ends in it", section->offset + at, err);
		result = bt_read_section(reader, "dictionaries", head, sizeof(head), section->offset + at, err);
		if (result != BETON_OK)
			return result;
		result = read_dictionary(reader, head, section->offset + at, section->size - at - sizeof(head), table,
					 err);
		at += sizeof(head) + load_u32(head + 4);
	}
	return result;
}

/* Whether the reader's dictionaries are these. */
static bool is_same(const dictionary_table *table, const beton_reader *reader)
{
	const extension_section *section = &reader->extension.known[SECTION_DICTIONARIES];
	bool same =
		table->size == section->size && table->sum == section->sum && table->count == reader->info.num_fields;
	for (uint32_t i = 0; same && i < table->count; i++)
		same = !table->of_field[i] || reader->fields[i].compression != BETON_COMPRESSION_NONE;
	return same;
}

/* Shares another reader's table; NULL: none. */
static dictionary_table *share_table(const beton_reader *reader)
{
	unpack_pool *pool = reader->pool;
	pthread_mutex_lock(&pool->lock);
	dictionary_table *table = pool->tables;
	while (table && !is_same(table, reader))
		table = table->next;
	if (table)
		table->users++;
	pthread_mutex_unlock(&pool->lock);
	return table;
}

/* Reads the table of a file whose section was checked. */
static int read_table(const beton_reader *reader, dictionary_table **out, beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_DICTIONARIES];
	unpack_pool *pool = reader->pool;
	uint32_t count = reader->info.num_fields;
	dictionary_table *table = calloc(1, sizeof(*table) + count * sizeof(ZSTD_DDict *));
	if (!table)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its dictionaries", reader->path);
	table->count = count;
	table->users = 1;
	table->size = section->size;
	table->sum = section->sum;
	int result = read_dictionaries(reader, table, err);
	if (result != BETON_OK) {
		free_table(table);
		return result;
	}
	pthread_mutex_lock(&pool->lock);
	table->next = pool->tables;
	pool->tables = table;
	pthread_mutex_unlock(&pool->lock);
	*out = table;
	return BETON_OK;
}

/* With the lock held: finds or reads all dictionaries unless another thread was first. */
static int make_table(beton_reader *reader, dictionary_table **out, beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_DICTIONARIES];
	*out = atomic_load_explicit(&reader->dictionaries.table, memory_order_relaxed);
	if (*out)
		return BETON_OK;
	int result = section->offset ? bt_extension_check(reader, section, err) : BETON_OK;
	if (result == BETON_OK)
		*out = share_table(reader);
	if (result == BETON_OK && !*out)
		result = read_table(reader, out, err);
	if (result == BETON_OK)
		atomic_store_explicit(&reader->dictionaries.table, *out, memory_order_release);
	return result;
}

static int find_dictionary(beton_reader *reader, uint32_t field, const ZSTD_DDict **out, beton_error *err)
{
	dictionary_table *table = atomic_load_explicit(&reader->dictionaries.table, memory_order_acquire);
	int result = BETON_OK;
	if (!table) {
		pthread_mutex_lock(&reader->lock);
		result = make_table(reader, &table, err);
		pthread_mutex_unlock(&reader->lock);
	}
	*out = result == BETON_OK ? table->of_field[field] : NULL;
	return result;
}

static ZSTD_DCtx *take_context(unpack_pool *pool)
{
	for (int i = 0; i < SPARE_CONTEXTS; i++) {
		ZSTD_DCtx *context = atomic_exchange(&pool->spare[i], NULL);
		if (context)
			return context;
	}
	return ZSTD_createDCtx();
}

static void give_context(unpack_pool *pool, ZSTD_DCtx *context)
{
	for (int i = 0; i < SPARE_CONTEXTS && context; i++)
		context = atomic_exchange(&pool->spare[i], context);
	ZSTD_freeDCtx(context);
}

int bt_decompress(const beton_reader *reader, const beton_value *value, const void *stored, void *destination,
		  beton_error *err)
{
	beton_reader *self = (beton_reader *)reader;
	const ZSTD_DDict *dictionary;
	int result = find_dictionary(self, value->field, &dictionary, err);
	if (result != BETON_OK)
		return result;
	/* A frame without a dictionary id was made without a dictionary, or with one that has no id. */
	if (dictionary && ZSTD_getDictID_fromFrame(stored, (size_t)value->blob.size) == 0 &&
	    ZSTD_getDictID_fromDDict(dictionary) != 0)
		dictionary = NULL;
	ZSTD_DCtx *context = take_context(reader->pool);
	if (!context)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory to decompress", reader->path);
	size_t got = ZSTD_decompress_usingDDict(context, destination, (size_t)value->size, stored,
						(size_t)value->blob.size, dictionary);
	if (ZSTD_isError(got) || got != value->size)
		result = bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample,
					"%s: sample %llu, field '%s': the compressed bytes at offset %llu do not give "
					"%llu bytes: %s",
					reader->path, (unsigned long long)value->sample,
					reader->fields[value->field].name, (unsigned long long)value->blob.offset,
					(unsigned long long)value->size,
					ZSTD_isError(got) ? ZSTD_getErrorName(got) : "they give fewer");
	give_context(reader->pool, context);
	return result;
}

void bt_dictionaries_free(dictionary_cache *cache, unpack_pool *pool)
{
	dictionary_table *table = atomic_load(&cache->table), **place = &pool->tables;
	if (!table)
		return;
	pthread_mutex_lock(&pool->lock);
	bool last = --table->users == 0;
	while (last && *place != table)
		place = &(*place)->next;
	if (last)
		*place = table->next;
	pthread_mutex_unlock(&pool->lock);
	if (last)
		free_table(table);
}

static void free_contexts(unpack_pool *pool)
{
	for (int i = 0; i < SPARE_CONTEXTS; i++)
		ZSTD_freeDCtx(atomic_load(&pool->spare[i]));
}

#else

bool bt_can_decompress(beton_compression compression)
{
	return compression == BETON_COMPRESSION_NONE;
}

int bt_decompress(const beton_reader *reader, const beton_value *value, const void *stored, void *destination,
		  beton_error *err)
{
	(void)value;
	(void)stored;
	(void)destination;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: this build cannot decompress", reader->path);
}

void bt_dictionaries_free(dictionary_cache *cache, unpack_pool *pool)
{
	(void)cache;
	(void)pool;
}

static void free_contexts(unpack_pool *pool)
{
	(void)pool;
}

#endif

void bt_unpack_pool_init(unpack_pool *pool)
{
	/* With default attributes this call cannot fail. */
	pthread_mutex_init(&pool->lock, NULL);
}

void bt_unpack_pool_free(unpack_pool *pool)
{
	free_contexts(pool);
	pthread_mutex_destroy(&pool->lock);
}
