/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of JPEGs without restart markers (docs/format.md) of an existing .beton file, also FFCV's: a loader then
 * decodes only the part near a crop. The index goes where the file has free space: zeros after the last value, before
 * the first one, or pages without a value. FFCV does not look there. Otherwise it becomes a side file, NAME.index
 * beside NAME, which beton_reader_open finds.
 */
#ifndef BETON_INDEX_H
#define BETON_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where an index is stored. */
typedef enum beton_index_place {
	BETON_INDEX_NOWHERE = 0,
	BETON_INDEX_IN_FILE = 1,
	BETON_INDEX_BESIDE = 2, /* in a side file */
} beton_index_place;

/* Bytes of a text about an index. */
#define BETON_INDEX_TEXT 192

/* Result of a function. */
typedef struct beton_index_report {
	beton_index_place place;    /* of the index, also of a removed one */
	bool changed;               /* it was added or removed; false: it is as it was */
	uint64_t samples;           /* that were read */
	uint64_t pictures;          /* JPEGs that were read */
	uint64_t indexed;           /* of them with an index */
	uint64_t bytes;             /* of the index */
	uint64_t findings;          /* faults that beton_index_check found */
	char why[BETON_INDEX_TEXT]; /* why the index is in a side file, or why a side file is not used; "": no reason */
	uint64_t reserved[8];       /* 0 */
} beton_index_report;

typedef struct beton_index_options {
	size_t struct_size;   /* sizeof(beton_index_options), set by beton_index_options_init */
	bool side;            /* add: to a side file, though the file may have room; default false */
	uint32_t num_threads; /* 0 (default): one for each core this process may use */
	uint64_t max_pixels;  /* of a JPEG; larger ones get no index. 0 (default): 89,478,485 */
	/* check: called for each fault, by one thread at a time, with the sample or -1; false stops. May be NULL. */
	bool (*finding)(void *context, int64_t sample, const char *message);
	/* Called now and then with the progress, by one thread at a time; false stops. May be NULL. */
	bool (*progress)(void *context, uint64_t samples, uint64_t total, uint64_t bytes);
	void *context;
} beton_index_options;

BETON_API void beton_index_options_init_sized(beton_index_options *options, size_t size);
static inline void beton_index_options_init(beton_index_options *options)
{
	beton_index_options_init_sized(options, sizeof(*options));
}

/* Adds the index to the file at path, unless it has one, or a valid side file; a side file that is not of this file is
 * replaced, or removed if no JPEG gets an index. Samples and checksums stay as they are, and so do the file's size, its
 * fingerprint, and the orders and states of loaders. In the file an index changes the time of modification, as the
 * bytes are others: a loader that opens the file again, having closed it meanwhile, takes it for another one
 * (FILE_CHANGED). So choose `side` while loaders of many files are at work. A process that ends at any time leaves
 * a file that can be read, with the index or without; the next call completes what it left. Meanwhile there are two
 * files .NAME.index.partial in the folder; the second is locked. The call needs no memory for each sample,
 * except for one bit for each page. options may be NULL. A JPEG that is damaged gets no index. Errors: as for
 * beton_reader_open; EXISTS (another process changes the index, also by another name of the file; or a file that
 * does not begin as a side file has the name of one), ACCESS, NO_SPACE, IO, FILE_CHANGED, NO_MEMORY, SYSTEM, CANCELLED,
 * UNSUPPORTED (this build has no JPEG decoder). */
BETON_API int beton_index_add(const char *path, const beton_index_options *options, beton_index_report *report,
			      beton_error *err);

/* Takes the index of beton_index_add out of the file, which then has its earlier bytes, and removes its side file.
 * The time of modification changes as above. Errors: as for beton_reader_open; UNSUPPORTED (the file was written with
 * its index), FORMAT (also: a value lies where the index is), ACCESS, IO, EXISTS (another process changes the index).
 */
BETON_API int beton_index_remove(const char *path, beton_index_report *report, beton_error *err);

/* Removes the side file that the name of the file at path has, whatever the file is: for programs that replace a file
 * by another one. Another file of that name stays. *removed may be NULL. Errors: ACCESS, IO, NO_MEMORY. */
BETON_API int beton_index_remove_side(const char *path, bool *removed, beton_error *err);

/* Makes the index of each JPEG again, and compares. A fault is a difference, or a JPEG that should have an index and
 * has none. A file without any index has no fault: place is NOWHERE, and nothing is read. Errors: as for
 * beton_reader_open; IO, FILE_CHANGED, NO_MEMORY, CANCELLED, UNSUPPORTED. */
BETON_API int beton_index_check(const char *path, const beton_index_options *options, beton_index_report *report,
				beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
