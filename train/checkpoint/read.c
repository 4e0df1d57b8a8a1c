/* SPDX-License-Identifier: Apache-2.0
 *
 * From the parts in the files to those in memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "common/system.h"
#include "save_plan.h"

/* Runs closer together than GAP_BYTES are read together, up to the size of the window. */
#define WINDOW_BYTES ((uint64_t)1 << 20)
#define GAP_BYTES ((uint64_t)64 << 10)

/* ---- parts of the files that a view needs ---- */

/* The overlap of a view's box and a part in a file. from: position in the part, to: in the view's memory. */
typedef struct needed_part {
	const index_tensor *tensor;
	const index_part *part;
	checkpoint_runs runs;
	int64_t to; /* start of the box in the view's memory, elements */
} needed_part;

typedef int needed_function(void *context, const needed_part *needed, beton_error *err);

static int for_each_needed(const index_tensor *tensor, const dtrain_checkpoint_view *view, needed_function *function,
			   void *context, beton_error *err)
{
	checkpoint_box boxes[CHECKPOINT_BOXES_MAX], shared;
	int ndim = tensor->shape.ndim, status = BETON_OK;
	int count = dtrain__view_split(view, boxes);
	int64_t to = 0;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		for (size_t k = 0; k < tensor->part_count && status == BETON_OK; k++) {
			needed_part found = {.tensor = tensor, .part = &tensor->parts[k], .to = to};
			if (!dtrain__box_intersect(ndim, &boxes[i], &found.part->box, &shared))
				continue;
			dtrain__runs_begin(ndim, &shared, &found.part->box, &boxes[i], &found.runs);
			status = function(context, &found, err);
		}
		to += dtrain__box_count(ndim, &boxes[i]);
	}
	return status;
}

/* The range from the file's first needed byte to its last. */
static void span_of(const needed_part *needed, uint64_t *begin, uint64_t *end)
{
	const checkpoint_runs *runs = &needed->runs;
	int64_t last = runs->from;
	size_t bytes = dtrain_dtype_size((dtrain_dtype)needed->tensor->dtype);
	for (int i = 0; i < runs->outer; i++)
		last += (runs->extent[i] - 1) * runs->from_stride[i];
	*begin = needed->part->at + (uint64_t)runs->from * bytes;
	*end = needed->part->at + (uint64_t)(last + runs->count) * bytes;
}

/* ---- checking ---- */

/* The needed chunks of each file; NULL: none. */
typedef struct chunk_marks {
	const checkpoint_index *index;
	bool **files;
} chunk_marks;

static int mark(void *context, const needed_part *needed, beton_error *err)
{
	chunk_marks *marks = context;
	const index_file *file = &marks->index->files[needed->part->file];
	bool **chunks = &marks->files[needed->part->file];
	uint64_t begin, end;
	if (file->checked)
		return BETON_OK;
	if (!*chunks)
		*chunks = calloc(file->digest.count, sizeof(**chunks));
	if (!*chunks)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for its checksums", file->name);
	span_of(needed, &begin, &end);
	for (uint64_t chunk = begin / file->digest.chunk_bytes; chunk <= (end - 1) / file->digest.chunk_bytes; chunk++)
		(*chunks)[chunk] = true;
	return BETON_OK;
}

static int check_file(const dtrain_checkpoint *checkpoint, const index_file *file, const bool *chunks, beton_error *err)
{
	char *path = NULL;
	int fd = -1;
	int status = dtrain__checkpoint_open_file(checkpoint, file->name, &fd, &path, err);
	for (size_t first = 0, last; first < file->digest.count && status == BETON_OK; first = last) {
		for (last = first; last < file->digest.count && chunks[last];)
			last++;
		if (last > first)
			status = dtrain__digest_check(&file->digest, path, fd, first, last, err);
		else
			last++;
	}
	if (fd >= 0)
		close(fd);
	free(path);
	return status;
}

int dtrain__checkpoint_check_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				   beton_error *err)
{
	const checkpoint_index *index = &checkpoint->index;
	chunk_marks marks = {.index = index, .files = calloc(index->file_count + 1, sizeof(*marks.files))};
	int status = BETON_OK;
	if (!marks.files)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for checksums", checkpoint->path);
	for (size_t i = 0; i < list->count && status == BETON_OK; i++) {
		const index_tensor *tensor = dtrain__index_find(&index->sets[set], list->views[i].name);
		status = for_each_needed(tensor, &list->views[i], mark, &marks, err);
	}
	for (size_t i = 0; i < index->file_count; i++) {
		if (marks.files[i] && status == BETON_OK)
			status = check_file(checkpoint, &index->files[i], marks.files[i], err);
		free(marks.files[i]);
	}
	free(marks.files);
	return status;
}

