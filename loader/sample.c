/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <fcntl.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "pixels/crop.h"
#include "batch/geometry.h"
#include "io/io.h"
#include "batch/ragged.h"
#include "batch/views.h"
#include "operations/random.h"
#include "io/reads.h"
#include "state.h"
#include "window_fill.h"

static bt_random stream(const beton_loader *loader, const bt_ticket *ticket, uint32_t view, enum bt_operation operation)
{
	return (bt_random){.seed = loader->options.seed,
			   .epoch = ticket->slot->batch.epoch,
			   .sample = ticket->sample,
			   .operation = operation,
			   .view = view};
}

static bt_rect choose_crop(const beton_image_options *image, const beton_value *value, bt_random random)
{
	switch (image->crop) {
	case BETON_CROP_RANDOM:
		return bt_crop_random(value->width, value->height, image->crop_scale, image->crop_ratio, &random);
	case BETON_CROP_CENTER:
		return bt_crop_center(value->width, value->height, image->center_ratio);
	default:
		return (bt_rect){.width = value->width, .height = value->height};
	}
}

/* How a picture gets to its output. */
typedef struct picture_course {
	bt_rect crop;
	bt_placement place; /* of the crop in the output, at the end */
	bool flipped;
	bt_random random; /* of seed, epoch, sample and view */
	double *drawn;    /* NULL, or receives the numbers drawn */
} picture_course;

/* Where the crop lies before the flip at the end. */
static bt_placement first_place(const beton_image_options *options, const picture_course *course)
{
	bt_placement place = course->place;
	if (course->flipped)
		place.x = (int32_t)((int64_t)options->width - place.width - place.x);
	return place;
}

/* The crop is decoded at 1/2, 1/4 or 1/8 of its size if that leaves a sample for each pixel that it becomes: a smaller
 * inverse DCT costs less than a full one and averaging. A part of it has the samples of the whole. */
static uint32_t choose_shrink(const bt_rect *crop, const bt_placement *place)
{
	enum { MOST = 8 };
	uint32_t shrink = 1;
	while (shrink < MOST && crop->width / (2 * shrink) >= place->width &&
	       crop->height / (2 * shrink) >= place->height)
		shrink *= 2;
	return shrink;
}

/* A filter that was named works on its peer's pixels: RGB, or grey, at the size of the crop. Of the crop only the part
 * that is seen is decoded. */
static bt_request request_image(const beton_image_options *options, const picture_course *course)
{
	const bt_placement place = first_place(options, course);
	const bt_rect *crop = &course->crop;
	bt_request request = {.grey = options->color == BETON_COLOR_GREY,
			      .crop = bt_crop_needed(crop, &place, options->width, options->height)};
	if (options->pixels == BETON_PIXELS_FFCV) {
		request.pixels = BT_WANT_RGB_FAST_DCT;
	} else if (options->pixels == BETON_PIXELS_TORCHVISION || options->filter != BETON_FILTER_AUTO) {
		request.pixels = BT_WANT_RGB;
	} else {
		request.pixels = BT_WANT_PLANES;
		request.shrink = choose_shrink(crop, &place);
	}
	return request;
}

/* Makes the box of planes that have a part of a crop the whole crop's. */
static void widen_box(bt_picture *picture, const bt_rect *part, const bt_rect *crop)
{
	for (int i = 0; i < (picture->colour == BT_YCC ? 3 : 1); i++) {
		bt_plane *plane = &picture->planes[i];
		double step_x = part->width / plane->box_width, step_y = part->height / plane->box_height;
		plane->x -= (part->x - crop->x) / step_x;
		plane->y -= (part->y - crop->y) / step_y;
		plane->box_width = crop->width / step_x;
		plane->box_height = crop->height / step_y;
	}
}

/* random: the flip's. */
static bool is_flipped(const beton_image_options *options, bt_random random)
{
	bool alternate = options->flip_mode == BETON_FLIP_ALTERNATE;
	bool turned = alternate && random.epoch % 2 == 1;
	if (alternate)
		random.epoch = 0; /* the draw belongs to the sample, not to the epoch */
	return (bt_random_uniform(&random, 0, 1) < options->flip_probability) != turned;
}

