/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_OPTIONS_H
#define BT_LOADER_OPTIONS_H

#include <beton/loader.h>

/* Copies the caller's options, as far as its struct_size, into *out, fills in the automatic values and checks every
 * field. INVALID_ARGUMENT names the first bad one and its value. */
int bt_options_resolve(beton_loader_options *out, const beton_loader_options *in, beton_error *err);

#endif
