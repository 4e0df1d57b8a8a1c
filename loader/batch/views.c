/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "operations/batch_operations_check.h"
#include "options_image.h"

/* The formats that follow from the view's options. A raster's have its channels, and no tables for bytes. */
static void set_formats(bt_view *view, const beton_loader_options *options, uint32_t channels, uint32_t item)
{
	const beton_image_options *image = view->image;
	beton_loader_options alone = *options;
	alone.image = *image;
	if (view->raster)
		alone.image.dtype = BETON_UINT8;
	bt_image_format_init(&view->format, &alone);
	alone.image.dtype = BETON_UINT8;
	alone.image.layout = BETON_NHWC;
	bt_image_format_init(&view->pixels, &alone);
	view->pixels.streams = false;
	if (!view->raster)
		return;
	view->format.channels = view->pixels.channels = channels;
	view->format.item = view->pixels.item = item;
	view->format.dtype = image->dtype;
	view->pixels.dtype = item == 1 ? BETON_UINT8 : BETON_UINT16;
}

static int set_up_raster(bt_view *view, beton_image_options *image, const beton_loader_options *options,
			 const beton_field *field, beton_error *err)
{
	view->raster = true;
	set_formats(view, options, (uint32_t)field->shape[0], field->item_size);
	int result =
		bt_raster_lanes_open(&view->own_lanes, &view->format, image->normalize ? image->statistics : NULL, err);
	view->lanes = &view->own_lanes;
	return result;
}

static int open_formats(bt_view *view, beton_image_options *image, const beton_loader_options *options,
			const beton_field *field, beton_error *err)
{
	int result = BETON_OK;
	if (field && bt_form_of(field->type) == BT_FORM_RASTER)
		result = set_up_raster(view, image, options, field, err);
	else
		set_formats(view, options, 0, 0);
	/* Borrowed until the loader is open. */
	image->statistics = NULL;
	image->num_statistics = 0;
	return result;
}

static int open_view(bt_view *view, beton_image_options *image, const beton_loader_options *options, int field,
		     const bt_schema *schema, beton_error *err)
{
	size_t bytes = image->num_operations * sizeof(*image->operations);
	view->image = image;
	view->operations = bytes > 0 ? malloc(bytes) : NULL;
	if (bytes > 0 && !view->operations)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u operations", image->num_operations);
	if (bytes > 0)
		memcpy(view->operations, image->operations, bytes);
	image->operations = view->operations;
	image->field = field < 0 ? NULL : schema->fields[field].name;
	bt_options_resolve_image(image);
	return open_formats(view, image, options, field < 0 ? NULL : (&schema->fields[field]), err);
}

/* Views without content. copies: room for them too. */
static int allocate(bt_views **out, uint32_t count, bool copies, beton_error *err)
{
	bt_views *views = *out = calloc(1, sizeof(*views));
	if (views) {
		atomic_init(&views->references, 1);
		views->list = calloc(count, sizeof(*views->list));
		views->copies = copies ? calloc(count, sizeof(*views->copies)) : NULL;
	}
	if (views && views->list && (views->copies || !copies))
		return BETON_OK;
	bt_views_release(out);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u views", count);
}

int bt_views_open(bt_views **out, beton_loader_options *options, const bt_outputs *outputs, const bt_schema *schema,
		  beton_error *err)
{
	uint32_t count = bt_num_views(options);
	int result = allocate(out, count, options->num_views > 0, err);
	if (result)
		return result;
	bt_views *views = *out;
	beton_image_options *images = &options->image;
	if (options->num_views > 0) {
		images = views->copies;
		memcpy(images, options->views, count * sizeof(*images));
		/* Not used with views. */
		options->image.field = NULL;
		options->image.operations = NULL;
		options->image.statistics = NULL;
		options->image.num_statistics = 0;
		options->image.num_operations = 0;
	}
	options->views = views->copies;
	for (; views->count < count && result == BETON_OK; views->count++)
		result = open_view(&views->list[views->count], &images[views->count], options,
				   outputs->view_field[views->count], schema, err);
	for (uint32_t i = 0; i < outputs->count && result == BETON_OK; i++)
		if (outputs->list[i].kind == BT_OUTPUT_GEOMETRY)
			views->list[outputs->list[i].view].moves = true;
	return result;
}

