/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a dataset that is merged from several.
 */
#ifndef TOOLS_MERGED_H
#define TOOLS_MERGED_H

#include <jansson.h>

#include <beton/beton.h>

/* Zero-initialise. */
typedef struct merged_facts {
	bool remap;      /* classes of one name get one number; else names must agree */
	json_t *common;  /* the facts that all inputs have, without the classes */
	json_t *classes; /* array of names; NULL: none has names */
	json_t *numbers; /* remap: name -> number */
	char *named_by;  /* the first input with names */
} merged_facts;

/* Adds an input. Without remap, inputs must agree on the names of classes; an input without names is assumed to use the
 * same numbers. Errors: INVALID_ARGUMENT (names differ; remap: no names, or one twice), NO_MEMORY, and facts_load's. */
int merged_add(merged_facts *self, const beton_reader *reader, beton_error *err);

/* *to: the new numbers of an added input's *count classes; the caller's to free. */
int merged_map(const merged_facts *self, const beton_reader *reader, int64_t **to, uint64_t *count, beton_error *err);

/* The facts as an object, and as text; the caller's. NULL: no memory. */
json_t *merged_object(const merged_facts *self);
char *merged_text(const merged_facts *self);

void merged_free(merged_facts *self);

#endif