static int apply_operations(bt_tools *tools, const beton_image_options *options, const bt_random *random, double *drawn,
			    beton_error *err)
{
	bt_lent *lent = &tools->loader->pool->lent;
	if (!bt_lent_begin(lent))
		return BETON_CANCELLED;
	int result = bt_canvas_apply(&tools->canvas, options, random, drawn, err);
	bt_lent_end(lent);
	return result;
}

static int transform(bt_tools *tools, const bt_view *view, const bt_picture *picture, bool flip,
		     const bt_placement *place, const bt_image_format *format, void *destination, beton_error *err)
{
	if (!view->raster)
		return bt_transform(&tools->transformer, picture, flip, place, format, destination, err);
	return bt_raster_transform(&tools->rasters, &picture->planes[0], flip, place, format,
				   format == &view->format ? view->lanes : NULL, destination, err);
}

/* Resizes the picture and applies operations to it; it is the canvas's then, padding included. */
static int operate(bt_tools *tools, const bt_view *view, const picture_course *course, bt_picture *picture,
		   beton_error *err)
{
	const beton_image_options *options = view->image;
	const bt_placement place = first_place(options, course);
	const bt_image_format *format = &view->pixels;
	int result =
		bt_canvas_begin(&tools->canvas, options->width, options->height, format->channels, format->item, err);
	if (result == BETON_OK)
		result = transform(tools, view, picture, false, &place, format, tools->canvas.image.data, err);
	if (result == BETON_OK)
		result = apply_operations(tools, options, &course->random,
					  course->drawn ? course->drawn + BT_DRAWN_FIXED : NULL, err);
	const bt_image *image = &tools->canvas.image;
	*picture = (bt_picture){.colour = view->raster            ? BT_RASTER
					  : format->channels == 1 ? BT_GREY
								  : BT_RGB,
				.planes[0] = {.data = image->data,
					      .stride = (size_t)image->width * image->pixel_bytes,
					      .width = image->width,
					      .height = image->height,
					      .channels = format->channels,
					      .box_width = image->width,
					      .box_height = image->height}};
	return result;
}

/* Resizes, applies operations, and writes the output; notes how pixels move in tools->canvas.moves. */
static int make_image(bt_tools *tools, const bt_view *view, const picture_course *course, bt_picture *picture,
		      void *destination, beton_error *err)
{
	const bt_placement *place = &course->place;
	if (view->image->num_operations > 0) {
		int result = operate(tools, view, course, picture, err);
		if (result)
			return result;
		place = NULL;
	}
	if (course->flipped)
		bt_moves_flip_horizontal(tools->canvas.moves);
	return transform(tools, view, picture, course->flipped, place, &view->format, destination, err);
}

/* Begins to note how the picture's pixels move, if an output asks for it. */
static int begin_moves(bt_tools *tools, uint32_t number, const bt_view *view, const beton_value *value,
		       const picture_course *course, beton_error *err)
{
	const bt_placement place = first_place(view->image, course);
	tools->canvas.moves = view->moves ? &tools->moves[number] : NULL;
	return view->moves ? bt_moves_begin(&tools->moves[number], view->image, value->width, value->height,
					    &course->crop, &place, err)
			   : BETON_OK;
}

static double *drawn_numbers(const bt_outputs *outputs, const bt_ticket *ticket, uint32_t view)
{
	int drawn = outputs->drawn[view];
	if (drawn < 0)
		return NULL;
	return (double *)((char *)ticket->slot->tensors[drawn].data +
			  ticket->index * outputs->list[drawn].sample_bytes);
}

/* Copies the entry of an index if that takes no wait. Otherwise the system reads it for a later time: a wait here would
 * take longer than the index saves. */
