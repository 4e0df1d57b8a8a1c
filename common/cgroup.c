/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

/* Reads the first word of a file; false if there is none. */
static bool read_text(const char *folder, const char *name, char *out, int size)
{
	char path[PATH_SIZE + 32];
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return false;
	FILE *stream = fopen(path, "re");
	if (!stream)
		return false;
	bool good = fgets(out, size, stream) != NULL;
	fclose(stream);
	return good;
}

/* A limit of one group, of version 2 or 1; UINT64_MAX: none. */
typedef uint64_t limit_function(const char *folder, bool second);

static uint64_t divide_up(long long quota, long long period)
{
	if (quota <= 0 || period <= 0)
		return UINT64_MAX;
	return (uint64_t)(quota / period + (quota % period > 0));
}

/* Both versions say "no limit" by something other than a number above 0. */
static uint64_t cores_of(const char *folder, bool second)
{
	char text[64];
	long long quota = 0, period = 0;
	if (second) {
		if (read_text(folder, "cpu.max", text, sizeof(text)) && sscanf(text, "%lld %lld", &quota, &period) == 2)
			return divide_up(quota, period);
		return UINT64_MAX;
	}
	if (read_text(folder, "cpu.cfs_quota_us", text, sizeof(text)) && sscanf(text, "%lld", &quota) == 1 &&
	    read_text(folder, "cpu.cfs_period_us", text, sizeof(text)) && sscanf(text, "%lld", &period) == 1)
		return divide_up(quota, period);
	return UINT64_MAX;
}

static uint64_t memory_of(const char *folder, bool second)
{
	char text[64], path[PATH_SIZE + 32], key[64];
	unsigned long long most, used, cached = 0, value;
	if (!second || !read_text(folder, "memory.max", text, sizeof(text)) || sscanf(text, "%llu", &most) != 1 ||
	    !read_text(folder, "memory.current", text, sizeof(text)) || sscanf(text, "%llu", &used) != 1)
		return UINT64_MAX;
	if (snprintf(path, sizeof(path), "%s/memory.stat", folder) >= (int)sizeof(path))
		return UINT64_MAX;
	FILE *stream = fopen(path, "re");
	while (stream && fscanf(stream, "%63s %llu", key, &value) == 2)
		if (strcmp(key, "inactive_file") == 0 || strcmp(key, "active_file") == 0)
			cached += value;
	if (stream)
		fclose(stream);
	used = used > cached ? used - cached : 0;
	return most > used ? most - used : 0;
}

/* The least limit of a group and its ancestors. In a container the path may be the host's, which does not exist there;
 * then the limit is that of the mount's root. */
static uint64_t least_above(const char *mount, const char *path, bool second, limit_function *limit_of)
{
	char folder[PATH_SIZE];
	size_t root = strlen(mount);
	uint64_t least = UINT64_MAX;
	if (snprintf(folder, sizeof(folder), "%s%s", mount, path) >= (int)sizeof(folder))
		return least;
	for (;;) {
		uint64_t limit = limit_of(folder, second);
		least = limit < least ? limit : least;
		char *slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < root)
			return least;
		*slash = 0;
	}
}

/* Whether a list like "cpu,cpuacct" contains cpu. */
static bool has_cpu(const char *controllers)
{
	for (const char *at = controllers; (at = strstr(at, "cpu")); at += 3)
		if ((at == controllers || at[-1] == ',') && (at[3] == 0 || at[3] == ','))
			return true;
	return false;
}

static uint64_t least_of_all(const char *membership, const char *root, limit_function *limit_of)
{
	uint64_t least = UINT64_MAX;
	FILE *stream = fopen(membership, "re");
	if (!stream)
		return least;
	char line[PATH_SIZE], mount[PATH_SIZE];
	while (fgets(line, sizeof(line), stream)) {
		/* "4:cpu,cpuacct:/path", and "0::/path" in version 2 */
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*controllers++ = *path++ = 0;
		path[strcspn(path, "\n")] = 0;
		bool second = controllers[0] == 0;
		if (!second && !has_cpu(controllers))
			continue;
		if (snprintf(mount, sizeof(mount), "%s%s%s", root, second ? "" : "/", controllers) >=
		    (int)sizeof(mount))
			continue;
		uint64_t limit = least_above(mount, path, second, limit_of);
		least = limit < least ? limit : least;
	}
	fclose(stream);
	return least;
}

int bt_cgroup_cores(const char *membership, const char *root)
{
	uint64_t cores = least_of_all(membership, root, cores_of);
	return cores < INT_MAX ? (int)cores : INT_MAX;
}

uint64_t bt_cgroup_memory(const char *membership, const char *root)
{
	return least_of_all(membership, root, memory_of);
}
