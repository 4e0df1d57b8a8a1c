/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses the kind of a wrong file, for messages. */
#ifndef BT_FILE_KIND_H
#define BT_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a file's beginning that tell its kind. */
enum { BT_FILE_HEAD = 512 };

/* Both are static texts. */
typedef struct bt_file_kind {
	const char *what; /* "a safetensors file" */
	const char *use;  /* which program takes it: "dtrain-ffcv takes it with --init" */
} bt_file_kind;

/* head: the first `size` bytes of the file, BT_FILE_HEAD or all of them. NULL: no kind that is known. */
const bt_file_kind *bt_file_kind_of(const char *path, const void *head, size_t size);

bool bt_file_kind_is_safetensors(const bt_file_kind *kind);

/* The kind of a folder. */
const bt_file_kind *bt_file_kind_folder(void);

#endif
