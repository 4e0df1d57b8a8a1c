/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton: read and write .beton dataset files (FFCV's format, version 2).
 *
 * A file holds num_samples samples of num_fields fields. Integers and floats are in the metadata table; every other
 * value is a blob inside one page. Source of the layout: FFCV 1.0.1, ffcv/types.py, writer.py, memory_allocator.py.
 *
 * Threads: a reader may be used by any number of threads at once, and so may a writer's put and skip.
 *
 * Structs that begin with struct_size, the size in the caller's header, may come from another release. Members that a
 * smaller struct lacks have their defaults. Members of a larger struct that this library does not know must be zero.
 * Otherwise, and for a size below that of struct_size itself or above 4096, the call fails with INVALID_ARGUMENT. For
 * this NAME_init hands the size in the caller's header to NAME_init_sized, the function that the library exports. Other
 * languages than C and C++ call that one, with the size of their own struct.
 */
#ifndef BETON_BETON_H
#define BETON_BETON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>
#include <beton/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the format. */
#define BETON_FORMAT_VERSION 2
#define BETON_NAME_MAX 16                           /* bytes of a field name, without a terminating NUL */
#define BETON_DIMS_MAX 32                           /* dimensions of an array field */
#define BETON_CHANNELS_MAX 64                       /* of a raster field */
#define BETON_PAGE_SIZE_MIN (UINT32_C(1) << 21)     /* 2 MiB; page sizes are powers of two below 2^32 */
#define BETON_PAGE_SIZE_DEFAULT (UINT32_C(1) << 23) /* 8 MiB, FFCV's default */

/* The library's release, "0.2.0". A static string; any thread. */
BETON_API const char *beton_version(void);

/* Frees memory that a function of this library gave to its caller; NULL is allowed. Programs whose free is not that of
 * the library (another language, another allocator) need it. Any thread. */
BETON_API void beton_free(void *memory);

/* Types of fields. */
typedef enum beton_field_type {
	BETON_FIELD_FLOAT = 0, /* float64 */
	BETON_FIELD_INT = 1,   /* int64 */
	BETON_FIELD_IMAGE = 2, /* FFCV's RGB image: JPEG bytes, or raw rows of height x width x 3 uint8 */
	BETON_FIELD_BYTES = 3,
	BETON_FIELD_NDARRAY = 4,
	BETON_FIELD_JSON = 5, /* UTF-8 text and one NUL byte */
	BETON_FIELD_TORCH_TENSOR = 6,
	/* Types that the caller describes, see beton_reader_options.custom. Reading only. */
	BETON_FIELD_CUSTOM = 256,      /* bytes in the sample's record: beton_reader_record */
	BETON_FIELD_CUSTOM_BLOB = 257, /* with a pointer to a blob among them */
	/* Pictures that an RGB image cannot hold: rows of height x width x channels samples of 8 or 16 bits, without a
	 * sign and little-endian; each sample of the file its own height and width. FFCV cannot read a file that has
	 * one. */
	BETON_FIELD_RASTER = 258,
} beton_field_type;

/* The type's name in lists of fields: "float", "int", "rgb_image", "bytes", "ndarray", "json", "torch_tensor",
 * "raster"; "unknown" for others. A static string; any thread. */
BETON_API const char *beton_field_type_name(beton_field_type type);

/* How a picture is stored. */
typedef enum beton_image_mode {
	BETON_IMAGE_JPEG = 0,
	BETON_IMAGE_RAW = 1,
} beton_image_mode;

/* Compression of a field's values. FFCV cannot read a file that has a compressed field. */
typedef enum beton_compression {
	BETON_COMPRESSION_NONE = 0,
	BETON_COMPRESSION_ZSTD = 1, /* BYTES, JSON, RASTER and the array types only */
} beton_compression;

/* One field of the schema. For reading, the library fills it, and it lives as long as the reader. For writing, the
 * caller fills it, and beton_writer_open copies it. dtype, ndim and shape are used by the two array types only;
 * item_size is bytes per element and is derived from dtype. Of RASTER dtype is "|u1" or "<u2", ndim 1, and shape[0] the
 * number of channels, 1..BETON_CHANNELS_MAX. Of the two custom types item_size is the bytes in a record,
 * shape[0] their alignment, and shape[1] the place of the blob's pointer (64 bits, little-endian) among them. */
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
	uint64_t reserved[4];      /* 0 */
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
	uint64_t data_end; /* all blobs end at or before it: start of the extension block, or of the allocation table */
	bool has_extension;       /* the block that libbeton's writer adds; false for FFCV's files */
	bool has_checksums;       /* for every blob: see beton_reader_check */
	bool has_facts;           /* see beton_reader_facts */
	bool ordered;             /* the allocation table is in the order of samples and fields */
	bool has_sources;         /* see beton_reader_source */
	bool has_jpeg_indexes;    /* see beton_reader_jpeg_index */
	bool jpeg_indexes_beside; /* they are in a side file, see <beton/index.h> */
	uint64_t pages_end;       /* data_end of the file without an index of JPEGs that was added to it */
} beton_file_info;

