/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "options_image.h"

static int open_view(bt_view *view, beton_image_options *image, const beton_loader_options *options, int field,
		     const beton_reader *reader, beton_error *err)
{
	size_t bytes = image->num_operations * sizeof(*image->operations);
	view->image = image;
	view->operations = bytes > 0 ? malloc(bytes) : NULL;
	if (bytes > 0 && !view->operations)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u operations", image->num_operations);
	if (bytes > 0)
		memcpy(view->operations, image->operations, bytes);
	image->operations = view->operations;
	image->field = field < 0 ? NULL : beton_reader_field(reader, (uint32_t)field)->name;
	bt_options_resolve_image(image);
	beton_loader_options alone = *options;
	alone.image = *image;
	bt_image_format_init(&view->format, &alone);
	view->pixels = (bt_image_format){
		.height = image->height, .width = image->width, .dtype = BETON_UINT8, .layout = BETON_NHWC};
	return BETON_OK;
}

int bt_views_open(bt_views *views, beton_loader_options *options, const bt_outputs *outputs, const beton_reader *reader,
		  beton_error *err)
{
	uint32_t count = bt_num_views(options);
	beton_image_options *images = &options->image;
	views->list = calloc(count, sizeof(*views->list));
	if (options->num_views > 0) {
		views->copies = images = malloc(count * sizeof(*images));
		if (images)
			memcpy(images, options->views, count * sizeof(*images));
		options->views = images;
		/* Not used with views. */
		options->image.field = NULL;
		options->image.operations = NULL;
		options->image.num_operations = 0;
	} else {
		options->views = NULL;
	}
	if (!views->list || !images)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u views", count);
	int result = BETON_OK;
	for (; views->count < count && result == BETON_OK; views->count++)
		result = open_view(&views->list[views->count], &images[views->count], options,
				   outputs->view_field[views->count], reader, err);
	return result;
}

void bt_views_close(bt_views *views)
{
	for (uint32_t i = 0; i < views->count; i++)
		free(views->list[i].operations);
	free(views->list);
	free(views->copies);
	*views = (bt_views){0};
}
