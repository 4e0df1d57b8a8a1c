/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a batch.
 */
#ifndef BT_LOADER_OUTPUTS_H
#define BT_LOADER_OUTPUTS_H

#include <beton/beton.h>
#include <beton/loader.h>

#include "schema.h"

/* Alignment of every tensor's data. */
enum { BT_OUTPUT_ALIGNMENT = 64 };

/* The source of a tensor's content. */
typedef enum bt_output_kind {
	BT_OUTPUT_INT,
	BT_OUTPUT_FLOAT,
	BT_OUTPUT_IMAGE,
	BT_OUTPUT_ARRAY,
	BT_OUTPUT_GEOMETRY, /* an array of boxes or points; filled when the pictures of the sample are; so is the next
			     */
	BT_OUTPUT_KEPT,     /* the kept share of the rows of the output before */
	BT_OUTPUT_BYTES,
	BT_OUTPUT_LENGTH,  /* number of bytes in the output before */
	BT_OUTPUT_RAGGED,  /* bytes of all values, concatenated; see ragged.h */
	BT_OUTPUT_STORED,  /* likewise, of all pictures as they are stored */
	BT_OUTPUT_OFFSETS, /* of the values in the output before */
	BT_OUTPUT_SHAPE,   /* of stored pictures: height, width, mode */
	BT_OUTPUT_DRAWN,
	/* Outputs of a window of tokens. */
	BT_OUTPUT_INPUT,
	BT_OUTPUT_TARGET,
	BT_OUTPUT_SEGMENT,
	BT_OUTPUT_POSITION,
	/* Filled when all samples of the batch are done. */
	BT_OUTPUT_MIXED, /* the partner's value of the output before */
	BT_OUTPUT_LAMBDA,
	BT_OUTPUT_PARTNER,
	BT_OUTPUT_BOX,
	BT_OUTPUT_JOINED,
} bt_output_kind;

/* One tensor of every batch. */
typedef struct bt_output {
	bt_output_kind kind;
	char name[BETON_NAME_MAX + sizeof(".00.partner")];
	uint32_t field;      /* index in the file */
	uint32_t view;       /* of IMAGE, STORED, DRAWN and GEOMETRY */
	bool first;          /* the first output that is made from its read */
	int read;            /* index of the sample's read that it is made from; -1: none */
	beton_tensor tensor; /* without data, shape[0] = batch_size, and of the loader's size */
	bool whole;          /* filled as a whole, shape included, when the batch is complete */
	size_t sample_bytes; /* of a row, of pictures the largest; whole: 0 */
	size_t offset;       /* in a slot's memory; a multiple of BT_OUTPUT_ALIGNMENT, as the next two */
	size_t staging;      /* RAGGED, STORED: where values are kept until the batch is complete */
	size_t rows;         /* RAGGED, STORED: bt_ragged_rows */
	beton_dtype stored;  /* GEOMETRY: of the numbers in the file; so the next two */
	beton_geometry_kind geometry;
	beton_geometry_units units;
} bt_output;

/* Whether it holds concatenated values. */
static inline bool bt_is_ragged(const bt_output *output)
{
	return output->kind == BT_OUTPUT_RAGGED || output->kind == BT_OUTPUT_STORED;
}

/* Whether it holds pictures. */
static inline bool bt_is_image(const bt_output *output)
{
	return output->kind == BT_OUTPUT_IMAGE || output->kind == BT_OUTPUT_STORED;
}

typedef struct bt_outputs {
	bt_output *list;
	uint32_t count;
	int view_field[BETON_VIEWS_MAX]; /* of each view: index in the file; -1 without an image */
	int drawn[BETON_VIEWS_MAX];      /* of each view: its DRAWN output; -1 without */
	bool ragged;                     /* there is a RAGGED or STORED output */
	int lambda;                      /* the output of this kind; -1 without; so the next two */
	int partner;
	int box;
	int joined;
	uint32_t parts[BETON_JOINED_MAX]; /* the outputs that JOINED is made of */
	uint32_t num_parts;
	uint64_t stored_room; /* bytes of a batch's STORED pictures where options do not say it */
	uint32_t num_values;  /* that a look-up of a sample fills: the fields of the file, or parts of a window */
	uint32_t num_reads;   /* blobs that a sample's outputs need */
	uint32_t *read_value; /* [num_reads]: index of the value that is read, rising with the outputs */
	uint64_t *read_most;  /* [num_reads]: bytes of the largest stored value that the outputs can take; UINT64_MAX:
			       * what a page holds */
	size_t slot_bytes;    /* memory of one slot, sample ids included */
	size_t ids_offset;
} bt_outputs;

#define BT_OUTPUTS_NONE ((bt_outputs){.lambda = -1, .partner = -1, .box = -1, .joined = -1})

/* Chooses the outputs from the file's schema and the options. stored_room: bytes of a batch's stored pictures, unless
 * the options say how many. Errors: NOT_FOUND or INVALID_ARGUMENT (image.field),
 * UNSUPPORTED_FIELD (nothing in the file that a batch could hold), NO_MEMORY. */
int bt_outputs_init(bt_outputs *outputs, const bt_schema *schema, const beton_loader_options *options,
		    uint64_t stored_room, beton_error *err);
/* Chooses the outputs of windows that lie in up to `parts` values. Errors: NO_MEMORY. */
int bt_outputs_init_windows(bt_outputs *outputs, const char *path, uint32_t parts, const beton_loader_options *options,
			    beton_error *err);
void bt_outputs_free(bt_outputs *outputs);

/* The tensor of a picture's output, without name and data. */
beton_tensor bt_outputs_describe_image(const beton_image_options *image, uint32_t channels, uint32_t batch_size);

#endif
