/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_FACTS_H
#define BETON_FACTS_H

#include <beton/beton.h>

/* Makes the text of the file's FACTS section: the caller's JSON object (NULL: an empty one) in compact form, with its
 * order of keys, and "writer" in front if it has none. The caller frees it; NULL on failure. Errors: INVALID_ARGUMENT,
 * NO_MEMORY. */
int bt_facts_make(char **out, const char *given, beton_error *err);

#endif
