/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton: sets of shards. A set is an index file, NAME.betonset, that lists .beton files in its folder or below it,
 * with what a program needs to plan with them before it opens any: docs/format.md, "Sets of shards". Files that FFCV
 * wrote can be shards.
 *
 * An index promises: when a shard was added, it had these bytes and samples, this fingerprint, and the set's
 * fields (names, types, dtypes and shapes, in this order; they may be compressed in one shard and not in another), and
 * each shard with class names had the same ones. Nothing is promised about what the files are now: compare each with
 * beton_set_check when you open it. A file with the same fingerprint is the same dataset as far as
 * beton_reader_fingerprint tells: with checksums all of it, without (FFCV's) the pieces that it reads.
 *
 * An open set is the index as it was when it was opened: shards that are added later are not in it, and adding them
 * disturbs no reader. Threads: any number of threads may use an open set at once.
 */
#ifndef BETON_SET_H
#define BETON_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>
#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the index. */
#define BETON_SET_VERSION 1
#define BETON_SET_ENDING ".betonset"             /* of the name of each index */
#define BETON_SET_SHARDS_MAX (UINT32_C(1) << 20) /* in a set */
#define BETON_SET_INDEX_MAX (UINT32_C(1) << 28)  /* bytes of an index */
#define BETON_SET_PATH_MAX 4095                  /* bytes of a shard's name */

/* Facts of an open set. */
typedef struct beton_set_info {
	uint32_t version;
	uint32_t num_shards;  /* 1 or more */
	uint32_t num_fields;  /* 1 or more */
	uint32_t num_classes; /* 0: no shard has class names */
	uint64_t num_samples; /* of all shards; below 2^63 */
	uint64_t bytes;       /* of all shards; below 2^63 */
	uint64_t reserved[4]; /* 0 */
} beton_set_info;

/* The index's entry of one shard. Sizes in bytes. */
typedef struct beton_shard {
	const char *path;     /* to open it: the index's folder, as its path has it, and the name */
	const char *name;     /* as the index has it: below the index's folder, with '/' between folders; UTF-8 */
	uint64_t first;       /* the number in the set of its first sample: the samples of all shards before it */
	uint64_t samples;     /* may be 0 */
	uint64_t bytes;       /* of the file */
	uint64_t fingerprint; /* beton_reader_fingerprint */
	uint64_t data_bytes;  /* of all values outside of the records, as they are stored, with the gaps between them */
	uint32_t record_size; /* beton_file_info.record_size */
	uint32_t page_size;   /* beton_file_info.page_size */
	bool ordered;         /* beton_file_info.ordered: beton_reader_storage_order gives NULL */
	uint64_t reserved[4]; /* 0 */
} beton_shard;

typedef struct beton_set beton_set;

/* Opens the index at path, and no shard. The index is untrusted: paths cannot leave its folder except through symbolic
 * links, numbers agree with each other, and its checksum matches; opening takes at most a hundred times its size in
 * memory, and nine times if beton_set_write made the index. The caller closes *out, which is NULL on failure.
 * Errors: NOT_FOUND, ACCESS, IO, INVALID_ARGUMENT (not a regular file; its name does not end in BETON_SET_ENDING),
 * FORMAT, UNSUPPORTED_VERSION, UNSUPPORTED_FIELD, NO_MEMORY. */
BETON_API int beton_set_open(beton_set **out, const char *path, beton_error *err);

/* beton_set_open of an index in memory: `size` bytes of text, which are not needed later. path: its origin, for
 * messages, and for the shards' paths, which begin with all of it up to the last '/' (an URL will do). Errors: as for
 * beton_set_open but NOT_FOUND, ACCESS and IO. */
BETON_API int beton_set_parse(beton_set **out, const char *path, const char *text, size_t size, beton_error *err);

/* Closes *set and sets it to NULL; NULL is allowed. */
BETON_API void beton_set_close(beton_set **set);

/* Valid until close. shard: below num_shards; field: below num_fields (record_offset is 0, compression NONE); class:
 * below num_classes; else NULL. */
BETON_API const char *beton_set_path(const beton_set *set);
BETON_API const beton_set_info *beton_set_get_info(const beton_set *set);
BETON_API const beton_shard *beton_set_shard(const beton_set *set, uint32_t shard);
BETON_API const beton_field *beton_set_field(const beton_set *set, uint32_t field);
BETON_API const char *beton_set_class(const beton_set *set, uint32_t label);

/* Finds the shard that has a sample of the set, and the sample's number in it. Errors: INVALID_ARGUMENT (there is no
 * such sample). */
BETON_API int beton_set_locate(const beton_set *set, uint64_t sample, uint32_t *shard, uint64_t *index,
			       beton_error *err);

/* Compares an open file with the index's entry of a shard: size, samples, page and record size, fields and
 * fingerprint (reading what that reads). Errors: FILE_CHANGED (it is another file by now; the message names both files
 * and the difference), as for beton_reader_fingerprint, INVALID_ARGUMENT (no such shard). */
BETON_API int beton_set_check(const beton_set *set, uint32_t shard, const beton_reader *reader, beton_error *err);

/* Whether a file that is not written yet could be added to a set as it is now: with these fields, and these facts
 * (beton_writer_options.facts, NULL: none), at path, whose folder exists. Errors: as for beton_set_write about a
 * shard's place, name, fields and class names, and UNSUPPORTED. */
BETON_API int beton_set_accepts(const beton_set *set, const char *path, const beton_field *fields, uint32_t num_fields,
				const char *facts, beton_error *err);

/* How beton_set_write treats an index that exists. */
typedef enum beton_set_mode {
	BETON_SET_CREATE = 0,  /* it must not exist */
	BETON_SET_REPLACE = 1, /* a new one takes its place, if it exists */
	BETON_SET_APPEND = 2,  /* it must exist; the shards follow the existing ones */
} beton_set_mode;

/* Options of beton_set_write. */
typedef struct beton_set_options {
	size_t struct_size; /* sizeof(beton_set_options), set by beton_set_options_init */
	/* Called before each file is opened, and every 10 ms while another process writes the index (done
	 * is count then); false gives up with CANCELLED. done: files before it, of count. NULL (default): not called.
	 */
	bool (*progress)(void *context, uint32_t done, uint32_t count);
	void *context;
} beton_set_options;

BETON_API void beton_set_options_init_sized(beton_set_options *options, size_t size);
static inline void beton_set_options_init(beton_set_options *options)
{
	beton_set_options_init_sized(options, sizeof(*options));
}

/* Writes the index at path: opens the `count` .beton files in turn, checks that they can be one set, and syncs them;
 * then a new index with all shards takes the place of the old one, at once and durably. Readers see the old index or
 * the new one, whenever the program or the machine stops. Several processes may do so at a time: a later one waits
 * while an earlier one writes, no shard is lost, and the shards of one call stay together. The file .NAME.partial in
 * the folder is both lock and new index; the file of a killed program is used again. Shards must be in the index's
 * folder or below it. Errors: as for beton_reader_open; INVALID_ARGUMENT (path, mode or count; a shard elsewhere, or
 * whose name is not UTF-8), EXISTS (CREATE: the index; a shard is in the set already, or twice among the files, even if
 * a link gives it another name), NOT_FOUND (APPEND: no index), MISMATCH (the fields or class names of two shards
 * differ; the message names both), UNSUPPORTED (APPEND: a later version wrote more into the index than this one knows),
 * NO_SPACE, SYSTEM, NO_MEMORY, errors of beton_set_open; CANCELLED. After an error the index is unchanged, unless
 * only the sync of the folder failed: then the new one is there, but may not survive a power failure. */
BETON_API int beton_set_write(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count,
			      const beton_set_options *options, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
