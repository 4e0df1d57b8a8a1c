/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of a dataset's classes, by which two files that were written apart can be told to number them alike. */
#ifndef VISION_CLASS_NAMES_H
#define VISION_CLASS_NAMES_H

#include <jansson.h>

#include <beton/beton.h>

/* err is not NULL. *out: an array of texts, the name of label n at n, the caller's; NULL: the file has no names.
 * Errors: those of beton_reader_facts but NOT_FOUND, FORMAT, NO_MEMORY. */
int vision_class_names_load(const beton_reader *reader, json_t **out, beton_error *err);

/* A hash of the names in their order; 0: there are none. names may be NULL. Errors: NO_MEMORY. */
int vision_class_names_hash(const json_t *names, uint64_t *out, beton_error *err);

/* Labels below `limit` that are used in --val must have the same name there as in --data. Without names on either side
 * they are taken to mean the same. MISMATCH: the message names files, label and names of the first that has not. */
int vision_class_names_compare(const char *data_path, const json_t *data, const char *val_path, const json_t *val,
			       const bool *used, int64_t limit, beton_error *err);

#endif
