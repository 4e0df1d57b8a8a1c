/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton-loader: shuffled, decoded, augmented batches from .beton files.
 *
 *   order(seed, epoch, position) -> sample   pure function, O(1) memory, seekable
 *   -> I/O engine, which reads ahead -> worker threads: decode the crop, resize, flip, normalize, convert
 *   -> slot of a batch -> iterator -> consumer
 *
 * The batches are a function of (file, options, epoch, position) alone: not of the number of threads, of the engine,
 * nor of how often the epoch was interrupted. The global batch (all ranks together) is the same for any world size
 * with the same batch_size * world_size.
 *
 * Threads: any thread may call anything, but an iterator is used by one thread at a time (which another one may
 * cancel), and nobody uses what is being closed. Several loaders may live in one process, and several iterators in a
 * loader. None of them can be used in the child of a fork: calls that can fail say so, but for those that only look at
 * what is constant; others do nothing.
 *
 * Structs that begin with struct_size, their size in the caller's header, may be of another release. Options: members
 * that a smaller struct lacks have their defaults; what a larger one has beyond those that this library knows must be
 * zero, else the call is refused with INVALID_ARGUMENT, as is a size below that of struct_size itself or above 4096.
 * Statistics: as much is filled in as the caller's struct has; what is beyond this library's becomes zero.
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

/* The order of the samples. All but CALLBACK are functions of data set, options, epoch and position alone, the same for
 * any world size; and all but the three that are marked (*) can begin anywhere at once and keep nothing that grows with
 * the number of samples, unless it is said. */
typedef enum beton_order {
	BETON_ORDER_SEQUENTIAL = 0, /* as numbered; of a list, in rising order */
	BETON_ORDER_RANDOM = 1,     /* a keyed permutation of all samples, new for each epoch */
	/* For files larger than memory on disks that want to be read in order: window_pages pages, drawn at random, are
	 * put together and the samples of such a window permuted. Each page is needed in one window of an epoch only.
	 * Unless reads are direct, the system is told so in time (as in a SEQUENTIAL order) and reads whole pages into
	 * the page cache, once for all ranks of a machine.
	 * If a share p of all samples has some property, the number of those that have it among B samples of a window
	 * has a variance of at most B p (1-p) (1 + B / window_pages), however the file is sorted; in a random order
	 * it is B p (1-p). 8 bytes for each sample of a file that several processes wrote. */
	BETON_ORDER_QUASI_RANDOM = 2,
	/* The next two, and FFCV_RANDOM: of less than 2^32 samples. */
	BETON_ORDER_WEIGHTED = 3,        /* draws with replacement, by weights; 16 bytes for each sample */
	BETON_ORDER_WEIGHTED_UNIQUE = 4, /* (*) draws without replacement, by weights; 12 bytes for each sample */
	/* Rounds, in each of which every class comes once, in a new order: so classes come equally often, and so do
	 * the samples of a class (small classes repeat). 8 bytes for each sample. */
	BETON_ORDER_BALANCED = 5,
	BETON_ORDER_LIST = 6,     /* `indices` as they stand, which may repeat */
	BETON_ORDER_CALLBACK = 7, /* order_callback */
	/* (*) FFCV's RANDOM, number for number: NumPy's default_rng(seed + epoch).permutation(n). 4 bytes for each
	 * sample. FFCV's epochs count from 0 at each Loader. */
	BETON_ORDER_FFCV_RANDOM = 8,
	/* (*) PyTorch's DistributedSampler(shuffle=True, drop_last=False), number for number, and so FFCV's distributed
	 * RANDOM: torch.randperm seeded with seed + epoch, repeated from its start to a multiple of world_size; a rank
	 * gets what its sampler would give. At most 214,748,363 samples; 4 bytes for each. */
	BETON_ORDER_TORCH_DISTRIBUTED = 9,
} beton_order;

/* What happens at the end of an epoch of n positions, n = beton_loader_epoch_length. */
typedef enum beton_last {
	/* Each position exactly once over all ranks: the last batch may be short, and ranks may differ by one sample,
	 * and so by one batch. */
	BETON_LAST_SHORT = 0,
	BETON_LAST_DROP = 1, /* every rank gets floor(n / (batch_size * world_size)) full batches */
	/* Every rank gets the number rounded up: the last batches are filled with the first samples of the epoch. */
	BETON_LAST_PAD = 2,
} beton_last;

typedef enum beton_engine {
	BETON_ENGINE_AUTO = 0,    /* URING with option direct, else THREADS */
	BETON_ENGINE_MMAP = 1,    /* page cache by mapping; only for files that nobody truncates meanwhile: that ends
				     the process (SIGBUS) if it hits a sample that is being decoded */
	BETON_ENGINE_THREADS = 2, /* copies from the page cache; what is not there is read by a pool of threads */
	BETON_ENGINE_URING = 3,   /* io_uring; where it is missing or forbidden, THREADS with one line of log */
} beton_engine;

/* What becomes of a sample that cannot be read or decoded (IO, SAMPLE_CORRUPT). Each is counted in the statistics and
 * listed by beton_loader_bad_samples. Results do not depend on the number of threads. */
