/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton-loader: shuffled, decoded, augmented batches from .beton files, and windows of streams of tokens.
 *
 *   order(seed, epoch, position) -> sample   pure function, O(1) memory, seekable
 *   -> I/O engine, which reads ahead -> worker threads: decode the crop, resize, flip, normalize, convert
 *   -> slot of a batch -> iterator -> consumer
 *
 * The batches depend on file, options, epoch and position alone, not on the number of threads, the engine, or how often
 * the epoch was interrupted. The global batch (all ranks together) is the same for any world size with the same
 * batch_size * world_size.
 *
 * Threads: any thread may call any function, but only one thread at a time uses an iterator (beton_iterator_cancel
 * excepted), and no thread uses an object that another is closing. A process may have several loaders, and a loader
 * several iterators. In the child of a fork they cannot be used: calls that can fail return STATE, unless they only
 * read constants; other calls do nothing.
 *
 * Structs that begin with struct_size, the size in the caller's header, may come from another release. Options: members
 * that a smaller struct lacks have their defaults. Members of a larger struct that this library does not know must be
 * zero. Otherwise, and for a size below that of struct_size itself or above 4096, the call fails with INVALID_ARGUMENT.
 * NAME_init_sized is for other languages than C and C++, see <beton/beton.h>.
 * Statistics: the library fills the members that the caller's struct has, and sets unknown ones to zero.
 */
#ifndef BETON_LOADER_H
#define BETON_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>
#include <beton/error.h>
#include <beton/io.h>
#include <beton/operations.h>
#include <beton/tokens.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order of the samples. All but CALLBACK depend on data set, options, epoch and position alone, and are the same
 * for any world size. All but the three marked (*) can begin at any position at once. Memory that grows with the number
 * of samples is named. */
typedef enum beton_order {
	BETON_ORDER_SEQUENTIAL = 0, /* in order of their numbers; of a list, in rising order */
	BETON_ORDER_RANDOM = 1,     /* a keyed permutation of all samples, new for each epoch */
	/* For files larger than memory on disks that are fast only for sequential reads. window_pages random pages form
	 * a window, whose samples are permuted. An epoch needs each page in one window only. Unless reads are direct,
	 * the loader asks the system in time (as in a SEQUENTIAL order) to read whole pages into the page cache, once
	 * for all ranks of a machine.
	 * How well it mixes: if a share p of all samples has some property, their number among B samples of a window
	 * has a variance of at most B p (1-p) (1 + B / window_pages), even in a sorted file; in a random order it is B
	 * p (1-p). 8 bytes for each sample of a file that several processes wrote. */
	BETON_ORDER_QUASI_RANDOM = 2,
	/* The next two, and FFCV_RANDOM: of less than 2^32 samples. */
	BETON_ORDER_WEIGHTED = 3,        /* draws with replacement, by weights; 16 bytes for each sample */
	BETON_ORDER_WEIGHTED_UNIQUE = 4, /* (*) draws without replacement, by weights; 12 bytes for each sample */
	/* In each round every class comes once, in a new order. So all classes come equally often, and so do the
	 * samples of a class (small classes repeat). 8 bytes for each sample. */
	BETON_ORDER_BALANCED = 5,
	BETON_ORDER_LIST = 6,     /* the samples of `indices`, in that order; they may repeat */
	BETON_ORDER_CALLBACK = 7, /* order_callback */
	/* (*) FFCV's RANDOM, number for number: NumPy's default_rng(seed + epoch).permutation(n). 4 bytes for each
	 * sample. FFCV's epochs count from 0 at each Loader. */
	BETON_ORDER_FFCV_RANDOM = 8,
	/* (*) PyTorch's DistributedSampler(shuffle=True, drop_last=False), number for number, and so FFCV's distributed
	 * RANDOM: torch.randperm seeded with seed + epoch, repeated from its start to a multiple of world_size; a rank
	 * gets what its sampler would give. At most 214,748,363 samples; 4 bytes for each. */
	BETON_ORDER_TORCH_DISTRIBUTED = 9,
	/* Draws with replacement, each sample equally likely. With option tokens and a stride of 1 that is how nanoGPT
	 * draws windows. */
	BETON_ORDER_UNIFORM = 10,
} beton_order;

/* The end of an epoch of n positions, n = beton_loader_epoch_length. */
typedef enum beton_last {
	/* Each position exactly once over all ranks: the last batch may be short, and ranks may differ by one sample,
	 * and so by one batch. */
	BETON_LAST_SHORT = 0,
	BETON_LAST_DROP = 1, /* every rank gets floor(n / (batch_size * world_size)) full batches */
	/* Every rank gets the number rounded up: the last batches are filled with the first samples of the epoch. */
	BETON_LAST_PAD = 2,
} beton_last;

/* How files are read. */
typedef enum beton_engine {
	BETON_ENGINE_AUTO = 0,    /* URING with option direct, else THREADS */
	BETON_ENGINE_MMAP = 1,    /* maps the page cache; only for files that are never truncated: a truncation under a
				     sample    that is being decoded kills the process (SIGBUS) */
	BETON_ENGINE_THREADS = 2, /* copies from the page cache; a pool of threads reads what is not there */
	BETON_ENGINE_URING = 3,   /* io_uring; THREADS, with one line of log, where io_uring is missing or forbidden */
} beton_engine;

/* Treatment of a sample that cannot be read or decoded (IO, SAMPLE_CORRUPT). Bad samples are counted in the statistics
 * and listed by beton_loader_bad_samples. Results do not depend on the number of threads. If the file of a
 * sample cannot be opened when it is needed, that sample is bad with IO alone; with NOT_FOUND, FILE_CHANGED and others
 * its batch is lost in any case. */
typedef enum beton_on_error {
	BETON_ON_ERROR_FAIL = 0, /* the batch is lost: beton_iterator_next reports the sample, and the next call goes on
				    with the next batch */
	BETON_ON_ERROR_SKIP = 1, /* the sample is left out, and beton_batch.count is smaller. A batch without a good
				    sample is lost, so that all ranks get the same number of batches */
	/* Another sample takes its place, from a random position of the epoch. If that one is bad too, up to 15 more
	 * are tried. */
	BETON_ON_ERROR_SUBSTITUTE = 2,
} beton_on_error;

/* The kind of a line of the option log. */
typedef enum beton_log_level {
	BETON_LOG_DEBUG = 0, /* what the loader has chosen by itself, once, when it opens */
	BETON_LOG_INFO = 1,  /* data that the options leave out, such as tokens in no window */
	/* A late read, an engine or direct reading that is refused, a stale side file, closing that gives up. */
	BETON_LOG_WARNING = 2,
} beton_log_level;

