/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of a dataset's classes, by which two files that were written apart can be told to number them alike. */
#ifndef ENGINE_TASKS_VISION_CLASS_NAMES_H
#define ENGINE_TASKS_VISION_CLASS_NAMES_H

#include <jansson.h>

#include <beton/beton.h>

/* err must not be NULL. *out: an array of strings, owned by the caller; element n is the name of label n. NULL: the
 * file has no names. Errors: beton_reader_facts's except NOT_FOUND; FORMAT, NO_MEMORY. */
int vision_class_names_load(const beton_reader *reader, json_t **out, beton_error *err);

/* A hash of the names and their order; 0: no names. names may be NULL. Errors: NO_MEMORY. */
int vision_class_names_hash(const json_t *names, uint64_t *out, beton_error *err);

/* Labels below `limit` that occur in --val must have the same name there as in --data. If either side has no names,
 * they are taken as equal. MISMATCH: the message names the files, the first label that differs and both names. */
int vision_class_names_compare(const char *data_path, const json_t *data, const char *val_path, const json_t *val,
			       const bool *used, int64_t limit, beton_error *err);

#endif