typedef enum beton_on_error {
	BETON_ON_ERROR_FAIL = 0, /* its batch is lost: beton_iterator_next reports the sample, and goes on behind it */
	BETON_ON_ERROR_SKIP = 1, /* left out: its batch is shorter, which beton_batch says. A batch without a good
				    sample is lost, so that all ranks get as many batches */
	/* Another sample takes its place: one from a position of the epoch that is drawn for it; if that one is bad
	 * too, the next of up to 16. */
	BETON_ON_ERROR_SUBSTITUTE = 2,
} beton_on_error;

/* Where the tensors of batches live: for pinned, shared or huge pages. */
typedef struct beton_allocator {
	/* bytes at a multiple of alignment, a power of two; NULL: there are none. Called by the thread that opens a
	 * loader or an iterator. */
	void *(*allocate)(size_t bytes, size_t alignment, void *context);
	/* Called by the thread that closes the loader, or that releases the last reference to a batch later; and by a
	 * thread of the loader if closing met a read that hung: see beton_loader_close_within. */
	void (*release)(void *memory, size_t bytes, void *context);
	void *context;
} beton_allocator;

typedef enum beton_crop {
	BETON_CROP_NONE = 0,   /* the whole picture, resized to the output */
	BETON_CROP_RANDOM = 1, /* random-resized-crop: crop_scale, crop_ratio; torchvision's and FFCV's algorithm */
	BETON_CROP_CENTER = 2, /* FFCV's centre crop: a square of center_ratio times the shorter side, resized */
} beton_crop;

/* Which pictures are flipped left to right, of those that an epoch shows. */
typedef enum beton_flip_mode {
	BETON_FLIP_RANDOM = 0, /* a picture is with flip_probability, drawn anew in each epoch */
	/* Drawn once for each sample: those drawn are flipped in epochs 0, 2, 4..., the others in 1, 3, 5.... So a
	 * sample is seen from both sides in any two epochs. flip_probability is above 0: the share of the even epochs.
	 */
	BETON_FLIP_ALTERNATE = 1,
} beton_flip_mode;

/* Which decoder's pixels a JPEG's crop has before it is resized, and by which filter it is unless another is named. */
typedef enum beton_pixels {
	BETON_PIXELS_FAST = 0, /* brightness and colour resized as the JPEG has them, and at 1/2, 1/4 or 1/8 of its size
				  where the crop is that much larger than the output; RGB where a filter is named */
	BETON_PIXELS_FFCV = 1, /* bit for bit FFCV 1.0's: libjpeg-turbo with its fast DCT; filter AREA, which then has
				  OpenCV's arithmetic */
	BETON_PIXELS_TORCHVISION = 2, /* bit for bit torchvision's with Pillow 13: the accurate DCT; filter BILINEAR,
					 with Pillow's arithmetic. Within 1 of it with Pillow before 13 and of its
					 tensors (antialias), within 2 of those of transforms.v2 */
} beton_pixels;

typedef enum beton_dtype {
	BETON_UINT8 = 0,
	BETON_FLOAT32 = 1,
	BETON_INT64 = 2,
	BETON_FLOAT64 = 3,
	BETON_FLOAT16 = 4,  /* IEEE 754 binary16 */
	BETON_BFLOAT16 = 5, /* the upper half of a FLOAT32 */
	/* Of array fields alone: */
	BETON_INT8 = 6,
	BETON_INT16 = 7,
	BETON_INT32 = 8,
	BETON_UINT16 = 9,
	BETON_UINT32 = 10,
	BETON_UINT64 = 11,
	BETON_BOOL = 12, /* one byte, 0 or 1 */
} beton_dtype;

typedef enum beton_layout {
	BETON_NHWC = 0,
	BETON_NCHW = 1,
} beton_layout;

/* What is done to a picture after it was cropped and resized and before it is flipped (image.flip_probability),
 * normalized and laid out. Colours follow torchvision's functions for uint8 tensors, which are FFCV's too where FFCV
 * has them; shapes follow torchvision's on Pillow images. Each kind uses the members named here; members that a kind
 * does not use are ignored. {a, b} in range is drawn uniformly for each picture, but for
 * SHIFT. */