static bool read_at_hand(const bt_tools *tools, uint32_t number, const beton_blob *blob, void *to)
{
	const beton_loader *loader = tools->loader;
	bt_file *file = &loader->dataset.files->list[number];
	const bt_io *io = file->files->io;
	bt_lease lease;
	struct iovec part = {.iov_base = to, .iov_len = (size_t)blob->size};
	if (file->source)
		return file->immediate && beton_reader_read_jpeg_index(file->source, blob, to, NULL) == BETON_OK;
	const beton_reader *reader = loader->dataset.readers[number];
	if (beton_reader_info(reader)->jpeg_indexes_beside)
		return beton_reader_peek_jpeg_index(reader, blob, to);
	if (bt_files_borrow(file, &lease, NULL) != BETON_OK)
		return false;
	bool done = io->preadv2(lease.fd, &part, 1, (off_t)blob->offset, RWF_NOWAIT) == (ssize_t)blob->size;
	if (!done)
		io->fadvise(lease.fd, (off_t)blob->offset, (off_t)blob->size, POSIX_FADV_WILLNEED);
	bt_files_give_back(file);
	return done;
}

/* Reads the index that lets the decoder begin just before the crop. Without an index, or if it is damaged, the decoder
 * begins at the beginning: beton_verify reports such damage. */
static void read_index(bt_tools *tools, const bt_ticket *ticket, const beton_value *value, const uint8_t *bytes,
		       bt_request *request)
{
	const beton_reader *reader = tools->loader->dataset.readers[ticket->file];
	const bt_rect *crop = &request->crop;
	bool whole = crop->width == value->width && crop->height == value->height;
	beton_blob entry;
	if (request->pixels == BT_WANT_RGB_FAST_DCT || whole ||
	    beton_reader_jpeg_index(reader, value, &entry, NULL) != BETON_OK || entry.size == 0 ||
	    !read_at_hand(tools, ticket->file, &entry, tools->jpeg_index))
		return;
	/* An index that does not belong to the JPEG is left as one of no bytes. */
	beton_reader_open_jpeg_index(reader, value, &entry, tools->jpeg_index, bytes, &request->index,
				     &request->index_size, NULL);
}

/* Compares a picture with its checksum, once for all views of it. */
static int verify_image(bt_tools *tools, const bt_ticket *ticket, const bt_output *output, const beton_value *value,
			const uint8_t *bytes, beton_error *err)
{
	const beton_loader *loader = tools->loader;
	if (!loader->options.verify || !output->first)
		return BETON_OK;
	uint64_t begin = bt_now_ns();
	int result = beton_reader_check(loader->dataset.readers[ticket->file], value, bytes, err);
	tools->stats.verify_ns += bt_now_ns() - begin;
	return result;
}

/* Draws crop and flip, and writes them to the output of numbers drawn. */
static picture_course draw_course(const bt_tools *tools, const bt_ticket *ticket, const bt_output *output,
				  const beton_value *value)
{
	const beton_image_options *image = ticket->slot->views->list[output->view].image;
	bt_rect crop = choose_crop(image, value, stream(tools->loader, ticket, output->view, BT_OPERATION_CROP));
	picture_course out = {.crop = crop,
			      .place = bt_crop_fit(image, &crop),
			      .random = stream(tools->loader, ticket, output->view, BT_OPERATION_FLIP),
			      .drawn = drawn_numbers(tools->loader->outputs, ticket, output->view)};
	out.flipped = is_flipped(image, out.random);
	if (out.drawn) {
		const double fixed[BT_DRAWN_FIXED] = {crop.x, crop.y, crop.width, crop.height, out.flipped};
		const double place[BT_DRAWN_PLACE] = {out.place.x, out.place.y, out.place.width, out.place.height};
		memcpy(out.drawn, fixed, sizeof(fixed));
		if (image->fit != BETON_FIT_STRETCH)
			memcpy(out.drawn + BT_DRAWN_FIXED + (size_t)BT_DRAWN * image->num_operations, place,
			       sizeof(place));
	}
	return out;
}

