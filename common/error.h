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
 */
BETON_PRINTF(3, 4) int bt_fail_errno(beton_error *err, int error_number, const char *format, ...);

/* bt_fail for one sample. */
BETON_PRINTF(4, 5) int bt_fail_sample(beton_error *err, int code, int64_t sample, const char *format, ...);

/* Puts "text: " in front of the message that a callee has filled. err may be NULL, so callers must keep the code. */
BETON_PRINTF(2, 3) void bt_prefix(beton_error *err, const char *format, ...);

#endif
