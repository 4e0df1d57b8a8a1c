/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/system.h"

#define PATHS_MAX 1000000

bool path_ends_with(const char *name, const char *ending)
{
	size_t length = strlen(name);
	size_t wanted = strlen(ending);
	return length > wanted && strcasecmp(name + length - wanted, ending) == 0;
}

bool path_is_folder(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool path_exists(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0;
}

char *path_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash)
		return strdup(".");
	return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* {FIRST..LAST} in text: where it begins and ends, and its numbers; false: there is none. */
static bool find_count(const char *text, const char **begin, const char **end, unsigned long *first,
		       unsigned long *last, int *digits)
{
	for (const char *brace = strchr(text, '{'); brace; brace = strchr(brace + 1, '{')) {
		char *after;
		if (!isdigit((unsigned char)brace[1]))
			continue;
		*first = strtoul(brace + 1, &after, 10);
		*digits = (int)(after - brace - 1);
		if (strncmp(after, "..", 2) != 0 || !isdigit((unsigned char)after[2]))
			continue;
		*last = strtoul(after + 2, &after, 10);
		if (*after != '}' || *digits > 18 || *last < *first)
			continue;
		*begin = brace;
		*end = after + 1;
		return true;
	}
	return false;
}

static int expand_glob(const char *pattern, name_list *paths, beton_error *err)
{
	glob_t found = {0};
	int outcome = glob(pattern, GLOB_BRACE | GLOB_NOMAGIC | GLOB_ERR, NULL, &found);
	int result = BETON_OK;
	if (outcome == GLOB_NOMATCH)
		result = bt_fail(err, BETON_NOT_FOUND, "%s: no such file or folder", pattern);
	else if (outcome == GLOB_NOSPACE)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", pattern);
	else if (outcome != 0)
		result = bt_fail(err, BETON_IO, "%s: cannot look through a folder of it", pattern);
	for (size_t i = 0; i < found.gl_pathc && result == BETON_OK; i++) {
		if (paths->count >= PATHS_MAX)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d files", pattern, PATHS_MAX);
		else if (!path_exists(found.gl_pathv[i]))
			result = bt_fail(err, BETON_NOT_FOUND, "%s: no such file or folder", found.gl_pathv[i]);
		else
			result = name_list_add(paths, found.gl_pathv[i], err);
	}
	globfree(&found);
	return result;
}

int paths_expand(const char *argument, name_list *paths, beton_error *err)
{
	const char *begin;
	const char *end;
	unsigned long first;
	unsigned long last;
	int digits;
	if (path_exists(argument))
		return name_list_add(paths, argument, err);
	if (!find_count(argument, &begin, &end, &first, &last, &digits))
		return expand_glob(argument, paths, err);
	if (last - first >= PATHS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d files", argument, PATHS_MAX);
	int result = BETON_OK;
	for (unsigned long i = first; i <= last && result == BETON_OK; i++) {
		char *one = bt_format("%.*s%0*lu%s", (int)(begin - argument), argument, digits, i, end);
		result = one ? paths_expand(one, paths, err)
			     : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", argument);
		free(one);
	}
	return result;
}
