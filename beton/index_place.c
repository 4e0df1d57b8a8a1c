/* SPDX-License-Identifier: Apache-2.0 */
#include "index_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc_table.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "extension.h"
#include "format.h"
#include "index_room.h"
#include "reader.h"

enum {
	PIECE = 1 << 18,
	SECTOR = 512, /* bytes that a device writes at once */
	SECTIONS = 2, /* that are added */
};

typedef struct placing {
	const beton_reader *reader;
	const side_index *from;
	int fd;             /* of reader's file, to write */
	uint64_t sections;  /* offset */
	uint64_t directory; /* offset */
	uint32_t count;     /* entries of the directory */
	uint8_t entries[EXTENSION_ENTRIES_MAX * DIRECTORY_ENTRY_SIZE];
	uint8_t footer[FOOTER_SIZE]; /* the new one */
	uint8_t *bytes;              /* two pieces */
} placing;

static uint64_t footer_offset(const beton_reader *reader)
{
	return reader->info.alloc_table_offset - FOOTER_SIZE;
}

static uint64_t sections_size(const side_index *from)
{
	return from->places_size + (from->entries_size + 7) / 8 * 8;
}

/* Why the file cannot hold the index at all; NULL: it may. */
static const char *find_obstacle(const beton_reader *reader)
{
	const extension_block *block = &reader->extension;
	const beton_file_info *info = &reader->info;
	uint64_t metadata_end = info->metadata_offset + info->num_samples * info->record_size;
	if (info->alloc_table_offset - metadata_end < FOOTER_SIZE || info->alloc_table_offset % 8 != 0)
		return "a footer does not fit before its allocation table";
	if (block->ignored)
		return "its extension block is of a later version";
	/* Else a loss of power could leave half of the new footer and half of the old bytes. */
	if (footer_offset(reader) % SECTOR > SECTOR - FOOTER_SIZE)
		return "its footer would lie in two sectors of 512 bytes";
	if (info->has_extension &&
	    (block->known[SECTION_JPEG_PLACES].offset || block->known[SECTION_JPEG_INDEXES].offset ||
	     block->count + SECTIONS > EXTENSION_ENTRIES_MAX))
		return "its extension block takes no further section";
	return NULL;
}

