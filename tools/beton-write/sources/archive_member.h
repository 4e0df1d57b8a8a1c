/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of members of tar files, and their bytes. */
#ifndef BETON_WRITE_ARCHIVE_MEMBER_H
#define BETON_WRITE_ARCHIVE_MEMBER_H

#include <stdbool.h>

#include "archive_input.h"
#include "source.h"

/* The name without a leading "./". */
const char *member_path(const char *name);

/* Bytes up to the first dot of the last part: members for which these are the same are one sample of WebDataset's. */
size_t member_key_length(const char *path);

/* The folder of a member, "" for none; new memory, or NULL. */
char *member_folder(const char *path);

/* Whether it ends as a picture that can be read does. */
bool member_is_picture(const char *path);

/* Whether it describes the archive, like WebDataset's __name__, and belongs to no sample. */
bool member_is_meta(const char *path);

/* Describes a member without bytes and, for a link, how to make an archive with bytes instead: "a hard link to
 * 'cat/1.png'; ...". The caller frees it; NULL: out of memory. */
char *member_describe(const archive_member *member);

/* Reads the member to value, as RAW_FILE. *bytes: size of the sample so far, to which the member's is added. Memory
 * grows with the bytes read, because the size in the archive is only a claim. Errors: SAMPLE_CORRUPT (the sample has
 * more than FILE_BYTES_MAX bytes), NO_MEMORY, and archive_input_read's. name: for messages. */
int member_read(archive_input *input, const char *name, uint64_t *bytes, raw_value *value, beton_error *err);

#endif