/* A validated range of the file: it lies inside one page and ends before data_end. */
typedef struct beton_blob {
	uint64_t offset;
	uint64_t size;
} beton_blob;

/* One value of one sample. Valid members: integer for INT, real for FLOAT, none for CUSTOM; blob, size, entry and
 * compression for every other type; also mode, width and height (pixels) for IMAGE and RASTER, whose mode is RAW.
 * status: BETON_OK, or SAMPLE_CORRUPT if beton_reader_sample found this value damaged; then only type, sample and field
 * are valid. */
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
	beton_blob blob;      /* the stored bytes */
	uint64_t size;        /* bytes of the value itself: blob.size, unless it is compressed */
	uint64_t entry;       /* index of its entry in the allocation table */
	uint64_t reserved[2]; /* 0 */
} beton_value;

typedef struct beton_reader beton_reader;

/* Opens path and checks header, fields, sizes and the extension block's directory. Time and memory do not depend on the
 * number of samples: metadata and allocation table are read and checked when they are needed. The caller closes *out,
 * which is NULL on failure. Errors: NOT_FOUND, ACCESS, INVALID_ARGUMENT (not a regular file), IO, TRUNCATED,
 * FILE_CHANGED, UNSUPPORTED_VERSION, FORMAT, INCOMPLETE (a file whose writer was killed), UNSUPPORTED_FIELD,
 * UNSUPPORTED (a compression that this build lacks), NO_MEMORY. */
BETON_API int beton_reader_open(beton_reader **out, const char *path, beton_error *err);

/* Memory for lines of metadata, allocation tables and checksums, and for decompressing, that several readers share. Any
 * thread may use it. */
typedef struct beton_cache beton_cache;

#define BETON_CACHE_MIN (UINT64_C(1) << 16) /* bytes */

/* Opens a cache of at most this many bytes, >= BETON_CACHE_MIN. The caller closes *out, which is NULL on failure, after
 * all readers that use it. Errors: INVALID_ARGUMENT, NO_MEMORY. */
BETON_API int beton_cache_open(beton_cache **out, uint64_t bytes, beton_error *err);
BETON_API void beton_cache_close(beton_cache **cache);

#define BETON_ARGUMENTS_SIZE 1024    /* bytes about a field in a file's list of fields */
#define BETON_CUSTOM_RECORD_MAX 4096 /* bytes of a custom field in a record */

