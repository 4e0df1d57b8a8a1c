/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps columns of a source to fields of the dataset.
 */
#ifndef BETON_WRITE_FIELDS_H
#define BETON_WRITE_FIELDS_H

#include "tools/beton-write/sources/source.h"

/* Field i takes its value from column columns[i]. */
typedef struct field_plan {
	beton_field *fields;
	uint32_t *columns;
	bool *classes; /* an integer for each name in the column */
	bool *guessed; /* the type is what the column looks like */
	char **first;  /* of a raster the file whose type all others must have; else NULL */
	uint32_t count;
} field_plan;

/* The value of --fields that gives the plan's fields, but takes column for field `changed` of type:
 * "image,score:float". The caller frees it; NULL: no memory. */
char *field_plan_text(const field_plan *plan, const source *from, uint32_t changed, const char *type);

/* Plans the fields that text (--fields: NAME[=COLUMN][:TYPE],...) asks for, or, if it is NULL, the source's default
 * fields, and marks the wanted columns of the source. If the type of an array or a raster is read from the first item,
 * that item must be good, unless bad ones are left out: then the first good item of a thousand decides. Errors:
 * INVALID_ARGUMENT (text, or a value that cannot be of that type), and errors of reading an item. The caller frees the
 * plan, on failure too. */
int field_plan_make(field_plan *plan, const char *text, source *from, beton_error *err);

/* Tells a second source of the same kind which columns are wanted. Errors: INVALID_ARGUMENT (it has other columns). */
int field_plan_apply(const field_plan *plan, const source *planned, source *other, beton_error *err);

/* Whether --fields takes the column of that name, or text is NULL. */
bool field_text_names(const char *text, const char *column);

void field_plan_free(field_plan *plan);

#endif
