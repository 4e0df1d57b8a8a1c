/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a data set as one. Sample numbers are global: each file's numbers follow the previous file's.
 */
#ifndef BT_LOADER_DATASET_H
#define BT_LOADER_DATASET_H

#include <beton/beton.h>
#include <beton/loader.h>

#include "io/files.h"
#include "order/order.h"
#include "schema.h"
#include "windows.h"

/* A source is a file, or a set of files. Constant after open, but for shards of sets, which are opened when one of
 * their samples is needed. */
typedef struct bt_dataset {
	uint32_t count;   /* of files */
	uint32_t sources; /* of the caller */
	bt_files *files;
	beton_set **sets;     /* [sources]; NULL: a file */
	bt_schema schema;     /* not of streams of tokens without a set */
	uint64_t cache_bytes; /* for the metadata of all files */
	beton_cache *cache;   /* NULL: a single file has its own */
	/* [count], each NULL until it is open: see bt_dataset_reader. NULL: streams of tokens. */
	_Atomic(beton_reader *) *readers;
	bt_windows windows;     /* of the streams */
	uint64_t fingerprint;   /* of the files so far */
	uint64_t *first;        /* [count + 1]: the first sample of each file */
	uint64_t *source_first; /* [sources + 1]: of each source */
	double *mix;            /* [sources] weights; NULL: none was given */
	bool owns_sources;      /* close calls the `close` of the caller's sources; set when opening has succeeded */

	pthread_mutex_t lock;  /* of bt_file.opening */
	pthread_cond_t opened; /* signals that the opening of a shard has ended */
} bt_dataset;

/* Opens the sources in this order; of sets it opens only the index. Their fields must agree in name, type and shape.
 * options: tokens decides what the files hold. files: all but count is used. cache_bytes: for all files together.
 * Zero-initialise *out, and close it after a failure too. Errors: INVALID_ARGUMENT (no source, no path), MISMATCH
 * (naming the field), NO_MEMORY, and errors of beton_reader_open, beton_set_open and bt_windows_open. */
int bt_dataset_open(bt_dataset *out, const beton_source *sources, uint32_t count, const beton_loader_options *options,
		    const bt_files_config *files, uint64_t cache_bytes, beton_error *err);
void bt_dataset_close(bt_dataset *dataset);

/* Ends the reads of the caller's sources, which fail then. Any thread. */
void bt_dataset_cancel(const bt_dataset *dataset);

/* The path of the first source, for messages about all of them. */
const char *bt_dataset_name(const bt_dataset *dataset);

uint64_t bt_dataset_samples(const bt_dataset *dataset);

/* Bytes that are enough for one blob each of n samples, unless large ones stand together: n times twice the mean bytes
 * of a sample, and a page. At most UINT64_MAX. Not of streams. */
uint64_t bt_dataset_room(const bt_dataset *dataset, uint64_t n);

/* The file that holds a sample < bt_dataset_samples, and the sample's number in that file. */
uint32_t bt_dataset_locate(const bt_dataset *dataset, uint64_t sample, uint64_t *index);

/* The caller's source that holds a sample, and the sample's number in that. */
uint32_t bt_dataset_source(const bt_dataset *dataset, uint64_t sample, uint64_t *index);

/* The reader of a file, not of streams; opens a shard of a set at the first call. Any thread. Errors: FILE_CHANGED (the
 * shard differs from its set's index; the message names the difference), and errors of beton_reader_open and
 * bt_files_borrow. */
int bt_dataset_reader(const bt_dataset *dataset, uint32_t file, beton_reader **out, beton_error *err);

/* Looks up sample `number` of a file: fills its values, whose blobs are then read (one for each field of the file, or
 * windows.parts of a window, the last of them possibly empty). Errors: as of bt_dataset_reader, beton_reader_sample and
 * beton_tokens_locate. */
int bt_dataset_look_up(const bt_dataset *dataset, uint32_t file, uint64_t number, beton_value *values,
		       beton_error *err);

/* Opens the order that the options name, with the facts that it needs. The data set must outlive the order.
 * class_field, if the order needs it, must be an INT field. Errors: NOT_FOUND or INVALID_ARGUMENT (class_field),
 * SAMPLE_CORRUPT, IO, FILE_CHANGED, and errors of bt_orders_open and, for sets, bt_dataset_reader. */
int bt_dataset_orders(const bt_dataset *dataset, const beton_loader_options *options, bt_orders **out,
		      beton_error *err);

/* A hash of the files' contents, in order, without their paths: see beton_reader_fingerprint. */
uint64_t bt_dataset_fingerprint(const bt_dataset *dataset);

#endif