typedef enum beton_operation_kind {
	BETON_FLIP_HORIZONTAL = 0,
	BETON_FLIP_VERTICAL = 1,
	BETON_TRANSLATE = 2, /* size, padding, fill: moved by -size .. size pixels in both directions. FFCV's
				RandomTranslate; torchvision's RandomCrop(output, padding = size, padding_mode) */
	BETON_ROTATE = 3,    /* range (degrees, counter-clockwise, -360..360), bilinear, fill: about the centre, corners
				cut off. RandomRotation */
	BETON_CUTOUT = 4,    /* size, fill: a square of size pixels that lies inside. FFCV's Cutout */
	BETON_ERASE = 5,     /* range (share of the area, 0..1), ratio (height / width), fill or noise. RandomErasing */
	BETON_BRIGHTNESS = 6,    /* range (factor, >= 0) */
	BETON_CONTRAST = 7,      /* range (factor, >= 0) */
	BETON_SATURATION = 8,    /* range (factor, >= 0) */
	BETON_HUE = 9,           /* range (turns of the colour circle, -0.5..0.5) */
	BETON_COLOR_JITTER = 10, /* jitter: the magnitudes of brightness, contrast, saturation (>= 0: factors of
				    max(0, 1 - m) .. 1 + m) and hue (0..0.5), in random order; 0 leaves one out */
	BETON_GRAYSCALE = 11,
	BETON_SOLARIZE = 12,  /* size: the threshold, 0..256; bytes from there on are inverted */
	BETON_POSTERIZE = 13, /* size: bits that are kept, 0..8 */
	BETON_INVERT = 14,
	BETON_EQUALIZE = 15,
	BETON_AUTOCONTRAST = 16,
	BETON_SHARPNESS = 17,    /* range (factor, >= 0) */
	BETON_BLUR = 18,         /* size (of the kernel; odd, up to BETON_BLUR_MAX, size / 2 below the picture's shorter
				    side), range (sigma in pixels, > 0). GaussianBlur */
	BETON_RAND_AUGMENT = 19, /* count (operations, 1..14), size (magnitude, 0..30). RandAugment with 31 bins,
				    nearest pixels and its 14 operations; fill */
	BETON_TRIVIAL_AUGMENT = 20, /* TrivialAugmentWide with 31 bins, nearest pixels; fill */
	BETON_POISON = 21, /* mask, alpha, indices: pixel * (1 - alpha) + mask * alpha for the samples listed. FFCV's
			      Poison */
	BETON_CUSTOM = 22, /* apply, context */
	BETON_SHIFT = 23,  /* range, padding, fill: moved by range[0] pixels to the right and range[1] down (whole
			      numbers, -65535..65535; below 0: left, up), always the same. For views of test-time
			      augmentation */
} beton_operation_kind;

#define BETON_BLUR_MAX 127
#define BETON_OPERATIONS_MAX 64

/* What takes the place of pixels that a translation uncovers. */
typedef enum beton_padding {
	BETON_PADDING_FILL = 0,
	BETON_PADDING_EDGE = 1,
	BETON_PADDING_REFLECT = 2, /* mirrored without repeating the edge; size must be below the shorter side, a
				       shift below the side that it is along */
} beton_padding;

/* One picture for an operation of the user's. */
typedef struct beton_operation_call {
	void *context;
	uint8_t *pixels; /* height x width x 3, RGB, packed; to be changed in place */
	uint32_t height;
	uint32_t width;
	uint32_t view; /* which of the option views; 0 without */
	uint64_t epoch;
	uint64_t sample;    /* its id */
	uint64_t random[2]; /* drawn for this picture and operation: seed your own generator with it, and the results
			       are the same for any number of threads */
} beton_operation_call;

/* Begin with beton_loader_operation_init. */
typedef struct beton_operation {
	beton_operation_kind kind;
	uint32_t size;
	uint32_t count;
	beton_padding padding;
	bool bilinear;
	bool noise;         /* ERASE: each byte is mean[c] + std[c] * a normal number, which once normalized is
			       torchvision's value='random' (up to 2.9 of its standard deviations) */
	uint8_t fill[3];    /* RGB; default black */
	double probability; /* that it is applied to a picture, 0..1 */
	double range[2];    /* least and most */
	double ratio[2];
	double jitter[4];
	const float *mask;  /* height x width x 3, 0..255; borrowed until the loader is closed, like the next three */
	const float *alpha; /* height x width, 0..1 */
	const uint64_t *indices; /* sample ids, rising */
	size_t num_indices;
	/* Called by worker threads, by several at once. Anything but 0 makes the sample fail with BETON_USER_ERROR and
	 * this number in the message. */
	int (*apply)(const beton_operation_call *call);
	void *context;
	uint64_t reserved[4]; /* 0 */
} beton_operation;

/* The kind with its peer's defaults: probability 0.5, or 1 where the peer applies it always (TRANSLATE, ROTATE, CUTOUT,
 * COLOR_JITTER, BLUR, RAND_AUGMENT, TRIVIAL_AUGMENT, POISON, CUSTOM, SHIFT); range {1, 1} of factors, {0, 0} of HUE,
 * ROTATE and SHIFT, {0.02, 0.33} and ratio {0.3, 3.3} of ERASE, sigma {0.1, 2} and size 3 of BLUR; magnitude 9 and
 * count 2 of RAND_AUGMENT; threshold 128 of SOLARIZE; 8 bits of POSTERIZE. */
BETON_API void beton_loader_operation_init(beton_operation *operation, beton_operation_kind kind);

/* How a crop is resized, in fixed point: the same bytes on every machine. A result differs from the exact one, before
 * it is rounded to a byte, by at most 255 * (input pixels per output pixel along both axes) / 2^15 + 2^-8. */
typedef enum beton_filter {
	BETON_FILTER_AUTO = 0, /* each axis by itself: area average if it shrinks, linear interpolation if it grows */
	BETON_FILTER_AREA = 1, /* OpenCV's INTER_AREA, and so FFCV's: where an axis grows, its interpolation */
	BETON_FILTER_BILINEAR = 2, /* with antialias, as torchvision and Pillow have it */
	BETON_FILTER_NEAREST = 3,  /* the pixel under the output pixel's centre */
} beton_filter;

