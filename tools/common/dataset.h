/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries of the tools about an open dataset.
 */
#ifndef TOOLS_DATASET_H
#define TOOLS_DATASET_H

#include <beton/beton.h>

const char *dataset_mode_name(beton_image_mode mode);

/* The field that holds the class: the integer field named 'label', else the first integer field; -1 if there is none.
 */
int dataset_label_field(const beton_reader *reader);

/* The field named 'image' if it holds pictures, else the only one that does; -1: there is none, or there are several.
 */
int dataset_picture_field(const beton_reader *reader);

/* INVALID_ARGUMENT: no field has that name; the message names the most similar one. */
int dataset_no_field(const beton_reader *reader, const char *name, beton_error *err);

/* INVALID_ARGUMENT naming the first difference between the two schemas: names, types, shapes and order. */
int dataset_check_same_schema(const beton_reader *first, const beton_reader *other, beton_error *err);

/* Reads the stored bytes of a value into *buffer of *capacity bytes, which grows as needed. */
int dataset_read(const beton_reader *reader, const beton_value *value, uint8_t **buffer, uint64_t *capacity,
		 beton_error *err);

#endif