/* Memory of the batches' tensors, for example pinned, shared or huge pages. */
typedef struct beton_allocator {
	/* Returns bytes at a multiple of alignment, a power of two; NULL: out of memory. Called by the thread that
	 * opens a loader or an iterator. */
	void *(*allocate)(void *context, size_t bytes, size_t alignment);
	/* Called by the thread that closes the loader, or by the thread that later releases the last reference to a
	 * batch; by one of the loader's threads if closing met a read that hung: see beton_loader_close_within. */
	void (*release)(void *context, void *memory, size_t bytes);
	void *context;
	uint64_t reserved[2]; /* 0 */
} beton_allocator;

/* The part of a picture that is used. */
typedef enum beton_crop {
	BETON_CROP_NONE = 0,   /* the whole picture, resized to the output */
	BETON_CROP_RANDOM = 1, /* random-resized-crop: crop_scale, crop_ratio; torchvision's and FFCV's algorithm */
	BETON_CROP_CENTER = 2, /* FFCV's centre crop: a square of center_ratio times the shorter side, resized */
} beton_crop;

/* How the crop gets to height x width. All but STRETCH keep its aspect.
 * PAD: it becomes as large as fits, and padding surrounds it. Size and place are as in Pillow's ImageOps.pad, in its
 * arithmetic (doubles, halves to even): with w x h pixels of the crop and W x H of the output, W x round(h / w * W) if
 * w / h > W / H, round(w / h * H) x H if it is less, and W x H otherwise; no side is 0.
 * SHORTER_SIDE: torchvision's Resize(shorter_side) and CenterCrop((H, W)), the usual way of evaluation: the shorter
 * side becomes shorter_side pixels, the longer one floor(shorter_side * longer / shorter), and the centre of that is
 * the output: round((width - W) / 2) pixels are cut off at the left, halves to even, and likewise at the top. Where the
 * resized crop is smaller than the output there is padding around it, floor((W - width) / 2) at the left. It has the
 * pixels of whole pictures resized; crop CENTER, which is FFCV's, cuts out first, a whole number of pixels.
 * Operations work on picture and padding alike, MIXUP and CUTMIX too. A flip at the end leaves the picture at its
 * place; for that it is at the mirrored one while operations work on it. */
typedef enum beton_fit {
	BETON_FIT_STRETCH = 0,    /* each axis by itself */
	BETON_FIT_PAD_CENTER = 1, /* letterbox: round((W - width) / 2), round((H - height) / 2) from the left and top */
	BETON_FIT_PAD_CORNER = 2, /* at the left and top, padding at the right or below */
	BETON_FIT_SHORTER_SIDE = 3,
} beton_fit;

/* Which of an epoch's pictures are flipped left to right. */
typedef enum beton_flip_mode {
	BETON_FLIP_RANDOM = 0, /* each with flip_probability, drawn anew in each epoch */
	/* Drawn once for each sample: the samples drawn are flipped in epochs 0, 2, 4..., the others in 1, 3, 5.... So
	 * any two consecutive epochs show both sides of a sample. flip_probability, above 0, is the share flipped in
	 * even epochs. */
	BETON_FLIP_ALTERNATE = 1,
} beton_flip_mode;

/* Whose decoder's pixels a JPEG's crop has before it is resized, and the default filter. In each mode a crop has its
 * pixels of the whole decoded picture. libjpeg-turbo 2.1.5 and 3.2 give the same pixels, but for progressive JPEGs
 * whose scans do not send all coefficients. The libjpeg-turbo that is installed smooths these, so they have a peer's
 * pixels if the peer has the same version. (Pillow 13 has 3.2, which smooths one in five of them in another way
 * than 2.1.5.) */
typedef enum beton_pixels {
	BETON_PIXELS_FAST = 0, /* luma and chroma are resized as the JPEG stores them, decoded at 1/2, 1/4 or 1/8 where
				  the crop is that much larger than the output; RGB if a filter is named */
	BETON_PIXELS_FFCV = 1, /* bit for bit FFCV 1.0's pixels: libjpeg-turbo with its fast DCT, and filter AREA with
				  OpenCV's arithmetic */
	BETON_PIXELS_TORCHVISION = 2, /* bit for bit torchvision's pixels with Pillow 13: the accurate DCT, and filter
					 BILINEAR with Pillow's arithmetic. Older Pillow and torchvision's tensors
					 (antialias) differ by at most 1, transforms.v2 by at most 2 */
} beton_pixels;

/* The output for each picture. */
typedef enum beton_image_output {
	BETON_IMAGE_DECODED = 0, /* pixels */
	/* The bytes that the file holds, a JPEG, raw RGB or a raster's samples (not compressed), for consumers that
	 * decode, crop and resize themselves, as on a GPU: see beton_batch. With option drawn they get crop and flip,
	 * with the same draws as for pixels. A JPEG is not decoded, so without a checksum damage to it is not seen.
	 * Not with operations, normalize, and dtype, layout, pixels, filter, fit or color other than their defaults. */
	BETON_IMAGE_STORED = 1,
} beton_image_output;

/* The channels of an output's pixels. */
typedef enum beton_color {
	BETON_COLOR_RGB = 0,
	/* One channel, which is what is resized: a JPEG's luma, as Pillow's draft("L"), OpenCV's IMREAD_GRAYSCALE and
	 * torchvision's decode_jpeg(mode=GRAY) give it, without decoding its chroma. Other pictures, raw, CMYK and RGB
	 * JPEGs, with Pillow's formula for "L": (19595 R + 38470 G + 7471 B) / 2^16, rounded half up. pixels FFCV: luma
	 * with the fast DCT, OpenCV's formula (cvtColor: 19596, 38470, 7470), and its INTER_AREA of one channel;
	 * TORCHVISION: Pillow's resize of a picture of mode "L". (torchvision's Grayscale, and Pillow's convert("L")
	 * without draft, go from luma to RGB and back, and differ by rounding.) */
	BETON_COLOR_GREY = 1,
} beton_color;