/* How a picture becomes an output. The crop is resized to the output and rounded to bytes. Every dtype and layout holds
 * the same pixels. Grey, CMYK and YCCK JPEGs come as RGB. */
typedef struct beton_image_options {
	const char *field; /* NULL = the first image field */
	uint32_t height;   /* output pixels, 1..65535; default 224 */
	uint32_t width;
	beton_crop crop;         /* default NONE */
	double crop_scale[2];    /* share of the picture's area; default 0.08, 1 */
	double crop_ratio[2];    /* width / height; default 3/4, 4/3 */
	double center_ratio;     /* default 224/256 */
	double flip_probability; /* horizontal, 0..1; default 0 */
	beton_pixels exact;      /* default FAST */
	beton_filter filter;     /* default AUTO, which an exact mode makes its own */
	beton_dtype dtype;       /* UINT8, FLOAT32, FLOAT16 or BFLOAT16; default UINT8 */
	beton_layout layout;     /* default NHWC */
	bool normalize;          /* floats only: (pixel - mean[c]) / std[c] in FLOAT32, rounded to nearest even for the
				    narrower types; mean and std on the 0..255 scale. Without it pixels are 0..255. */
	float mean[3];           /* default ImageNet's: 123.675, 116.28, 103.53 */
	float std[3];            /* default 58.395, 57.12, 57.375 */
	const beton_operation *operations; /* applied in this order; at most BETON_OPERATIONS_MAX; default none */
	uint32_t num_operations;
	uint64_t flip_mode;   /* a beton_flip_mode; default RANDOM */
	uint64_t reserved[7]; /* 0: room for later options, since views are an array of these */
} beton_image_options;

#define BETON_VIEWS_MAX 16

/* Another value of an integer field for some samples: FFCV's ReplaceLabel. */
typedef struct beton_replacement {
	const char *field;
	const uint64_t *indices; /* sample ids, rising; borrowed until the loader is closed */
	size_t num_indices;
	int64_t value;
} beton_replacement;

#define BETON_REPLACEMENTS_MAX 256

typedef struct beton_batch beton_batch;

/* What is done to a batch when all of its samples are done. MIXUP and CUTMIX put to each sample another one of the
 * batch, its partner: the one behind it in a ring of all of them, whose order is drawn. At most one of the MIXUP and
 * CUTMIX of a list is applied to a batch, each with its probability, which together are at most 1. See beton_batch for
 * the outputs that say how labels were mixed.
 * What is drawn depends on seed, epoch, and the position of the batch's first sample in the order: it is the same for
 * any number of threads, and when an epoch is resumed after whole batches; with another batch size or world size there
 * are other partners. */
typedef enum beton_batch_operation_kind {
	/* pixel * lambda + partner's pixel * (1 - lambda), lambda drawn from Beta(alpha, alpha): bytes are rounded to
	 * nearest, half up; floats are computed in FLOAT32 and rounded to nearest even for the narrower types. */
	BETON_BATCH_MIXUP = 0,
	/* A box at a place that is drawn, with the picture's proportions and a share of 1 - lambda of its area, is
	 * taken from the partner. What of it lies outside is cut off, and lambda becomes the share that is left. */
	BETON_BATCH_CUTMIX = 1,
	BETON_BATCH_CUSTOM = 2, /* apply, context */
} beton_batch_operation_kind;

#define BETON_BATCH_OPERATIONS_MAX 16

/* One batch for an operation of the user's, which may change what the tensors' data points to. */
typedef struct beton_batch_call {
	void *context;
	const beton_batch *batch;
	uint64_t random[2]; /* drawn for this batch and operation, as for beton_operation_call */
} beton_batch_call;

/* Begin with beton_loader_batch_operation_init. */
typedef struct beton_batch_operation {
	beton_batch_operation_kind kind;
	bool per_sample;    /* MIXUP, CUTMIX: lambda (and place) drawn for each sample, not for each batch */
	double alpha;       /* above 0, at most 1000 */
	double probability; /* that it is applied to a batch, 0..1 */
	/* Called by worker threads, for several batches at once. Anything but 0 makes the batch fail with
	 * BETON_USER_ERROR and this number in the message. The batch is not leased yet: no reference to it can be
	 * kept. */
	int (*apply)(const beton_batch_call *call);
	void *context;
	uint64_t reserved[4]; /* 0 */
} beton_batch_operation;

/* The kind with alpha 1 and probability 1. */
BETON_API void beton_loader_batch_operation_init(beton_batch_operation *operation, beton_batch_operation_kind kind);