/* Options of beton_reader_open_with. */
typedef struct beton_reader_options {
	size_t struct_size; /* sizeof(beton_reader_options), set by beton_reader_options_init */
	/* Bytes of memory to cache metadata, allocation table and checksums, in lines of 4 KiB. Neighbouring and
	 * repeated samples then cost no read. At most the size of these parts is taken. Default 4 MiB; a value below
	 * 33 KiB disables the cache. */
	uint64_t cache_bytes;
	/* Replaces pread for all reads, with pread's return value (a read may be short). Called by the threads that use
	 * the reader. NULL (default): pread. Not with beton_reader_open_io. */
	int64_t (*read)(void *context, int fd, void *destination, size_t size, uint64_t offset);
	void *context;
	/* Describes a field whose type this library does not know (FFCV's custom fields), because the file does not say
	 * how many bytes its values take in a record. field has the name. arguments: the BETON_ARGUMENTS_SIZE bytes
	 * that the field's own program stored about it. The function sets field->type to CUSTOM or CUSTOM_BLOB, with
	 * item_size (1..BETON_CUSTOM_RECORD_MAX), shape[0] (a power of two, 1..16; NumPy's dtype.alignment) and
	 * shape[1], or to FLOAT, INT, IMAGE, BYTES or JSON, if the values are stored as those are. Each CUSTOM_BLOB of
	 * each sample has one allocation. A wrong description gives wrong values of all fields. Returns BETON_OK, or
	 * any other number: it does not know the field either. Called by open. NULL (default): such a file is refused
	 * (UNSUPPORTED_FIELD). */
	int (*custom)(void *context, const void *arguments, beton_field *field);
	void *custom_context;
	/* The cache to use, which must outlive the reader; cache_bytes has no effect then. For programs with many
	 * readers. NULL (default): one of its own. */
	beton_cache *cache;
	/* Lends the reader a descriptor of the file for the time of one read, in place of one that it keeps open: for
	 * programs with more files than descriptors. It must be of the file at path, and of the same one each time; the
	 * reader opens nothing, but for a read of a side file's index. Returns BETON_OK, or a code with a message in
	 * err, with which the read ends then. give_back ends the loan; both are needed, and get `context`. Called by
	 * the threads that use the reader. NULL (default): the reader opens the file. Not with beton_reader_open_io. */
	int (*borrow)(void *context, int *fd, beton_error *err);
	void (*give_back)(void *context, int fd);
	/* With borrow: the folder that a relative path begins in, for the side file's index, which is opened for each
	 * read. A descriptor of the caller's, who keeps it open as long as the reader. Default AT_FDCWD (<fcntl.h>):
	 * the working folder of the moment. */
	int folder;
} beton_reader_options;

BETON_API void beton_reader_options_init_sized(beton_reader_options *options, size_t size);
static inline void beton_reader_options_init(beton_reader_options *options)
{
	beton_reader_options_init_sized(options, sizeof(*options));
}

/* beton_reader_open with options, which may be NULL. Further errors: INVALID_ARGUMENT (struct_size, borrow without
 * give_back or the reverse, folder without borrow, errors of the function custom), and the errors of the function
 * borrow, as for all other calls that read. */
BETON_API int beton_reader_open_with(beton_reader **out, const char *path, const beton_reader_options *options,
				     beton_error *err);

/* beton_reader_open_with of a file that the caller's functions read; io is copied. beton_reader_path is then io->name,
 * and beton_reader_fd -1. Reads that fail name io->name, the offset and the function's message; their codes are IO (a
 * passed deadline too), FILE_CHANGED, NO_MEMORY, and CANCELLED. Errors: as for beton_reader_open_with but NOT_FOUND
 * and ACCESS; CANCELLED (if read_at says so), INVALID_ARGUMENT (a member of io). */
BETON_API int beton_reader_open_io(beton_reader **out, const beton_io *io, const beton_reader_options *options,
				   beton_error *err);

/* Gives up reading: reads in flight and all later ones end with CANCELLED, the former as soon as io->cancel ends them.
 * Any thread, until close. Does nothing to a reader of a path, whose reads cannot be cancelled. */
BETON_API void beton_reader_cancel(const beton_reader *reader);

/* Closes *reader and sets it to NULL; NULL is allowed. No thread may still use the reader. */
BETON_API void beton_reader_close(beton_reader **reader);

/* Facts, path and fields; valid until close. field: 0 <= index < num_fields, else NULL. */
BETON_API const beton_file_info *beton_reader_info(const beton_reader *reader);
BETON_API const char *beton_reader_path(const beton_reader *reader);
BETON_API const beton_field *beton_reader_field(const beton_reader *reader, uint32_t index);

/* The index of the field with that name, or of the first field of that type; -1 if there is none. */
BETON_API int beton_reader_find_field(const beton_reader *reader, const char *name);
BETON_API int beton_reader_find_type(const beton_reader *reader, beton_field_type type);

