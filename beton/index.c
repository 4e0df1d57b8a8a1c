/* SPDX-License-Identifier: Apache-2.0 */
#include <beton/index.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/jpeg.h"
#include "common/sized.h"
#include "common/system.h"
#include "extension.h"
#include "format.h"
#include "index_place.h"
#include "index_run.h"
#include "jpeg_index.h"
#include "jpeg_index_write.h"
#include "reader.h"
#include "side_index.h"
#include "spool.h"

void beton_index_options_init_sized(beton_index_options *options, size_t size)
{
	const beton_index_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

static int take_options(const beton_index_options *given, beton_index_options *options, beton_error *err)
{
	beton_index_options_init(options);
	int result = given ? bt_sized_take(options, given, "index options", err) : BETON_OK;
	if (options->max_pixels == 0)
		options->max_pixels = BT_MAX_PIXELS_DEFAULT;
#ifndef HAVE_JPEG
	if (result == BETON_OK)
		result = bt_fail(err, BETON_UNSUPPORTED, "this build has no JPEG decoder, and makes no index");
#endif
	return result;
}

/* Where the index of an open file is. */
static void report_place(const beton_reader *reader, beton_index_report *report)
{
	const beton_file_info *info = &reader->info;
	report->place = !info->has_jpeg_indexes     ? BETON_INDEX_NOWHERE
			: info->jpeg_indexes_beside ? BETON_INDEX_BESIDE
						    : BETON_INDEX_IN_FILE;
	report->bytes = info->jpeg_indexes_beside ? reader->side.places_size + reader->side.entries_size
						  : reader->extension.known[SECTION_JPEG_PLACES].size +
							    reader->extension.known[SECTION_JPEG_INDEXES].size;
	if (reader->side.fault)
		snprintf(report->why, sizeof(report->why), "%s", reader->side.fault);
}

/* ---- adding ---- */

typedef struct entry_writer {
	index_sections sections;
	const beton_reader *reader;
} entry_writer;

static int put_entry(void *context, const beton_value *value, const void *bytes, size_t size, beton_error *err)
{
	entry_writer *self = context;
	return bt_index_sections_put(&self->sections, bt_jpeg_picture_number(self->reader, value), bytes, size, err);
}

/* Makes the side file under its temporary name. */
static int make_side(const beton_reader *reader, const beton_index_options *options, const spool *files,
		     side_index *made, beton_index_report *report, beton_error *err)
{
	entry_writer self = {.reader = reader};
	uint8_t header[SIDE_SIZE];
	uint64_t pictures = bt_pictures(reader);
	int result = bt_index_sections_begin(&self.sections, files->data_fd, files->path, SIDE_SIZE, pictures, err);
	if (result == BETON_OK)
		result = bt_index_run_make(reader, options, put_entry, &self, report, err);
	*made = (side_index){.fd = files->data_fd, .places_size = pictures * sizeof(uint64_t)};
	if (result == BETON_OK)
		result = bt_index_sections_end(&self.sections, &made->places_sum, &made->entries_sum, err);
	made->entries_size = self.sections.used;
	if (result == BETON_OK)
		result = bt_side_make_header(reader, made, header, err);
	if (result == BETON_OK && bt_pwrite_full(files->data_fd, header, sizeof(header), 0) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write the header", files->path);
	bt_index_sections_free(&self.sections);
	return result;
}

/* Refuses to replace a file that is none of ours. */
static int check_name(const char *side, beton_error *err)
{
	if (access(side, F_OK) != 0 || bt_side_has_magic(side))
		return BETON_OK;
	return bt_fail(err, BETON_EXISTS, "%s: is in the way: it is not an index of JPEGs", side);
}

/* Puts the index that was made where it is to be. */
static int install(const beton_reader *reader, const beton_index_options *options, spool *files, const side_index *made,
		   beton_index_report *report, beton_error *err)
{
	bool done = false;
	int result = options->side ? BETON_OK
				   : bt_index_place_add(reader, made, &done, report->why, sizeof(report->why), err);
	if (result == BETON_OK && done) {
		report->place = BETON_INDEX_IN_FILE;
		result = bt_side_remove(files->path, &done, err);
	} else if (result == BETON_OK) {
		report->place = BETON_INDEX_BESIDE;
		result = check_name(files->path, err);
		if (result == BETON_OK)
			result = bt_spool_sync(files, err);
		if (result == BETON_OK)
			result = bt_spool_commit(files, err);
	}
	report->changed = result == BETON_OK;
	report->bytes = made->places_size + made->entries_size;
	return result;
}

/* Removes what a process left that was killed in its last steps. */
static void tidy(const char *side)
{
	spool files;
	bt_spool_open(&files, side, NULL);
	bt_spool_close(&files, false);
}

/* Locks of the process that changes an index. */
typedef struct change {
	spool files; /* of the side file: its name is locked */
	int fd;      /* of the dataset, which may have several names; -1: it is not locked */
} change;

/* Locks the dataset. A lock of its bytes does not meet one that a user's script has of the file (flock). A process that
 * cannot write a file cannot change its index; neither can any process on a file system without such locks. */
static int lock_dataset(change *self, const char *path, beton_error *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	self->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (self->fd >= 0 && fcntl(self->fd, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES))
		return bt_fail(err, BETON_EXISTS, "%s: another process changes its index, by another name", path);
	return BETON_OK;
}

static void end_change(change *self)
{
	if (self->fd >= 0)
		close(self->fd);
	bt_spool_close(&self->files, false);
}

/* Another process may have added or removed an index since the file was opened: with the locks it is opened again. */
static int begin_change(change *self, beton_reader **reader, const char *path, const char *side,
			beton_index_report *report, beton_error *err)
{
	self->fd = -1;
	int result = bt_spool_open(&self->files, side, err);
	if (result == BETON_OK)
		result = lock_dataset(self, path, err);
	if (result != BETON_OK)
		return result;
	beton_reader_close(reader);
	result = beton_reader_open(reader, path, err);
	if (result == BETON_OK)
		report_place(*reader, report);
	return result;
}

/* Makes the index of a file that has none. */
static int make(const beton_reader *reader, const beton_index_options *options, spool *files,
		beton_index_report *report, beton_error *err)
{
	side_index made;
	bool removed;
	report->why[0] = 0;
	int result = options->side ? check_name(files->path, err) : BETON_OK;
	if (result == BETON_OK)
		result = bt_spool_restart(files, err);
	if (result == BETON_OK)
		result = make_side(reader, options, files, &made, report, err);
	if (result != BETON_OK)
		return result;
	return report->indexed > 0 ? install(reader, options, files, &made, report, err)
				   : bt_side_remove(files->path, &removed, err);
}

static int add(beton_reader **reader, const char *path, const beton_index_options *options, const char *side,
	       beton_index_report *report, beton_error *err)
{
	change own;
	int result = begin_change(&own, reader, path, side, report, err);
	if (result == BETON_OK && report->place == BETON_INDEX_NOWHERE)
		result = make(*reader, options, &own.files, report, err);
	end_change(&own);
	return result;
}

/* Opens the file, and describes where its index is. *side: the side file's path, which the caller frees. */
static int open_file(beton_reader **reader, const char *path, char **side, beton_index_report *report, beton_error *err)
{
	*report = (beton_index_report){0};
	*reader = NULL;
	*side = bt_side_path(path);
	if (!*side)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = beton_reader_open(reader, path, err);
	if (result == BETON_OK)
		report_place(*reader, report);
	return result;
}

int beton_index_add(const char *path, const beton_index_options *given, beton_index_report *report, beton_error *err)
{
	if (BT_MISSING(err, path, report))
		return BETON_INVALID_ARGUMENT;
	beton_index_options options;
	beton_reader *reader;
	char *side;
	int result = open_file(&reader, path, &side, report, err);
	if (result == BETON_OK)
		result = take_options(given, &options, err);
	if (result == BETON_OK && report->place == BETON_INDEX_NOWHERE)
		result = add(&reader, path, &options, side, report, err);
	else if (result == BETON_OK)
		tidy(side);
	beton_reader_close(&reader);
	free(side);
	return result;
}

/* ---- removing and checking ---- */

static int take_out(beton_reader **reader, const char *path, const char *side, beton_index_report *report,
		    beton_error *err)
{
	change own;
	bool in_file = false, beside = false;
	int result = begin_change(&own, reader, path, side, report, err);
	if (result == BETON_OK)
		result = bt_index_place_remove(*reader, &in_file, err);
	if (result == BETON_OK)
		result = bt_side_remove(side, &beside, err);
	report->changed = in_file || beside;
	if (beside && report->place == BETON_INDEX_NOWHERE)
		report->place = BETON_INDEX_BESIDE;
	end_change(&own);
	return result;
}

int beton_index_remove(const char *path, beton_index_report *report, beton_error *err)
{
	if (BT_MISSING(err, path, report))
		return BETON_INVALID_ARGUMENT;
	beton_reader *reader;
	char *side;
	int result = open_file(&reader, path, &side, report, err);
	if (result == BETON_OK)
		result = take_out(&reader, path, side, report, err);
	beton_reader_close(&reader);
	free(side);
	return result;
}

int beton_index_remove_side(const char *path, bool *removed, beton_error *err)
{
	bool done = false;
	if (BT_MISSING(err, path))
		return BETON_INVALID_ARGUMENT;
	char *side = bt_side_path(path);
	int result = side ? bt_side_remove(side, &done, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (removed)
		*removed = done;
	free(side);
	return result;
}

typedef struct teller {
	const beton_index_options *options;
	beton_index_report *report;
	const char *path;
} teller;

static int tell(teller *self, int64_t number, const char *message, beton_error *err)
{
	self->report->findings++;
	if (self->options->finding && !self->options->finding(self->options->context, number, message))
		return bt_fail(err, BETON_CANCELLED, "%s: the check was stopped", self->path);
	return BETON_OK;
}

static int tell_picture(void *context, const beton_value *value, const void *bytes, size_t size, beton_error *err)
{
	(void)size;
	return tell(context, (int64_t)value->sample, bytes, err);
}

static int check_sections(const beton_reader *reader, teller *self, beton_error *err)
{
	const extension_section *known = reader->extension.known;
	beton_error fault;
	int result = reader->info.jpeg_indexes_beside ? bt_side_check(reader, &fault)
						      : bt_extension_check(reader, &known[SECTION_JPEG_PLACES], &fault);
	if (result == BETON_OK && !reader->info.jpeg_indexes_beside)
		result = bt_extension_check(reader, &known[SECTION_JPEG_INDEXES], &fault);
	if (result == BETON_FORMAT)
		return tell(self, -1, fault.message, err);
	if (result != BETON_OK && err)
		*err = fault;
	return result;
}

int beton_index_check(const char *path, const beton_index_options *given, beton_index_report *report, beton_error *err)
{
	if (BT_MISSING(err, path, report))
		return BETON_INVALID_ARGUMENT;
	beton_index_options options;
	beton_reader *reader;
	char *side;
	int result = open_file(&reader, path, &side, report, err);
	teller self = {&options, report, path};
	if (result == BETON_OK)
		result = take_options(given, &options, err);
	if (result == BETON_OK && report->place != BETON_INDEX_NOWHERE) {
		result = check_sections(reader, &self, err);
		if (result == BETON_OK)
			result = bt_index_run_check(reader, &options, tell_picture, &self, report, err);
	}
	beton_reader_close(&reader);
	free(side);
	return result;
}
