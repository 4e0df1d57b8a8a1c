/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of decoding, for resizing: the planes of a picture, and the crop's box on each.
 */
#ifndef BT_LOADER_PICTURE_H
#define BT_LOADER_PICTURE_H

#include <stddef.h>
#include <stdint.h>

typedef enum bt_colour {
	BT_RGB = 0,    /* planes[0], 3 channels */
	BT_GREY = 1,   /* planes[0], 1 channel */
	BT_YCC = 2,    /* planes[0..2], 1 channel each: Y, Cb, Cr as JFIF has them, full range */
	BT_RASTER = 3, /* planes[0], any number of channels, of 8 or 16 bits */
} bt_colour;

/* One plane of bytes, or of a raster of 16 bits. The crop is a box in units of samples, where sample (i, j) covers [i,
 * i + 1) x [j, j + 1). The box is never empty. It lies inside width x height, unless only a part of the resized crop is
 * wanted: then there are the samples that this part needs. Its edges can cut through samples if the plane is subsampled
 * or was decoded at a smaller scale. Samples outside the box belong to the picture. */
typedef struct bt_plane {
	const uint8_t *data;
	size_t stride;  /* bytes from one row to the next */
	uint32_t width; /* number in a row */
	uint32_t height;
	uint32_t channels; /* bytes of a sample: 1 or 3; of a raster 1 to 64, or numbers of 16 bits */
	double x;
	double y;
	double box_width;
	double box_height;
} bt_plane;

/* A view: the bytes belong to the decoder or to the sample's blob. */
typedef struct bt_picture {
	bt_colour colour;
	bt_plane planes[3];
} bt_picture;

#endif
