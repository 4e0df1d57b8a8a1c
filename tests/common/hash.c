/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of many bytes leave no upper half of a vector register in use, which would slow down all code for SSE.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/hash.h"

#ifdef HAVE_XXH_DISPATCH
#include <cpuid.h>

enum { UPPER_HALVES = 1 << 2 | 1 << 6 }; /* of YMM0 ... YMM15, and of ZMM0 ... ZMM15 */

/* Whether the processor tells which parts of the registers are in use. */
static bool tells(void)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(1, 0, &a, &b, &c, &d) && (c & bit_OSXSAVE) &&
	       __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && (a & 1 << 2);
}

static unsigned in_use(void)
{
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return low & UPPER_HALVES;
}

static char bytes[1 << 16];

/* No call of cmocka's or of the C library's is between hash and look: those may have vectors of their own. */
static void upper_halves_are_clear(void **state)
{
	(void)state;
	XXH3_state_t *sums = XXH3_createState();
	unsigned used[4];
	assert_non_null(sums);
	bt_clear_upper_halves();
	assert_int_equal(in_use(), 0);
	uint64_t sum = XXH3_64bits(bytes, sizeof(bytes));
	used[0] = in_use();
	sum ^= XXH3_64bits_withSeed(bytes, sizeof(bytes), 5);
	used[1] = in_use();
	XXH3_64bits_reset(sums);
	XXH3_64bits_update(sums, bytes, sizeof(bytes));
	used[2] = in_use();
	sum ^= XXH3_64bits_digest(sums);
	XXH3_128bits_reset(sums);
	XXH3_128bits_update(sums, bytes, sizeof(bytes));
	used[3] = in_use();
	XXH3_freeState(sums);
	assert_int_not_equal(sum, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(used[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(upper_halves_are_clear)};
	if (!tells()) {
		fputs("skipped: the processor does not tell which registers are in use\n", stderr);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	fputs("skipped: xxHash has no wide vectors here\n", stderr);
	return 77;
}
#endif
