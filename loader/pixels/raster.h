/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of transform.h, for rasters: any number of channels, 8 or 16 bits.
 */
#ifndef BT_LOADER_RASTER_H
#define BT_LOADER_RASTER_H

#include "resize_wide.h"
#include "samples.h"
#include "transform.h"

/* The constants of a format, which do not depend on its size. */
typedef struct bt_raster_lanes {
	bt_samples *list; /* for NHWC one, for NCHW one for each channel */
	float *memory;
} bt_raster_lanes;

/* Makes the lanes of a raster field's output. statistics: pairs of mean and std by channel; NULL: 0 and 1. Errors:
 * NO_MEMORY, with which there is nothing to free. */
int bt_raster_lanes_open(bt_raster_lanes *lanes, const bt_image_format *format, const float *statistics,
			 beton_error *err);
void bt_raster_lanes_free(bt_raster_lanes *lanes);

/* Working state of one worker; zero-initialise. */
typedef struct bt_raster_transformer {
	bt_resizer narrow;    /* of 8 bits */
	bt_wide_resizer wide; /* of 16 */
	bt_buffer rows;       /* of the output and of a channel, before they are stored */
} bt_raster_transformer;

/* Fills destination (bt_image_format_bytes of it) from the crop, which is all of the plane. lanes: of the format; its
 * dtype may be that of the samples, and then they may be NULL. place, flip: see bt_transform. Errors: NO_MEMORY. */
int bt_raster_transform(bt_raster_transformer *transformer, const bt_plane *crop, bool flip, const bt_placement *place,
			const bt_image_format *format, const bt_raster_lanes *lanes, void *destination,
			beton_error *err);

/* Books the memory in a budget, which outlives the transformer. Before the first use. */
void bt_raster_limit(bt_raster_transformer *transformer, bt_budget *budget);

void bt_raster_free(bt_raster_transformer *transformer);

#endif
