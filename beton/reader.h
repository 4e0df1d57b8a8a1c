/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a reader, with its parts, and the functions that its files share. Types only of what each part needs:
 * the part's own header has its functions.
 */
#ifndef BETON_READER_H
#define BETON_READER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "file_access.h"
#include "format.h"
#include "io_source.h"

#include "common/system.h"

/* A part of the file that may have checksums for pieces: see sums.h. */
typedef struct summed_part {
	const char *name; /* for messages */
	uint64_t offset;  /* in the file */
	uint64_t size;
	uint32_t piece;         /* bytes under one checksum; the last piece may be shorter */
	uint64_t sums;          /* offset of the checksums; 0: none, and every piece counts as good */
	_Atomic uint64_t *good; /* a bit for each piece that was verified; threads may verify one twice */
} summed_part;

/* The extension block: see extension.h. */
typedef struct extension_section {
	uint32_t kind;
	uint64_t offset; /* in the file; 0: no such section */
	uint64_t size;
	uint64_t sum;
} extension_section;

typedef struct extension_block {
	uint32_t count;
	extension_section *list;                /* [count], by offset; the reader frees it */
	extension_section known[SECTION_KINDS]; /* by kind */
	uint32_t version;
	uint64_t directory; /* offset */
	uint64_t begin;     /* lowest offset of sections and directory */
	bool ignored;       /* there may be a block that cannot be used: of a later version, or damaged */
} extension_block;

/* The side file of JPEG indexes: see side_index.h. */
typedef struct side_index {
	char *path; /* NULL: it is not used */
	int fd;     /* -1: it is opened for each read, because the reader keeps no descriptor */
	int folder; /* that a relative path begins in; borrowed. AT_FDCWD: the working folder */
	uint64_t places_size;
	uint64_t places_sum;
	uint64_t entries_size;
	uint64_t entries_sum;
	char *fault; /* why a file of that name is not used; NULL: there is none */
} side_index;

enum { SPARE_CONTEXTS = 16 };

typedef struct dictionary_table dictionary_table;

/* Contexts and dictionaries to decompress with: of one reader, or of all that share a cache. */
typedef struct unpack_pool {
	_Atomic(void *) spare[SPARE_CONTEXTS]; /* idle contexts, of 100 KB each */
	pthread_mutex_t lock;
	dictionary_table *tables; /* in use: files that were split from one have the same. Guarded by lock */
} unpack_pool;

/* Zero-initialise. */
typedef struct dictionary_cache {
	_Atomic(dictionary_table *) table; /* NULL until first needed */
} dictionary_cache;

typedef struct alloc_index alloc_index;
typedef struct sources_cursor sources_cursor;

/* Constant after open, except members that are made when first needed: atomic members are read without the lock, and
 * set with it. */
struct beton_reader {
	io_source *source; /* NULL: the file has a descriptor */
	file_access file;  /* of a file without a source */
	char *path;
	beton_file_info info;
	beton_field *fields;
	uint32_t *blob_index;  /* [num_fields]: number of the field among the blobs of a sample */
	uint32_t num_blobs;    /* in a sample */
	uint32_t num_pictures; /* in a sample: RGB images */
	uint64_t fields_sum;   /* XXH3 of the list of fields */
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

	pthread_mutex_t fill; /* held while a large piece is read to fill the cache; only tried, never waited for */
	pthread_mutex_t lock;
	_Atomic(alloc_index *) index; /* NULL until first needed */
	dictionary_cache dictionaries;
	unpack_pool *pool; /* own_pool, or that of the shared cache */
	unpack_pool own_pool;
	char *facts;
	sources_cursor *sources; /* NULL until first needed; guarded by lock */
};

/* Pictures of all samples. */
static inline uint64_t bt_pictures(const beton_reader *reader)
{
	return reader->num_pictures * reader->info.num_samples;
}

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