/* Types of elements. */
typedef enum beton_dtype {
	BETON_UINT8 = 0,
	BETON_FLOAT32 = 1,
	BETON_INT64 = 2,
	BETON_FLOAT64 = 3,
	BETON_FLOAT16 = 4,  /* IEEE 754 binary16 */
	BETON_BFLOAT16 = 5, /* the upper half of a FLOAT32 */
	/* For array fields only: */
	BETON_INT8 = 6,
	BETON_INT16 = 7,
	BETON_INT32 = 8,
	BETON_UINT16 = 9,
	BETON_UINT32 = 10,
	BETON_UINT64 = 11,
	BETON_BOOL = 12, /* one byte, 0 or 1 */
} beton_dtype;

/* The order of a batch's dimensions. */
typedef enum beton_layout {
	BETON_NHWC = 0,
	BETON_NCHW = 1,
} beton_layout;

/* Filters that resize a crop, in fixed point: the same bytes on every machine. Before it is rounded to a byte, a result
 * differs from the exact one by at most 255 * (input pixels per output pixel along both axes) / 2^15 + 2^-8. Rasters of
 * 16 bits are resized in FLOAT32, with the same numbers on every machine, and a result differs by at most 65535 *
 * (input pixels per output pixel along both axes + 4) / 2^23. */
typedef enum beton_filter {
	BETON_FILTER_AUTO = 0, /* each axis by itself: area average if it shrinks, linear interpolation if it grows */
	BETON_FILTER_AREA = 1, /* OpenCV's INTER_AREA, and so FFCV's: where an axis grows, its interpolation */
	BETON_FILTER_BILINEAR = 2, /* with antialias, as torchvision and Pillow have it */
	BETON_FILTER_NEAREST = 3,  /* the pixel under the output pixel's centre */
} beton_filter;

/* How a picture is converted to an output. The crop is resized to its size in the output and rounded to bytes. Every
 * dtype and layout holds the same pixels. Grey, CMYK and YCCK JPEGs are converted to RGB; all to
 * grey with color GREY.
 * Rasters (BETON_FIELD_RASTER) are converted likewise, with all their channels, to UINT8 (8 bits), UINT16 (16 bits) or
 * floats, which without normalize are the samples: with 16 bits BFLOAT16 rounds them, and FLOAT16 makes those from
 * 65520 on infinite. Scaling 16 bits down to bytes is the caller's: any one factor would be wrong for most. Not with
 * pixels and color other than their defaults, and only with operations that move pixels, leave some out, or are the
 * caller's: see beton_operation_kind. */
typedef struct beton_image_options {
	const char *field; /* NULL = the first image field; without one, the first raster field */
	uint32_t height;   /* output pixels, 1..65535; default 224 */
	uint32_t width;
	beton_crop crop;         /* default NONE */
	double crop_scale[2];    /* share of the picture's area; default 0.08, 1 */
	double crop_ratio[2];    /* width / height; default 3/4, 4/3 */
	double center_ratio;     /* default 224/256 */
	double flip_probability; /* horizontal, 0..1; default 0 */
	beton_pixels pixels;     /* whose pixels; default FAST */
	beton_filter filter;     /* default AUTO; an exact mode sets its own */
	beton_dtype dtype;       /* UINT8 (of rasters of 16 bits UINT16), FLOAT32, FLOAT16 or BFLOAT16; default UINT8 */
	beton_layout layout;     /* default NHWC */
	bool normalize;          /* floats only: (pixel - mean[c]) / std[c] in FLOAT32, rounded to nearest even for the
				    narrower types; mean and std on the 0..255 scale. Without it pixels are 0..255. */
	float mean[3];           /* default ImageNet's: 123.675, 116.28, 103.53 */
	float std[3];            /* default 58.395, 57.12, 57.375 */
	const beton_operation *operations; /* applied in this order; at most BETON_OPERATIONS_MAX; default none */
	uint32_t num_operations;
	uint64_t flip_mode; /* a beton_flip_mode; default RANDOM */
	uint64_t output;    /* a beton_image_output; default DECODED */
	/* STORED: mean room for the bytes of a picture, up to 2^32 - 1. A batch whose pictures exceed batch_size *
	 * stored_bytes bytes is lost (NO_SPACE), and a single one that exceeds it is a bad sample. Batches take twice
	 * that room, with engine MMAP once. 0 (default): twice the mean bytes of a sample, and in each batch one page
	 * of the file, so that one picture always fits. Batches of a random order hardly exceed that. Set it if
	 * pictures of one size stand together, or if memory_limit has no room for so much. */
	uint64_t stored_bytes;
	uint16_t fit; /* a beton_fit; default STRETCH */
	/* PAD_CENTER, PAD_CORNER: 1: a crop that is smaller than the output along both axes is not enlarged; 0
	 * (default): it is. */
	uint16_t keep_small;
	uint32_t shorter_side; /* SHORTER_SIDE: pixels, 1..65535; else 0, the default */
	/* All but STRETCH: the padding's colour, red, green, blue, and 0; 0..255; default black. Of rasters pad[0] is
	 * that of all channels, 0..65535 with 16 bits. It is a pixel like others, and normalized as they are: near 0
	 * with the pixel next to `mean`. */
	uint16_t pad[4];
	uint32_t color; /* a beton_color; default RGB. GREY: only mean[0], std[0] and pad[0] are used */
	/* For normalize of rasters, instead of mean and std: the mean and the std of each channel, in pairs, on the
	 * samples' scale (0..255, or 0..65535); num_statistics is the number of channels. Borrowed until open returns.
	 * Default none. */
	uint32_t num_statistics;
	const float *statistics;
	uint64_t reserved[1]; /* 0: for later options, since views are an array of this struct */
} beton_image_options;

/* Outputs of images. */
#define BETON_VIEWS_MAX 16

/* Replaces the value of an integer field for some samples, as FFCV's ReplaceLabel. */
typedef struct beton_replacement {
	const char *field;
	const uint64_t *indices; /* sample ids, rising; borrowed until the loader is closed */
	size_t num_indices;
	int64_t value;
	uint64_t reserved[2]; /* 0 */
} beton_replacement;

/* Replacements of labels, and joined fields. */
#define BETON_REPLACEMENTS_MAX 256
#define BETON_JOINED_MAX 64

/* Tokens that a mask leaves alone. */
#define BETON_SPECIAL_TOKENS_MAX 64

/* Windows of token streams. With a window T above 0 the data set's files are streams (see beton/tokens.h), and sample i
 * of a file is the window of T + 1 tokens from token i * stride on: its inputs are the first T of them, its targets the
 * last T. A file of n tokens has (n - 1 - T) / stride + 1 windows; with stride T that is (n - 1) / T, each token is the
 * target of one window, and neighbours share one token. The option log gets the number of tokens at the ends of files
 * that are in no window. A window lies in one file. All options except for fields and pictures work as for other
 * samples; a sample id is the number of a window. */
