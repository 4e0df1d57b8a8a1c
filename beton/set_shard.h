/* SPDX-License-Identifier: Apache-2.0
 *
 * A set's record of a .beton file, and its comparison with the file.
 */
#ifndef BETON_SET_SHARD_H
#define BETON_SET_SHARD_H

#include <beton/set.h>

/* Fills in all but path, name and first. Errors: beton_reader_fingerprint's. */
int bt_shard_describe(beton_shard *out, const beton_reader *reader, beton_error *err);

/* Takes over the file's fields into a set that has none. Errors: UNSUPPORTED_FIELD, NO_MEMORY. */
int bt_shard_give_fields(beton_set *set, const beton_reader *reader, beton_error *err);

/* MISMATCH naming the first field of the file at path that is another one than the set's, and the set's first shard. */
int bt_shard_compare_fields(const beton_set *set, const beton_field *fields, uint32_t count, const char *path,
			    beton_error *err);

/* The class names of a file. Zero-initialise; bt_shard_free_classes. */
typedef struct shard_classes {
	char **names;
	uint32_t count; /* 0: it has none */
} shard_classes;

/* Parses the facts of the file at path; NULL: it has none. Errors: FORMAT (not JSON, or their classes are not a list of
 * texts), NO_MEMORY. */
int bt_shard_parse_classes(shard_classes *out, const char *facts, const char *path, beton_error *err);

/* The same of an open file. Further errors: beton_reader_facts's. */
int bt_shard_read_classes(shard_classes *out, const beton_reader *reader, beton_error *err);
void bt_shard_free_classes(shard_classes *classes);

/* MISMATCH if both the set and the file at path have class names, and they differ. named_by: the shard, or the set,
 * whose names the set has. */
int bt_shard_compare_classes(const beton_set *set, const char *named_by, const shard_classes *classes, const char *path,
			     beton_error *err);

#endif