/* Reads one value. A blob's range is checked against the allocation table, its page and the file; metadata and table
 * are checked against their checksums, if the file has them. If the table is not in order, the reader builds an index
 * once, at the first value that is not where a single writing process would have put it: 32 bytes of memory for each
 * allocation. Errors: INVALID_ARGUMENT (sample or field out of range), SAMPLE_CORRUPT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_value(const beton_reader *reader, uint64_t sample, uint32_t field, beton_value *out,
				 beton_error *err);

/* Reads all num_fields values of a sample, which is faster than one by one. SAMPLE_CORRUPT: at least one value is
 * damaged. Each value's status tells which, err describes the first, and the other values are valid. After any other
 * error no value is valid. */
BETON_API int beton_reader_sample(const beton_reader *reader, uint64_t sample, beton_value *values, beton_error *err);

/* Reads the item_size bytes that a sample's record has for a field of a custom type, pointer included. Errors:
 * INVALID_ARGUMENT (out of range, or not such a field), SAMPLE_CORRUPT, IO, FILE_CHANGED. */
BETON_API int beton_reader_record(const beton_reader *reader, uint64_t sample, uint32_t field, void *destination,
				  beton_error *err);

/* Reads the integers of a field for samples first .. first + count - 1, in large pieces. Errors: INVALID_ARGUMENT (no
 * such samples, or no INT field), SAMPLE_CORRUPT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_integers(const beton_reader *reader, uint32_t field, uint64_t first, uint64_t count,
				    int64_t *out, beton_error *err);

/* The samples in the order of their place in the file, for sequential reads. *out becomes NULL if that is 0, 1, 2...
 * (or a rotation of it), else an array of num_samples numbers, for beton_free. Files written by libbeton are in
 * order. For others the allocation table is read once or twice; if they are not in order (several processes wrote
 * them), the call needs 24 bytes of memory for each sample. Errors: IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_storage_order(const beton_reader *reader, uint64_t **out, beton_error *err);

/* Reads a blob from beton_reader_value into destination (blob->size bytes), as it is stored, without a check of its
 * checksum. Retries short reads and EINTR. Errors: IO, FILE_CHANGED (the file became shorter). */
BETON_API int beton_reader_read(const beton_reader *reader, const beton_blob *blob, void *destination,
				beton_error *err);

/* Compares the stored bytes of a value (value->blob.size bytes) with their checksum; BETON_OK if the file has none.
 * Errors: SAMPLE_CORRUPT (they differ), INVALID_ARGUMENT (no such entry), IO, FILE_CHANGED. */
BETON_API int beton_reader_check(const beton_reader *reader, const beton_value *value, const void *stored,
				 beton_error *err);

/* Bytes of the longest entry of a JPEG's index. */
#define BETON_JPEG_INDEX_MAX 65536

/* Finds the entry of a JPEG's index, which lets a decoder begin in the middle of a JPEG without restart markers
 * (docs/format.md). It is in the file, or in a side file, NAME.index beside NAME (<beton/index.h>), which open finds
 * and which stays unused where it is not of this file. *entry: at most BETON_JPEG_INDEX_MAX bytes, for
 * beton_reader_read_jpeg_index; size 0: there is none. Errors: FORMAT (its place is wrong), INVALID_ARGUMENT, IO,
 * FILE_CHANGED. */
BETON_API int beton_reader_jpeg_index(const beton_reader *reader, const beton_value *value, beton_blob *entry,
				      beton_error *err);

/* Reads an entry into destination (entry->size bytes), without a check. Errors: IO, FILE_CHANGED. */
BETON_API int beton_reader_read_jpeg_index(const beton_reader *reader, const beton_blob *entry, void *destination,
					   beton_error *err);

/* The same for an entry in a side file, if the system has it in memory; otherwise the system reads it for a later time.
 * False: it was not read. */
BETON_API bool beton_reader_peek_jpeg_index(const beton_reader *reader, const beton_blob *entry, void *destination);

/* Why the side file is not used although there is one: a text that names it, valid until close. NULL: it is used, or
 * not needed, or there is none. Files that a beton_io reads have no side file. */
BETON_API const char *beton_reader_jpeg_index_fault(const beton_reader *reader);

/* Checks the bytes of an entry. stored: the JPEG, value->blob.size bytes. *index: the *size bytes of the index, which
 * are some of bytes. The index is the writer's for this JPEG, and is not compared with it: a decoder
 * must take any numbers without harm, but wrong ones may give wrong pixels. beton_verify with deep, and
 * beton_index_check, compare. Errors: FORMAT (it is damaged, or belongs to another JPEG; *size is 0). */