/* The crop of a raster, in the bytes that were read or in memory for a decompressed one. */
static int open_raster(bt_tools *tools, const bt_ticket *ticket, const bt_view *view, const beton_value *value,
		       const uint8_t *bytes, const bt_rect *crop, bt_picture *out, beton_error *err)
{
	if (value->compression != BETON_COMPRESSION_NONE) {
		uint8_t *plain = bt_buffer_reserve(&tools->unpacked, (size_t)value->size);
		if (!plain)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for a raster of %llu bytes",
				       (unsigned long long)value->size);
		int result = beton_reader_unpack(tools->loader->dataset.readers[ticket->file], value, bytes, false,
						 plain, err);
		if (result)
			return result;
		bytes = plain;
	}
	size_t pixel = (size_t)view->format.channels * view->format.item, stride = value->width * pixel;
	*out = (bt_picture){.colour = BT_RASTER,
			    .planes[0] = {.data = bytes + crop->y * stride + crop->x * pixel,
					  .stride = stride,
					  .width = crop->width,
					  .height = crop->height,
					  .channels = view->format.channels,
					  .box_width = crop->width,
					  .box_height = crop->height}};
	return BETON_OK;
}

static int open_picture(bt_tools *tools, const bt_ticket *ticket, const bt_view *view, const beton_value *value,
			const uint8_t *bytes, const picture_course *course, bt_picture *out, beton_error *err)
{
	if (view->raster)
		return open_raster(tools, ticket, view, value, bytes, &course->crop, out, err);
	bt_request request = request_image(view->image, course);
	read_index(tools, ticket, value, bytes, &request);
	int result = bt_decode(tools->decoder, (int64_t)ticket->sample, value, bytes, &request, out, err);
	const bt_rect *part = &request.crop, *crop = &course->crop;
	if (result == BETON_OK && (part->width < crop->width || part->height < crop->height))
		widen_box(out, part, crop);
	return result;
}

static int fill_image(bt_tools *tools, const bt_ticket *ticket, const bt_output *output, const beton_value *value,
		      const uint8_t *bytes, void *destination, beton_error *err)
{
	const beton_loader *loader = tools->loader;
	const beton_reader *reader = loader->dataset.readers[ticket->file];
	const bt_view *view = &ticket->slot->views->list[output->view];
	int result = verify_image(tools, ticket, output, value, bytes, err);
	uint64_t verified = bt_now_ns();
	if (result)
		return result;

	const picture_course course = draw_course(tools, ticket, output, value);
	bt_picture picture;
	result = open_picture(tools, ticket, view, value, bytes, &course, &picture, err);
	uint64_t decoded = bt_now_ns();
	tools->stats.decode_ns += decoded - verified;
	if (result) {
		bt_prefix(err, "%s: field '%s'", beton_reader_path(reader), view->image->field);
		return result;
	}

	result = begin_moves(tools, output->view, view, value, &course, err);
	if (result)
		return result;
	result = make_image(tools, view, &course, &picture, destination, err);
	tools->stats.transform_ns += bt_now_ns() - decoded;
	return result;
}

static int too_long(const beton_reader *reader, const bt_ticket *ticket, const bt_output *output,
		    const beton_value *value, uint64_t room, const char *options, beton_error *err)
{
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)ticket->sample,
			      "%s: sample %llu, field '%s': %llu bytes, and there is room for %llu%s",
			      beton_reader_path(reader), (unsigned long long)ticket->number, output->name,
			      (unsigned long long)value->size, (unsigned long long)room, options);
}

/* Bytes, JSON or an array: copies the value itself, decompressed. */
static int fill_bytes(bt_tools *tools, const bt_ticket *ticket, const bt_output *output, const beton_value *value,
		      const uint8_t *bytes, char *destination, beton_error *err)
{
	const beton_reader *reader = tools->loader->dataset.readers[ticket->file];
	bool array = output->kind == BT_OUTPUT_ARRAY;
	if (value->size > output->sample_bytes || (array && value->size != output->sample_bytes))
		return too_long(reader, ticket, output, value, output->sample_bytes, array ? "" : " (option max_bytes)",
				err);
	uint64_t begin = bt_now_ns();
	int result = beton_reader_unpack(reader, value, bytes, true, destination, err);
	if (result == BETON_OK && bt_form_of(value->type) == BT_FORM_TEXT)
		result = beton_reader_check_text(reader, value, destination, err);
	memset(destination + value->size, 0, output->sample_bytes - value->size);
	tools->stats.decode_ns += bt_now_ns() - begin;
	return result;
}

