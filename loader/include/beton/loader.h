/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton-loader: shuffled, decoded, augmented batches from a .beton file.
 *
 *   order(seed, epoch, position) -> sample   pure function, O(1) memory, seekable
 *   -> I/O engine -> worker threads: decode the crop, resize, flip, normalize, convert -> slot of a batch -> consumer
 *
 * The batches are a function of (file, options, epoch, position) alone: not of the number of threads, of the engine,
 * nor of how often the epoch was interrupted. The global batch (all ranks together) is the same for any world size
 * with the same batch_size * world_size.
 *
 * Threads: one thread at a time calls the functions of one loader, except that beton_batch_release may be called from
 * any thread. Several loaders may live in one process. A loader must not be used in the child of a fork.
 */
#ifndef BETON_LOADER_H
#define BETON_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum beton_order {
	BETON_ORDER_SEQUENTIAL = 0,
	BETON_ORDER_RANDOM = 1, /* a keyed permutation of all samples, new for each epoch */
} beton_order;

typedef enum beton_engine {
	BETON_ENGINE_AUTO = 0,    /* URING with option direct, else THREADS */
	BETON_ENGINE_MMAP = 1,    /* page cache by mapping; only for files that nobody truncates meanwhile: that ends
				     the process (SIGBUS) if it hits a sample that is being decoded */
	BETON_ENGINE_THREADS = 2, /* copies from the page cache; what is not there is read by a pool of threads */
	BETON_ENGINE_URING = 3,   /* io_uring; where it is missing or forbidden, THREADS with one line of log */
} beton_engine;

typedef enum beton_crop {
	BETON_CROP_NONE = 0,   /* the whole picture, resized to the output */
	BETON_CROP_RANDOM = 1, /* random-resized-crop: crop_scale, crop_ratio; torchvision's and FFCV's algorithm */
	BETON_CROP_CENTER = 2, /* FFCV's centre crop: a square of center_ratio times the shorter side, resized */
} beton_crop;

typedef enum beton_dtype {
	BETON_UINT8 = 0,
	BETON_FLOAT32 = 1,
	BETON_INT64 = 2,
	BETON_FLOAT64 = 3,
} beton_dtype;

typedef enum beton_layout {
	BETON_NHWC = 0,
	BETON_NCHW = 1,
} beton_layout;

/* How a picture becomes an output. The crop is resized to the output: an axis that shrinks by area average, one that
 * grows by linear interpolation, rounded to bytes. Every dtype and layout holds the same pixels. Grey, CMYK and YCCK
 * JPEGs come as RGB. */
typedef struct beton_image_options {
	const char *field; /* NULL = the first image field */
	uint32_t height;   /* output pixels, 1..65535; default 224 */
	uint32_t width;
	beton_crop crop;         /* default NONE */
	double crop_scale[2];    /* share of the picture's area; default 0.08, 1 */
	double crop_ratio[2];    /* width / height; default 3/4, 4/3 */
	double center_ratio;     /* default 224/256 */
	double flip_probability; /* horizontal, 0..1; default 0 */
	beton_dtype dtype;       /* UINT8 or FLOAT32; default UINT8 */
	beton_layout layout;     /* default NHWC */
	bool normalize;          /* FLOAT32 only: (pixel - mean[c]) / std[c], mean and std on the 0..255 scale. Without
				    it FLOAT32 pixels are 0..255. */
	float mean[3];           /* default ImageNet's: 123.675, 116.28, 103.53 */
	float std[3];            /* default 58.395, 57.12, 57.375 */
} beton_image_options;

/* Set by beton_loader_options_init; every field may then be changed. Strings are borrowed until open returns. */
typedef struct beton_loader_options {
	size_t struct_size;      /* sizeof(beton_loader_options) */
	uint32_t batch_size;     /* samples per batch and rank, >= 1; default 256 */
	uint32_t num_threads;    /* worker threads; 0 = one for each core this process may use */
	uint32_t batches_ahead;  /* batches prepared in advance, 1..64; default 3 */
	uint32_t batches_leased; /* batches that the consumer may hold at once, 1..64; default 2 */
	beton_order order;       /* default SEQUENTIAL */
	beton_engine engine;     /* default AUTO */
	bool direct; /* read past the page cache (O_DIRECT), for files much larger than memory; where the file
			system cannot, through it with one line of log. Not with MMAP. Default false */
	void (*log)(const char *line, void *context); /* told what the user may want to know, never in steady state, by
							 any thread; NULL, the default: nobody */
	void *log_context;
	uint64_t seed; /* of order and augmentation; default 0 */
	uint32_t rank; /* this process's shard, 0 <= rank < world_size; default 0 of 1 */
	uint32_t world_size;
	bool drop_last; /* default false. true: every rank gets floor(n / (batch_size * world_size)) full batches.
			   false: each sample exactly once over all ranks; the last batch may be short and ranks may
			   differ by one sample. */

	beton_image_options image; /* checked, but without effect in a file without images */

	bool verify; /* compare each picture with its checksum, where the file has checksums; default true */
} beton_loader_options;

