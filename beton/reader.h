/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_READER_H
#define BETON_READER_H

#include <pthread.h>

#include <beton/beton.h>

#include "alloc_table.h"
#include "cache.h"
#include "decompress.h"
#include "file_access.h"
#include "extension.h"
#include "io_source.h"
#include "side_index.h"
#include "sources.h"
#include "sums.h"

#include "common/system.h"

/* Constant after open, except members that are made when first needed: atomic members are read without the lock, and
 * set with it. */
struct beton_reader {
	io_source *source; /* NULL: the file has a descriptor */
	file_access file;  /* of a file without a source */
	char *path;
	beton_file_info info;
	beton_field *fields;
	uint32_t *blob_index; /* [num_fields]: number of the field among the blobs of a sample */
	uint32_t num_blobs;   /* in a sample */
	uint64_t fields_sum;  /* XXH3 of the list of fields */
	extension_block extension;
	side_index side; /* used where the file itself has no index */
	summed_part metadata;
	summed_part table;
	summed_part blob_sums; /* does not have checksums itself; size 0: none */
	summed_part places;    /* of JPEG indexes; likewise */
	beton_cache *cache;    /* for those four and the checksums; NULL: none */
	bool shares_cache;     /* it is the caller's, of several readers */
	uint64_t cached_lines; /* of a shared cache: how many this file needs */
	uint64_t first_line;   /* the number of the file's first line in it */
	uint32_t read_at_once; /* bytes that are read to fill a cache that holds everything */
	bool table_lost;       /* opened for repair: sizes of pictures are upper bounds */

	pthread_mutex_t fill; /* held while a large piece is read to fill the cache; nobody waits for it */
	pthread_mutex_t lock;
	_Atomic(alloc_index *) index; /* NULL until first needed */
	dictionary_cache dictionaries;
	unpack_pool *pool; /* own_pool, or that of the shared cache */
	unpack_pool own_pool;
	char *facts;
	sources_cursor *sources; /* NULL until first needed; guarded by lock */
};

/* Flags to open a file that may be damaged. */
enum {
	OPEN_WITHOUT_BLOCK = 1, /* ignore the extension block */
	OPEN_TO_SALVAGE = 2, /* without its end, or its allocation table; info->num_samples: the records in the file */
};

/* The place of a fault that prevented opening. */
typedef struct fault_place {
	const char *section;
	uint64_t offset;
} fault_place;

/* beton_reader_open with flags OPEN_...; *place is always set. */
int bt_reader_open_damaged(beton_reader **out, const char *path, int flags, fault_place *place, beton_error *err);

/* Reads size bytes of a range that was in the file when it was opened. section: for the message. Errors: IO,
 * FILE_CHANGED; of a source also NO_MEMORY, CANCELLED. */
int bt_read_section(const beton_reader *reader, const char *section, void *destination, size_t size, uint64_t offset,
		    beton_error *err);

/* Reads and verifies size bytes at `from` of the metadata. sample: to which they belong, for the message. */
int bt_read_metadata(const beton_reader *reader, uint64_t sample, void *destination, size_t size, uint64_t from,
		     beton_error *err);

/* Reads all values of a sample, like beton_reader_sample, from its record and the entries that an ordered table has for
 * it. */
int bt_take_values(const beton_reader *reader, uint64_t sample, const uint8_t *record, const uint8_t *entries,
		   beton_value *values, beton_error *err);

/* Called for one sample with its values, BETON_OK or SAMPLE_CORRUPT, and the fault. A result other than BETON_OK ends
 * the walk. */
typedef int (*sample_function)(void *context, const beton_value *values, int result, const beton_error *fault);

/* Calls take for all samples in order; reads metadata and table in large pieces. Returns take's result, or IO,
 * FILE_CHANGED, NO_MEMORY. */
int bt_each_sample(const beton_reader *reader, sample_function take, void *context, beton_error *err);

#endif