typedef struct beton_token_options {
	uint64_t window;            /* T, 1..2^31 - 2; 0 (default): the files hold samples */
	uint64_t stride;            /* tokens from one window to the next, 1..T; 0 (default): T */
	beton_tokens_format format; /* of all files; default AUTO: of each file by itself */
	const char *field; /* of .beton files; borrowed until open returns. NULL (default): see beton_tokens_options */
	beton_dtype dtype; /* of input and target: INT64 (default), or INT32, where a window with a token above
			      2^31 - 1 is a bad sample */
	uint64_t vocabulary; /* a window with this token or a larger one is a bad sample; 0 (default): not checked */
	/* The last token of each document, 0..2^32 - 1; -1 (default): none. As in Megatron-LM, the token after it is
	 * the first of the next document. */
	int64_t end_of_text;
	bool segment;     /* also output `segment`; needs end_of_text. See beton_batch */
	bool position;    /* also output `position`; needs end_of_text */
	bool ignore_rest; /* do not tell the log of tokens that are in no window; default false */
	/* Masked language models, as BERT and Hugging Face's DataCollatorForLanguageModeling: each input that is not
	 * one of the special tokens is chosen with this probability. 80 % of what is chosen become mask_token, 10 % a
	 * random token below vocabulary, and 10 % stay. The target of a chosen input is the token that it was, that of
	 * any other input is -100. Draws depend on seed, epoch, sample and the place in the window. 0..1; 0 (default):
	 * none */
	double mask_probability;
	uint64_t mask_token;     /* below vocabulary, which is needed */
	const uint32_t *special; /* num_special tokens that are never chosen; copied by open. NULL (default): none */
	uint64_t num_special;    /* 0..BETON_SPECIAL_TOKENS_MAX */
	uint64_t reserved[4];    /* 0 */
} beton_token_options;

/* Initialise with beton_loader_options_init, then change any field. Strings are borrowed until open returns. */
typedef struct beton_loader_options {
	size_t struct_size;      /* sizeof(beton_loader_options) */
	uint32_t batch_size;     /* samples per batch and rank, >= 1; default 256 */
	uint32_t num_threads;    /* worker threads, up to 1024; 0 = one for each core this process may use (affinity,
				    cgroup) */
	uint32_t batches_ahead;  /* batches prepared in advance, 1..64; default 3 */
	uint32_t batches_leased; /* batches that the consumer may hold at once for each open iterator, 1..64; default 2.
				    Batches of closed iterators count too */
	/* Samples that each thread reads ahead of its current one, up to 1024. 0 (default): automatic: none
	 * while the file is in memory, and more while data is late. MMAP reads nothing ahead. */
	uint32_t read_ahead;
	/* Limit, in bytes, of batches, read-ahead, cached metadata (at most a sixteenth, or 64 MiB) and working memory
	 * for one open iterator; 0 (default): no limit. If the limit is too small for the options, open fails and names
	 * the least one that works. The threads share it evenly; a picture that needs more than its thread's part fails
	 * with NO_MEMORY. Not counted: code, an order's memory (see beton_order), and the page cache. */
	uint64_t memory_limit;
	beton_allocator allocator; /* of batches; functions NULL (default): the C library's memory */
	beton_on_error on_error;   /* default FAIL */
	int thread_nice;           /* added to the worker threads' niceness, 0..19; default 0 */
	const int *cpus; /* worker i runs on cpus[i % num_cpus] alone; borrowed until open returns. NULL (default): on
			    any CPU */
	uint32_t num_cpus;
	beton_order order;   /* default SEQUENTIAL */
	beton_engine engine; /* default AUTO */
	bool direct; /* bypass the page cache (O_DIRECT), for files much larger than memory. On a file system without
			direct reads: buffered reads, with one line of log. Not with MMAP. Default false */
	/* Receives lines for the user, none in steady state; called by any thread. NULL (default): no log */
	void (*log)(void *context, beton_log_level level, const char *line);
	void *log_context;
	beton_log_level log_level; /* lines below it are not made; default INFO */
	uint64_t seed;             /* of order and augmentation; default 0 */
	uint32_t rank;             /* this process's shard, 0 <= rank < world_size; default 0 of 1 */
	uint32_t world_size;
	beton_last last; /* default SHORT */

	beton_image_options image; /* checked, but ignored for a file without images */
	/* Replaces image: several outputs, of one image field or of several. Each view has its own draws; view 0 has
	 * the draws of `image`. A blob is read and verified once for all views of its field. At most
	 * BETON_VIEWS_MAX; borrowed until open returns. Default none. */
	const beton_image_options *views;
	uint32_t num_views;

	/* Names of the fields that are outputs, in any order; borrowed until open returns. NULL: the image field,
	 * integers, floats, arrays that a tensor can hold, and with max_bytes also bytes and JSON. */
	const char *const *fields;
	uint32_t num_fields;
	/* Room for each value of a bytes or JSON field (JSON's NUL counts), 0..2^32 - 1; a sample with a longer one is
	 * an error. Default 0: no such outputs. */
	uint64_t max_bytes;
	/* Concatenates the values of bytes and JSON fields without padding. max_bytes, above 0, is then the mean room
	 * for a value: a batch, even a short one, whose values exceed batch_size * max_bytes bytes is lost (NO_SPACE),
	 * and a single value that exceeds it is an error of its sample. Samples that are left out or replaced need no
	 * room. Each batch takes twice that room. Default false. See beton_batch. */
	bool ragged;
	bool drawn; /* also output the numbers drawn for each picture; default false. See beton_batch. */
	/* For fields that are outputs. If several list a sample, the last one applies. Orders use the file's values. At
	 * most BETON_REPLACEMENTS_MAX; borrowed until open returns. Default none. */
	const beton_replacement *replacements;
	uint32_t num_replacements;
	/* Applied in this order; at most BETON_BATCH_OPERATIONS_MAX; borrowed until open returns. Default none. */
	const beton_batch_operation *batch_operations;
	uint32_t num_batch_operations;

	bool verify; /* compare each image with its checksum, if the file has checksums; default true */

	/* Orders. Arrays are borrowed until open returns. Options that the order does not use are refused, except
	 * window_pages. */
	const uint64_t *indices; /* any order: the samples it arranges, which may repeat; NULL (default): all */
	uint64_t num_indices;
	const double *weights; /* WEIGHTED...: of all samples, or of those in indices; finite, >= 0 */
	uint64_t num_weights;
	/* WEIGHTED..., UNIFORM, BALANCED, CALLBACK, sources with weights: positions of an epoch. 0 (default): the
	 * number of samples (WEIGHTED_UNIQUE: of samples with a weight above 0, which is also its limit; UNIFORM of
	 * token windows without indices: of windows with a stride of T, so that an epoch has as many tokens as the
	 * data set). */
	uint64_t num_draws;
	const char *class_field; /* BALANCED: an INT field; NULL (default): the first one */
	uint32_t window_pages;   /* QUASI_RANDOM: pages in a window, >= 1; default 64 */
	/* CALLBACK: returns the number of the sample at a position (with indices: the index into them). Called by
	 * several threads at once, in any order, and more than once for a position; it must always return the same
	 * number. */
	uint64_t (*order_callback)(void *context, uint64_t epoch, uint64_t position);
	void *order_context;

	/* Most pixels of a JPEG. A JPEG with more is a bad sample, and is not decoded. While it decodes a progressive
	 * JPEG, a thread holds 2 bytes for each pixel of each of up to 4 components, and 3 bytes for each pixel of an
	 * RGB crop. 0 (default): 89,478,485 (2^28 / 3, Pillow's MAX_IMAGE_PIXELS), which is 512 MiB of coefficients in
	 * three components. memory_limit may refuse smaller pictures. */
	uint64_t max_pixels;

	beton_token_options tokens; /* default: none, the files hold samples. See there */

	/* Names of fields that are outputs of numbers (INT, FLOAT, arrays), whose values are also joined, in this
	 * order, in one output of float32, for networks that compute them: see beton_batch. At most BETON_JOINED_MAX;
	 * borrowed until open returns. Default none. */
	const char *const *joined;
	uint32_t num_joined;

	/* The same batches for any number of ranks. parts > 0: parts * batch_size consecutive positions are a window,
	 * and each batch_size of them a part of it, which is a batch. This rank's batches are the parts first_part,
	 * first_part + part_stride, and so on, parts / world_size of each window; rank and world_size have no other
	 * effect on them. parts: a multiple of world_size; last must be DROP. 0 (default): positions go to the ranks in
	 * turn. part_stride: >= 1, default 1. */
	uint32_t parts, first_part, part_stride;

	/* Describes fields of unknown types, which batches leave out unless they are stored as known ones are: see
	 * beton_reader_options.custom. Called by open. NULL (default): a file that has such a field is refused. */
	int (*custom)(void *context, const void *arguments, beton_field *field);
	void *custom_context;

	/* Arrays of boxes or points that move as the pixels of pictures do. At most BETON_GEOMETRY_MAX; borrowed until
	 * open returns. Default none. */
	const beton_geometry *geometry;
	uint32_t num_geometry;

	/* Files of a data set that are open at a time, 0..2^20. When one more is needed, the least recently used
	 * idle file is closed; it is opened again when it is needed, and must be unchanged
	 * then (the same inode, size and time of modification), else its samples fail with FILE_CHANGED. Each takes a
	 * descriptor, with the option direct two, and the engine URING takes one more for each thread. If the process
	 * has no more descriptors, fewer files are open. 0 (default): files for a quarter of the descriptors that
	 * RLIMIT_NOFILE allows when the loader is opened, at most 4096. Mapped files (MMAP) stay mapped until close. */
	uint64_t files_open_max;

	/* Do not compare the class names of several sources. A label then stands for what its own file calls so.
	 * Default false: sources whose names differ, or have another order, are refused. */
	bool ignore_classes;
} beton_loader_options;

