/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a file. A dataset file may come from anywhere: no length, count or pointer in it is used before it was
 * checked, and memory is taken only for bytes that the file has. */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "fields.h"
#include "format.h"
#include "layout.h"

static int open_regular(beton_reader *reader, const char *path, beton_error *err)
{
	/* O_NONBLOCK: opening a pipe must not wait for its writer. It changes nothing for regular files. */
	reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (reader->fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	struct stat status;
	if (fstat(reader->fd, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read its status", path);
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", path);
	reader->info.file_size = (uint64_t)status.st_size;
	return BETON_OK;
}

/* Reads size bytes that the file has according to its size. */
static int read_section(const beton_reader *reader, const char *section, void *destination, size_t size,
			uint64_t offset, beton_error *err)
{
	ssize_t got = bt_pread_full(reader->fd, destination, size, offset);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read the %s at offset %llu", reader->path, section,
				     (unsigned long long)offset);
	if ((size_t)got != size)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while its %s was read",
			       reader->path, section);
	return BETON_OK;
}

static int truncated(const beton_reader *reader, const char *section, uint64_t needed, beton_error *err)
{
	return bt_fail(err, BETON_TRUNCATED, "%s: the %s needs %llu bytes, the file has %llu", reader->path, section,
		       (unsigned long long)needed, (unsigned long long)reader->info.file_size);
}

static int check_header(beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	if (info->version != BETON_FORMAT_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED_VERSION, "%s: not a .beton file of version %d (it says %u)",
			       reader->path, BETON_FORMAT_VERSION, info->version);
	if (info->num_fields == 0)
		return bt_fail(err, BETON_FORMAT, "%s: the header says 0 fields", reader->path);
	if (info->page_size < BETON_PAGE_SIZE_MIN || (info->page_size & (info->page_size - 1)))
		return bt_fail(err, BETON_FORMAT, "%s: page size %u is not a power of two of at least %u", reader->path,
			       info->page_size, BETON_PAGE_SIZE_MIN);
	if (info->alloc_table_offset == 0)
		return bt_fail(err, BETON_INCOMPLETE, "%s: its writer did not finish (no allocation table)",
			       reader->path);
	if (info->alloc_table_offset > INT64_MAX || info->alloc_table_offset < info->metadata_offset)
		return bt_fail(err, BETON_FORMAT, "%s: the allocation table cannot be at offset %llu (%u fields)",
			       reader->path, (unsigned long long)info->alloc_table_offset, info->num_fields);
	if (info->metadata_offset > info->file_size)
		return truncated(reader, "list of fields", info->metadata_offset, err);
	return BETON_OK;
}

static int read_header(beton_reader *reader, beton_error *err)
{
	beton_file_info *info = &reader->info;
	uint8_t header[HEADER_SIZE];
	if (info->file_size < HEADER_SIZE)
		return truncated(reader, "header", HEADER_SIZE, err);
	int result = read_section(reader, "header", header, HEADER_SIZE, 0, err);
	if (result != BETON_OK)
		return result;
	info->version = load_u16(header + HEADER_VERSION);
	info->num_fields = load_u16(header + HEADER_NUM_FIELDS);
	info->page_size = load_u32(header + HEADER_PAGE_SIZE);
	info->num_samples = load_u64(header + HEADER_NUM_SAMPLES);
	info->alloc_table_offset = load_u64(header + HEADER_ALLOC_TABLE);
	info->metadata_offset = HEADER_SIZE + (uint64_t)info->num_fields * FIELD_SIZE;
	return check_header(reader, err);
}

static int read_fields(beton_reader *reader, beton_error *err)
{
	beton_file_info *info = &reader->info;
	size_t size = (size_t)info->num_fields * FIELD_SIZE;
	uint8_t *descriptors = malloc(size);
	reader->fields = calloc(info->num_fields, sizeof(*reader->fields));
	int result = BETON_OK;
	if (!descriptors || !reader->fields)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", reader->path, info->num_fields);
	else
		result = read_section(reader, "list of fields", descriptors, size, HEADER_SIZE, err);
	for (uint32_t i = 0; i < info->num_fields && result == BETON_OK; i++)
		result = beton_field_parse(descriptors + (size_t)i * FIELD_SIZE, reader->path, i, info->page_size,
					   &reader->fields[i], err);
	free(descriptors);
	if (result != BETON_OK)
		return result;
	int64_t duplicate = beton_duplicate_name(reader->fields, info->num_fields);
	if (duplicate == -2)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %u fields", reader->path, info->num_fields);
	if (duplicate >= 0)
		return bt_fail(err, BETON_FORMAT, "%s: two fields have the name '%s'", reader->path,
			       reader->fields[duplicate].name);
	info->record_size = beton_layout_record(reader->fields, info->num_fields);
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
	uint64_t blobs = beton_count_blob_fields(reader->fields, info->num_fields);
	if (blobs && info->num_samples > (uint64_t)INT64_MAX / (blobs * ALLOC_ENTRY_SIZE))
		return bt_fail(err, BETON_FORMAT, "%s: %llu samples are more than a file can hold", reader->path,
			       (unsigned long long)info->num_samples);
	info->alloc_entries = info->num_samples * blobs;
	uint64_t needed = info->alloc_table_offset + info->alloc_entries * ALLOC_ENTRY_SIZE;
	if (info->file_size < needed)
		return truncated(reader, "allocation table", needed, err);
	if (info->file_size > needed)
		return bt_fail(err, BETON_FORMAT, "%s: %llu bytes too many after the allocation table of %llu entries",
			       reader->path, (unsigned long long)(info->file_size - needed),
			       (unsigned long long)info->alloc_entries);
	return BETON_OK;
}

static int read_metadata(beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	uint64_t size = info->num_samples * info->record_size;
	if (size == 0)
		return BETON_OK;
	reader->metadata = size <= SIZE_MAX ? malloc((size_t)size) : NULL;
	if (!reader->metadata)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the metadata of %llu samples", reader->path,
			       (unsigned long long)info->num_samples);
	return read_section(reader, "metadata", reader->metadata, (size_t)size, info->metadata_offset, err);
}