/* One output of a batch: row-major, 64-byte aligned, shape[0] = the batch's count. name is the field's. */
typedef struct beton_tensor {
	const char *name;
	beton_dtype dtype;
	uint32_t ndim;
	int64_t shape[5];
	void *data;
} beton_tensor;

/* A leased batch. The consumer may read and write the tensors until it releases the batch; the library does not touch
 * them meanwhile. Outputs stand in field order: the image field, INT (int64, shape [count]) and FLOAT (float64); fields
 * of other types, and further image fields, are left out. */
typedef struct beton_batch {
	uint64_t epoch;
	uint64_t position; /* position in the global order of the batch's first global sample */
	uint32_t count;    /* samples in this batch, 1..batch_size */
	uint32_t num_tensors;
	const beton_tensor *tensors;
	const uint64_t *sample_ids; /* [count], index in the file */
} beton_batch;

/* Totals since open. Times in nanoseconds, summed over threads. */
typedef struct beton_loader_stats {
	size_t struct_size; /* set by the caller to sizeof(beton_loader_stats) before the call */
	uint64_t batches;
	uint64_t samples;
	uint64_t errors;     /* batches that ended in an error */
	uint64_t bytes_read; /* blob bytes that workers consumed */
	uint64_t read_ns;
	uint64_t decode_ns;
	uint64_t transform_ns;
	uint64_t wait_ns; /* the consumer waited in beton_loader_next: the data was late */
	uint64_t idle_ns; /* workers waited for a free slot: the consumer was late */
} beton_loader_stats;

typedef struct beton_loader beton_loader;

BETON_API void beton_loader_options_init(beton_loader_options *options);

/* Opens the file, checks the options (naming the bad one and its value) and starts the worker threads. Errors: those of
 * beton_reader_open, INVALID_ARGUMENT, NOT_FOUND (image.field), UNSUPPORTED_FIELD (no field that a batch could hold),
 * NO_MEMORY, SYSTEM (a thread did not start). options may be NULL: the defaults. */
BETON_API int beton_loader_open(beton_loader **out, const char *path, const beton_loader_options *options,
				beton_error *err);

/* Stops and joins the workers, frees everything, sets *loader to NULL. Batches still leased become invalid. */
BETON_API void beton_loader_close(beton_loader **loader);

/* Begins an epoch at a position of the global order (0 = its start; a multiple of batch_size * world_size resumes after
 * whole batches, at any world size). Leaves an unfinished epoch without waiting for it; leased batches stay leased.
 * Errors: INVALID_ARGUMENT (position beyond the samples), STATE (the child of a fork). */
BETON_API int beton_loader_start(beton_loader *loader, uint64_t epoch, uint64_t position, beton_error *err);

/* Waits for the next batch. BETON_OK: *out is leased. BETON_END: no more batches in this epoch. SAMPLE_CORRUPT, IO,
 * FILE_CHANGED, NO_MEMORY: this batch is lost (err->sample says why), the next call goes on with the one after it.
 * STATE: no epoch was started, the consumer holds batches_leased batches already, or this is the child of a fork.
 * A batch reports its first bad sample. A JPEG is bad if it does not match its checksum (option verify), if decoding
 * the crop gives an error or a warning, if its size is not that of its metadata, or if it has more than 2^28 pixels;
 * without a checksum what lies behind the crop is not looked at. */
BETON_API int beton_loader_next(beton_loader *loader, beton_batch **out, beton_error *err);

/* Gives a batch back and sets *batch to NULL; NULL is allowed. */
BETON_API void beton_batch_release(beton_batch **batch);

/* Samples in the file; batches that this rank gets from a whole epoch; the sample at a position of an epoch's global
 * order, UINT64_MAX beyond its end. */
BETON_API uint64_t beton_loader_num_samples(const beton_loader *loader);
BETON_API uint64_t beton_loader_num_batches(const beton_loader *loader);
BETON_API uint64_t beton_loader_sample_at(const beton_loader *loader, uint64_t epoch, uint64_t position);

BETON_API void beton_loader_get_stats(const beton_loader *loader, beton_loader_stats *stats);

/* The options in force, defaults and automatic values filled in; valid until close. */
BETON_API const beton_loader_options *beton_loader_get_options(const beton_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
