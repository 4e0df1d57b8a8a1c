/* SPDX-License-Identifier: Apache-2.0
 *
 * How many cores, and how much memory, a container may use: both versions of control groups, in a folder that stands
 * for /sys/fs/cgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cgroup.h"

static char root[256];

/* A file of the folder, whose folders are made, too. */
static void put(const char *name, const char *text)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(path, 0700);
		*slash = '/';
	}
	FILE *stream = fopen(path, "w");
	assert_non_null(stream);
	fputs(text, stream);
	assert_int_equal(fclose(stream), 0);
}

static int cores(const char *membership)
{
	char path[512];
	put("self", membership);
	snprintf(path, sizeof(path), "%s/self", root);
	return bt_cgroup_cores(path, root);
}

static uint64_t memory(const char *membership)
{
	char path[512];
	put("self", membership);
	snprintf(path, sizeof(path), "%s/self", root);
	return bt_cgroup_memory(path, root);
}

static int set_up(void **state)
{
	(void)state;
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	snprintf(root, sizeof(root), "%s/beton-cgroup-XXXXXX", base);
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	char command[512];
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void version_2(void **state)
{
	(void)state;
	put("free/cpu.max", "max 100000\n");
	put("half/cpu.max", "50000 100000\n");
	put("outer/cpu.max", "350000 100000\n");
	put("outer/inner/cpu.max", "800000 100000\n");
	put("odd/cpu.max", "nonsense\n");
	assert_int_equal(cores("0::/free\n"), INT_MAX);
	assert_int_equal(cores("0::/half\n"), 1);
	assert_int_equal(cores("0::/outer\n"), 4);
	assert_int_equal(cores("0::/outer/inner\n"), 4);
	assert_int_equal(cores("0::/outer/inner/none\n"), 4);
	assert_int_equal(cores("0::/odd\n"), INT_MAX);
	assert_int_equal(cores("0::/../elsewhere\n"), INT_MAX);
	assert_int_equal(cores(""), INT_MAX);
	assert_int_equal(cores("nonsense\n"), INT_MAX);
	/* The mount's root is the container's own group, whatever the host calls it. */
	put("cpu.max", "200000 100000\n");
	assert_int_equal(cores("0::/docker/of-the-host\n"), 2);
}

static void version_1(void **state)
{
	(void)state;
	put("cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
	put("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
	put("cpu,cpuacct/free/cpu.cfs_quota_us", "-1\n");
	put("cpu,cpuacct/free/cpu.cfs_period_us", "100000\n");
	put("cpuset/job/cpu.cfs_quota_us", "1\n");
	put("cpuset/job/cpu.cfs_period_us", "1\n");
	assert_int_equal(cores("5:cpuset:/job\n4:cpu,cpuacct:/job\n"), 3);
	assert_int_equal(cores("4:cpu,cpuacct:/free\n"), INT_MAX);
	assert_int_equal(cores("5:cpuset:/job\n6:cpuacct:/job\n"), INT_MAX);
}

static void memory_of_version_2(void **state)
{
	(void)state;
	put("outer/memory.max", "1000000\n");
	put("outer/memory.current", "400000\n");
	put("outer/inner/memory.max", "max\n");
	put("outer/inner/memory.current", "300000\n");
	assert_true(memory("0::/outer/inner\n") == 600000);
	/* The page cache can be had. */
	put("outer/memory.stat", "anon 100000\ninactive_file 50000\nactive_file 25000\n");
	assert_true(memory("0::/outer/inner\n") == 675000);
	put("outer/inner/memory.max", "310000\n");
	assert_true(memory("0::/outer/inner\n") == 10000);
	put("outer/inner/memory.max", "200000\n");
	assert_true(memory("0::/outer/inner\n") == 0);
	assert_true(memory("0::/none\n") == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(version_1), cmocka_unit_test(version_2),
					   cmocka_unit_test(memory_of_version_2)};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
