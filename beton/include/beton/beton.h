/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton: read and write .beton dataset files (FFCV's format, version 2).
 *
 * A file holds num_samples samples of num_fields fields. Integers and floats stand in the metadata table; every other
 * value is a blob inside one page. Source of the layout: FFCV 1.0.1, ffcv/types.py, writer.py, memory_allocator.py.
 *
 * Threads: a reader may be used by any number of threads at once, and so may a writer's put and skip.
 *
 * Structs that begin with struct_size, their size in the caller's header, may be of another release. Options: members
 * that a smaller struct lacks have their defaults; what a larger one has beyond those that this library knows must be
 * zero, else the call is refused with INVALID_ARGUMENT, as is a size below that of struct_size itself or above 4096.
 */
#ifndef BETON_BETON_H
#define BETON_BETON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BETON_FORMAT_VERSION 2
#define BETON_NAME_MAX 16                           /* bytes of a field name, without a terminating NUL */
#define BETON_DIMS_MAX 32                           /* dimensions of an array field */
#define BETON_PAGE_SIZE_MIN (UINT32_C(1) << 21)     /* 2 MiB; page sizes are powers of two below 2^32 */
#define BETON_PAGE_SIZE_DEFAULT (UINT32_C(1) << 23) /* 8 MiB, FFCV's default */

typedef enum beton_field_type {
	BETON_FIELD_FLOAT = 0, /* float64 */
	BETON_FIELD_INT = 1,   /* int64 */
	BETON_FIELD_IMAGE = 2, /* FFCV's RGB image: JPEG bytes, or raw rows of height x width x 3 uint8 */
	BETON_FIELD_BYTES = 3,
	BETON_FIELD_NDARRAY = 4,
	BETON_FIELD_JSON = 5, /* UTF-8 text and one NUL byte */
	BETON_FIELD_TORCH_TENSOR = 6,
} beton_field_type;

typedef enum beton_image_mode {
	BETON_IMAGE_JPEG = 0,
	BETON_IMAGE_RAW = 1,
} beton_image_mode;

/* How the values of a field are stored. FFCV cannot read a file with a compressed field. */
typedef enum beton_compression {
	BETON_COMPRESSION_NONE = 0,
	BETON_COMPRESSION_ZSTD = 1, /* BYTES, JSON and the array types only */
} beton_compression;

/* One field of the schema. For reading: filled by the library, lives as long as the reader. For writing: filled by the
 * caller, copied by beton_writer_open. dtype, ndim and shape are used by the two array types only; item_size is bytes
 * per element and is derived from dtype. */
typedef struct beton_field {
	char name[BETON_NAME_MAX + 1];
	beton_field_type type;
	uint32_t record_offset; /* bytes from the start of the metadata record; reading only */
	char dtype[16];         /* NumPy's spelling, for example "<f4" */
	uint32_t item_size;
	uint32_t ndim;
	uint64_t shape[BETON_DIMS_MAX];
	beton_compression compression;
	int32_t compression_level; /* zstd's; 0: its default; writing only */
} beton_field;

/* Facts of an open file; all offsets and sizes in bytes. */
typedef struct beton_file_info {
	uint16_t version;
	uint16_t num_fields;
	uint32_t page_size;
	uint64_t num_samples;
	uint64_t metadata_offset;
	uint32_t record_size;
	uint64_t alloc_table_offset;
	uint64_t alloc_entries;
	uint64_t file_size;
	uint64_t data_end;  /* no blob ends behind it: the extension block, or the allocation table */
	bool has_extension; /* the block that libbeton's writer adds; false for FFCV's files */
	bool has_checksums; /* of every blob, see beton_reader_check */
	bool has_facts;     /* see beton_reader_facts */
	bool ordered;       /* the allocation table is in the order of samples and fields */
} beton_file_info;

/* A validated range of the file: it lies inside one page and ends before data_end. */
typedef struct beton_blob {
	uint64_t offset;
	uint64_t size;
} beton_blob;

/* One value of one sample. Which members hold: integer for INT, real for FLOAT; blob, size, entry and compression for
 * every other type; mode, width and height (pixels) for IMAGE too. status: BETON_OK, or SAMPLE_CORRUPT when
 * beton_reader_sample found this value damaged, and then only type, sample and field hold. */
typedef struct beton_value {
	beton_field_type type;
	int32_t status;
	uint64_t sample;
	uint32_t field;
	beton_compression compression; /* of the stored bytes */
	beton_image_mode mode;
	uint32_t width;
	uint32_t height;
	int64_t integer;
	double real;
	beton_blob blob; /* the stored bytes */
	uint64_t size;   /* bytes of the value itself: blob.size, unless it is compressed */
	uint64_t entry;  /* its entry of the allocation table */
} beton_value;

typedef struct beton_reader beton_reader;

/* Opens path and checks header, fields, sizes and the extension block's directory, in time and memory that do not
 * depend on the number of samples; metadata and allocation table are read and checked when a sample is asked for. On
 * success *out is the caller's, to be closed; on failure *out is NULL. Errors: NOT_FOUND, ACCESS, INVALID_ARGUMENT (not
 * a regular file), IO, TRUNCATED, FILE_CHANGED, UNSUPPORTED_VERSION, FORMAT, INCOMPLETE (a file whose writer was
 * killed), UNSUPPORTED_FIELD, UNSUPPORTED (a compression that this build lacks), NO_MEMORY. */
BETON_API int beton_reader_open(beton_reader **out, const char *path, beton_error *err);

/* How a file is read. */
typedef struct beton_reader_options {
	size_t struct_size; /* sizeof(beton_reader_options), set by beton_reader_options_init */
	/* Bytes of memory for what is looked at for each sample (metadata, allocation table, checksums), which is kept
	 * in lines of 4 KiB: samples beside each other, and those that are looked at again, cost no read. No more is
	 * taken than the file has of it. Default 4 MiB; below 33 KiB: nothing is kept. */
	uint64_t cache_bytes;
	/* In place of pread, for all that the reader reads, and with its return value (so a read may be short), called
	 * by the threads that use the reader. NULL (default): pread. */
	int64_t (*read)(void *context, int fd, void *destination, size_t size, uint64_t offset);
	void *context;
} beton_reader_options;

BETON_API void beton_reader_options_init(beton_reader_options *options);

/* The same with options, which may be NULL. Errors: INVALID_ARGUMENT (struct_size) besides. */
BETON_API int beton_reader_open_with(beton_reader **out, const char *path, const beton_reader_options *options,
				     beton_error *err);

/* Closes *reader, if any, and sets it to NULL. No thread may still be using it. */
BETON_API void beton_reader_close(beton_reader **reader);

/* Facts, path and fields; valid until close. field: 0 <= index < num_fields, else NULL. */
BETON_API const beton_file_info *beton_reader_info(const beton_reader *reader);
BETON_API const char *beton_reader_path(const beton_reader *reader);
BETON_API const beton_field *beton_reader_field(const beton_reader *reader, uint32_t index);

/* The index of the field of that name, or of the first field of that type; -1 if there is none. */
BETON_API int beton_reader_find_field(const beton_reader *reader, const char *name);
BETON_API int beton_reader_find_type(const beton_reader *reader, beton_field_type type);

/* One value. A blob's range is checked against the allocation table, its page and the file; metadata and table against
 * their checksums where the file has them. In a file whose table is not in order, the first value that is not where one
 * writing process would have put it makes the reader build an index, once: 32 bytes of memory for each allocation.
 * Errors: INVALID_ARGUMENT (sample or field out of range), SAMPLE_CORRUPT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_value(const beton_reader *reader, uint64_t sample, uint32_t field, beton_value *out,
				 beton_error *err);

/* All num_fields values of a sample at once, which is faster. SAMPLE_CORRUPT: one value at least is damaged; the status
 * of each tells which, err the first, and the others hold. After any other error none holds. */
BETON_API int beton_reader_sample(const beton_reader *reader, uint64_t sample, beton_value *values, beton_error *err);

/* The integers of a field, of the samples first .. first + count - 1, read by large pieces. Errors: INVALID_ARGUMENT
 * (no such samples, or no INT field), SAMPLE_CORRUPT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_integers(const beton_reader *reader, uint32_t field, uint64_t first, uint64_t count,
				    int64_t *out, beton_error *err);

/* The samples in the order in which they lie in the file, for readers who care for locality: *out becomes NULL where
 * that is 0, 1, 2... (perhaps the first ones behind the last), else an array of num_samples numbers, which the caller
 * frees. Files of ours are in order; for others the allocation table is read once or twice, and if they are not in
 * order (several processes wrote them), 24 bytes of memory for each sample are taken meanwhile. Errors: IO,
 * FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_storage_order(const beton_reader *reader, uint64_t **out, beton_error *err);

/* Reads a blob that beton_reader_value returned into destination (blob->size bytes), as it is stored and without
 * looking at its checksum. Retries short reads and EINTR. Errors: IO, FILE_CHANGED (the file became shorter). */
BETON_API int beton_reader_read(const beton_reader *reader, const beton_blob *blob, void *destination,
				beton_error *err);

/* Compares the stored bytes of a value (value->blob.size bytes) with their checksum; BETON_OK where the file has none.
 * Errors: SAMPLE_CORRUPT (they differ), INVALID_ARGUMENT (no such entry), IO, FILE_CHANGED. */
BETON_API int beton_reader_check(const beton_reader *reader, const beton_value *value, const void *stored,
				 beton_error *err);

/* Reads a value into destination (value->size bytes), checked and decompressed. Errors: SAMPLE_CORRUPT, IO,
 * FILE_CHANGED, NO_MEMORY, FORMAT (the field's dictionary is damaged). */
BETON_API int beton_reader_read_value(const beton_reader *reader, const beton_value *value, void *destination,
				      beton_error *err);

/* The same for those who have read the stored bytes of a value (value->blob.size bytes) themselves: fills destination
 * (value->size bytes), decompressed, and checked first if `check`. Errors: those of beton_reader_check, NO_MEMORY,
 * FORMAT (the field's dictionary is damaged). */
BETON_API int beton_reader_unpack(const beton_reader *reader, const beton_value *value, const void *stored, bool check,
				  void *destination, beton_error *err);

/* Whether the text of a JSON value (value->size bytes, decompressed) is UTF-8 and ends at its first NUL. Errors:
 * SAMPLE_CORRUPT, NO_MEMORY. */
BETON_API int beton_reader_check_text(const beton_reader *reader, const beton_value *value, const void *text,
				      beton_error *err);

/* Reads all of the file but its blobs and checks that its parts agree: every checksum but those of the blobs, the field
 * descriptors, every value's place, every allocation, that none overlaps another, that each belongs to one value, and
 * that nothing is there that the header does not count. Stops at the first fault; where it is one of a sample, err has
 * its number. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY (a bit for each allocation; a table out of order takes that
 * of the index as well). */
BETON_API int beton_reader_check_structure(const beton_reader *reader, beton_error *err);

/* The facts that the writer noted about the dataset: a JSON object, UTF-8, NUL terminated, valid until close. NULL with
 * an error: NOT_FOUND (there are none), FORMAT (damaged), IO, FILE_CHANGED, NO_MEMORY. */
BETON_API const char *beton_reader_facts(const beton_reader *reader, beton_error *err);

/* The dictionaries of compressed fields, compared with their checksum: as docs/format.md describes the section. *out:
 * to be freed by free; NULL and size 0 when the file has none. Values of two files whose dictionaries are the same
 * bytes may stand in one file as they are stored. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_dictionaries(const beton_reader *reader, void **out, uint64_t *size, beton_error *err);

/* A hash of what the file holds, to tell one dataset from another: the same for a copy, whatever its name, and for a
 * file whose facts alone are other ones. A file with checksums: of its fields and of the checksums of metadata, blobs
 * and dictionaries, which open has read with the block's directory; nothing more is read, however large the file is,
 * and a file that was damaged since keeps its fingerprint. Any other file (FFCV's): of its fields, of 32 pieces of
 * metadata and of allocation table each, spread evenly, and of the beginnings of 32 values, all of 4 KiB at most: so
 * 384 KiB are read, and two files that differ in no such place have the same. Errors: IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_fingerprint(const beton_reader *reader, uint64_t *out, beton_error *err);

/* The open file, for I/O engines: read only, owned by the reader, not to be closed. */
BETON_API int beton_reader_fd(const beton_reader *reader);

/* ---- writing ---- */

/* No extension block (checksums, facts): the file is as FFCV itself would write it. facts are not used. */
#define BETON_WRITER_NO_EXTENSION UINT32_C(1)

typedef struct beton_writer_options {
	size_t struct_size; /* sizeof(beton_writer_options), set by beton_writer_options_init */
	uint32_t page_size; /* power of two, 2 MiB .. 2 GiB; default 8 MiB */
	/* How many samples will come, to leave room for their metadata in front of the pages; 0 (default): unknown. A
	 * wrong guess is no error: what the metadata needs of the first pages moves behind the last one. */
	uint64_t expected_samples;
	uint32_t flags; /* of BETON_WRITER_...; default 0 */
	const char
		*facts; /* a JSON object about the dataset, for example {"classes": ["cat", "dog"]}, or NULL; copied */
	/* A text that two writers have in common only if they would be given the same samples, in the same order: it
	 * makes what a killed writer left resumable. NULL (default): it is not. */
	const char *job;
	/* Continue what an earlier writer of the same job, schema and options left beside the target, from
	 * beton_writer_position on; if there is nothing, start. And leave for the next one what this one does not
	 * finish. Default false: start, and let close remove what is not finished. */
	bool resume;
	size_t window; /* bytes of samples that put may hold back until their turn comes; default 64 MiB */
	/* Values of compressed fields come as this file stores them (beton_reader_read; value_size is
	 * beton_value.size), and are written so: its dictionaries become those of the new file, and nothing is
	 * compressed. Its schema must be the writer's. Borrowed until open returns; not together with job. Default
	 * NULL. */
	const beton_reader *stored_like;
	uint64_t max_pixels; /* of a JPEG (width * height): loaders refuse those that have more. 0 (default):
				89,478,485, which is theirs */
} beton_writer_options;

/* One value to write: integer, real, or size bytes at data (borrowed until put returns). For IMAGE also mode, width and
 * height (1..65535). For JSON data is the text without the NUL; the writer adds it. */
typedef struct beton_input {
	const void *data;
	uint64_t size;
	beton_image_mode mode;
	uint32_t width;
	uint32_t height;
	int64_t integer;
	double real;
	uint64_t value_size; /* only with options->stored_like, in a compressed field: bytes of the value itself, a
				JSON's NUL among them; size and data are then what compressing made of it */
} beton_input;

/* Writes one file. Memory: a page, the window, and a constant, however many samples there are. */
typedef struct beton_writer beton_writer;

BETON_API void beton_writer_options_init(beton_writer_options *options);

/* Starts a file that will appear at path when beton_writer_finish succeeds, and not before. Until then it is two files
 * in the same folder, .NAME.partial and .NAME.partial.journal, which are locked; what a killed writer left there is
 * replaced or, with options->resume, continued. A symbolic link at path is replaced by the file, not followed. options
 * may be NULL. Errors: INVALID_ARGUMENT (schema or options),
 * EXISTS (another writer is at work on this target), ACCESS, NOT_FOUND (no such folder), NO_SPACE, IO, SYSTEM,
 * NO_MEMORY. */
BETON_API int beton_writer_open(beton_writer **out, const char *path, const beton_field *fields, uint32_t num_fields,
				const beton_writer_options *options, beton_error *err);

/* Puts sample `index` of the source: num_fields inputs in schema order. Any number of threads may put, each index once
 * and none left out, in any order; the file has the samples in the order of their indices, and the same samples give
 * the same bytes. A sample that comes too early is copied to the window; when that is full, put waits until the earlier
 * ones are there (so a thread that brings all of them must not run further ahead than the window reaches). The next
 * index never waits for another. Errors: INVALID_ARGUMENT (a value that does not fit its field, a sample larger than a
 * page, an index that was put before): the writer goes on, and still expects the index: put another value or skip it.
 * CANCELLED. NO_SPACE, IO, NO_MEMORY: the writer has failed, whoever waits or comes later gets STATE, and it can only
 * be closed. STATE also after finish. */
BETON_API int beton_writer_put(beton_writer *writer, uint64_t index, const beton_input *values, beton_error *err);

/* The same for an index that the file is not to have: the samples behind it move up by one. */
BETON_API int beton_writer_skip(beton_writer *writer, uint64_t index, beton_error *err);

/* Puts the sample that is next. */
BETON_API int beton_writer_append(beton_writer *writer, const beton_input *values, beton_error *err);

/* Gives up: whoever waits in put, or comes later, gets CANCELLED, and the writer can only be closed. For a thread that
 * cannot bring its sample while others wait for it. Any thread; not in a signal handler. */
BETON_API void beton_writer_cancel(beton_writer *writer);

/* The index that is expected next: above 0 at once when an earlier writer is continued. */
BETON_API uint64_t beton_writer_position(const beton_writer *writer);

/* Samples that the file has so far: the indices in front of the position that were not skipped. */
BETON_API uint64_t beton_writer_samples(const beton_writer *writer);

/* Writes what is left and syncs: all that finish does but the rename, so that several files can be complete before the
 * first of them appears. No sample can be put any more, and finish is still to be called. Threads and errors: as
 * finish; after an error the final name holds what it held before. */
BETON_API int beton_writer_prepare(beton_writer *writer, beton_error *err);

/* Writes what is left, syncs (unless prepare did), and renames the file to its final name (replacing an older one). No
 * other thread may still be at work on the writer, which is still to be closed. Errors: STATE (also when an index is
 * missing: it can be put, and finish called again), CANCELLED; NO_SPACE, IO, NO_MEMORY: the final name then holds what
 * it held before, unless only the last step failed, the sync of the folder: then the new file stands there, but may not
 * outlive a power failure. */
BETON_API int beton_writer_finish(beton_writer *writer, beton_error *err);

/* Closes *writer, if any, and sets it to NULL. Without a successful finish its temporary files are removed, or left for
 * a later writer if options->resume was set (unless it was the sync that failed: then nothing of them can be trusted).
 * No thread may still be using it. A child of fork can do no more with a writer than close it, or leave it alone: its
 * files and its lock stay the parent's. */
BETON_API void beton_writer_close(beton_writer **writer);

#ifdef __cplusplus
}
#endif

#endif
