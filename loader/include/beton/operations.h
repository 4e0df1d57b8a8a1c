/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on pictures and on batches of libbeton-loader, and what moves with pixels: a part of <beton/loader.h>.
 */
#ifndef BETON_OPERATIONS_H
#define BETON_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations on a picture after crop and resize, and before flip (image.flip_probability), normalization and layout.
 * Colours follow torchvision's functions for uint8 tensors, which are FFCV's too where FFCV has them; shapes follow
 * torchvision's on Pillow images. Each kind uses the members named here, and ignores the others. A number is drawn
 * uniformly from range {a, b} for each picture, except for SHIFT. Grey pictures (image.color) have one channel, whose
 * fill is fill[0] and whose noise is of mean[0] and std[0]; SATURATION, HUE, GRAYSCALE and their jitters are refused
 * with them, and the Color of RAND_AUGMENT and TRIVIAL_AUGMENT leaves them as they are, as in torchvision. Rasters may
 * have FLIP_HORIZONTAL, FLIP_VERTICAL, TRANSLATE, SHIFT, ROTATE without bilinear, CUTOUT, ERASE without noise, all with
 * a fill of 0, and CUSTOM. */
typedef enum beton_operation_kind {
	BETON_FLIP_HORIZONTAL = 0,
	BETON_FLIP_VERTICAL = 1,
	BETON_TRANSLATE = 2, /* size, padding, fill: moved by -size .. size pixels along each axis. FFCV's
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
	BETON_SHARPNESS = 17, /* range (factor, >= 0) */
	BETON_BLUR = 18, /* size (of the kernel: odd, up to BETON_BLUR_MAX, and size / 2 less than the picture's shorter
			    side), range (sigma in pixels, > 0). GaussianBlur */
	BETON_RAND_AUGMENT = 19,    /* count (operations, 1..14), size (magnitude, 0..30). RandAugment with 31 bins,
				       nearest pixels and its 14 operations; fill */
	BETON_TRIVIAL_AUGMENT = 20, /* TrivialAugmentWide with 31 bins, nearest pixels; fill */
	BETON_POISON = 21, /* mask, alpha, indices: pixel * (1 - alpha) + mask * alpha for the samples listed. FFCV's
			      Poison */
	BETON_CUSTOM = 22, /* apply, context */
	BETON_SHIFT =
		23, /* range, padding, fill: moved by range[0] pixels to the right and range[1] down (whole numbers,
		       -65535..65535; below 0: left, up), always the same; for views of test-time augmentation */
} beton_operation_kind;

/* Largest size of a blur's kernel. */
#define BETON_BLUR_MAX 127
#define BETON_OPERATIONS_MAX 64

/* The pixels that a translation uncovers. */
typedef enum beton_padding {
	BETON_PADDING_FILL = 0,
	BETON_PADDING_EDGE = 1,
	BETON_PADDING_REFLECT = 2, /* mirrored without repeating the edge; size must be less than the shorter side, a
				      shift less than the side along its direction */
} beton_padding;

/* One picture, for the user's operation. */
typedef struct beton_operation_call {
	void *context;
	uint8_t *pixels; /* height x width x channels, packed; to be changed in place */
	uint32_t height;
	uint32_t width;
	uint32_t view; /* index in the option views; 0 without */
	uint64_t epoch;
	uint64_t sample;     /* sample id */
	uint64_t random[2];  /* drawn for this picture and operation; a generator seeded with it gives the same results
				for any number of threads */
	uint32_t channels;   /* 3: RGB; 1: grey (image.color); of rasters the field's */
	uint32_t item_bytes; /* of a sample: 1; of rasters of 16 bits 2, so that pixels are uint16_t */
} beton_operation_call;

/* Initialise with beton_loader_operation_init. */
typedef struct beton_operation {
	beton_operation_kind kind;
	uint32_t size;
	uint32_t count;
	beton_padding padding;
	bool bilinear;
	bool noise; /* ERASE: each byte is mean[c] + std[c] * a normal number of at most 2.9 standard deviations. After
		       normalization that is torchvision's value='random' */
	uint8_t fill[3];    /* RGB; default black */
	double probability; /* of applying it to a picture, 0..1 */
	double range[2];    /* minimum and maximum */
	double ratio[2];
	double jitter[4];
	/* height x width x channels, 0..255; borrowed until the loader is closed, like the next three */
	const float *mask;
	const float *alpha;      /* height x width, 0..1 */
	const uint64_t *indices; /* sample ids, rising */
	size_t num_indices;
	/* Called by several worker threads at once. A result other than 0 makes the sample fail with BETON_USER_ERROR
	 * and this number in the message. */
	int (*apply)(const beton_operation_call *call);
	void *context;
	uint64_t reserved[4]; /* 0 */
} beton_operation;

/* Sets the kind, with the defaults of torchvision or FFCV: probability 0.5, or 1 for operations that they always apply
 * (TRANSLATE, ROTATE, CUTOUT, COLOR_JITTER, BLUR, RAND_AUGMENT, TRIVIAL_AUGMENT, POISON, CUSTOM, SHIFT); range {1, 1}
 * of factors, {0, 0} of HUE, ROTATE and SHIFT, {0.02, 0.33} and ratio {0.3, 3.3} of ERASE, sigma {0.1, 2} and size 3 of
 * BLUR; magnitude 9 and count 2 of RAND_AUGMENT; threshold 128 of SOLARIZE; 8 bits of POSTERIZE. */
