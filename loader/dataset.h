/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a data set as one. Sample numbers are global: each file's follow those of the file before.
 */
#ifndef BT_LOADER_DATASET_H
#define BT_LOADER_DATASET_H

#include <beton/beton.h>
#include <beton/loader.h>

#include "io/files.h"
#include "order/order.h"
#include "windows.h"

/* Constant after open. */
typedef struct bt_dataset {
	uint32_t count;
	bt_files *files;
	beton_cache *cache;     /* of the metadata of all files; NULL: a single file has its own */
	beton_reader **readers; /* [count]; NULL: streams of tokens */
	bt_windows windows;     /* of the streams */
	uint64_t fingerprint;   /* of the files so far */
	uint64_t *first;        /* [count + 1]: the first sample of each file */
	double *mix;            /* [count] weights; NULL: none was given */
	bool owns_sources;      /* close calls the `close` of the caller's sources; set when opening has succeeded */
} bt_dataset;

/* Opens the sources, one for each of out->files, in this order. Their fields must agree in name, type and shape.
 * options: tokens decides what the files hold. cache_bytes: for all files together. Zero-initialise the other members
 * of *out, and close it after a failure too. Errors: those of beton_reader_open or bt_windows_open, INVALID_ARGUMENT
 * (no path), MISMATCH (naming the field), NO_MEMORY. */
int bt_dataset_open(bt_dataset *out, const beton_source *sources, const beton_loader_options *options,
		    uint64_t cache_bytes, beton_error *err);
void bt_dataset_close(bt_dataset *dataset);

/* Ends the reads of the caller's sources, which fail then. Any thread. */
void bt_dataset_cancel(const bt_dataset *dataset);

/* The first file's path, for messages about all of them. */
const char *bt_dataset_name(const bt_dataset *dataset);

uint64_t bt_dataset_samples(const bt_dataset *dataset);

/* Bytes that are enough for one blob each of n samples, unless large ones stand together: n times twice the mean bytes
 * of a sample, and a page. At most UINT64_MAX. Not of streams. */
uint64_t bt_dataset_room(const bt_dataset *dataset, uint64_t n);

/* The file that holds a sample < bt_dataset_samples, and the sample's number in that file. */
uint32_t bt_dataset_locate(const bt_dataset *dataset, uint64_t sample, uint64_t *index);

/* Looks up sample `number` of a file: fills its values, whose blobs are then read (one for each field of the file, or
 * windows.parts of a window, of which the last may be empty). Errors: those of beton_reader_sample or
 * beton_tokens_locate. */
int bt_dataset_look_up(const bt_dataset *dataset, uint32_t file, uint64_t number, beton_value *values,
		       beton_error *err);

/* Opens the order that the options name, with the facts that it needs. The data set must outlive the order.
 * class_field, if the order needs it, must be an INT field. Errors: those of bt_orders_open, NOT_FOUND or
 * INVALID_ARGUMENT (class_field), SAMPLE_CORRUPT, IO, FILE_CHANGED. */
int bt_dataset_orders(const bt_dataset *dataset, const beton_loader_options *options, bt_orders **out,
		      beton_error *err);

/* A hash of the files' contents, in order, without their paths: see beton_reader_fingerprint. */
uint64_t bt_dataset_fingerprint(const bt_dataset *dataset);

#endif
