/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens files, which are untrusted: no length, count or pointer is used before it is checked, and memory is allocated
 * only for bytes that the file has.
 */
#include "cache.h"
#include "decompress.h"
#include "extension.h"
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/file_kind.h"
#include "common/hash.h"
#include "common/isa.h"
#include "common/sized.h"
#include "common/system.h"
#include "fields.h"
#include "format.h"
#include "layout.h"
#include "side_index.h"
#include "sources.h"
#include "sums.h"
#include "types/types.h"

/* Enough for tools, which read files from beginning to end. */
enum { CACHE_DEFAULT = 4 << 20 };

static int open_regular(beton_reader *reader, const char *path, beton_error *err)
{
	struct stat status;
	int result = bt_access_open(&reader->file, path, &status, err);
	if (result != BETON_OK)
		return result;
	if (!S_ISREG(status.st_mode))
		return S_ISDIR(status.st_mode)
			       ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a folder, not a .beton file; %s", path,
					 bt_file_kind_folder()->use)
			       : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", path);
	reader->info.file_size = (uint64_t)status.st_size;
	return BETON_OK;
}

int bt_read_section(const beton_reader *reader, const char *section, void *destination, size_t size, uint64_t offset,
		    beton_error *err)
{
	if (reader->source)
		return bt_io_source_read(reader->source, section, destination, size, offset, err);
	ssize_t got;
	int result = bt_access_read(&reader->file, destination, size, offset, &got, err);
	if (result != BETON_OK)
		return result;
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read %zu bytes at offset %llu (%s)", reader->path, size,
				     (unsigned long long)offset, section);
	if ((size_t)got != size)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: the file became shorter while it was open (%lld of %zu bytes at offset %llu, %s)",
			       reader->path, (long long)got, size, (unsigned long long)offset, section);
	return BETON_OK;
}

static int truncated(const beton_reader *reader, const char *section, uint64_t needed, const char *advice,
		     beton_error *err)
{
	return bt_fail(err, BETON_TRUNCATED, "%s: the %s needs %llu bytes, the file has %llu%s", reader->path, section,
		       (unsigned long long)needed, (unsigned long long)reader->info.file_size, advice);
}

/* If the table is lost, the samples before it are still there. */
#define SAVES "beton-repair saves what is there"

static int check_table_offset(const beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	if (info->alloc_table_offset == 0)
		return bt_fail(err, BETON_INCOMPLETE, "%s: its writer did not finish (no allocation table); " SAVES,
			       reader->path);
	if (info->alloc_table_offset > INT64_MAX || info->alloc_table_offset < info->metadata_offset)
		return bt_fail(err, BETON_FORMAT, "%s: the allocation table cannot be at offset %llu (%u fields)",
			       reader->path, (unsigned long long)info->alloc_table_offset, info->num_fields);
	return BETON_OK;
}

static int check_header(const beton_reader *reader, int flags, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	if (info->num_fields == 0)
		return bt_fail(err, BETON_FORMAT, "%s: the header says 0 fields", reader->path);
	if (info->page_size < BETON_PAGE_SIZE_MIN || (info->page_size & (info->page_size - 1)))
		return bt_fail(err, BETON_FORMAT, "%s: page size %u is not a power of two of at least %u", reader->path,
			       info->page_size, BETON_PAGE_SIZE_MIN);
	int result = flags & OPEN_TO_SALVAGE ? BETON_OK : check_table_offset(reader, err);
	if (result == BETON_OK && info->metadata_offset > info->file_size)
		return truncated(reader, "list of fields", info->metadata_offset, "", err);
	return result;
}

