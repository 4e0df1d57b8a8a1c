/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists in the values of options: items with one comma between two of them.
 */
#ifndef BT_LIST_H
#define BT_LIST_H

#include <stddef.h>

#include "error.h"

/* Copies the next item of a list, and sets *at to the rest after its comma; NULL: it was the last item. what: the
 * option, for messages. INVALID_ARGUMENT: the item is empty, so that a comma is doubled or at an end of the list, or
 * it has `size` bytes or more. */
int bt_list_next(const char *what, const char **at, char *out, size_t size, beton_error *err);

#endif