/* One file of a data set, or a set of files. Initialise all members, unused ones with 0. */
typedef struct beton_source {
	/* A file; or an index of shards (beton/set.h), whose name ends in BETON_SET_ENDING. NULL: see io. */
	const char *path;
	/* All 0: the sources follow each other. Else how often samples of this one come, relative to the other weights,
	 * in steps of 1/65536 and at least one step for a weight above 0: see beton_loader_open_many. */
	double weight;
	/* Instead of path: functions of the caller read the file, see beton/io.h. Copied by open. Only with engines
	 * AUTO and THREADS, not with the options direct and tokens. */
	const beton_io *io;
	uint64_t reserved[5]; /* 0 */
} beton_source;

/* One output of a batch: row-major, 64-byte aligned, shape[0] = the batch's count (except of concatenated values).
 * name is the field's. */
typedef struct beton_tensor {
	const char *name;
	beton_dtype dtype;
	uint32_t ndim;
	int64_t shape[5];
	void *data;
	uint64_t reserved[3]; /* 0 */
} beton_tensor;

/* A leased batch. Its holder may read and write the tensors until the last reference is released, even after iterator
 * and loader are closed; the library does not touch them. Outputs are in field order:
 *   image            the image field, [count, height, width, channels] or [count, channels, height, width], with 3
 *                    channels, or 1 with color GREY, or a raster field, with its channels; further ones are left out.
 *                    With the option views one for each view of the field, in their order: "NAME", "NAME.1",
 *                    "NAME.2"...
 *                    With output STORED uint8, [bytes of all]; then "NAME.offsets", int64, [count + 1]: picture i is
 *                    from [i] to [i + 1]; and "NAME.shape", int32, [count, 3]: height, width, and beton_image_mode
 *   INT, FLOAT       int64 and float64, [count]
 *   arrays           the field's dtype and shape after count. Left out: more than 4 dimensions, more than 16 pages of
 *                    bytes, big-endian numbers and types that beton_dtype lacks
 *                    With the option geometry float32; then "NAME.kept", float32, of the same shape without the last
 *                    dimension. Further entries of the field: "NAME.1", "NAME.1.kept"...
 *   bytes, JSON      uint8, [count, max_bytes], the value and zeros; then "NAME.length", int64, [count]: its bytes;
 *                    with the option ragged uint8, [bytes of all], which may be 0; then "NAME.offsets", int64,
 *                    [count + 1]: value i is from [i] to [i + 1]. For arrays of many shapes: the format's arrays are of
 *                    one, but a bytes field holds what the user packs and unpacks
 * With the option tokens instead:
 *   input, target    int64 or int32, [count, T]; see mask_probability in beton_token_options
 *   segment          int32, [count, T]: to which document of the window an input belongs: 0, 1, 2...
 *   position         int64, [count, T]: the input's place in its document, from 0; in the first document of a window
 *                    from the beginning of the window
 * With a MIXUP or CUTMIX among batch_operations each INT or FLOAT is followed by "NAME.mixed", of its dtype: the
 * partner's; and these follow: "IMAGE.lambda", float32, [count]: the share of the sample itself, a multiple of 2^-14
 * with MIXUP (so the loss is lambda * loss(NAME) + (1 - lambda) * loss(NAME.mixed)); "IMAGE.partner", int64, [count]:
 * its row in the batch; with a CUTMIX, which takes the same box of all views and needs them of one size, "IMAGE.box",
 * int32, [count, 4]: x, y, width and height of what was taken from the partner. Of a batch that was not mixed: its own
 * values, 1, its own row, zeros.
 *
 * Pictures with output STORED are left as they are: their consumer mixes them, and a box is one of a picture of height
 * x width pixels.
 *
 * With the option joined "NAME.joined", NAME being the first of its fields, float32, [count, elements of all]: values
 * that are not float32 are rounded, and with MIXUP or CUTMIX lambda * value + (1 - lambda) * the partner's value.
 *
 * Last, with the option drawn, "IMAGE.drawn" ("IMAGE.1.drawn"... of further views),
 * float64, [count, 5 + 4 * num_operations]: the crop's x, y, width and height in pixels of the stored picture, 1 if it
 * was flipped at the end; then for each operation 1 if it was applied, and three numbers: of a kind with a range its
 * value; TRANSLATE and SHIFT x, y; CUTOUT x, y; ERASE x, y, area; COLOR_JITTER the factors of brightness, contrast and
 * saturation; RAND_AUGMENT and TRIVIAL_AUGMENT the last operation's number, its magnitude, and TRIVIAL_AUGMENT's bin.
 * With a fit other than STRETCH, [count, 9 + 4 * num_operations]: four more numbers, x, y, width and height of the
 * picture's place in the output; with SHORTER_SIDE it reaches beyond the edges, x and y being below 0. The crop lies
 * there from side to side, mirrored if it was flipped; so, without operations that move pixels, what is at (x, y) was
 * at crop.x + (x - place.x) * crop.width / place.width, with a flip crop.x + (place.x + place.width - x) * crop.width /
 * place.width, and crop.y + (y - place.y) * crop.height / place.height.
 */
