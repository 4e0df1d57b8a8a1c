/* SPDX-License-Identifier: Apache-2.0
 *
 * A parsed condition. */
#ifndef TOOLS_CONDITION_TREE_H
#define TOOLS_CONDITION_TREE_H

#include <stddef.h>

#include "condition.h"

enum { CONDITION_SUBJECT_MAX = BETON_NAME_MAX + 8 }; /* a field's name and ".height" */

typedef enum condition_kind { CONDITION_AND, CONDITION_OR, CONDITION_NOT, CONDITION_COMPARISON } condition_kind;

typedef enum condition_relation {
	CONDITION_LESS,
	CONDITION_LESS_EQUAL,
	CONDITION_GREATER,
	CONDITION_GREATER_EQUAL,
	CONDITION_EQUAL,
	CONDITION_NOT_EQUAL,
	CONDITION_LIKE,
} condition_relation;

typedef enum condition_subject {
	SUBJECT_INTEGER, /* an integer field */
	SUBJECT_REAL,
	SUBJECT_TEXT, /* a field of bytes */
	SUBJECT_JSON,
	SUBJECT_WIDTH,
	SUBJECT_HEIGHT,
	SUBJECT_BYTES,
	SUBJECT_SOURCE,
	SUBJECT_SAMPLE,
} condition_subject;

/* The right side of a comparison. */
typedef struct condition_value {
	char *text; /* NULL: a number */
	bool whole; /* the number is one that `integer` holds exactly */
	int64_t integer;
	double real;
} condition_value;

struct condition {
	condition_kind kind;
	condition *left; /* of AND, OR and NOT */
	condition *right;
	/* COMPARISON: holds if the relation holds for one of the values, which are several for `in`. */
	char name[CONDITION_SUBJECT_MAX + 1];
	condition_relation relation;
	condition_value *values;
	size_t num_values;
	condition_subject subject; /* from condition_bind on */
	uint32_t field;
};

#endif