/* The fault of a header that no .beton file has: what the file is instead, if that is known, else `fault`. */
static int refuse_kind(const beton_reader *reader, const beton_error *fault, beton_error *err)
{
	uint8_t head[BT_FILE_HEAD];
	uint64_t there = reader->info.file_size;
	size_t size = there < sizeof(head) ? (size_t)there : sizeof(head);
	int result = bt_read_section(reader, "header", head, size, 0, err);
	const bt_file_kind *kind = result == BETON_OK ? bt_file_kind_of(reader->path, head, size) : NULL;
	if (result != BETON_OK)
		return result;
	if (kind)
		return bt_fail(err, fault->code, "%s: %s, not a .beton file; %s", reader->path, kind->what, kind->use);
	return bt_fail(err, fault->code, "%s", fault->message);
}

/* Whether it may be the header of another version: most other files begin with two bytes that cannot be a version. */
static bool may_be_header(const beton_file_info *info)
{
	return info->version > 0 && info->version < 256 && info->num_fields > 0 && info->page_size >= 512 &&
	       (info->page_size & (info->page_size - 1)) == 0;
}

static int read_header(beton_reader *reader, int flags, beton_error *err)
{
	beton_file_info *info = &reader->info;
	uint8_t header[HEADER_SIZE];
	beton_error fault;
	if (info->file_size < HEADER_SIZE) {
		truncated(reader, "header", HEADER_SIZE, "", &fault);
		return refuse_kind(reader, &fault, err);
	}
	int result = bt_read_section(reader, "header", header, HEADER_SIZE, 0, err);
	if (result != BETON_OK)
		return result;
	info->version = load_u16(header + HEADER_VERSION);
	info->num_fields = load_u16(header + HEADER_NUM_FIELDS);
	info->page_size = load_u32(header + HEADER_PAGE_SIZE);
	info->num_samples = load_u64(header + HEADER_NUM_SAMPLES);
	info->alloc_table_offset = load_u64(header + HEADER_ALLOC_TABLE);
	info->metadata_offset = HEADER_SIZE + (uint64_t)info->num_fields * FIELD_SIZE;
	if (info->version != BETON_FORMAT_VERSION) {
		if (may_be_header(info))
			bt_fail(&fault, BETON_UNSUPPORTED_VERSION, "%s: not a .beton file of version %d (it says %u)",
				reader->path, BETON_FORMAT_VERSION, info->version);
		else
			bt_fail(&fault, BETON_UNSUPPORTED_VERSION, "%s: not a .beton file", reader->path);
		return refuse_kind(reader, &fault, err);
	}
	return check_header(reader, flags, err);
}

/* Asks the caller about a field that bt_field_parse does not know, and has named. */
static int describe_custom(const beton_reader *reader, const beton_reader_options *options, const uint8_t *descriptor,
			   uint32_t index, beton_error *err)
{
	beton_field *field = &reader->fields[index];
	beton_field described = {.type = BETON_FIELD_CUSTOM};
	memcpy(described.name, field->name, sizeof(described.name));
	if (!options->custom ||
	    options->custom(options->custom_context, descriptor + FIELD_ARGUMENTS, &described) != BETON_OK)
		return BETON_UNSUPPORTED_FIELD;
	field->type = described.type;
	if (bt_type_of(described.type)->described) {
		field->item_size = described.item_size;
		memcpy(field->shape, described.shape, 2 * sizeof(*field->shape));
	}
	return bt_field_check_custom(field, reader->path, index, err);
}