/* Boxes or points, and what is kept of them, when the picture that they are on is done. */
static int fill_geometry(bt_tools *tools, bt_ticket *ticket, uint32_t number, beton_error *err)
{
	const beton_reader *reader = tools->loader->dataset.readers[ticket->file];
	const bt_output *output = &tools->loader->outputs->list[number];
	const beton_value *value = &ticket->values[output->field];
	const beton_tensor *tensors = &ticket->slot->tensors[number];
	float *to = (float *)((char *)tensors[0].data + ticket->index * output[0].sample_bytes);
	float *kept = (float *)((char *)tensors[1].data + ticket->index * output[1].sample_bytes);
	size_t size = bt_geometry_bytes(output);
	const uint8_t *bytes;
	if (value->size != size)
		return too_long(reader, ticket, output, value, size, "", err);
	void *array = bt_buffer_reserve(&tools->array, size);
	if (!array)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an array of %zu bytes", size);
	uint64_t begin = bt_now_ns();
	int result = bt_reads_wait(tools, ticket, (uint32_t)output->read, &bytes, err);
	if (result == BETON_OK)
		result = beton_reader_unpack(reader, value, bytes, true, array, err);
	if (result == BETON_OK)
		bt_geometry_fill(output, array, &tools->moves[output->view], to, kept);
	tools->stats.decode_ns += bt_now_ns() - begin;
	return result;
}

/* Checks and decompresses a value of a RAGGED output. Its room in the batch is taken only when the whole sample is
 * good, because room is never given back. */
static int check_ragged(bt_tools *tools, const bt_ticket *ticket, uint32_t number, const beton_value *value,
			const uint8_t *bytes, beton_error *err)
{
	const beton_reader *reader = tools->loader->dataset.readers[ticket->file];
	const bt_output *output = &tools->loader->outputs->list[number];
	bt_ragged_value *ragged = &tools->ragged[number];
	if (value->size > bt_ragged_room(output))
		return too_long(reader, ticket, output, value, bt_ragged_room(output),
				" (options max_bytes, batch_size)", err);
	uint64_t begin = bt_now_ns();
	int result = beton_reader_check(reader, value, bytes, err);
	ragged->bytes = bytes;
	if (result == BETON_OK && value->compression != BETON_COMPRESSION_NONE) {
		uint8_t *plain = bt_buffer_reserve(&ragged->unpacked, (size_t)value->size);
		ragged->bytes = plain;
		result = plain ? beton_reader_unpack(reader, value, bytes, false, plain, err)
			       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %llu bytes",
					 beton_reader_path(reader), (unsigned long long)value->size);
	}
	if (result == BETON_OK && bt_form_of(value->type) == BT_FORM_TEXT)
		result = beton_reader_check_text(reader, value, ragged->bytes, err);
	tools->stats.decode_ns += bt_now_ns() - begin;
	return result;
}

/* Values of a mapped file stay where they are until the batch is finished. */
static bool are_lent(const bt_tools *tools)
{
	return tools->loader->options.engine == BETON_ENGINE_MMAP;
}

/* Reads mapped bytes that are not in memory, while other workers wait for theirs, and not when all of the batch has to
 * wait. */
static void touch(const uint8_t *bytes, uint64_t size)
{
	enum { PAGE = 4096 };
	for (uint64_t at = 0; at < size; at += PAGE)
		(void)*(const volatile uint8_t *)(bytes + at);
}