struct beton_batch {
	uint64_t epoch;
	uint64_t position; /* position in the global order of the batch's first global sample */
	uint32_t count;    /* samples in this batch, 1..batch_size */
	uint32_t bad;      /* samples left out (SKIP) or replaced (SUBSTITUTE) */
	uint32_t num_tensors;
	const beton_tensor *tensors;
	const uint64_t *sample_ids; /* [count], index in the file */
};

/* Totals since open. Times are in nanoseconds, summed over threads. */
typedef struct beton_loader_stats {
	size_t struct_size; /* the caller sets it to sizeof(beton_loader_stats) */
	uint64_t batches;
	uint64_t samples;
	uint64_t errors;     /* batches that ended in an error */
	uint64_t bytes_read; /* blob bytes that workers consumed */
	/* Time of workers, by stage. */
	uint64_t order_ns;     /* finding samples: order, metadata, allocation table */
	uint64_t submit_ns;    /* submitting reads, and copying data from the page cache */
	uint64_t read_ns;      /* waiting for data */
	uint64_t verify_ns;    /* comparing checksums */
	uint64_t decode_ns;    /* JPEG decoding of crops; decompression */
	uint64_t transform_ns; /* resize, operations, last pass */
	uint64_t batch_ns;     /* operations on whole batches */
	uint64_t idle_ns;      /* waiting for a free slot: the consumer was late */
	/* Time of the consumer. */
	uint64_t wait_ns;     /* waiting in beton_iterator_next: the data was late */
	uint64_t run_ns;      /* from the opening of each iterator to its last batch, less the time between epochs */
	uint64_t bad_samples; /* counted each time */
	uint64_t read_ahead;  /* samples that a worker reads ahead now: mean, rounded up */
} beton_loader_stats;

/* The stage that limits the speed. */
typedef enum beton_bottleneck {
	BETON_BOTTLENECK_UNKNOWN = 0,  /* too few batches were delivered to tell */
	BETON_BOTTLENECK_CONSUMER = 1, /* not the loader: batches are ready before they are asked for */
	BETON_BOTTLENECK_ORDER = 2,    /* here and below: workers spend most of their time in this stage */
	BETON_BOTTLENECK_STORAGE = 3,
	BETON_BOTTLENECK_VERIFY = 4,
	BETON_BOTTLENECK_DECODE = 5,
	BETON_BOTTLENECK_TRANSFORM = 6,
	BETON_BOTTLENECK_SLOTS = 7, /* workers and consumer wait for each other: batches_ahead is too small */
} beton_bottleneck;

/* A position in an epoch, to be stored with a checkpoint: little-endian bytes, the same on every machine. Their number
 * is part of the ABI; their content is versioned. */
typedef struct beton_loader_state {
	uint8_t bytes[48];
} beton_loader_state;

typedef struct beton_loader beton_loader;

/* Delivers an epoch, or the rest of one, to the consumer; then, by option, the following ones. */
typedef struct beton_iterator beton_iterator;

/* The library's release, "0.2.0". A static string; any thread. */
BETON_API const char *beton_loader_version(void);

BETON_API void beton_loader_options_init_sized(beton_loader_options *options, size_t size);
static inline void beton_loader_options_init(beton_loader_options *options)
{
	beton_loader_options_init_sized(options, sizeof(*options));
}

/* Opens the file, checks the options (naming the bad one and its value) and starts the worker threads. Of a set of
 * shards the index alone is opened, and each shard when one of its samples is first needed, and then compared with the
 * index: a sample of a shard that is missing or differs fails with the error of opening it (NOT_FOUND, FILE_CHANGED).
 * All shards are opened at once for the order BALANCED, for windows of tokens, and, for QUASI_RANDOM, if their
 * allocation tables are not in order (FFCV's). Batches and states are as for a list of the shards. Errors: as for
 * beton_reader_open and beton_set_open, INVALID_ARGUMENT, NOT_FOUND (a field that an option names), SAMPLE_CORRUPT, IO,
 * FILE_CHANGED (of orders that read the file: BALANCED, QUASI_RANDOM), UNSUPPORTED_FIELD (no field that a batch could
 * hold), NO_MEMORY, SYSTEM (a thread did not start). With the option tokens also as for beton_tokens_open, and
 * INVALID_ARGUMENT for a file that has no window. options may be NULL: the defaults. */