/* Set by beton_loader_options_init; every field may then be changed. Strings are borrowed until open returns. */
typedef struct beton_loader_options {
	size_t struct_size;      /* sizeof(beton_loader_options) */
	uint32_t batch_size;     /* samples per batch and rank, >= 1; default 256 */
	uint32_t num_threads;    /* worker threads, up to 1024; 0 = one for each core this process may use (affinity,
				    cgroup) */
	uint32_t batches_ahead;  /* batches prepared in advance, 1..64; default 3 */
	uint32_t batches_leased; /* batches that the consumer may hold at once, 1..64; default 2. Of all iterators
				    together as many times that as are open; those of closed ones count, too */
	/* Samples that each thread reads ahead of the one that it works on, up to 1024. 0 (default): automatic; none
	 * where the file is in memory, growing while data is late. MMAP reads nothing ahead. */
	uint32_t read_ahead;
	/* Bytes for batches, read-ahead, what is kept of the files' metadata (a sixteenth, or 64 MiB, if they have so
	 * much) and working memory of one iterator's work; 0 (default): what they need. If the
	 * options cannot work with it, open fails and names the least limit that can. It is shared evenly by the
	 * threads; a picture that needs more than its thread's part fails with NO_MEMORY. Not counted: the program's
	 * own code, an order's memory (see beton_order), and pages of the file in the page cache. */
	uint64_t memory_limit;
	beton_allocator allocator; /* of batches; its functions NULL (default): the C library's memory */
	beton_on_error on_error;   /* default FAIL */
	int thread_nice;           /* added to the worker threads' niceness, 0..19; default 0 */
	const int *cpus; /* worker i runs on cpus[i % num_cpus] alone; borrowed until open returns. NULL (default):
			    where the system likes */
	uint32_t num_cpus;
	beton_order order;   /* default SEQUENTIAL */
	beton_engine engine; /* default AUTO */
	bool direct;         /* read past the page cache (O_DIRECT), for files much larger than memory; where the file
				system cannot, through it with one line of log. Not with MMAP. Default false */
	void (*log)(const char *line, void *context); /* told what the user may want to know, never in steady state, by
							 any thread; NULL, the default: nobody */
	void *log_context;
	uint64_t seed; /* of order and augmentation; default 0 */
	uint32_t rank; /* this process's shard, 0 <= rank < world_size; default 0 of 1 */
	uint32_t world_size;
	beton_last last; /* default SHORT */

	beton_image_options image; /* checked, but without effect in a file without images */
	/* In place of image: several outputs, of one image field or of several. Each has draws of its own; those of
	 * view 0 are what `image` alone has. A blob is read and verified once for all views of its field. At most
	 * BETON_VIEWS_MAX; borrowed until open returns. Default none. */
	const beton_image_options *views;
	uint32_t num_views;

	/* Which fields are outputs, by name, in any order; borrowed until open returns. NULL: the image field,
	 * integers, floats, arrays that a tensor can hold, and with max_bytes also bytes and JSON. */
	const char *const *fields;
	uint32_t num_fields;
	/* Room for each value of a bytes or JSON field (JSON's NUL counts), 0..2^32 - 1; a sample with a longer one is
	 * an error. Default 0: no such outputs. */
	uint64_t max_bytes;
	/* Values of bytes and JSON stand one behind the other, without padding. max_bytes, above 0, is then the room
	 * for a value on average: those of a batch have batch_size * max_bytes bytes at most, a short batch's too, or
	 * it is lost (NO_SPACE); a sample with a value that is longer than that alone is an error. Samples that are
	 * left out or replaced take no room. Takes twice that room for each batch. Default false. See beton_batch. */
	bool ragged;
	bool drawn; /* the numbers drawn for each picture are an output too; default false. See beton_batch. */
	/* Of fields that are outputs; the last one that lists a sample is in force. Orders see what the file has. At
	 * most BETON_REPLACEMENTS_MAX; borrowed until open returns. Default none. */
	const beton_replacement *replacements;
	uint32_t num_replacements;
	/* Applied in this order; at most BETON_BATCH_OPERATIONS_MAX; borrowed until open returns. Default none. */
	const beton_batch_operation *batch_operations;
	uint32_t num_batch_operations;

	bool verify; /* compare each picture with its checksum, where the file has checksums; default true */

	/* Orders. Arrays are borrowed until open returns; an option that the order does not use is refused, but for
	 * window_pages. */
	const uint64_t *indices; /* any order: the samples that it is made of, may repeat; NULL (default): all */
	uint64_t num_indices;
	const double *weights; /* WEIGHTED...: of all samples, or of those of indices, finite, at least 0 */
	uint64_t num_weights;
	/* WEIGHTED..., BALANCED, CALLBACK, sources with weights: positions of an epoch. 0 (default): as many as there
	 * are samples (WEIGHTED_UNIQUE: with a weight above 0, its limit). */
	uint64_t num_draws;
	const char *class_field; /* BALANCED: an INT field; NULL (default): the first one */
	uint32_t window_pages;   /* QUASI_RANDOM: pages of a window, >= 1; default 64 */
	/* CALLBACK: the number of the sample at a position (of the index, if there are indices). Called by several
	 * threads at once, in any order, more than once for a position: it must always give the same. */
	uint64_t (*order_callback)(uint64_t epoch, uint64_t position, void *context);
	void *order_context;

	/* Pixels of a JPEG; one that has more is a bad sample, of which nothing is decoded. While a
	 * progressive JPEG is decoded, its thread holds 2 bytes for each pixel of each of its components, which are 4
	 * at most; and 3 bytes for each pixel of a crop that comes as RGB. 0 (default): 89,478,485 (2^28 / 3, Pillow's
	 * MAX_IMAGE_PIXELS), so 512 MiB for coefficients in three components. memory_limit refuses earlier. */
	uint64_t max_pixels;
} beton_loader_options;