/* head: header and field descriptors. *place: the descriptor at fault. */
static int parse_fields(beton_reader *reader, const uint8_t *head, const beton_reader_options *options,
			fault_place *place, beton_error *err)
{
	beton_file_info *info = &reader->info;
	for (uint32_t i = 0; i < info->num_fields; i++) {
		beton_field *field = &reader->fields[i];
		*place = (fault_place){"fields", HEADER_SIZE + (uint64_t)i * FIELD_SIZE};
		const uint8_t *descriptor = head + HEADER_SIZE + (size_t)i * FIELD_SIZE;
		int result = bt_field_parse(descriptor, reader->path, i, info->page_size, field, err);
		if (result == BETON_UNSUPPORTED_FIELD && !bt_field_is_compressed(descriptor))
			result = describe_custom(reader, options, descriptor, i, err);
		if (result != BETON_OK)
			return result;
		if (!bt_can_decompress(field->compression))
			return bt_fail(err, BETON_UNSUPPORTED,
				       "%s: field '%s' is compressed, and this build cannot decompress", reader->path,
				       field->name);
		reader->blob_index[i] = reader->num_blobs;
		reader->num_blobs += bt_type_has_blob(field->type);
		reader->num_pictures += bt_form_of(field->type) == BT_FORM_IMAGE;
	}
	int64_t duplicate = bt_duplicate_name(reader->fields, info->num_fields);
	if (duplicate == -2)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", reader->path, info->num_fields);
	place->offset = HEADER_SIZE + (uint64_t)(duplicate > 0 ? duplicate : 0) * FIELD_SIZE;
	if (duplicate >= 0)
		return bt_fail(err, BETON_FORMAT, "%s: two fields have the name '%s'", reader->path,
			       reader->fields[duplicate].name);
	info->record_size = bt_layout_record(reader->fields, info->num_fields);
	return BETON_OK;
}

/* Every sample has one allocation for each of its blobs, so the length of the file follows from its header. */
static int check_sizes(beton_reader *reader, beton_error *err)
{
	beton_file_info *info = &reader->info;
	uint64_t room = info->alloc_table_offset - info->metadata_offset;
	if (info->num_samples > room / info->record_size)
		return bt_fail(err, BETON_FORMAT,
			       "%s: %llu samples of %u bytes do not fit between offset %llu and the allocation table",
			       reader->path, (unsigned long long)info->num_samples, info->record_size,
			       (unsigned long long)info->metadata_offset);
	uint64_t blobs = reader->num_blobs;
	if (blobs && info->num_samples > (uint64_t)INT64_MAX / (blobs * ALLOC_ENTRY_SIZE))
		return bt_fail(err, BETON_FORMAT, "%s: %llu samples are more than a file can hold", reader->path,
			       (unsigned long long)info->num_samples);
	info->alloc_entries = info->num_samples * blobs;
	uint64_t needed = info->alloc_table_offset + info->alloc_entries * ALLOC_ENTRY_SIZE;
	if (info->file_size < needed)
		return truncated(reader, "allocation table", needed,
				 "; it is cut short, or its writer did not finish; " SAVES, err);
	if (info->file_size > needed)
		return bt_fail(err, BETON_FORMAT, "%s: %llu bytes too many after the allocation table of %llu entries",
			       reader->path, (unsigned long long)(info->file_size - needed),
			       (unsigned long long)info->alloc_entries);
	return BETON_OK;
}

/* check_sizes for a file that lacks its end: ignores what the header says beyond that. */
static void shrink_sizes(beton_reader *reader)
{
	beton_file_info *info = &reader->info;
	uint64_t end = info->file_size;
	if (info->alloc_table_offset >= info->metadata_offset && info->alloc_table_offset < end)
		end = info->alloc_table_offset;
	info->alloc_table_offset = end;
	info->alloc_entries = 0;
	if (info->num_samples > (end - info->metadata_offset) / info->record_size)
		info->num_samples = (end - info->metadata_offset) / info->record_size;
	reader->table_lost = true;
}

/* Corrects the number of samples by the length of the table, if only that number is wrong. */
static bool count_by_table(beton_reader *reader)
{
	beton_file_info *info = &reader->info;
	uint64_t claimed = info->num_samples;
	uint64_t each = (uint64_t)reader->num_blobs * ALLOC_ENTRY_SIZE;
	if (each == 0 || info->alloc_table_offset >= info->file_size || check_table_offset(reader, NULL) != BETON_OK ||
	    (info->file_size - info->alloc_table_offset) % each != 0)
		return false;
	info->num_samples = (info->file_size - info->alloc_table_offset) / each;
	if (check_sizes(reader, NULL) == BETON_OK)
		return true;
	info->num_samples = claimed;
	return false;
}

