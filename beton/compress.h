/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed fields, writing. The first samples of a file are compressed without a dictionary, and one is trained from
 * them for each field where it pays; every later sample uses it. So what a sample becomes depends on its index and on
 * the first samples alone. */
#ifndef BETON_COMPRESS_H
#define BETON_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "sample.h"

/* Indices whose samples dictionaries are trained from. */
#define TRAINING_SAMPLES 1024

/* NULL is the compressor of a file without compressed fields. */
typedef struct compressor compressor;

/* *out: to be closed. Errors: UNSUPPORTED (a build without zstd), INVALID_ARGUMENT (a level that zstd does not have),
 * NO_MEMORY. */
int beton_compressor_open(compressor **out, const sample_schema *schema, beton_error *err);
void beton_compressor_close(compressor **self);

/* What compressed bytes depend on besides the level; 0 without compressed fields. */
uint32_t beton_compressor_version(const compressor *self);

/* Whether any thread may compress samples: there are dictionaries, or it is known that there are none. */
bool beton_compressor_trained(const compressor *self);

/* Compresses the values of a raw sample. Any thread once it is trained; before, samples 0, 1, 2 ... TRAINING_SAMPLES -
 * 1 one by one, which are learned from. Errors: INVALID_ARGUMENT (it does not fit a page; the sample is as before),
 * NO_MEMORY. */
int beton_compress_sample(compressor *self, sample *one, beton_error *err);

/* Whether a raw sample will fit a page whatever becomes of it. */
bool beton_compressed_fits(const sample_schema *schema, const sample *one);

/* Trains; then, or instead of it (from a journal), the dictionary of each compressed field, of which there are
 * beton_compressor_fields, can be got or set. number: 0, 1, ... of the compressed fields. size 0: it has none. Errors:
 * NO_MEMORY, and FORMAT for bytes that zstd refuses. */
int beton_compressor_train(compressor *self, beton_error *err);
uint32_t beton_compressor_fields(const compressor *self);
const void *beton_compressor_dictionary(const compressor *self, uint32_t number, size_t *size);
int beton_compressor_set(compressor *self, uint32_t number, const void *bytes, size_t size, beton_error *err);

/* After all of them are set. */
void beton_compressor_ready(compressor *self);

/* The content of the file's section of dictionaries; the caller frees *out, NULL when there is none. Errors: NO_MEMORY.
 */
int beton_compressor_section(const compressor *self, uint8_t **out, size_t *size, beton_error *err);

#endif