/* Checks a picture that stays as it is stored, and draws its crop and flip. Its room is taken like a RAGGED value's. */
static int check_stored(bt_tools *tools, const bt_ticket *ticket, uint32_t number, const beton_value *value,
			const uint8_t *bytes, beton_error *err)
{
	const beton_loader *loader = tools->loader;
	const bt_output *output = &loader->outputs->list[number];
	const beton_reader *reader = loader->dataset.readers[ticket->file];
	/* Files of one data set may differ in it, so that the check of the options, when it is opened, cannot tell. */
	if (value->compression != BETON_COMPRESSION_NONE)
		return bt_fail_sample(
			err, BETON_INVALID_ARGUMENT, (int64_t)ticket->sample,
			"%s: sample %llu, field '%s' is compressed, but the option output is BETON_IMAGE_STORED",
			beton_reader_path(reader), (unsigned long long)ticket->number, output->name);
	if (value->blob.size > bt_ragged_room(output))
		return too_long(reader, ticket, output, value, bt_ragged_room(output),
				" (options stored_bytes, batch_size)", err);
	int result = verify_image(tools, ticket, output, value, bytes, err);
	if (result)
		return result;
	result = bt_decode_check((int64_t)ticket->sample, value, loader->options.max_pixels, err);
	if (result) {
		bt_prefix(err, "%s: field '%s'", beton_reader_path(reader), output->name);
		return result;
	}
	draw_course(tools, ticket, output, value);
	if (are_lent(tools))
		touch(bytes, value->blob.size);
	tools->ragged[number].bytes = bytes;
	return BETON_OK;
}

/* Stores the values of a good sample. If a value does not fit, the batch fails when it is complete; which value fails
 * depends on the workers. */
static void put_ragged(bt_tools *tools, const bt_ticket *ticket)
{
	const bt_outputs *outputs = tools->loader->outputs;
	for (uint32_t i = 0; i < outputs->count; i++) {
		const bt_output *output = &outputs->list[i];
		const beton_value *value = &ticket->values[output->field];
		if (bt_is_ragged(output))
			bt_ragged_put(ticket->slot, i, ticket->index, tools->ragged[i].bytes, value->size,
				      output->kind == BT_OUTPUT_STORED && are_lent(tools));
	}
}

static int fill_integer(const beton_loader *loader, const bt_ticket *ticket, uint32_t field, int64_t value,
			char *destination)
{
	if (loader->replacements.count > 0) {
		if (!bt_lent_begin(&loader->pool->lent))
			return BETON_CANCELLED;
		value = bt_replace(&loader->replacements, field, ticket->sample, value);
		bt_lent_end(&loader->pool->lent);
	}
	memcpy(destination, &value, sizeof(value));
	return BETON_OK;
}

/* bytes: of the read that the output is made from. */
static int fill_output(bt_tools *tools, const bt_ticket *ticket, uint32_t number, const uint8_t *bytes,
		       beton_error *err)
{
	const bt_output *output = &tools->loader->outputs->list[number];
	const beton_value *value = &ticket->values[output->field];
	char *destination =
		(char *)ticket->slot->tensors[number].data + ticket->index * bt_slot_row_bytes(ticket->slot, output);
	switch (output->kind) {
	case BT_OUTPUT_INT:
		return fill_integer(tools->loader, ticket, output->field, value->integer, destination);
	case BT_OUTPUT_FLOAT:
		memcpy(destination, &value->real, sizeof(value->real));
		return BETON_OK;
	case BT_OUTPUT_LENGTH:
		memcpy(destination, &value->size, sizeof(value->size));
		return BETON_OK;
	case BT_OUTPUT_BYTES:
	case BT_OUTPUT_ARRAY:
		return fill_bytes(tools, ticket, output, value, bytes, destination, err);
	case BT_OUTPUT_RAGGED:
		return check_ragged(tools, ticket, number, value, bytes, err);
	case BT_OUTPUT_STORED:
		return check_stored(tools, ticket, number, value, bytes, err);
	case BT_OUTPUT_SHAPE:
		memcpy(destination,
		       (const int32_t[3]){(int32_t)value->height, (int32_t)value->width, (int32_t)value->mode},
		       3 * sizeof(int32_t));
		return BETON_OK;
	case BT_OUTPUT_IMAGE:
		return fill_image(tools, ticket, output, value, bytes, destination, err);
	default: /* filled with the image or after it, or when the batch is complete */
		return BETON_OK;
	}
}

