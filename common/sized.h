/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of the public interface whose first member, size_t struct_size, is their size in the caller's header: what
 * lets a program and a library of different releases work together. */
#ifndef BT_SIZED_H
#define BT_SIZED_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/* No struct is larger: what claims to be was not initialised. */
#define BT_SIZED_MAX 4096

/* Copies the caller's struct over *out, a struct of this library that holds the defaults. Members that a smaller struct
 * lacks keep their defaults; what a larger one has beyond out->struct_size must be zero, for nobody here knows what it
 * asks for. out->struct_size stays. what: "writer options", for the message. Errors: INVALID_ARGUMENT. */
int bt_sized_take(void *out, const void *given, const char *what, beton_error *err);

/* Copies *facts, a struct of this library, to the caller's as far as that reaches. What it has beyond becomes zero; its
 * struct_size stays. Returns whether struct_size is a size, without which nothing is copied. */
bool bt_sized_give(void *out, const void *facts);

#endif
