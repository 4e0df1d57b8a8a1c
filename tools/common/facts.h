/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a dataset, mainly the names of its classes: "classes" is an array of names, and label n means its n-th
 * element.
 */
#ifndef TOOLS_FACTS_H
#define TOOLS_FACTS_H

#include <jansson.h>

#include <beton/beton.h>

/* *out: the facts, an empty object without any; the caller's, NULL on failure. Errors: FORMAT ("classes" is not an
 * array of texts), and beton_reader_facts's except NOT_FOUND. */
int facts_load(json_t **out, const beton_reader *reader, beton_error *err);

/* The number of classes that have names. */
uint64_t facts_num_classes(const json_t *facts);

/* The name of a label, or NULL; lives as long as facts. */
const char *facts_class_name(const json_t *facts, int64_t label);

/* The label of the only class of that name. INVALID_ARGUMENT: there is none, or there are several. */
int facts_find_class(const json_t *facts, const char *name, int64_t *label, beton_error *err);

/* *out: the text for a copy of (a part of) the dataset, which is everything but the name of its writer. The caller
 * frees it; NULL on failure. Errors: facts_load's. */
int facts_copy(char **out, const beton_reader *reader, beton_error *err);

#endif
