/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_ERROR_H
#define BT_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

/* Fills err (NULL allowed) and returns code, so that a failing function can `return bt_fail(...)`. A message that does
 * not fit is cut; line breaks and control characters are replaced. */
BETON_PRINTF(3, 4) int bt_fail(beton_error *err, int code, const char *format, ...);

/* Replaces control characters, and bytes that are not UTF-8, by '?': what is printed may come from a file. */
void bt_sanitize(char *text);

/* bt_fail for a failed system call: the code comes from error_number (ENOENT -> NOT_FOUND ...), whose text is appended.
 * If a missing file's path is a URL, the text says that URLs are not supported. */
BETON_PRINTF(3, 4) int bt_fail_errno(beton_error *err, int error_number, const char *format, ...);

/* Whether one of the pointers is NULL that a public function needs: fills err, naming the function and the first such
 * argument. The code is INVALID_ARGUMENT. */
#define BT_MISSING(err, ...)                                                        \
	bt_missing(err, __func__, #__VA_ARGS__, (const void *const[]){__VA_ARGS__}, \
		   sizeof((const void *const[]){__VA_ARGS__}) / sizeof(const void *))

/* BT_MISSING calls it. names: of the arguments, as in the call. */
bool bt_missing(beton_error *err, const char *function, const char *names, const void *const *given, size_t count);

/* Whether a path, or a message about one, names a URL: "s3://bucket/train.beton: cannot open". */
bool bt_names_url(const char *text);

/* bt_fail for one sample. */
BETON_PRINTF(4, 5) int bt_fail_sample(beton_error *err, int code, int64_t sample, const char *format, ...);

/* Puts "text: " before the message that a callee has filled. err may be NULL, so callers must keep the code. */
BETON_PRINTF(2, 3) void bt_prefix(beton_error *err, const char *format, ...);

#endif
