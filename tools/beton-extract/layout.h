/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that a sample is extracted to, and their names.
 *
 * classes: CLASS/NAME.jpg, as beton-write reads a folder: the picture and the label, nothing else.
 * samples: KEY.jpg, KEY.cls, KEY.FIELD.npy ..., like WebDataset: every field, in one folder.
 *
 * NAME and KEY follow from the source of the sample (naming.h); without sources, or where two samples would have one
 * name, they are the sample's number with leading zeros. Names from the dataset cannot lead out of the target: see
 * text_file_name.
 */
#ifndef BETON_EXTRACT_LAYOUT_H
#define BETON_EXTRACT_LAYOUT_H

#include <jansson.h>

#include "content.h"
#include "target.h"
#include "tools/common/selection.h"

/* Least digits of a number as NAME or KEY. */
enum { LAYOUT_KEY_DIGITS = 8 };

typedef enum layout_kind { LAYOUT_AUTOMATIC, LAYOUT_CLASSES, LAYOUT_SAMPLES } layout_kind;

typedef struct layout {
	dataset_input *in;
	const beton_reader *schema; /* its fields */
	layout_kind kind;           /* never AUTOMATIC after layout_open */
	int picture;                /* the only field of pictures, or the one named 'image'; -1: none */
	int label;                  /* the field that holds the class, or -1 */
	int key_digits;
	char **fields;     /* samples: names of fields as parts of file names */
	json_t *facts;     /* classes: the names */
	bool numbers;      /* classes: folders are called by numbers */
	bool sources;      /* files have the names of the samples' sources */
	bool sources_fail; /* they have not, as two samples would have one name, or one has none */
	int label_digits;
	uint64_t used_classes; /* classes: of the selection */
	uint64_t renumbered;   /* labels of the selection that would change when beton-write reads the folders */
	beton_value *values;
	content content;
} layout;

/* The user's options. */
typedef struct layout_request {
	layout_kind kind;
	bool class_numbers; /* number the folders even if classes have names */
	bool file_numbers;  /* number the files even if samples have sources */
} layout_request;

/* Chooses the layout from the dataset and, for numbered class folders, from the labels of the selection. The caller
 * frees self, on failure too. Errors: INVALID_ARGUMENT (CLASSES without pictures or labels, two classes of one name),
 * NO_MEMORY, and errors of reading. */
int layout_open(layout *self, dataset_input *in, const layout_request *request, const selection *chosen,
		beton_error *err);
void layout_free(layout *self);

/* Adds the files of one sample to target; *bytes: what they hold. */
int layout_add(layout *self, uint64_t sample, extract_target *target, uint64_t *bytes, beton_error *err);

/* Whether the field is not extracted. */
bool layout_leaves_out(const layout *self, uint32_t field);

/* The number of classes whose names are not extracted. Errors: facts_load's. */
int layout_lost_names(const layout *self, uint64_t *count, beton_error *err);

#endif
