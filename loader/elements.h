/* SPDX-License-Identifier: Apache-2.0
 *
 * What the bytes of a row become: elements of the batch's type, by channel. */
#ifndef BT_LOADER_ELEMENTS_H
#define BT_LOADER_ELEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

/* Of the members with a channel for each lane: what three channels and vectors of 16 values have in common. */
enum { BT_LANES = 48 };

/* Byte i of a row is of channel i % 3. A row of a single channel has it three times. */
typedef struct bt_elements {
	beton_dtype dtype; /* not UINT8 */
	/* Vector units compute, because look-ups do not get faster there: with x = byte - mean and q = x * inverse,
	 * both rounded, the element is q + (x - q * std) * inverse with fused operations. False where that is not
	 * exactly the tables' quotient for every byte; it hardly ever happens. */
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
