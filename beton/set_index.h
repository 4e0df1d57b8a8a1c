/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a set of shards in memory, and as text: docs/format.md, "Sets of shards".
 */
#ifndef BETON_SET_INDEX_H
#define BETON_SET_INDEX_H

#include <beton/set.h>

/* Constant after open. */
struct beton_set {
	char *path;
	size_t folder; /* bytes of path that are its folder, with the '/' */
	beton_set_info info;
	beton_field *fields; /* [info.num_fields] */
	char **classes;      /* [info.num_classes] */
	beton_shard *shards; /* [info.num_shards] of room for `room`; they own path, whose end is name */
	uint32_t room;
	bool foreign; /* the text has members that this version does not know */
};

/* path: see beton_set_parse. *out is NULL on failure. Errors: INVALID_ARGUMENT (how path ends), NO_MEMORY. */
int bt_set_new(beton_set **out, const char *path, beton_error *err);

/* Adds a shard to the end: computes path and first, and counts it. facts: the other members; name is copied. Errors:
 * FORMAT (a name that is not allowed, a number that does not agree with another, too many shards or samples),
 * NO_MEMORY. */
int bt_set_add(beton_set *self, const beton_shard *facts, beton_error *err);

/* Copies the list of class names, if there is none so far. Errors: NO_MEMORY. */
int bt_set_name_classes(beton_set *self, char *const *classes, uint32_t count, beton_error *err);

/* *name: one that two shards have, or NULL. Errors: NO_MEMORY. */
int bt_set_find_twice(const beton_set *self, const char **name, beton_error *err);

/* Checks a field as the writer of a shard does, and sets item_size. Errors: FORMAT. */
int bt_set_check_field(const beton_set *self, uint32_t number, beton_error *err);

/* Fills in a new set from an index's text. Errors: FORMAT, UNSUPPORTED_VERSION, UNSUPPORTED_FIELD, NO_MEMORY. */
int bt_set_read_text(beton_set *self, const char *text, size_t size, beton_error *err);

/* The index's text: new memory of *size bytes, the caller's. Errors: INVALID_ARGUMENT (it would be larger than
 * BETON_SET_INDEX_MAX), NO_MEMORY. */
int bt_set_make_text(const beton_set *self, char **out, size_t *size, beton_error *err);

#endif