/* A file of a data set of several. */
typedef struct beton_source {
	const char *path;
	/* 0 for all: the files are one behind the other. Else how often samples of the file come, in proportion to the
	 * other weights (in steps of 1/65536, each weight above 0 at least one): see beton_loader_open_many. */
	double weight;
} beton_source;

/* One output of a batch: row-major, 64-byte aligned, shape[0] = the batch's count (but with the option ragged). name is
 * the field's. */
typedef struct beton_tensor {
	const char *name;
	beton_dtype dtype;
	uint32_t ndim;
	int64_t shape[5];
	void *data;
} beton_tensor;

/* A leased batch. Its holder may read and write the tensors until the last reference to it is released, also after
 * iterator and loader were closed; the library does not touch them meanwhile. Outputs stand in field order:
 *   image            the image field; further ones are left out. With the option views one for each view of the
 *                    field, in their order: "NAME", "NAME.1", "NAME.2"...
 *   INT, FLOAT       int64 and float64, [count]
 *   arrays           the field's dtype and shape behind count. Left out: more than 4 dimensions, more than 16 pages of
 *                    bytes, big-endian numbers and types that beton_dtype lacks
 *   bytes, JSON      uint8, [count, max_bytes], zeros behind the value; then "NAME.length", int64, [count]: its bytes;
 *                    with the option ragged uint8, [bytes of all], which may be 0; then "NAME.offsets", int64,
 *                    [count + 1]: value i is from [i] to [i + 1]. For arrays of many shapes: the format's arrays are of
 *                    one, but a bytes field holds what the user packs and unpacks
 * With a MIXUP or CUTMIX among batch_operations each INT or FLOAT is followed by "NAME.mixed", of its dtype: the
 * partner's; and these follow: "IMAGE.lambda", float32, [count]: the share of the sample itself, a multiple of 2^-14
 * with MIXUP (so the loss is lambda * loss(NAME) + (1 - lambda) * loss(NAME.mixed)); "IMAGE.partner", int64, [count]:
 * its row in the batch; with a CUTMIX, which takes the same box of all views and needs them of one size, "IMAGE.box",
 * int32, [count, 4]: x, y, width and height of what was taken from the partner. Of a batch that was not mixed: its own
 * values, 1, its own row, zeros. Last, with the option drawn, "IMAGE.drawn" ("IMAGE.1.drawn"... of further views),
 * float64, [count, 5 + 4 * num_operations]: the crop's x, y, width and height in pixels of the stored picture, 1 if it
 * was flipped at the end; then for each operation 1 if it was applied, and three numbers: of a kind with a range its
 * value; TRANSLATE and SHIFT x, y; CUTOUT x, y; ERASE x, y, area; COLOR_JITTER the factors of brightness, contrast and
 * saturation; RAND_AUGMENT and TRIVIAL_AUGMENT the last operation's number, its magnitude, and TRIVIAL_AUGMENT's bin.
 */
struct beton_batch {
	uint64_t epoch;
	uint64_t position; /* position in the global order of the batch's first global sample */
	uint32_t count;    /* samples in this batch, 1..batch_size */
	uint32_t bad;      /* samples that were left out (SKIP) or replaced (SUBSTITUTE) */
	uint32_t num_tensors;
	const beton_tensor *tensors;
	const uint64_t *sample_ids; /* [count], index in the file */
};

/* Totals since open. Times in nanoseconds, summed over threads. */
typedef struct beton_loader_stats {
	size_t struct_size; /* set by the caller to sizeof(beton_loader_stats) before the call */
	uint64_t batches;
	uint64_t samples;
	uint64_t errors;     /* batches that ended in an error */
	uint64_t bytes_read; /* blob bytes that workers consumed */
	/* Workers, by stage. */
	uint64_t order_ns;     /* which sample, and where it lies: order, metadata, allocation table */
	uint64_t submit_ns;    /* asking for the data, and copying what is in the page cache */
	uint64_t read_ns;      /* waiting for data */
	uint64_t verify_ns;    /* comparing checksums */
	uint64_t decode_ns;    /* JPEG decoding of crops; decompression */
	uint64_t transform_ns; /* resize, operations, last pass */
	uint64_t batch_ns;     /* what is done to a batch as a whole */
	uint64_t idle_ns;      /* waiting for a free slot: the consumer was late */
	/* The consumer. */
	uint64_t wait_ns;     /* it waited in beton_iterator_next: the data was late */
	uint64_t run_ns;      /* from the opening of each iterator to the last batch it gave */
	uint64_t bad_samples; /* each time that one was met */
	uint64_t read_ahead;  /* samples that a worker reads ahead now, on average, rounded up */
} beton_loader_stats;

/* What limits the speed. */
typedef enum beton_bottleneck {
	BETON_BOTTLENECK_UNKNOWN = 0,  /* too little has been delivered to say */
	BETON_BOTTLENECK_CONSUMER = 1, /* not the loader: batches are ready before they are asked for */
	BETON_BOTTLENECK_ORDER = 2,    /* else, what the workers spend most of their time with */
	BETON_BOTTLENECK_STORAGE = 3,
	BETON_BOTTLENECK_VERIFY = 4,
	BETON_BOTTLENECK_DECODE = 5,
	BETON_BOTTLENECK_TRANSFORM = 6,
	BETON_BOTTLENECK_SLOTS = 7, /* workers and consumer wait for each other: batches_ahead is too small */
} beton_bottleneck;

