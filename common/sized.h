/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of the public interface whose first member, size_t struct_size, is their size in the caller's header. So a
 * program works with a library of another release.
 */
#ifndef BT_SIZED_H
#define BT_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* No struct is larger; a larger struct_size was not initialised. */
#define BT_SIZED_MAX 4096

/* Copies the caller's struct over *out, a struct of this library that holds the defaults. Members that a smaller struct
 * lacks keep their defaults. Bytes of a larger one beyond out->struct_size must be zero, because this library does not
 * know their meaning. out->struct_size does not change. what: "writer options", for the message. Errors:
 * INVALID_ARGUMENT. */
int bt_sized_take(void *out, const void *given, const char *what, beton_error *err);

/* Sets the caller's struct of `size` bytes, its struct_size too, to *defaults, a struct of this library. Members that
 * it lacks are left out; bytes beyond, which this library does not know, become zero. */
void bt_sized_init(void *out, size_t size, const void *defaults);

/* Copies *facts, a struct of this library, to the caller's struct, as far as that has room. Bytes beyond become zero;
 * the caller's struct_size does not change. False: struct_size is invalid, and nothing is copied. */
bool bt_sized_give(void *out, const void *facts);

/* Whether the members that a struct keeps for later releases (count of them) are 0: a caller that does not know their
 * meaning must leave them so. */
bool bt_reserved_is_zero(const uint64_t *reserved, size_t count);

#define BT_RESERVED_IS_ZERO(given) bt_reserved_is_zero((given)->reserved, sizeof((given)->reserved) / sizeof(uint64_t))

#endif