static bool is_output(const bt_outputs *outputs, uint32_t view)
{
	for (uint32_t i = 0; i < outputs->count; i++)
		if (outputs->list[i].kind == BT_OUTPUT_IMAGE && outputs->list[i].view == view)
			return true;
	return false;
}

/* Checks the size of view i, and stores it. */
static int resize(beton_image_options *image, uint32_t i, const beton_iterator_options *sizes, beton_error *err)
{
	uint32_t height = sizes->height[i] ? sizes->height[i] : image->height;
	uint32_t width = sizes->width[i] ? sizes->width[i] : image->width;
	bool other = height != image->height || width != image->width;
	if (height > image->height || width > image->width)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "iterator options: height[%u] and width[%u] are %u x %u, more than the loader's %u x %u",
			       i, i, height, width, image->height, image->width);
	for (uint32_t k = 0; other && k < image->num_operations; k++)
		if (image->operations[k].kind == BETON_POISON)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "iterator options: height[%u] and width[%u] are %u x %u, but the mask of "
				       "operation %u (POISON) is of %u x %u pixels",
				       i, i, height, width, k, image->height, image->width);
	image->height = height;
	image->width = width;
	return BETON_OK;
}

/* The checks of a loader's options, with the iterator's sizes. */
static int check_resized(const bt_views *views, const beton_loader_options *options, beton_error *err)
{
	beton_loader_options resized = *options;
	if (options->num_views > 0)
		resized.views = views->copies;
	else
		resized.image = views->copies[0];
	int result = bt_options_check_images(&resized, err);
	if (result == BETON_OK)
		result = bt_batch_operations_check(&resized, err);
	if (result)
		bt_prefix(err, "with the iterator's height and width");
	return result;
}

int bt_views_resize(bt_views **out, const bt_views *views, const beton_loader_options *options,
		    const bt_outputs *outputs, const beton_iterator_options *sizes, beton_error *err)
{
	*out = NULL;
	for (uint32_t i = 0; i < BETON_VIEWS_MAX; i++)
		if ((sizes->height[i] || sizes->width[i]) && !is_output(outputs, i))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "iterator options: height[%u] and width[%u] are %u x %u, but the loader has no "
				       "pictures of this number",
				       i, i, sizes->height[i], sizes->width[i]);
	int result = allocate(out, views->count, true, err);
	if (result)
		return result;
	bt_views *resized = *out;
	for (uint32_t i = 0; i < views->count && result == BETON_OK; i++) {
		resized->copies[i] = *views->list[i].image;
		result = resize(&resized->copies[i], i, sizes, err);
	}
	if (result == BETON_OK)
		result = check_resized(resized, options, err);
	if (result) {
		bt_views_release(out);
		return result;
	}
	for (; resized->count < views->count; resized->count++) {
		bt_view *view = &resized->list[resized->count];
		view->image = &resized->copies[resized->count];
		const bt_view *like = &views->list[resized->count];
		view->moves = like->moves;
		view->raster = like->raster;
		view->lanes = like->lanes;
		set_formats(view, options, like->format.channels, like->format.item);
	}
	return BETON_OK;
}

bt_views *bt_views_retain(bt_views *views)
{
	atomic_fetch_add(&views->references, 1);
	return views;
}

void bt_views_release(bt_views **out)
{
	bt_views *views = *out;
	*out = NULL;
	if (!views || atomic_fetch_sub(&views->references, 1) > 1)
		return;
	for (uint32_t i = 0; i < views->count; i++) {
		free(views->list[i].operations);
		bt_raster_lanes_free(&views->list[i].own_lanes);
	}
	free(views->list);
	free(views->copies);
	free(views);
}