/* Opens reader's own file again. */
static int open_to_write(placing *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	struct stat read, written;
	self->fd = open(reader->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (self->fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open to write", reader->path);
	if (fstat(reader->file.fd, &read) != 0 || fstat(self->fd, &written) != 0 || read.st_ino != written.st_ino ||
	    read.st_dev != written.st_dev)
		return bt_fail(err, BETON_FILE_CHANGED, "%s: it was replaced meanwhile", reader->path);
	self->bytes = malloc(2 * PIECE);
	return self->bytes ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
}

static void clean_up(placing *self)
{
	if (self->fd >= 0)
		close(self->fd);
	free(self->bytes);
}

static int sync_file(const placing *self, beton_error *err)
{
	return fdatasync(self->fd) == 0 ? BETON_OK : bt_fail_errno(err, errno, "%s: cannot sync", self->reader->path);
}

static int write_at(const placing *self, const void *bytes, size_t size, uint64_t offset, beton_error *err)
{
	return bt_pwrite_full(self->fd, bytes, size, offset) == 0
		       ? BETON_OK
		       : bt_fail_errno(err, errno, "%s: cannot write the index at offset %llu", self->reader->path,
				       (unsigned long long)offset);
}

/* ---- adding ---- */

static void add_entry(placing *self, uint32_t kind, uint64_t offset, uint64_t size, uint64_t sum)
{
	uint8_t *entry = self->entries + self->count++ * DIRECTORY_ENTRY_SIZE;
	memset(entry, 0, DIRECTORY_ENTRY_SIZE);
	store_u32(entry, kind);
	store_u64(entry + DIRECTORY_OFFSET, offset);
	store_u64(entry + DIRECTORY_SIZE, size);
	store_u64(entry + DIRECTORY_SUM, sum);
}

/* Sets what a footer says about the directory, and its checksums. */
static void set_footer(placing *self, uint32_t version)
{
	uint8_t *footer = self->footer;
	store_u32(footer + FOOTER_VERSION, version);
	store_u32(footer + FOOTER_ENTRIES, self->count);
	store_u64(footer + FOOTER_DIRECTORY, self->directory);
	store_u64(footer + FOOTER_DIRECTORY_SUM, XXH3_64bits(self->entries, self->count * DIRECTORY_ENTRY_SIZE));
	store_u64(footer + FOOTER_SUM, XXH3_64bits(footer, FOOTER_SUM));
}

/* The footer of a file that had none, but for what set_footer sets. */
static int begin_footer(placing *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	size_t size = (size_t)reader->info.metadata_offset;
	uint8_t *head = malloc(size);
	int result = head ? bt_read_section(reader, "header", head, size, 0, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	memset(self->footer, 0, FOOTER_SIZE);
	memcpy(self->footer, FOOTER_MAGIC, 8);
	if (result == BETON_OK)
		store_u64(self->footer + FOOTER_HEADER_SUM, XXH3_64bits(head, size));
	free(head);
	return result;
}

/* Makes directory and footer. */
static int make_ends(placing *self, const index_room *room, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const extension_block *block = &reader->extension;
	const side_index *from = self->from;
	bool extends = reader->info.has_extension;
	self->sections = room->offset;
	self->directory = room->offset + sections_size(from);
	self->count = extends ? block->count : 0;
	int result = BETON_OK;
	if (extends)
		result = bt_read_section(reader, "extension block", self->entries, self->count * DIRECTORY_ENTRY_SIZE,
					 block->directory, err);
	add_entry(self, SECTION_JPEG_PLACES, self->sections, from->places_size, from->places_sum);
	add_entry(self, SECTION_JPEG_INDEXES, self->sections + from->places_size, from->entries_size,
		  from->entries_sum);
	if (result == BETON_OK)
		result = extends ? bt_read_section(reader, "extension block", self->footer, FOOTER_SIZE,
						   footer_offset(reader), err)
				 : begin_footer(self, err);
	set_footer(self, room->behind && !extends ? EXTENSION_VERSION : EXTENSION_APART);
	return result;
}

/* Whether bytes of the file are zeros, or what is to be written there. */
static int compare(placing *self, const uint8_t *bytes, size_t size, uint64_t offset, bool *free, beton_error *err)
{
	uint8_t *old = self->bytes + PIECE;
	int result = bt_read_section(self->reader, "free space", old, size, offset, err);
	for (size_t i = 0; i < size && result == BETON_OK && *free; i++)
		*free = old[i] == 0 || old[i] == bytes[i];
	return result;
}

/* Compares the sections with what stands in their place (free), or writes them (NULL). */
static int put_sections(placing *self, bool *free, beton_error *err)
{
	uint64_t size = self->from->places_size + self->from->entries_size;
	int result = BETON_OK;
	for (uint64_t done = 0; done < size && result == BETON_OK && (!free || *free); done += PIECE) {
		size_t count = size - done < PIECE ? (size_t)(size - done) : PIECE;
		if (bt_pread_full(self->from->fd, self->bytes, count, SIDE_SIZE + done) != (ssize_t)count)
			return bt_fail_errno(err, errno ? errno : EIO, "%s.index: cannot read what was written",
					     self->reader->path);
		result = free ? compare(self, self->bytes, count, self->sections + done, free, err)
			      : write_at(self, self->bytes, count, self->sections + done, err);
	}
	return result;
}

static int look(placing *self, bool *free, beton_error *err)
{
	*free = true;
	int result = put_sections(self, free, err);
	if (result == BETON_OK)
		result = compare(self, self->entries, self->count * DIRECTORY_ENTRY_SIZE, self->directory, free, err);
	if (result == BETON_OK && !self->reader->info.has_extension)
		result = compare(self, self->footer, FOOTER_SIZE, footer_offset(self->reader), free, err);
	return result;
}

/* The footer's bytes are in one sector and one page of memory, so that a process that is killed, or a loss of power,
 * leaves either the old or the new bytes, all of them. */
static int write_all(placing *self, beton_error *err)
{
	int result = put_sections(self, NULL, err);
	if (result == BETON_OK)
		result = write_at(self, self->entries, self->count * DIRECTORY_ENTRY_SIZE, self->directory, err);
	if (result == BETON_OK)
		result = sync_file(self, err);
	if (result == BETON_OK)
		result = write_at(self, self->footer, FOOTER_SIZE, footer_offset(self->reader), err);
	return result == BETON_OK ? sync_file(self, err) : result;
}

int bt_index_place_add(const beton_reader *reader, const side_index *from, bool *done, char *why, size_t size,
		       beton_error *err)
{
	placing self = {.reader = reader, .from = from, .fd = -1};
	const char *obstacle = find_obstacle(reader);
	uint32_t entries = reader->extension.count + SECTIONS;
	uint64_t needed = sections_size(from) + entries * DIRECTORY_ENTRY_SIZE;
	index_room room = {0};
	*done = false;
	snprintf(why, size, "%s", obstacle ? obstacle : "");
	int result = obstacle ? BETON_OK : bt_index_find_room(reader, needed, &room, err);
	if (result == BETON_OK && !obstacle && !room.offset)
		snprintf(why, size, "it has no free space of %llu bytes", (unsigned long long)needed);
	if (result != BETON_OK || !room.offset)
		return result;
	result = open_to_write(&self, err);
	bool free = true;
	if (self.fd < 0) {
		/* The folder may allow a side file. */
		snprintf(why, size, "it cannot be opened to write");
		return BETON_OK;
	}
	if (result == BETON_OK)
		result = make_ends(&self, &room, err);
	if (result == BETON_OK)
		result = look(&self, &free, err);
	if (result == BETON_OK && !free)
		snprintf(why, size, "its free space at offset %llu is not all zeros", (unsigned long long)room.offset);
	if (result == BETON_OK && free)
		result = write_all(&self, err);
	*done = result == BETON_OK && free;
	clean_up(&self);
	return result;
}

/* ---- removing ---- */

static int write_zeros(placing *self, uint64_t offset, uint64_t size, beton_error *err)
{
	int result = BETON_OK;
	memset(self->bytes, 0, PIECE);
	for (uint64_t done = 0; done < size && result == BETON_OK; done += PIECE) {
		size_t count = size - done < PIECE ? (size_t)(size - done) : PIECE;
		result = write_at(self, self->bytes, count, offset + done, err);
	}
	return result;
}

/* Makes the footer that the file had, whose directory stands where it stood. False: the file has never been without
 * the index. */
static int make_old_footer(placing *self, bool *found, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const extension_block *block = &reader->extension;
	uint8_t now[EXTENSION_ENTRIES_MAX * DIRECTORY_ENTRY_SIZE], old[sizeof(now)];
	size_t size = block->count * DIRECTORY_ENTRY_SIZE;
	int result = bt_read_section(reader, "extension block", now, size, block->directory, err);
	for (size_t at = 0; at < size && result == BETON_OK; at += DIRECTORY_ENTRY_SIZE) {
		uint32_t kind = load_u32(now + at);
		if (kind != SECTION_JPEG_PLACES && kind != SECTION_JPEG_INDEXES)
			memcpy(self->entries + self->count++ * DIRECTORY_ENTRY_SIZE, now + at, DIRECTORY_ENTRY_SIZE);
	}
	size = self->count * DIRECTORY_ENTRY_SIZE;
	self->directory = footer_offset(reader) - size;
	if (result == BETON_OK)
		result = bt_read_section(reader, "extension block", old, size, self->directory, err);
	if (result == BETON_OK)
		result = bt_read_section(reader, "extension block", self->footer, FOOTER_SIZE, footer_offset(reader),
					 err);
	*found = result == BETON_OK && block->version == EXTENSION_APART && memcmp(old, self->entries, size) == 0;
	set_footer(self, EXTENSION_VERSION);
	return result;
}

/* A made-up file may have values where its index is. */
static int check_value(void *context, const alloc_entry *entry)
{
	const beton_reader *reader = context;
	return bt_alloc_fault(&reader->info, entry) ||
			       bt_extension_touches(&reader->extension, entry->pointer, entry->size)
		       ? BETON_FORMAT
		       : BETON_OK;
}

static int check_values(const beton_reader *reader, beton_error *err)
{
	int result = bt_alloc_each(reader, check_value, (void *)reader, err);
	return result == BETON_FORMAT
		       ? bt_fail(err, result, "%s: its allocation table is damaged, or has values in the index",
				 reader->path)
		       : result;
}

/* Makes the block invalid, or what it was before, and then clears what it had. */
static int write_back(placing *self, bool alone, beton_error *err)
{
	const extension_block *block = &self->reader->extension;
	const extension_section *places = &block->known[SECTION_JPEG_PLACES];
	const extension_section *entries = &block->known[SECTION_JPEG_INDEXES];
	uint64_t footer = footer_offset(self->reader);
	int result = alone ? write_zeros(self, footer, FOOTER_SIZE, err)
			   : write_at(self, self->footer, FOOTER_SIZE, footer, err);
	if (result == BETON_OK)
		result = sync_file(self, err);
	if (result == BETON_OK)
		result = write_zeros(self, block->directory, block->count * DIRECTORY_ENTRY_SIZE, err);
	if (result == BETON_OK)
		result = write_zeros(self, places->offset, places->size, err);
	if (result == BETON_OK)
		result = write_zeros(self, entries->offset, entries->size, err);
	return result == BETON_OK ? sync_file(self, err) : result;
}

int bt_index_place_remove(const beton_reader *reader, bool *done, beton_error *err)
{
	placing self = {.reader = reader, .fd = -1};
	*done = false;
	if (!reader->info.has_jpeg_indexes || reader->info.jpeg_indexes_beside)
		return BETON_OK;
	bool alone = reader->extension.count == SECTIONS, found = true;
	int result = alone ? BETON_OK : make_old_footer(&self, &found, err);
	if (result == BETON_OK && !found)
		result = bt_fail(err, BETON_UNSUPPORTED, "%s: it was written with its index, which cannot be taken out",
				 reader->path);
	if (result == BETON_OK)
		result = check_values(reader, err);
	if (result == BETON_OK)
		result = open_to_write(&self, err);
	if (result == BETON_OK)
		result = write_back(&self, alone, err);
	*done = result == BETON_OK;
	clean_up(&self);
	return result;
}
