/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of a row's bytes to elements of the batch's type, by channel.
 */
#ifndef BT_LOADER_ELEMENTS_H
#define BT_LOADER_ELEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

/* Length of the per-lane arrays: a common multiple of three channels and vectors of 16 values. */
enum { BT_LANES = 48 };

/* Byte i of a row belongs to channel i % 3. A row of a single channel has its parameters three times. */
typedef struct bt_elements {
	beton_dtype dtype; /* not UINT8 */
	/* Vector units compute instead of looking up, which they do no faster than a scalar loop: with x = byte - mean
	 * and q = x * inverse, both rounded, the element is q + (x - q * std) * inverse with fused operations. False if
	 * that differs from the tables' quotient for any byte, which is rare. */
	bool computable;
	float mean[BT_LANES];
	float std[BT_LANES];
	float inverse[BT_LANES];  /* 1 / std, rounded */
	float value[3][256];      /* exact quotients, rounded once */
	uint16_t value16[3][256]; /* of FLOAT16 and BFLOAT16: value rounded */
} bt_elements;

/* For a row whose byte i is of channel channels[i % 3] of options->image. */
void bt_elements_init(bt_elements *elements, const beton_loader_options *options, const int channels[3]);

#endif
