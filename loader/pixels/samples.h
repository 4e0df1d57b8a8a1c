/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of a raster's samples to elements of the batch's type: (sample - mean) / std in FLOAT32, rounded to
 * nearest even for the narrower types.
 */
#ifndef BT_LOADER_SAMPLES_H
#define BT_LOADER_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>
#include <beton/loader.h>

/* Sample i of a row is of channel i % channels, or the row is of one channel. */
typedef struct bt_samples {
	uint32_t item;     /* bytes of a sample: 1 or 2 */
	beton_dtype dtype; /* UINT8 or UINT16, the samples' type; FLOAT32, FLOAT16, BFLOAT16 */
	uint32_t period;   /* length of the arrays, which repeat; at most BT_SAMPLES_PERIOD_MAX */
	const float *mean; /* unless dtype is the samples' type */
	const float *std;
} bt_samples;

/* 16 pixels of all channels. */
#define BT_SAMPLES_PERIOD_MAX (BETON_CHANNELS_MAX * 16)

/* Fills out with count elements; in is aligned for nothing. */
void bt_samples_store(const bt_samples *samples, const void *in, size_t count, void *out);

/* Copies every step-th sample, count of them, from in on. */
void bt_samples_pick(uint32_t item, const void *in, size_t step, size_t count, void *out);

#endif