/* Where an epoch is: bytes to be stored with a checkpoint, little-endian, the same on every machine. Its size is part
 * of the ABI; what is in it is versioned. */
typedef struct beton_loader_state {
	uint8_t bytes[48];
} beton_loader_state;

typedef struct beton_loader beton_loader;

/* An epoch, or the rest of one, on its way to the consumer. */
typedef struct beton_iterator beton_iterator;

BETON_API void beton_loader_options_init(beton_loader_options *options);

/* Opens the file, checks the options (naming the bad one and its value) and starts the worker threads. Errors: those of
 * beton_reader_open, INVALID_ARGUMENT, NOT_FOUND (a field that an option names), SAMPLE_CORRUPT, IO, FILE_CHANGED (of
 * orders that read the file: BALANCED, QUASI_RANDOM), UNSUPPORTED_FIELD (no field that a batch could hold),
 * NO_MEMORY, SYSTEM (a thread did not start). options may be NULL: the defaults. */
BETON_API int beton_loader_open(beton_loader **out, const char *path, const beton_loader_options *options,
				beton_error *err);

/* The same for several files as one data set. Their fields must agree in name, type and shape. Sample numbers are
 * global: those of a file follow those of the file in front of it.
 * With weights, in every 65536 positions each file comes as often as its weight says, at places that are drawn; its
 * samples come in passes, each of which permutes them anew, as often as they are needed. The order must be RANDOM, and
 * an epoch has num_draws positions. It begins anywhere at once, as other orders do.
 * Errors: those of beton_loader_open, INVALID_ARGUMENT (no source, a bad weight), MISMATCH (naming files and field). */
BETON_API int beton_loader_open_many(beton_loader **out, const beton_source *sources, uint32_t num_sources,
				     const beton_loader_options *options, beton_error *err);

/* Which source a sample comes from, and its number in that file. Errors: INVALID_ARGUMENT (no such sample). */
BETON_API int beton_loader_locate(const beton_loader *loader, uint64_t sample, uint32_t *source, uint64_t *index,
				  beton_error *err);

/* Ends the loader's threads, closes its files and frees it; sets *loader to NULL, whatever is returned. Iterators and
 * leased batches outlive it, in any order of closing: batches stay valid until they are released; iterators, which are
 * still to be closed, answer STATE, also one that waits for its next batch in another thread.
 * Waits at most timeout_ms milliseconds (0: not at all; below 0: as long as it takes) for reads that are under way,
 * which nothing can take back from a file system that hangs. TIMEOUT: err says which read is late, or what else is.
 * Then the loader is left to its threads: when the reads have ended, the last of them frees the rest (threads, files,
 * read-ahead, and the batches that were being filled), after which nothing is left; should they never end, so much
 * stays until the process ends. Until then the library must not be unloaded, and nothing that was lent to the loader is
 * used any more but allocator's release. A call of one of the caller's functions that is under way is waited for as
 * long as it takes. In the child of a fork it sets *loader to NULL and no more. NULL is allowed. */
BETON_API int beton_loader_close_within(beton_loader **loader, int64_t timeout_ms, beton_error *err);

/* The same within 10 s; TIMEOUT is told to the option log. */
BETON_API void beton_loader_close(beton_loader **loader);

/* Begins an epoch at a position of the global order (0 = its start; a multiple of batch_size * world_size resumes after
 * whole batches, at any world size). Batches are prepared from here on. Several iterators share the workers; the batch
 * that is closest to its consumer comes first.
 * Errors: INVALID_ARGUMENT (position beyond the epoch's), STATE (the child of a fork), NO_MEMORY (for the batches of
 * one more iterator than there were at once so far, memory_limit included, or of orders that are drawn as a whole). */
BETON_API int beton_iterator_open(beton_iterator **out, beton_loader *loader, uint64_t epoch, uint64_t position,
				  beton_error *err);

/* The same at a state: the global sequence of samples is that of the unbroken epoch, also with another world size,
 * batch size, number of threads, engine, `last` or outputs. Errors: those of beton_iterator_open, FORMAT (no state, or
 * a damaged one), UNSUPPORTED_VERSION (of another release; what version 1 had of the data set was too little to know it
 * again, and the message tells epoch and position), MISMATCH (of another data set, or of other options of the order:
 * order, seed, indices, weights, class_field, window_pages; a callback is taken for the same).
 * A data set is the same if its files are, in their order, by beton_reader_fingerprint, whatever they are called: by
 * all of their content if they have checksums; of other files, such as FFCV's, by pieces of up to 384 KiB in all. */
BETON_API int beton_iterator_open_state(beton_iterator **out, beton_loader *loader, const beton_loader_state *state,
					beton_error *err);

/* The place behind the last batch that the consumer got (of all ranks, which have got as many): epoch, position, and
 * hashes of data set and order. Errors: STATE (the loader is closed, or this is the child of a fork). */
BETON_API int beton_iterator_get_state(const beton_iterator *iterator, beton_loader_state *out, beton_error *err);