static int read_sizes(beton_reader *reader, int flags, beton_error *err)
{
	bool salvage = flags & OPEN_TO_SALVAGE;
	int result = salvage ? check_table_offset(reader, err) : BETON_OK;
	if (result == BETON_OK)
		result = check_sizes(reader, err);
	if (result == BETON_OK || !salvage)
		return result;
	if (!count_by_table(reader))
		shrink_sizes(reader);
	return BETON_OK;
}

/* Finds metadata, table and extension block. */
static int place_parts(beton_reader *reader, const uint8_t *head, int flags, beton_error *err)
{
	beton_file_info *info = &reader->info;
	info->data_end = info->pages_end = info->alloc_table_offset;
	reader->metadata = (summed_part){.name = "metadata",
					 .offset = info->metadata_offset,
					 .size = info->num_samples * info->record_size,
					 .piece = METADATA_SUM_PIECE};
	reader->table = (summed_part){.name = "allocation table",
				      .offset = info->alloc_table_offset,
				      .size = info->alloc_entries * ALLOC_ENTRY_SIZE,
				      .piece = TABLE_SUM_PIECE};
	reader->extension.ignored = flags & OPEN_WITHOUT_BLOCK;
	if (flags & OPEN_WITHOUT_BLOCK)
		return BETON_OK;
	int result = bt_extension_read(reader, head, err);
	if (reader->table_lost) {
		/* The rest of a block may help, but is optional. Sizes of blobs are not known exactly. */
		reader->info.has_checksums = false;
		reader->table.sums = 0;
		result = result == BETON_FORMAT ? BETON_OK : result;
	}
	if (result == BETON_OK && ((reader->metadata.sums && !bt_sums_init(&reader->metadata)) ||
				   (reader->table.sums && !bt_sums_init(&reader->table))))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	if (info->has_checksums)
		reader->blob_sums = (summed_part){.name = "checksums of the blobs",
						  .offset = reader->extension.known[SECTION_BLOB_SUMS].offset,
						  .size = reader->extension.known[SECTION_BLOB_SUMS].size};
	if (info->has_jpeg_indexes)
		reader->places = (summed_part){.name = "places of JPEG indexes",
					       .offset = reader->extension.known[SECTION_JPEG_PLACES].offset,
					       .size = reader->extension.known[SECTION_JPEG_PLACES].size};
	return result;
}

/* Opens the cache for data that each sample needs, or joins a cache that several readers share. */
static int open_cache(beton_reader *reader, const beton_reader_options *options, beton_error *err)
{
	const extension_section *known = reader->extension.known;
	const uint64_t parts[] = {reader->metadata.size,
				  reader->table.size,
				  reader->blob_sums.size,
				  reader->places.size,
				  known[SECTION_METADATA_SUMS].size,
				  known[SECTION_TABLE_SUMS].size};
	const size_t count = sizeof(parts) / sizeof(*parts);
	if (options->cache) {
		reader->cache = options->cache;
		reader->shares_cache = true;
		reader->pool = bt_cache_pool(options->cache);
		reader->cached_lines = bt_cache_lines(parts, count);
		reader->first_line = bt_cache_join(reader->cache, reader->info.file_size, reader->cached_lines);
	} else if (!bt_cache_open(&reader->cache, options->cache_bytes, parts, count)) {
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for what was read of it", reader->path);
	}
	uint64_t wanted = reader->source ? bt_io_source_get(reader->source)->request_bytes : 0;
	wanted -= wanted % CACHE_LINE;
	reader->read_at_once = wanted < READ_AT_ONCE       ? READ_AT_ONCE
			       : wanted < READ_AT_ONCE_MAX ? (uint32_t)wanted
							   : READ_AT_ONCE_MAX;
	return BETON_OK;
}

