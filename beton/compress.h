/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing of compressed fields. The first samples of a file are compressed without a dictionary, and train one for each
 * field that gets smaller with it. All later samples use it. So a sample's stored bytes depend on its index and the
 * first samples alone.
 */
#ifndef BETON_COMPRESS_H
#define BETON_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "sample.h"

/* Number of first samples that dictionaries are trained from. */
#define TRAINING_SAMPLES 1024

/* NULL: a file without compressed fields. */
typedef struct compressor compressor;

/* The caller closes *out. Errors: UNSUPPORTED (a build without zstd), INVALID_ARGUMENT (a level that zstd does not
 * have), NO_MEMORY. */
int bt_compressor_open(compressor **out, const sample_schema *schema, beton_error *err);
void bt_compressor_close(compressor **self);

/* Identifies everything but the level that compressed bytes depend on; 0 without compressed fields. */
uint32_t bt_compressor_version(const compressor *self);

/* Whether any thread may compress samples: training is over, with or without dictionaries. */
bool bt_compressor_trained(const compressor *self);

/* Compresses the values of a raw sample. After training, any thread may call it. Before, samples 0 .. TRAINING_SAMPLES
 * - 1 must be compressed one by one, and are used for training. Errors: INVALID_ARGUMENT (the result does not fit a
 * page; the sample is unchanged), NO_MEMORY. */
int bt_compress_sample(compressor *self, sample *one, beton_error *err);

/* Whether a raw sample fits a page however well it compresses. */
bool bt_compressed_fits(const sample_schema *schema, const sample *one);

/* Trains the dictionaries of the bt_compressor_fields compressed fields. Afterwards they can be read; instead of
 * training, they can be set from a journal. number: 0, 1, ... among the compressed fields. size 0: no dictionary.
 * Errors: NO_MEMORY, and FORMAT for bytes that zstd refuses. */
int bt_compressor_train(compressor *self, beton_error *err);
uint32_t bt_compressor_fields(const compressor *self);
const void *bt_compressor_dictionary(const compressor *self, uint32_t number, size_t *size);
int bt_compressor_set(compressor *self, uint32_t number, const void *bytes, size_t size, beton_error *err);

/* Call after all of them are set. */
void bt_compressor_ready(compressor *self);

/* The content of the file's section of dictionaries. The caller frees *out, which is NULL if there is none. Errors:
 * NO_MEMORY. */
int bt_compressor_section(const compressor *self, uint8_t **out, size_t *size, beton_error *err);

#endif
