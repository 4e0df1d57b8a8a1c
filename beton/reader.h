/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_READER_H
#define BETON_READER_H

#include <pthread.h>

#include <beton/beton.h>

#include "alloc_table.h"
#include "cache.h"
#include "decompress.h"
#include "extension.h"
#include "sums.h"

#include "common/system.h"

/* Constant after open but for what is made at first need: atomic members are read without the lock, and set with it. */
struct beton_reader {
	int fd;
	bt_read_function *read; /* NULL: pread */
	void *read_context;
	char *path;
	beton_file_info info;
	beton_field *fields;
	uint32_t *blob_index; /* [num_fields]: which of a sample's blobs the field is */
	uint32_t num_blobs;   /* of a sample */
	uint64_t fields_sum;  /* XXH3 of the list of fields */
	extension_block extension;
	summed_part metadata;
	summed_part table;
	summed_part blob_sums; /* without sums of its own; size 0: there are none */
	line_cache *cache;     /* of those three and of the sums; NULL: none */
	bool table_lost;       /* opened to save what can be saved: the sizes of pictures are bounds */

	pthread_mutex_t lock;
	_Atomic(alloc_index *) index; /* NULL until it is needed */
	dictionary_cache dictionaries;
	char *facts;
};

/* How a file is opened that may be damaged. */
enum {
	OPEN_WITHOUT_BLOCK = 1, /* as if there were no extension block */
	OPEN_TO_SALVAGE = 2, /* without its end, or its allocation table; info->num_samples: records that are there */
};

/* Where opening failed. */
typedef struct fault_place {
	const char *section;
	uint64_t offset;
} fault_place;

/* As beton_reader_open. flags: of OPEN_...; *place is set always. */
int beton_reader_open_damaged(beton_reader **out, const char *path, int flags, fault_place *place, beton_error *err);

/* Reads size bytes that the file had when it was opened. section: for the message. Errors: IO, FILE_CHANGED. */
int beton_read_section(const beton_reader *reader, const char *section, void *destination, size_t size, uint64_t offset,
		       beton_error *err);

/* Reads size bytes at `from` of the metadata, verified. sample: whose they are, for the message. */
int beton_read_metadata(const beton_reader *reader, uint64_t sample, void *destination, size_t size, uint64_t from,
			beton_error *err);

/* Takes all values of a sample from its record and from the entries that the table has for it where it is in order. As
 * beton_reader_sample. */
int beton_take_values(const beton_reader *reader, uint64_t sample, const uint8_t *record, const uint8_t *entries,
		      beton_value *values, beton_error *err);

/* Hears of one sample: its values, BETON_OK or SAMPLE_CORRUPT, and then the fault. What it returns ends the walk unless
 * it is BETON_OK. */
typedef int (*sample_function)(void *context, const beton_value *values, int result, const beton_error *fault);

/* Calls take for all samples in their order, with metadata and table read by large pieces. What take returned, or IO,
 * FILE_CHANGED, NO_MEMORY. */
int beton_each_sample(const beton_reader *reader, sample_function take, void *context, beton_error *err);

#endif