BETON_API int beton_reader_open_jpeg_index(const beton_reader *reader, const beton_value *value,
					   const beton_blob *entry, const void *bytes, const void *stored,
					   const void **index, size_t *size, beton_error *err);

/* Reads, checks and decompresses a value into destination (value->size bytes). Errors: SAMPLE_CORRUPT, IO,
 * FILE_CHANGED, NO_MEMORY, FORMAT (the field's dictionary is damaged). */
BETON_API int beton_reader_read_value(const beton_reader *reader, const beton_value *value, void *destination,
				      beton_error *err);

/* Decompresses the stored bytes of a value (value->blob.size bytes), which the caller has read, into destination
 * (value->size bytes). check: compare them with their checksum first. Errors: as for beton_reader_check, NO_MEMORY,
 * FORMAT (the field's dictionary is damaged). */
BETON_API int beton_reader_unpack(const beton_reader *reader, const beton_value *value, const void *stored, bool check,
				  void *destination, beton_error *err);

/* Checks that the text of a JSON value (value->size bytes, decompressed) is UTF-8 and ends at its first NUL. Errors:
 * SAMPLE_CORRUPT, NO_MEMORY. */
BETON_API int beton_reader_check_text(const beton_reader *reader, const beton_value *value, const void *text,
				      beton_error *err);

/* Reads the whole file except its blobs, and checks every checksum except the blobs', the field descriptors, every
 * value's place, and every allocation: that none overlaps another, that each belongs to one value, and that the file
 * has nothing that the header does not count. Stops at the first fault; if it belongs to a sample, err has the sample's
 * number. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY (a bit for each allocation; a table out of order takes that of
 * the index as well). */
BETON_API int beton_reader_check_structure(const beton_reader *reader, beton_error *err);

/* The facts that the writer stored about the dataset: a JSON object in UTF-8, NUL terminated, valid until close. NULL
 * on an error: NOT_FOUND (there are none), FORMAT (damaged), IO, FILE_CHANGED, NO_MEMORY. */
BETON_API const char *beton_reader_facts(const beton_reader *reader, beton_error *err);

/* The class names among the facts, in the order of their labels. *names: an array of *count texts, all in one block of
 * memory, which the caller frees with beton_free; NULL and 0: there are none. Errors: FORMAT (the facts are damaged, or
 * their "classes" are not a list of texts), IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_classes(const beton_reader *reader, char ***names, uint32_t *count, beton_error *err);

/* Bytes of a source's name, without the NUL. */
#define BETON_SOURCE_MAX 4095

/* Where a sample comes from: the name that its writer gave to beton_writer_put_from, by convention the path of a file
 * below the folder or archive that the dataset was made of. Any bytes but NUL, not checked in any way: do not take it
 * for a path that may be opened or written. source: room for BETON_SOURCE_MAX + 1 bytes; "" if there is none. Fastest
 * in the order of the samples. Any thread. Errors: INVALID_ARGUMENT (no such sample), FORMAT (damaged), IO,
 * FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_source(const beton_reader *reader, uint64_t sample, char *source, beton_error *err);

/* The section of dictionaries of compressed fields (see docs/format.md), checked against its checksum. *out is for
 * beton_free, and NULL, with size 0, if the file has none. Stored values of two files with identical sections can be
 * copied into one file. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_dictionaries(const beton_reader *reader, void **out, uint64_t *size, beton_error *err);

/* A hash of the dataset's content. It does not depend on the file's name, its facts or the samples' sources. For a file
 * with checksums it covers the fields and the checksums of metadata, blobs and dictionaries, which open has read
 * already, so later damage does not change it. For any other file (FFCV's) it covers the fields, 32 evenly spread
 * pieces each of metadata and allocation table, and the beginnings of 32 values, each at most 4 KiB. So 384 KiB are
 * read, and files that differ elsewhere have the same hash. Errors: IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_reader_fingerprint(const beton_reader *reader, uint64_t *out, beton_error *err);

/* The descriptor of the open file, for I/O engines: read only, owned by the reader; do not close it. -1 after
 * beton_reader_open_io, and with the option borrow. */
BETON_API int beton_reader_fd(const beton_reader *reader);