BETON_API void beton_loader_operation_init(beton_operation *operation, beton_operation_kind kind);

typedef struct beton_batch beton_batch;

/* Operations on a batch whose samples are all done. MIXUP and CUTMIX mix each sample with a partner, the next sample in
 * a random ring of the batch. At most one MIXUP or CUTMIX of a list is applied to a batch, each with its probability;
 * the sum of their probabilities is at most 1. Further outputs describe how labels were mixed: see beton_batch.
 * Draws depend on seed, epoch, and the position of the batch's first sample in the order. They are the same for any
 * number of threads, and in an epoch that is resumed after whole batches. Another batch size or world size gives other
 * partners. */
typedef enum beton_batch_operation_kind {
	/* pixel * lambda + partner's pixel * (1 - lambda), lambda drawn from Beta(alpha, alpha): bytes are rounded to
	 * nearest, half up; floats are computed in FLOAT32 and rounded to nearest even for the narrower types. */
	BETON_BATCH_MIXUP = 0,
	/* Copies a box from the partner: at a random place, with the picture's proportions and 1 - lambda of its area.
	 * The part outside the picture is cut off, and lambda becomes the share of the picture that is kept. */
	BETON_BATCH_CUTMIX = 1,
	BETON_BATCH_CUSTOM = 2, /* apply, context */
} beton_batch_operation_kind;

/* Operations on a batch. */
#define BETON_BATCH_OPERATIONS_MAX 16

/* One batch, for the user's operation, which may change the tensors' data. */
typedef struct beton_batch_call {
	void *context;
	const beton_batch *batch;
	uint64_t random[2]; /* drawn for this batch and operation, as for beton_operation_call */
} beton_batch_call;

/* Initialise with beton_loader_batch_operation_init. */
typedef struct beton_batch_operation {
	beton_batch_operation_kind kind;
	bool per_sample;    /* MIXUP, CUTMIX: lambda (and the box) drawn for each sample instead of each batch */
	double alpha;       /* above 0, at most 1000 */
	double probability; /* of applying it to a batch, 0..1 */
	/* Called by worker threads, for several batches at once. A result other than 0 makes the batch fail with
	 * BETON_USER_ERROR and this number in the message. The function must not keep a reference to the batch. */
	int (*apply)(const beton_batch_call *call);
	void *context;
	uint64_t reserved[4]; /* 0 */
} beton_batch_operation;

/* Sets the kind, with alpha 1 and probability 1. */
BETON_API void beton_loader_batch_operation_init(beton_batch_operation *operation, beton_batch_operation_kind kind);

/* The meaning of an array's rows. */
typedef enum beton_geometry_kind {
	BETON_BOXES_XYXY = 0, /* 4 numbers: left, top, right, bottom */
	BETON_BOXES_XYWH = 1, /* 4 numbers: left, top, width, height */
	BETON_POINTS = 2,     /* 2 numbers: x, y; or 3: the third (a visibility, say) stays as it is */
} beton_geometry_kind;

/* The units of coordinates. */
typedef enum beton_geometry_units {
	BETON_UNITS_PIXELS = 0, /* of the picture as it is stored; in batches, of the output */
	BETON_UNITS_SHARES = 1, /* 0..1 of its width and height; in batches, of the output's */
} beton_geometry_units;

/* Boxes or points, in an array field of any numeric type and of shape [..., numbers of a row], that move as the pixels
 * of a picture do: with crop, resize, flip, and the operations FLIP_HORIZONTAL, FLIP_VERTICAL, TRANSLATE, SHIFT,
 * ROTATE, RAND_AUGMENT and TRIVIAL_AUGMENT (all others, CUSTOM too, are taken to leave pixels where they are). Numbers
 * are places: pixel i reaches from i to i + 1, and its centre is i + 0.5. A file whose points are numbers of pixels, as
 * COCO's keypoints are, needs 0.5 added to them before it is written. The field's output is float32 then, computed in
 * float64, and is followed by "NAME.kept": see beton_batch.
 * After each step a box is the smallest one around its four corners, cut off at the picture's edges, as in
 * torchvision's transforms.v2. Its `kept` is the share of its area that is left, multiplied over the steps; where
 * nothing is left the row is zeros. Points are not cut off: their kept is 1, or 0 if they were beyond an edge after any
 * step. A row that pads the array is output as it is, with a kept of 0: a box without area (all zeros, or all -1), a
 * point neither of whose x and y is above 0, and a row with a number that is not from -2^31 to 2^31.
 * No draw depends on these options. MIXUP and CUTMIX leave the rows: the partner's rows are in row
 * "IMAGE.partner". */
typedef struct beton_geometry {
	const char *field; /* borrowed until open returns; may be listed again for another view */
	beton_geometry_kind kind;
	beton_geometry_units units;
	uint32_t view;        /* index in the option views; 0 without. The view must be an output */
	uint64_t reserved[4]; /* 0 */
} beton_geometry;

/* Arrays of boxes or points. */
#define BETON_GEOMETRY_MAX 64

#ifdef __cplusplus
}
#endif

#endif