/* ---- reading ---- */

typedef struct part_reader {
	const dtrain_checkpoint *checkpoint;
	size_t file; /* the open file */
	int fd;      /* -1: none */
	char *path;
	char *window;          /* WINDOW_BYTES */
	uint64_t begin, bytes; /* range of the file in the window */
	char *to;              /* memory of the view */
} part_reader;

static void close_file(part_reader *reader)
{
	if (reader->fd >= 0)
		close(reader->fd);
	reader->fd = -1;
	free(reader->path);
	reader->path = NULL;
	reader->bytes = 0;
}

static int use_file(part_reader *reader, size_t file, beton_error *err)
{
	if (reader->fd >= 0 && reader->file == file)
		return BETON_OK;
	close_file(reader);
	reader->file = file;
	return dtrain__checkpoint_open_file(reader->checkpoint, reader->checkpoint->index.files[file].name, &reader->fd,
					    &reader->path, err);
}

static int read_bytes(const part_reader *reader, const needed_part *needed, void *to, uint64_t at, uint64_t bytes,
		      beton_error *err)
{
	ssize_t got = bt_pread_full(reader->fd, to, bytes, at);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read tensor '%s'", reader->path, needed->tensor->name);
	if ((uint64_t)got != bytes)
		return bt_fail(err, BETON_TRUNCATED, "%s: ends inside tensor '%s'", reader->path, needed->tensor->name);
	return BETON_OK;
}

/* ahead: end of the range in the file that may be read in advance. */
static int read_run(part_reader *reader, const needed_part *needed, void *to, uint64_t at, uint64_t bytes,
		    uint64_t ahead, beton_error *err)
{
	if (bytes >= WINDOW_BYTES)
		return read_bytes(reader, needed, to, at, bytes, err);
	if (at < reader->begin || at + bytes > reader->begin + reader->bytes) {
		uint64_t wanted = ahead - at < WINDOW_BYTES ? ahead - at : WINDOW_BYTES;
		reader->bytes = 0;
		int status = read_bytes(reader, needed, reader->window, at, wanted, err);
		if (status != BETON_OK)
			return status;
		reader->begin = at;
		reader->bytes = wanted;
	}
	memcpy(to, reader->window + (at - reader->begin), bytes);
	return BETON_OK;
}

static int read_needed(void *context, const needed_part *needed, beton_error *err)
{
	part_reader *reader = context;
	checkpoint_runs runs = needed->runs;
	size_t element = dtrain_dtype_size((dtrain_dtype)needed->tensor->dtype);
	uint64_t begin, end, bytes = (uint64_t)runs.count * element;
	bool close_by = (uint64_t)(runs.pitch - runs.count) * element < GAP_BYTES;
	int status = use_file(reader, needed->part->file, err);
	span_of(needed, &begin, &end);
	do {
		uint64_t at = needed->part->at + (uint64_t)runs.from * element;
		if (status == BETON_OK)
			status = read_run(reader, needed, reader->to + (size_t)(needed->to + runs.to) * element, at,
					  bytes, close_by ? end : at + bytes, err);
	} while (status == BETON_OK && dtrain__runs_next(&runs));
	return status;
}

static int read_view(part_reader *reader, int set, const dtrain_checkpoint_view *view, dtrain_stream *stream,
		     beton_error *err)
{
	const index_tensor *tensor = dtrain__index_find(&reader->checkpoint->index.sets[set], view->name);
	size_t bytes = (size_t)view->count * dtrain_dtype_size(view->dtype);
	if (!view->count)
		return BETON_OK;
	reader->to = view->device ? malloc(bytes) : view->memory;
	if (!reader->to)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", reader->checkpoint->path,
			       view->name);
	int status = for_each_needed(tensor, view, read_needed, reader, err);
	if (view->device) {
		const dtrain_device_api *api = dtrain_device_get_api(view->device);
		if (status == BETON_OK)
			status = api->copy(stream, view->memory, reader->to, bytes, DTRAIN_HOST_TO_DEVICE, err);
		if (status == BETON_OK)
			status = api->stream_synchronize(stream, err);
		free(reader->to);
	}
	return status;
}

int dtrain__checkpoint_read_views(const dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
				  dtrain_stream *stream, beton_error *err)
{
	part_reader reader = {.checkpoint = checkpoint, .fd = -1, .window = malloc(WINDOW_BYTES)};
	int status = reader.window ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", checkpoint->path);
	for (size_t i = 0; i < list->count && status == BETON_OK; i++)
		status = read_view(&reader, set, &list->views[i], stream, err);
	close_file(&reader);
	free(reader.window);
	return status;
}