/* ---- writing ---- */

/* Writes no extension block (checksums, facts), so that the file equals FFCV's. facts are ignored. */
#define BETON_WRITER_NO_EXTENSION UINT32_C(1)
/* No index of JPEGs without restart markers, see beton_reader_jpeg_index. */
#define BETON_WRITER_NO_JPEG_INDEX UINT32_C(2)

typedef struct beton_writer_options {
	size_t struct_size; /* sizeof(beton_writer_options), set by beton_writer_options_init */
	/* A power of two, 2 MiB .. 2 GiB; default 8 MiB. 0: 2, 4 or 8 MiB, whichever makes the file smallest, if it has
	 * at most 64 MiB in its pages, else 8 MiB. So much is held in memory until it is known, and is lost if the
	 * writer is killed. */
	uint32_t page_size;
	/* Expected number of samples, to leave room for their metadata before the pages; 0 (default): unknown. A
	 * wrong guess is allowed: pages that are in the metadata's way move to the end. */
	uint64_t expected_samples;
	uint32_t flags; /* BETON_WRITER_...; default 0 */
	const char
		*facts; /* a JSON object about the dataset, for example {"classes": ["cat", "dog"]}, or NULL; copied */
	/* Identifies the job, so that a later writer can resume what a killed one left. Two writers may have the same
	 * text only if they get the same samples in the same order. If it has several lines "what: value", MISMATCH
	 * names the first that differs. NULL (default): not resumable. */
	const char *job;
	/* Continue an unfinished file of the same job, schema and options beside the target, from beton_writer_position
	 * on, or start if there is none; one of another job is left alone, and open fails with MISMATCH. close keeps an
	 * unfinished file for the next writer. Default false: start, and let close remove an unfinished file. */
	bool resume;
	size_t window; /* bytes of samples that wait for earlier ones; default 64 MiB */
	/* The inputs of compressed fields are this file's stored bytes (beton_reader_read; value_size is
	 * beton_value.size). They are written as they are, with this file's dictionaries; nothing is compressed. Its
	 * schema must be the writer's. Borrowed until open returns; not together with job. Default NULL. */
	const beton_reader *stored_like;
	uint64_t max_pixels; /* of a JPEG (width * height), since loaders refuse larger ones. 0 (default): 89,478,485,
				the loader's default */
} beton_writer_options;

/* The index of a JPEG's scan (docs/format.md: what follows the checksum of an entry). */
typedef struct beton_jpeg_index {
	const void *data;
	uint64_t size; /* at most BETON_JPEG_INDEX_MAX - 8; 0: the JPEG gets none */
} beton_jpeg_index;

/* One value to write: integer, real, or size bytes at data (borrowed until put returns). For IMAGE also mode, width and
 * height (1..65535); for RASTER width and height (likewise). For JSON data is the text without the NUL; the writer adds
 * it. */
typedef struct beton_input {
	const void *data;
	uint64_t size;
	beton_image_mode mode;
	uint32_t width;
	uint32_t height;
	int64_t integer;
	double real;
	uint64_t value_size; /* with options->stored_like, in a compressed field: bytes of the decompressed value,
				including a JSON's NUL; size and data are the compressed bytes */
	/* A JPEG: its index, borrowed until put returns, from a caller that has read the JPEG anyway. The writer
	 * checks only its size, and loaders take pixels from the places in it. NULL (default): the writer reads the
	 * JPEG to make one. */
	const beton_jpeg_index *jpeg_index;
	uint64_t reserved[1]; /* 0 */
} beton_input;

/* Writes one file. Needs memory for a page and the window, and with page_size 0 for 128 MiB, however many samples there
 * are. */
typedef struct beton_writer beton_writer;

BETON_API void beton_writer_options_init_sized(beton_writer_options *options, size_t size);
static inline void beton_writer_options_init(beton_writer_options *options)
{
	beton_writer_options_init_sized(options, sizeof(*options));
}

/* Starts a file that appears at path only when beton_writer_finish succeeds. Until then there are two locked files in
 * the same folder, .NAME.partial and .NAME.partial.journal. Such files of a killed writer are replaced or, with
 * options->resume, continued. A symbolic link at path is replaced, not followed. options may be NULL. Errors:
 * INVALID_ARGUMENT (schema or options), EXISTS (another writer uses this target), MISMATCH (see resume), ACCESS,
 * NOT_FOUND (no such folder), NO_SPACE, IO, SYSTEM, NO_MEMORY. */
