/* SPDX-License-Identifier: Apache-2.0 */
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Set before main, or before dlopen returns, and constant from then on. */
static bt_isa level;
static char refused[64]; /* an unknown value */

static bt_isa level_of_processor(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	/* Every processor with FMA and AVX2 has F16C; compilers have no name to ask for that. */
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return BT_ISA_BASE;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return BT_ISA_AVX512;
	return BT_ISA_AVX2;
#else
	return BT_ISA_BASE;
#endif
}

static __attribute__((constructor)) void find_level(void)
{
	static const char *const names[] = {[BT_ISA_BASE] = "sse2", [BT_ISA_AVX2] = "avx2", [BT_ISA_AVX512] = "avx512"};
	const char *most = getenv(BT_ISA_VARIABLE);
	level = level_of_processor();
	if (!most || !*most)
		return;
	for (int i = BT_ISA_BASE; i <= BT_ISA_AVX512; i++)
		if (strcasecmp(most, names[i]) == 0) {
			level = level < (bt_isa)i ? level : (bt_isa)i;
			return;
		}
	snprintf(refused, sizeof(refused), "%s", most);
}

bt_isa bt_isa_level(void)
{
	return level;
}

int bt_isa_check(beton_error *err)
{
	if (!*refused)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, BT_ISA_VARIABLE ": '%s' is not one of sse2, avx2, avx512", refused);
}
