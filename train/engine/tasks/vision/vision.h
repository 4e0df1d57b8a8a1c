/* SPDX-License-Identifier: Apache-2.0
 *
 * The task of telling the classes of pictures. */
#ifndef ENGINE_TASKS_VISION_VISION_H
#define ENGINE_TASKS_VISION_VISION_H

#include "engine/task.h"

typedef enum vision_fill {
	VISION_FILL_MEAN = 0,
	VISION_FILL_REFLECT = 1,
} vision_fill;

typedef enum vision_auto_augment {
	VISION_AUTO_NONE = 0,
	VISION_AUTO_RAND = 1,
	VISION_AUTO_TRIVIAL = 2,
} vision_auto_augment;

typedef enum vision_erase {
	VISION_ERASE_MEAN = 0,
	VISION_ERASE_NOISE = 1,
} vision_erase;

typedef enum vision_tta {
	VISION_TTA_NONE = 0,
	VISION_TTA_FLIP = 1, /* adds the mirror image's logits */
	/* Averages two means with equal weight: that over the picture and its mirror image, and that over both moved by
	 * one pixel along both axes, in either direction. */
	VISION_TTA_FLIP_SHIFT = 2,
} vision_tta;

typedef enum vision_loss {
	VISION_LOSS_CROSS_ENTROPY = 0,
	VISION_LOSS_BCE = 1, /* binary cross entropy of each output */
	VISION_LOSS_MSE = 2,
} vision_loss;

/* The content of the label field, given the loss. */
typedef enum vision_kind {
	VISION_CLASSES,       /* a class for each picture */
	VISION_PROBABILITIES, /* of the classes */
	VISION_LABELS,        /* 0 or 1 for each label */
	VISION_NUMBERS,
	VISION_KINDS,
} vision_kind;

/* engine_data.outputs is one of these. */
extern const engine_outputs vision_outputs[VISION_KINDS];

typedef struct vision_options {
	const char *image_field; /* NULL: "image", or the first picture field */
	/* Names with commas between them; NULL: "label", or the first integer field, or with MSE the first field of
	 * numbers */
	const char *label_field;
	bool ignore_classes;  /* several files may have other names of classes */
	int loss;             /* vision_loss */
	double bce_threshold; /* 0: none */
	int64_t ignore_label; /* negative: a picture with this label has no loss; 0: none */
	double drop_path;     /* in place of the transformer's own; below 0: that */
	int64_t classes;      /* 0: the number of classes in the data */
	int64_t image_size;   /* side length in pixels */
	int crop;             /* beton_crop */
	double crop_scale[2];
	double crop_ratio[2];
	double val_ratio;
	double flip;
	int flip_mode;      /* beton_flip_mode */
	int64_t translate;  /* pixels */
	int translate_fill; /* vision_fill */
	int64_t cutout;     /* pixels */
	int auto_augment;   /* vision_auto_augment */
	int64_t ra_ops;
	int64_t ra_magnitude;
	double color_jitter[4]; /* brightness, contrast, saturation, hue; 0: not */
	double grayscale;       /* these three: chance for each picture */
	double vertical_flip;
	double random_erase;
	int erase_mode; /* vision_erase */
	double mixup;   /* alpha; 0: none */
	double cutmix;  /* alpha; 0: none */
	int tta;        /* vision_tta */
	double mean[3];
	double std[3];
	double whiten_bias_epochs;
	const char *weights;     /* of an evaluation alone: the file of weights, for messages; NULL: training */
	const char *outputs;     /* of an evaluation alone: the key of what the weights compute; NULL: not known */
	const char *class_names; /* a JSON array: the names of its classes; NULL: not known */
} vision_options;

/* Indices of engine_dataset.fields and engine_network.inputs. Without a field of labels an evaluation has only logits.
 */
enum { VISION_IMAGE = 0, VISION_LABEL = 1 };

extern const engine_task vision_task;

/* Finds the field with the pictures. Errors: NOT_FOUND, MISMATCH; the message lists the fields. */
int vision_find_image(const beton_reader *reader, const vision_options *options, char out[BETON_NAME_MAX + 1],
		      beton_error *err);

/* INVALID_ARGUMENT: mean or standard deviation are on the scale 0 .. 1, as recipes of other programs have them. */
int vision_check_scale(const double mean[3], const double std[3], beton_error *err);

/* The logits of a sample of an evaluated batch, [classes]. results: as for engine_task.add_batch. room: [classes], for
 * logits that are not float. */
const float *vision_logits(const engine_rank *engine, void *const *results, uint32_t index, float *room);

#endif