static int choose_sample(const beton_loader *loader, bt_ticket *ticket, uint64_t position, beton_error *err)
{
	bt_lent *lent = loader->options.order_callback ? &loader->pool->lent : NULL;
	if (lent && !bt_lent_begin(lent))
		return BETON_CANCELLED;
	int result = bt_order_sample(&ticket->slot->order, position, &ticket->sample, err);
	if (lent)
		bt_lent_end(lent);
	return result;
}

/* Finds the sample, and its values' places in the file. */
static int look_up(const beton_loader *loader, bt_ticket *ticket, uint64_t position, beton_error *err)
{
	int result = choose_sample(loader, ticket, position, err);
	if (result)
		return result;
	ticket->file = bt_dataset_locate(&loader->dataset, ticket->sample, &ticket->number);
	result = bt_dataset_look_up(&loader->dataset, ticket->file, ticket->number, ticket->values, err);
	if (result == BETON_OK && loader->dataset.readers)
		return bt_reads_check(loader, ticket, err);
	if (result != BETON_SAMPLE_CORRUPT || !loader->dataset.readers)
		return result;
	/* Damage in a field without outputs does not matter; a damaged field with outputs is looked at again, for its
	 * message. */
	result = BETON_OK;
	for (uint32_t i = 0; result == BETON_OK && i < loader->outputs->count; i++) {
		uint32_t field = loader->outputs->list[i].field;
		if (ticket->values[field].status)
			result = beton_reader_value(loader->dataset.readers[ticket->file], ticket->number, field,
						    &ticket->values[field], err);
	}
	return result == BETON_OK ? bt_reads_check(loader, ticket, err) : result;
}

/* Fills the row from the values of a file's fields. */
static int fill_outputs(bt_tools *tools, bt_ticket *ticket, beton_error *err)
{
	const bt_outputs *outputs = tools->loader->outputs;
	const uint8_t *bytes = NULL;
	int result = BETON_OK;
	for (uint32_t i = 0, reads = 0; result == BETON_OK && i < outputs->count; i++) {
		if (outputs->list[i].read == (int)reads) {
			result = bt_reads_wait(tools, ticket, reads++, &bytes, err);
			if (result)
				break;
		}
		result = fill_output(tools, ticket, i, bytes, err);
	}
	for (uint32_t i = 0; result == BETON_OK && i < outputs->count; i++)
		if (outputs->list[i].kind == BT_OUTPUT_GEOMETRY)
			result = fill_geometry(tools, ticket, i, err);
	if (result == BETON_OK && outputs->ragged)
		put_ragged(tools, ticket);
	return result;
}

/* Fills the row of a ticket whose blobs are read. */
static int fill(bt_tools *tools, bt_ticket *ticket, beton_error *err)
{
	int result =
		tools->loader->dataset.readers ? fill_outputs(tools, ticket, err) : bt_window_fill(tools, ticket, err);
	ticket->slot->ids[ticket->index] = ticket->sample;
	/* Not every error names its sample, and files count their own samples. */
	if (result && err)
		err->sample = (int64_t)ticket->sample;
	return result;
}

/* Whether the sample's batch was abandoned. */
static bool is_abandoned(const bt_ticket *ticket)
{
	return atomic_load_explicit(&ticket->slot->abandoned, memory_order_relaxed);
}

static bool is_bad(int result)
{
	return result == BETON_SAMPLE_CORRUPT || result == BETON_IO;
}