BETON_API int beton_writer_open(beton_writer **out, const char *path, const beton_field *fields, uint32_t num_fields,
				const beton_writer_options *options, beton_error *err);

/* Puts sample `index` of the source: num_fields inputs in schema order. Any number of threads may put samples in any
 * order, each index exactly once. The file has the samples in the order of their indices, so its bytes do not depend on
 * the threads. A sample that comes too early is copied to the window; if the window is full, put waits for earlier
 * samples (so a single thread must not run further ahead than the window reaches). The next index never waits. Errors:
 * INVALID_ARGUMENT (a value that does not fit its field, a sample larger than a page, an index that was put before):
 * the writer goes on and still expects the index; put another value, or skip it. CANCELLED. NO_SPACE, IO, NO_MEMORY:
 * the writer has failed, calls that wait or come later return STATE, and the writer can only be closed. STATE also
 * after finish. */
BETON_API int beton_writer_put(beton_writer *writer, uint64_t index, const beton_input *values, beton_error *err);

/* beton_writer_put of a sample with its source, which beton_reader_source gives back: at most BETON_SOURCE_MAX bytes
 * and a NUL, copied; NULL or "": none. Without the extension block it is not stored. Further errors: INVALID_ARGUMENT
 * (the source is too long). */
BETON_API int beton_writer_put_from(beton_writer *writer, uint64_t index, const beton_input *values, const char *source,
				    beton_error *err);

/* Leaves out an index: the samples after it move up by one. Threads and errors: as put. */
BETON_API int beton_writer_skip(beton_writer *writer, uint64_t index, beton_error *err);

/* Puts the next sample. */
BETON_API int beton_writer_append(beton_writer *writer, const beton_input *values, beton_error *err);

/* Puts the next sample with its source, as beton_writer_put_from does. */
BETON_API int beton_writer_append_from(beton_writer *writer, const beton_input *values, const char *source,
				       beton_error *err);

/* Gives up: calls of put that wait or come later return CANCELLED, and the writer can only be closed. For a thread that
 * cannot put its sample while others wait for it. Any thread; not in a signal handler. */
BETON_API void beton_writer_cancel(beton_writer *writer);

/* The next expected index; above 0 at once if an earlier writer's file is continued. */
BETON_API uint64_t beton_writer_position(const beton_writer *writer);

/* Samples in the file so far: the indices before the position that were not skipped. */
BETON_API uint64_t beton_writer_samples(const beton_writer *writer);

/* Writes the rest and syncs: all of finish except the rename, so that several files can be complete before the first
 * one appears. No more samples can be put, and finish must still be called. Threads and errors: as finish; after an
 * error the file at path is unchanged. */
BETON_API int beton_writer_prepare(beton_writer *writer, beton_error *err);

/* Writes the rest, syncs (unless prepare did), and renames the file to path, replacing an older one, whose side
 * file (<beton/index.h>) is removed then, if it can be. No other thread may still use the writer, which must still be
 * closed. Errors: STATE (also if an index is missing: put it, and call finish again), CANCELLED; NO_SPACE, IO,
 * NO_MEMORY: the file at path is unchanged, unless only the last step failed, the sync of the folder: then the new file
 * is there, but may not survive a power failure. */
BETON_API int beton_writer_finish(beton_writer *writer, beton_error *err);

/* Lets close keep an unfinished file for a later writer of the same job, as options->resume does: for a run that was
 * asked to stop. Returns how many samples that writer will find, in complete pages; 0: nothing is kept. */
BETON_API uint64_t beton_writer_keep(beton_writer *writer);

/* Closes *writer and sets it to NULL; NULL is allowed. Without a successful finish the temporary files are removed or,
 * if options->resume was set or beton_writer_keep called, and no sync failed, kept for a later writer. No thread may
 * still use the writer. A child of fork may only close a writer, or ignore it: its files and its lock belong to the
 * parent. */
BETON_API void beton_writer_close(beton_writer **writer);

#ifdef __cplusplus
}
#endif

#endif
