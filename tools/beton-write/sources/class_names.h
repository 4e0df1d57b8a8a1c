/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of classes in a column of a table: the different texts in the order of their bytes, as folders would be.
 */
#ifndef BETON_WRITE_CLASS_NAMES_H
#define BETON_WRITE_CLASS_NAMES_H

#include "source.h"
#include "tools/beton-write/fields.h"

/* Most classes that a column may name. */
enum { CLASSES_MAX = 1000000 };

/* If a field of the plan takes classes (type `class`), reads that column of all items, and makes their names from's
 * classes. Labels thus depend on the table alone, and not on the selection. Empty and missing values, and rows that are
 * bad, have no class. Errors: INVALID_ARGUMENT (two such fields, a field that is not the label, too many names, a
 * source that is not a table), NO_MEMORY, CANCELLED, and errors of reading. */
int class_names_read(source *from, const field_plan *plan, const atomic_int *interrupt, beton_error *err);

/* The class that the value of a cell names: its text. -1: none of classes. */
int64_t class_names_find(const name_list *classes, const raw_value *raw);

#endif