/* Fills the row of a bad sample with another one. On failure the id is the bad sample's. */
static int substitute(bt_tools *tools, const bt_ticket *bad)
{
	const beton_loader *loader = tools->loader;
	bt_ticket *ticket = &tools->substitute;
	uint64_t length = bt_orders_length(loader->orders);
	bt_random random = {.seed = loader->options.seed,
			    .epoch = bad->slot->batch.epoch,
			    .sample = bt_shard_position(&bad->slot->shard, bad->slot->index, bad->index),
			    .operation = BT_OPERATION_SUBSTITUTE};
	int result = bad->result;
	for (int i = 0; is_bad(result) && !is_abandoned(bad) && i < BT_SUBSTITUTES; i++) {
		ticket->slot = bad->slot;
		ticket->index = bad->index;
		result = look_up(loader, ticket, bt_random_bits(&random) % length, NULL);
		if (result == BETON_OK)
			result = bt_reads_now(tools, ticket, NULL);
		if (result == BETON_OK)
			result = fill(tools, ticket, NULL);
		if (is_bad(result))
			bt_note_bad(tools->loader, ticket->sample);
	}
	if (result)
		bad->slot->ids[bad->index] = bad->sample;
	return result;
}

void bt_sample_begin(bt_tools *tools, bt_slot *slot, uint32_t index)
{
	bt_ticket *ticket = &tools->tickets[tools->end++ % tools->capacity];
	uint64_t begin = bt_now_ns();
	ticket->slot = slot;
	ticket->index = index;
	ticket->sample = BT_NO_SAMPLE;
	ticket->err.sample = -1;
	ticket->result = BETON_CANCELLED;
	if (!is_abandoned(ticket))
		ticket->result = look_up(tools->loader, ticket, bt_shard_position(&slot->shard, slot->index, index),
					 &ticket->err);
	if (ticket->result && ticket->sample != BT_NO_SAMPLE)
		ticket->err.sample = (int64_t)ticket->sample;
	uint64_t found = bt_now_ns();
	tools->stats.order_ns += found - begin;
	bt_reads_plan(tools->loader, ticket);
	bt_reads_submit(tools);
	tools->stats.submit_ns += bt_now_ns() - found;
}

/* Adds where a damaged sample comes from, so that the user need not look for its file. */
static void name_source(const beton_loader *loader, bt_ticket *ticket)
{
	char source[BETON_SOURCE_MAX + 1];
	uint64_t number;
	if (ticket->result != BETON_SAMPLE_CORRUPT || ticket->sample == BT_NO_SAMPLE || !loader->dataset.readers)
		return;
	uint32_t of_file = bt_dataset_locate(&loader->dataset, ticket->sample, &number);
	if (beton_reader_source(loader->dataset.readers[of_file], number, source, NULL) == BETON_OK && *source) {
		beton_error given = ticket->err;
		bt_fail_sample(&ticket->err, given.code, given.sample, "%s (from %.200s)", given.message, source);
	}
}

int bt_sample_finish(bt_tools *tools, bool *bad, beton_error *err)
{
	bt_ticket *ticket = &tools->tickets[tools->first % tools->capacity];
	const beton_loader *loader = tools->loader;
	*bad = false;
	if (is_abandoned(ticket))
		ticket->result = BETON_CANCELLED;
	else if (ticket->result == BETON_OK)
		ticket->result = fill(tools, ticket, &ticket->err);
	else
		ticket->slot->ids[ticket->index] = ticket->sample;
	bt_reads_end(tools);
	if (ticket->result == BETON_NO_MEMORY && tools->budget.limit)
		bt_prefix(&ticket->err, "option memory_limit leaves each thread %zu bytes of working memory",
			  tools->budget.limit);
	*bad = is_bad(ticket->result);
	if (!*bad) {
		if (ticket->result)
			*err = ticket->err;
		return ticket->result;
	}
	bt_note_bad(tools->loader, ticket->sample);
	name_source(loader, ticket);
	if (loader->options.on_error == BETON_ON_ERROR_SKIP)
		ticket->slot->ids[ticket->index] = BT_NO_SAMPLE;
	if (loader->options.on_error == BETON_ON_ERROR_SUBSTITUTE && substitute(tools, ticket) == BETON_OK)
		return BETON_OK;
	*err = ticket->err;
	return ticket->result;
}