BETON_API int beton_loader_open(beton_loader **out, const char *path, const beton_loader_options *options,
				beton_error *err);

/* beton_loader_open for several files as one data set, or for files without a path (beton_source.io). Their fields must
 * agree in name, type and shape, and so must their class names (beton_reader_classes), unless options->ignore_classes
 * is true; a file without class names agrees with all. beton-merge --remap-classes makes one file of files with other
 * names. Sample numbers are global: each file continues the numbers of the file before. With weights, each file gets
 * its share of every 65536 positions, at random places. A file's samples come in passes, each a new permutation. The
 * order must be RANDOM, and an epoch has num_draws positions. An epoch can begin at any position at once. Errors: as
 * for beton_loader_open, INVALID_ARGUMENT (no source, a bad weight), MISMATCH (naming both files, and the field or
 * class), FORMAT (the facts of a file are damaged). */
BETON_API int beton_loader_open_many(beton_loader **out, const beton_source *sources, uint32_t num_sources,
				     const beton_loader_options *options, beton_error *err);

/* The source that a sample comes from, and the sample's number in that file or set. Errors: INVALID_ARGUMENT (no
 * such sample). */
BETON_API int beton_loader_locate(const beton_loader *loader, uint64_t sample, uint32_t *source, uint64_t *index,
				  beton_error *err);

/* Ends the loader's threads, closes its files and frees it; always sets *loader to NULL. Iterators and leased batches
 * outlive the loader. Batches stay valid until they are released. Iterators must still be closed and answer STATE, also
 * to a thread that is waiting for the next batch.
 * Waits at most timeout_ms milliseconds (0: not at all; below 0: for ever) for reads in flight, since a read of a file
 * system that hangs cannot be cancelled. TIMEOUT: err names what is late. Then the loader's last thread frees the rest
 * (threads, files, read-ahead, and batches that were being filled) when the reads end; if they never end, that memory
 * stays until the process ends. Until then the library must not be unloaded, and the loader calls none of the caller's
 * functions but allocator's release and the functions of sources (beton_io), whose reads closing cancels. Running calls
 * of the caller's functions are waited for without a limit. In the child of a fork the call only sets *loader to NULL.
 * NULL is allowed. */
BETON_API int beton_loader_close_within(beton_loader **loader, int64_t timeout_ms, beton_error *err);

/* beton_loader_close_within with 10 s; reports TIMEOUT to the option log. */
BETON_API void beton_loader_close(beton_loader **loader);

/* Initialise with beton_iterator_options_init, then change any field. */
typedef struct beton_iterator_options {
	size_t struct_size; /* sizeof(beton_iterator_options) */
	/* Where to begin: an epoch, and a position of its global order (0 = its start; a multiple of batch_size *
	 * world_size resumes after whole batches, at any world size). Default 0 and 0. */
	uint64_t epoch;
	uint64_t position;
	/* Instead, if not NULL: where a state was saved; see beton_iterator_open_state. Borrowed until open returns. */
	const beton_loader_state *state;
	/* The size of the pictures of view i, or with index 0 of `image`, in pixels; 0 (default): the loader's, which
	 * is the largest. So training can begin with small pictures, and iterators of different sizes may be open at
	 * once. Pixels and draws are as in a loader with this size; shorter_side stays, so that less is seen of a
	 * picture. memory_limit counts batches of the loader's size, whatever the iterator's. Not for a view with
	 * POISON, whose mask has a size. */
	uint32_t height[BETON_VIEWS_MAX];
	uint32_t width[BETON_VIEWS_MAX];
	/* Epochs that it delivers one after the other, its first included, even if nothing of that is left. 0: without
	 * end; default 1. beton_iterator_next answers END once after each. The batches are as from an iterator for
	 * each epoch, but the next one's first are prepared before this one ends. An order that is drawn as a whole is
	 * drawn by a worker, once the consumer has a batch of the epoch before: memory holds two, or as many as
	 * batches_ahead batches span. */
	uint64_t epochs;
} beton_iterator_options;

BETON_API void beton_iterator_options_init_sized(beton_iterator_options *options, size_t size);
static inline void beton_iterator_options_init(beton_iterator_options *options)
{
	beton_iterator_options_init_sized(options, sizeof(*options));
}

/* Begins an epoch, and starts to prepare batches. Iterators share the workers, which first fill the batch whose
 * consumer is closest to it. options may be NULL: the defaults.
 * Errors: INVALID_ARGUMENT (position beyond the epoch's; epochs beyond number 2^64 - 1; height and width: larger than
 * the loader's, of a view that it does not have, or refused for an operation as the loader's would be), STATE (the
 * child of a fork), NO_MEMORY (for one more iterator's batches, by memory_limit too, or for an order that is drawn as a
 * whole); with a state as for beton_iterator_open_state. */
BETON_API int beton_iterator_open_with(beton_iterator **out, beton_loader *loader,
				       const beton_iterator_options *options, beton_error *err);

/* beton_iterator_open_with at an epoch and a position. */
BETON_API int beton_iterator_open(beton_iterator **out, beton_loader *loader, uint64_t epoch, uint64_t position,
				  beton_error *err);

/* beton_iterator_open_with at a state: the global sequence of samples is the same as in the uninterrupted epoch, even
 * with another world size, batch size, number of threads, engine, `last` or outputs. Errors: as for
 * beton_iterator_open_with, FORMAT (no state, or a damaged one), UNSUPPORTED_VERSION (of another release; version 1
 * cannot identify the data set, and the message gives epoch and position), MISMATCH (another data set, or other options
 * of the order: order, seed, indices, weights, class_field, window_pages; callbacks are not compared).
 * Data sets are compared by beton_reader_fingerprint of their files, in order, not by name: by all of the content of
 * files with checksums, and by samples of up to 384 KiB of others, such as FFCV's. */
BETON_API int beton_iterator_open_state(beton_iterator **out, beton_loader *loader, const beton_loader_state *state,
					beton_error *err);

/* The state after the last batch that the consumer got, assuming that all ranks got as many: epoch, position, and
 * hashes of data set and order. After an epoch's last batch it is the epoch's end, where END comes first; after END it
 * is the next epoch's start, if the iterator has one. Errors: STATE (the loader is closed, or this is the child
 * of a fork). */
BETON_API int beton_iterator_get_state(const beton_iterator *iterator, beton_loader_state *out, beton_error *err);