/* Reads all that does not grow with the number of samples. */
static int read_structure(beton_reader *reader, int flags, const beton_reader_options *options, fault_place *place,
			  beton_error *err)
{
	beton_file_info *info = &reader->info;
	uint8_t *head = malloc((size_t)info->metadata_offset);
	reader->fields = calloc(info->num_fields, sizeof(*reader->fields));
	reader->blob_index = calloc(info->num_fields, sizeof(*reader->blob_index));
	int result = BETON_OK;
	*place = (fault_place){"fields", HEADER_SIZE};
	if (!head || !reader->fields || !reader->blob_index)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", reader->path, info->num_fields);
	if (result == BETON_OK)
		result = bt_read_section(reader, "list of fields", head, (size_t)info->metadata_offset, 0, err);
	if (result == BETON_OK)
		result = parse_fields(reader, head, options, place, err);
	if (result == BETON_OK) {
		reader->fields_sum = XXH3_64bits(head + HEADER_SIZE, (size_t)info->metadata_offset - HEADER_SIZE);
		*place = (fault_place){"header", HEADER_NUM_SAMPLES};
		result = read_sizes(reader, flags, err);
	}
	if (result == BETON_OK) {
		*place = (fault_place){"extension block", info->alloc_table_offset};
		result = place_parts(reader, head, flags, err);
	}
	free(head);
	return result;
}

/* released: the caller gave its source away. */
static void close_reader(beton_reader *reader, bool released)
{
	bt_access_close(&reader->file);
	bt_side_close(&reader->side);
	bt_io_source_close(&reader->source, released);
	pthread_mutex_destroy(&reader->fill);
	pthread_mutex_destroy(&reader->lock);
	bt_dictionaries_free(&reader->dictionaries, reader->pool);
	bt_unpack_pool_free(&reader->own_pool);
	free(atomic_load(&reader->index));
	if (reader->shares_cache)
		bt_cache_leave(reader->cache, reader->cached_lines);
	else
		bt_cache_close(&reader->cache);
	free(reader->facts);
	if (reader->sources)
		bt_sources_cursor_free(reader->sources);
	free(reader->sources);
	free(reader->extension.list);
	free(reader->metadata.good);
	free(reader->table.good);
	free(reader->blob_index);
	free(reader->fields);
	free(reader->path);
	free(reader);
}

/* Takes source, which may be NULL, over. */
static int open_with(beton_reader **out, const char *path, io_source *source, int flags,
		     const beton_reader_options *options, fault_place *place, beton_error *err)
{
	*out = NULL;
	*place = (fault_place){"header", 0};
	beton_reader *reader = calloc(1, sizeof(*reader));
	/* Creating a mutex fails only if memory is short, and on Linux not even then. */
	if (!reader || pthread_mutex_init(&reader->lock, NULL) != 0) {
		free(reader);
		int result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		bt_io_source_close(&source, false);
		return result;
	}
	pthread_mutex_init(&reader->fill, NULL);
	reader->source = source;
	reader->pool = &reader->own_pool;
	bt_unpack_pool_init(&reader->own_pool);
	reader->side.fd = -1;
	reader->file = (file_access){.fd = -1,
				     .read = options->read,
				     .borrow = options->borrow,
				     .give_back = options->give_back,
				     .context = options->context};
	reader->path = strdup(path);
	int result = reader->path ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK && source)
		reader->info.file_size = bt_io_source_get(source)->size;
	else if (result == BETON_OK)
		result = open_regular(reader, path, err);
	if (result == BETON_OK)
		result = read_header(reader, flags, err);
	if (result == BETON_OK)
		result = read_structure(reader, flags, options, place, err);
	if (result == BETON_OK)
		result = open_cache(reader, options, err);
	if (result == BETON_OK)
		*out = reader;
	else
		close_reader(reader, false);
	return result;
}

