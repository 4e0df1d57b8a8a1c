/* SPDX-License-Identifier: Apache-2.0
 *
 * The class names of the sources of a data set, which must be the same.
 */
#ifndef BT_LOADER_CLASS_NAMES_H
#define BT_LOADER_CLASS_NAMES_H

#include <stdbool.h>

#include <beton/set.h>

/* The names of the first source that has some. Zero-initialise; bt_class_names_free. */
typedef struct bt_class_names {
	const char *path;     /* of that source; borrowed */
	const beton_set *set; /* that source, if it is a set; borrowed */
	char **list;          /* else its names; a block of beton_reader_classes */
	uint32_t count;       /* 0: no source had names */
} bt_class_names;

/* Compares the names of a source with those before. Without names it agrees with all. set: NULL: reader is the source.
 * Errors: MISMATCH, which names both sources; all errors of beton_reader_classes. */
int bt_class_names_agree(bt_class_names *self, const beton_set *set, const beton_reader *reader, beton_error *err);

void bt_class_names_free(bt_class_names *self);

#endif