int beton_reader_open(beton_reader **out, const char *path, beton_error *err)
{
	*out = NULL;
	beton_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	reader->fd = -1;
	reader->path = strdup(path);
	int result = reader->path ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK)
		result = open_regular(reader, path, err);
	if (result == BETON_OK)
		result = read_header(reader, err);
	if (result == BETON_OK)
		result = read_fields(reader, err);
	if (result == BETON_OK)
		result = check_sizes(reader, err);
	if (result == BETON_OK)
		result = read_metadata(reader, err);
	if (result == BETON_OK)
		result = beton_alloc_table_load(&reader->table, reader->fd, reader->path, &reader->info, err);
	if (result == BETON_OK)
		*out = reader;
	else
		beton_reader_close(&reader);
	return result;
}

void beton_reader_close(beton_reader **reader)
{
	if (!reader || !*reader)
		return;
	if ((*reader)->fd >= 0)
		close((*reader)->fd);
	free((*reader)->path);
	free((*reader)->fields);
	free((*reader)->metadata);
	free((*reader)->table.entries);
	free(*reader);
	*reader = NULL;
}

const beton_file_info *beton_reader_info(const beton_reader *reader)
{
	return &reader->info;
}

const char *beton_reader_path(const beton_reader *reader)
{
	return reader->path;
}

const beton_field *beton_reader_field(const beton_reader *reader, uint32_t index)
{
	return index < reader->info.num_fields ? &reader->fields[index] : NULL;
}

int beton_reader_find_field(const beton_reader *reader, const char *name)
{
	for (int i = 0; i < reader->info.num_fields; i++)
		if (strcmp(reader->fields[i].name, name) == 0)
			return i;
	return -1;
}

int beton_reader_find_type(const beton_reader *reader, beton_field_type type)
{
	for (int i = 0; i < reader->info.num_fields; i++)
		if (reader->fields[i].type == type)
			return i;
	return -1;
}

int beton_reader_fd(const beton_reader *reader)
{
	return reader->fd;
}