/* Waits for the next batch, at most timeout_ms milliseconds (0: not at all; below 0: for ever).
 * BETON_OK: *out is leased; else it is NULL. BETON_END: no more batches in this epoch. TIMEOUT: err says how far the
 * batch is and, where a read is late, of which file, place and since when; nothing is lost. SAMPLE_CORRUPT, IO,
 * FILE_CHANGED, NO_MEMORY, NO_SPACE (option ragged), USER_ERROR, FORMAT (the dictionary of a compressed field is
 * damaged), INVALID_ARGUMENT (order_callback gave a number that is none): this batch is lost (err->sample says why),
 * the next call goes on with the one after it. STATE: the consumer holds batches_leased batches already, the loader is
 * closed, or this is the child of a fork. CANCELLED: see beton_iterator_cancel. A wait of 10 s, 20 s, 40 s ... is told
 * to the option log in the words of TIMEOUT. A batch reports its first bad sample. A JPEG is bad if it does not match
 * its checksum (option verify), if decoding the crop gives an error or a warning, if its size is not that of its
 * metadata, or if it has more than max_pixels; without a checksum what lies behind the crop is not looked at. Nothing
 * of one JPEG is used for another: without Huffman tables a sequential one has the standard's (ITU-T T.81, K.3), a
 * progressive one is bad, and so is any without its quantization tables. */
BETON_API int beton_iterator_next(beton_iterator *iterator, beton_batch **out, int64_t timeout_ms, beton_error *err);

/* Ends a wait of beton_iterator_next in another thread: that call and all later ones answer CANCELLED, whatever is
 * ready. For a consumer that is to stop while a file system hangs. Nothing else changes: beton_iterator_get_state still
 * tells the place behind the last batch that the consumer got, and leased batches stay leased. Any thread, at any time
 * until the iterator is closed, also after its loader is; not in a signal handler, for it takes a lock. NULL is
 * allowed; in the child of a fork it does nothing. */
BETON_API void beton_iterator_cancel(beton_iterator *iterator);

/* Leaves the epoch, finished or not, without waiting for what is under way; sets *iterator to NULL; NULL is allowed.
 * Before or after its loader is closed. Leased batches stay leased. */
BETON_API void beton_iterator_close(beton_iterator **iterator);

/* One more reference to a leased batch, for one more release. */
BETON_API void beton_batch_retain(beton_batch *batch);

/* Gives a reference back and sets *batch to NULL; NULL is allowed. The last one gives the batch back. */
BETON_API void beton_batch_release(beton_batch **batch);

/* A tensor of the batch for NumPy, PyTorch, JAX, CuPy...: a DLPack tensor (dlpack/dlpack.h, version 0.6) on the CPU
 * without a copy, which holds a reference to the batch until its deleter is called. bool is exported as uint8.
 * Errors: INVALID_ARGUMENT (no such tensor), NO_MEMORY. */
struct DLManagedTensor;
BETON_API int beton_batch_dlpack(beton_batch *batch, uint32_t tensor, struct DLManagedTensor **out, beton_error *err);

/* Samples of the data set; positions of an epoch's global order; batches that this rank gets from a whole epoch; the
 * sample at a position, UINT64_MAX beyond the end (or when there is no memory to draw the order as a whole). */
BETON_API uint64_t beton_loader_num_samples(const beton_loader *loader);
BETON_API uint64_t beton_loader_epoch_length(const beton_loader *loader);
BETON_API uint64_t beton_loader_num_batches(const beton_loader *loader);
BETON_API uint64_t beton_loader_sample_at(const beton_loader *loader, uint64_t epoch, uint64_t position);

/* The same for count positions at once, which is cheaper: what will come, for whoever plans ahead or keeps books.
 * Errors: INVALID_ARGUMENT (positions beyond the end, or a callback's number), NO_MEMORY. Any thread. */
BETON_API int beton_loader_samples_at(const beton_loader *loader, uint64_t epoch, uint64_t position, uint64_t count,
				      uint64_t *samples, beton_error *err);

/* The samples found bad so far, each once, in rising order: the first min(*count, capacity) of them. *count becomes
 * their number; beyond 65536 no more are listed. ids may be NULL if capacity is 0. */
BETON_API void beton_loader_bad_samples(const beton_loader *loader, uint64_t *ids, size_t capacity, size_t *count);

/* What limits the speed since open, and in words with its figures what would help: one line, NUL-terminated, cut to
 * size bytes (512 suffice). text may be NULL. */
BETON_API beton_bottleneck beton_loader_diagnose(const beton_loader *loader, char *text, size_t size);

/* The same of what was done since `before`, which beton_loader_get_stats gave of this loader. */
BETON_API beton_bottleneck beton_loader_diagnose_since(const beton_loader *loader, const beton_loader_stats *before,
						       char *text, size_t size);

BETON_API void beton_loader_get_stats(const beton_loader *loader, beton_loader_stats *stats);

/* The options in force, with defaults, number of threads, engine and filter filled in; valid until close. Arrays that
 * are borrowed until open returns are not kept: they are NULL, and their numbers 0. */
BETON_API const beton_loader_options *beton_loader_get_options(const beton_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
