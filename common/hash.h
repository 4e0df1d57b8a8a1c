/* SPDX-License-Identifier: Apache-2.0
 *
 * xxHash with the widest vectors of the processor, where it supports that: the same hashes, three times as fast.
 */
#ifndef BT_HASH_H
#define BT_HASH_H

#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>

/* libxxhash 0.8.1 leaves the upper halves of vector registers in use. While they are, instructions of SSE, which is
 * what the compiler makes of ordinary code, are many times as slow, in this thread and in threads that it starts. */
__attribute__((target("avx"))) static inline void bt_clear_upper_halves(void)
{
	__builtin_ia32_vzeroupper();
}

#define BT_HASH_WIDE(type, call)           \
	type bt_result = call;             \
	if (__builtin_cpu_supports("avx")) \
		bt_clear_upper_halves();   \
	return bt_result

static inline XXH64_hash_t bt_xxh3_64bits(const void *bytes, size_t size)
{
	BT_HASH_WIDE(XXH64_hash_t, XXH3_64bits_dispatch(bytes, size));
}

static inline XXH64_hash_t bt_xxh3_64bits_with_seed(const void *bytes, size_t size, XXH64_hash_t seed)
{
	BT_HASH_WIDE(XXH64_hash_t, XXH3_64bits_withSeed_dispatch(bytes, size, seed));
}

static inline XXH_errorcode bt_xxh3_64bits_update(XXH3_state_t *state, const void *bytes, size_t size)
{
	BT_HASH_WIDE(XXH_errorcode, XXH3_64bits_update_dispatch(state, bytes, size));
}

static inline XXH_errorcode bt_xxh3_128bits_update(XXH3_state_t *state, const void *bytes, size_t size)
{
	BT_HASH_WIDE(XXH_errorcode, XXH3_128bits_update_dispatch(state, bytes, size));
}

static inline XXH128_hash_t bt_xxh3_128bits(const void *bytes, size_t size)
{
	BT_HASH_WIDE(XXH128_hash_t, XXH3_128bits_dispatch(bytes, size));
}

#undef BT_HASH_WIDE
#undef XXH3_128bits
#define XXH3_128bits bt_xxh3_128bits
#undef XXH3_64bits
#define XXH3_64bits bt_xxh3_64bits
#undef XXH3_64bits_withSeed
#define XXH3_64bits_withSeed bt_xxh3_64bits_with_seed
#undef XXH3_64bits_update
#define XXH3_64bits_update bt_xxh3_64bits_update
#undef XXH3_128bits_update
#define XXH3_128bits_update bt_xxh3_128bits_update
#endif

#endif
