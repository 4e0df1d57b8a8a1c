/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a data set as one: sample numbers are global, those of a file follow those of the file in front of it.
 */
#ifndef BT_LOADER_DATASET_H
#define BT_LOADER_DATASET_H

#include <beton/beton.h>
#include <beton/loader.h>

#include "metadata.h"
#include "order.h"

/* Constant after open. */
typedef struct bt_dataset {
	uint32_t count;
	beton_reader **readers; /* [count] */
	bt_metadata *metadata;  /* [count]: how the reader of each reads */
	uint64_t *first;        /* [count + 1]: the first sample of each file */
	double *mix;            /* [count] weights; NULL: none was given */
} bt_dataset;

/* Opens the files, whose fields must agree in name, type and shape, in this order. cache_bytes: for all of them
 * together; io: NULL for the system's. mix: see above; copied. Zero-initialise *out; it is to be closed after a
 * failure, too. Errors: those of beton_reader_open, INVALID_ARGUMENT (no source, no path), MISMATCH (naming the field),
 * NO_MEMORY.
 */
int bt_dataset_open(bt_dataset *out, const beton_source *sources, uint32_t count, uint64_t cache_bytes,
		    const struct bt_io *io, beton_error *err);
void bt_dataset_close(bt_dataset *dataset);

uint64_t bt_dataset_samples(const bt_dataset *dataset);

/* The file of a sample < bt_dataset_samples, and its number in it. */
uint32_t bt_dataset_locate(const bt_dataset *dataset, uint64_t sample, uint64_t *index);

/* Gathers what the order of the options needs, and opens it. The data set must outlive it. class_field, if it is
 * needed, must be an INT field. Errors: those of bt_orders_open, NOT_FOUND or INVALID_ARGUMENT (class_field),
 * SAMPLE_CORRUPT, IO, FILE_CHANGED. */
int bt_dataset_orders(const bt_dataset *dataset, const beton_loader_options *options, bt_orders **out,
		      beton_error *err);

/* A hash of what the files hold, in their order, and not of their paths: see beton_reader_fingerprint. Errors: IO,
 * FILE_CHANGED, NO_MEMORY. */
int bt_dataset_fingerprint(const bt_dataset *dataset, uint64_t *out, beton_error *err);

#endif