void beton_reader_options_init_sized(beton_reader_options *options, size_t size)
{
	const beton_reader_options defaults = {
		.struct_size = sizeof(defaults), .cache_bytes = CACHE_DEFAULT, .folder = AT_FDCWD};
	bt_sized_init(options, size, &defaults);
}

int bt_reader_open_damaged(beton_reader **out, const char *path, int flags, fault_place *place, beton_error *err)
{
	beton_reader_options options;
	beton_reader_options_init(&options);
	return open_with(out, path, NULL, flags, &options, place, err);
}

int beton_reader_open_with(beton_reader **out, const char *path, const beton_reader_options *given, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path))
		return BETON_INVALID_ARGUMENT;
	fault_place place;
	beton_reader_options options;
	beton_reader_options_init(&options);
	int result = given ? bt_sized_take(&options, given, "reader options", err) : BETON_OK;
	if (result == BETON_OK)
		result = bt_isa_check(err);
	if (result == BETON_OK && options.folder != AT_FDCWD && !options.borrow)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "reader options: folder is %d, but borrow is NULL",
				 options.folder);
	if (result == BETON_OK)
		result = open_with(out, path, NULL, 0, &options, &place, err);
	if (result == BETON_OK && !(*out)->info.has_jpeg_indexes && bt_pictures(*out))
		result = bt_side_open(&(*out)->side, *out, options.folder, err);
	if (result != BETON_OK)
		beton_reader_close(out);
	else if ((*out)->side.path)
		(*out)->info.has_jpeg_indexes = (*out)->info.jpeg_indexes_beside = true;
	return result;
}

int beton_reader_open_io(beton_reader **out, const beton_io *io, const beton_reader_options *given, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, io))
		return BETON_INVALID_ARGUMENT;
	fault_place place;
	beton_reader_options options;
	io_source *source = NULL;
	beton_reader_options_init(&options);
	int result = given ? bt_sized_take(&options, given, "reader options", err) : BETON_OK;
	if (result == BETON_OK)
		result = bt_isa_check(err);
	if (result == BETON_OK && (options.read || options.borrow || options.give_back || options.folder != AT_FDCWD))
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "reader options: %s is given, but the file is read by a beton_io",
				 options.read        ? "read"
				 : options.borrow    ? "borrow"
				 : options.give_back ? "give_back"
						     : "folder");
	if (result == BETON_OK)
		result = bt_io_source_open(&source, io, err);
	return result == BETON_OK ? open_with(out, bt_io_source_get(source)->name, source, 0, &options, &place, err)
				  : result;
}

void beton_reader_cancel(const beton_reader *reader)
{
	if (!reader)
		return;
	if (reader->source)
		bt_io_source_cancel(reader->source);
}

int beton_reader_open(beton_reader **out, const char *path, beton_error *err)
{
	return beton_reader_open_with(out, path, NULL, err);
}

void beton_reader_close(beton_reader **out)
{
	if (!out || !*out)
		return;
	close_reader(*out, true);
	*out = NULL;
}

const beton_file_info *beton_reader_info(const beton_reader *reader)
{
	if (!reader)
		return NULL;
	return &reader->info;
}

const char *beton_reader_path(const beton_reader *reader)
{
	if (!reader)
		return NULL;
	return reader->path;
}

const beton_field *beton_reader_field(const beton_reader *reader, uint32_t index)
{
	return reader && index < reader->info.num_fields ? &reader->fields[index] : NULL;
}

int beton_reader_find_field(const beton_reader *reader, const char *name)
{
	for (int i = 0; reader && name && i < reader->info.num_fields; i++)
		if (strcmp(reader->fields[i].name, name) == 0)
			return i;
	return -1;
}

int beton_reader_find_type(const beton_reader *reader, beton_field_type type)
{
	for (int i = 0; reader && i < reader->info.num_fields; i++)
		if (reader->fields[i].type == type)
			return i;
	return -1;
}

int beton_reader_fd(const beton_reader *reader)
{
	if (!reader)
		return -1;
	return reader->file.fd;
}
