/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench link's findings from answers of the system that no made-up folder gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <cmocka.h>

#include "programs/bench/bench_link.h"

static unsigned long blocks, available; /* of 1 MiB */

/* In place of the C library's. */
int statvfs(const char *path, struct statvfs *out)
{
	assert_string_equal(path, "/nowhere/dev/shm");
	*out = (struct statvfs){
		.f_bsize = 4096, .f_frsize = 1 << 20, .f_blocks = blocks, .f_bfree = blocks, .f_bavail = available};
	return 0;
}

static void expect_shared(link_state state, const char *what, const char *fix)
{
	link_findings found;

	link_find("/nowhere", &found);
	for (int i = 0; i < found.count; i++) {
		if (strncmp(found.list[i].what, "/dev/shm", 8) != 0)
			continue;
		assert_string_equal(found.list[i].what, what);
		assert_int_equal(found.list[i].state, state);
		if (state == LINK_GOOD ? found.list[i].fix[0] != '\0' : !strstr(found.list[i].fix, fix))
			fail_msg("the fix is '%s'", found.list[i].fix);
		return;
	}
	fail_msg("no word of /dev/shm");
}

/* Ranks need what is free of it, not what it has. */
static void free_shared_memory_counts(void **unused)
{
	(void)unused;
	blocks = 64 << 10;
	available = 60 << 10;
	expect_shared(LINK_GOOD, "/dev/shm has 65536 MiB, 61440 MiB of them free", "");
	available = 100;
	expect_shared(LINK_BAD, "/dev/shm has 65536 MiB, 100 MiB of them free", "remove what ended processes left");
	blocks = available = 64;
	expect_shared(LINK_BAD, "/dev/shm has 64 MiB, 64 MiB of them free", "--shm-size=1g");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(free_shared_memory_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