/* Waits for the next batch, at most timeout_ms milliseconds (0: not at all; below 0: for ever). The option
 * log gets the words of TIMEOUT after a wait of 10 s, 20 s, 40 s and so on.
 *   BETON_OK     *out is leased. With every other result it is NULL.
 *   BETON_END    No more batches in this epoch. Further calls give the next one's (option epochs), or END again.
 *   TIMEOUT      err says how far the batch is and, if a read is late, its file, offset and start. Nothing is lost.
 *   CANCELLED    See beton_iterator_cancel.
 *   STATE        The consumer holds batches_leased batches already, the loader is closed, or this is the child of a
 *                fork.
 *   SAMPLE_CORRUPT, IO, FILE_CHANGED, NO_MEMORY, NO_SPACE (options ragged, image.output), USER_ERROR, FORMAT (the
 *   dictionary of a compressed field is damaged), INVALID_ARGUMENT (order_callback returned a number without a sample;
 *   a raster is compressed, with output STORED), and of files that are opened when they are needed (sets, and more
 *   files than files_open_max) what opening them says: NOT_FOUND, ACCESS, SYSTEM (no descriptor is left) and others
 *                This batch is lost: err->sample is the cause, the first bad sample. The next call continues with the
 *                next batch. Only NO_MEMORY for a later epoch's order loses nothing: the next call tries again.
 *
 * A JPEG is bad if it does not match its checksum (option verify), if decoding the crop gives an error or a warning, if
 * its size differs from its metadata, or if it has more than max_pixels. Without a checksum, data beside the crop may
 * go unchecked.
 *
 * No tables are carried over from other JPEGs: a sequential JPEG without Huffman tables uses the standard's (ITU-T
 * T.81, K.3); a progressive one without them is bad, and so is any JPEG without quantization tables. */
BETON_API int beton_iterator_next(beton_iterator *iterator, beton_batch **out, int64_t timeout_ms, beton_error *err);

/* Ends a wait of beton_iterator_next in another thread, for a consumer that must stop while a file system hangs: that
 * call and all later ones answer CANCELLED, even if a batch is ready. beton_iterator_get_state still gives the place
 * after the last batch that the consumer got, and leased batches stay leased. Any thread may call it until the
 * iterator is closed, also after the loader is closed; not a signal handler, because it takes a lock. NULL is allowed;
 * in the child of a fork it does nothing. */
BETON_API void beton_iterator_cancel(beton_iterator *iterator);

/* How many batches of this epoch, lost ones included, beton_iterator_next has still to give before END; 0 if the loader
 * is closed or the iterator cancelled, and in the child of a fork. Any thread, until the iterator is closed. */
BETON_API uint64_t beton_iterator_batches_left(const beton_iterator *iterator);

/* A descriptor for event loops (poll, epoll, libuv, asyncio): readable as long as beton_iterator_next would not wait,
 * because a batch or its error is ready, END comes next, the iterator was cancelled, or the loader closed. Wait
 * for it to be readable, then call beton_iterator_next with timeout_ms 0; do not read it, write it or close it. It
 * belongs to the iterator, each call gives the same one, and closing the iterator closes it. A consumer that holds
 * batches_leased batches must release one first: the descriptor stays readable, and next answers STATE. Only the
 * iterator's consumer may call it. Errors, with *descriptor -1: SYSTEM (no descriptor was left), STATE (the child of a
 * fork). */
BETON_API int beton_iterator_descriptor(beton_iterator *iterator, int *descriptor, beton_error *err);

/* Leaves the epochs, finished or not, without waiting for work in progress; sets *iterator to NULL; NULL is allowed.
 * May be called before or after the loader is closed. Leased batches stay leased. */
BETON_API void beton_iterator_close(beton_iterator **iterator);

/* Adds a reference to a leased batch; each needs its own release. */
BETON_API void beton_batch_retain(beton_batch *batch);

/* Drops a reference and sets *batch to NULL; NULL is allowed. The last one returns the batch to the library. */
BETON_API void beton_batch_release(beton_batch **batch);

/* Exports a tensor for NumPy, PyTorch, JAX, CuPy... without a copy: a DLPack tensor (dlpack/dlpack.h, version 0.6) on
 * the CPU. It holds a reference to the batch until its deleter is called. bool is exported as uint8. Errors:
 * INVALID_ARGUMENT (no such tensor), NO_MEMORY. */
struct DLManagedTensor;
BETON_API int beton_batch_dlpack(beton_batch *batch, uint32_t tensor, struct DLManagedTensor **out, beton_error *err);

/* The number of samples of the data set; of positions of an epoch's global order; of this rank's batches in a whole
 * epoch. The sample at a position; UINT64_MAX beyond the end, or without memory to draw the order as a whole. */
BETON_API uint64_t beton_loader_num_samples(const beton_loader *loader);
BETON_API uint64_t beton_loader_epoch_length(const beton_loader *loader);
BETON_API uint64_t beton_loader_num_batches(const beton_loader *loader);
BETON_API uint64_t beton_loader_sample_at(const beton_loader *loader, uint64_t epoch, uint64_t position);

/* The samples at count positions, which is cheaper than one call for each. Errors: INVALID_ARGUMENT (positions beyond
 * the end, or a callback's number), NO_MEMORY. Any thread. */
BETON_API int beton_loader_samples_at(const beton_loader *loader, uint64_t epoch, uint64_t position, uint64_t count,
				      uint64_t *samples, beton_error *err);

/* Fills ids with the bad samples so far, each once, in rising order, at most capacity of them. *count becomes their
 * total number; at most 65536 are listed. ids may be NULL if capacity is 0. */
BETON_API void beton_loader_bad_samples(const beton_loader *loader, uint64_t *ids, size_t capacity, size_t *count);

/* The stage that has limited the speed since open. text: one line with figures and advice, NUL-terminated, cut to size
 * bytes (512 suffice). text may be NULL. */
BETON_API beton_bottleneck beton_loader_diagnose(const beton_loader *loader, char *text, size_t size);

/* beton_loader_diagnose for the time since `before`, an earlier result of beton_loader_get_stats for this loader. */
BETON_API beton_bottleneck beton_loader_diagnose_since(const beton_loader *loader, const beton_loader_stats *before,
						       char *text, size_t size);

/* Copies the statistics since the loader was opened. Any thread. */
BETON_API void beton_loader_get_stats(const beton_loader *loader, beton_loader_stats *stats);

/* The options in use, with defaults, number of threads, engine and filter filled in; valid until close. Arrays that
 * were borrowed only until open returned are NULL, with length 0. */
BETON_API const beton_loader_options *beton_loader_get_options(const beton_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
