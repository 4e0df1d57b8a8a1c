/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
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

bool path_is_same_file(const char *one, const char *other)
{
	struct stat first;
	struct stat second;
	return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

char *path_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash)
		return strdup(".");
	return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

bool path_is_inside(const char *path, const char *folder)
{
	char *parent = path_folder(path);
	char *place = parent ? realpath(parent, NULL) : NULL;
	char *root = realpath(folder, NULL);
	size_t length = root && strcmp(root, "/") != 0 ? strlen(root) : 0;
	bool inside = place && root && strncmp(place, root, length) == 0 &&
		      (length == 0 || place[length] == 0 || place[length] == '/');
	free(root);
	free(place);
	free(parent);
	return inside;
}

/* The common beginning and end of names, without cutting a number. */
static void common_ends(char *const *names, size_t count, size_t *front, size_t *back)
{
	const char *first = names[0];
	size_t length = strlen(first);
	*front = *back = length;
	for (size_t i = 1; i < count; i++) {
		size_t other = strlen(names[i]);
		size_t same = 0;
		while (same < *front && names[i][same] == first[same])
			same++;
		*front = same;
		size_t most = other < length ? other - same : length - same;
		*back = *back < most ? *back : most;
		same = 0;
		while (same < *back && names[i][other - 1 - same] == first[length - 1 - same])
			same++;
		*back = same;
	}
	if (count == 1)
		*back = 0;
	while (*front > 0 && isdigit((unsigned char)first[*front - 1]) && *front < length)
		--*front;
	while (*back > 0 && isdigit((unsigned char)first[length - *back]))
		--*back;
}

/* Whether the middle parts count up by one, with as many digits each. */
static bool counts_up(char *const *names, size_t count, size_t front, size_t back)
{
	enum { DIGITS_MAX = 18 };
	size_t digits = strlen(names[0]) - front - back;
	unsigned long long first = strtoull(names[0] + front, NULL, 10);
	for (size_t i = 0; i < count; i++) {
		const char *middle = names[i] + front;
		if (digits == 0 || digits > DIGITS_MAX || strlen(middle) != digits + back ||
		    strspn(middle, "0123456789") < digits || strtoull(middle, NULL, 10) != first + i)
			return false;
	}
	return true;
}

char *paths_pattern(char *const *names, size_t count)
{
	enum { LISTED_MAX = 3 };
	size_t front, back;
	common_ends(names, count, &front, &back);
	const char *first = names[0];
	const char *behind = first + strlen(first) - back;
	int middle = (int)(strlen(first) - front - back);
	if (count == 1)
		return strdup(first);
	if (counts_up(names, count, front, back))
		return bt_format("%.*s{%.*s..%.*s}%s", (int)front, first, middle, first + front, middle,
				 names[count - 1] + front, behind);
	char *pattern = bt_format("%.*s%s", (int)front, first, count > LISTED_MAX ? "*" : "{");
	for (size_t i = 0; i < count && count <= LISTED_MAX && pattern; i++) {
		char *longer = bt_format("%s%.*s%s", pattern, (int)(strlen(names[i]) - front - back), names[i] + front,
					 i + 1 < count ? "," : "}");
		free(pattern);
		pattern = longer;
	}
	char *whole = pattern ? bt_format("%s%s", pattern, behind) : NULL;
	free(pattern);
	return whole;
}

static int no_such_file(const char *path, beton_error *err)
{
	return bt_fail(err, BETON_NOT_FOUND, "%s: %s", path,
		       bt_names_url(path) ? "URLs are not supported" : "no such file or folder");
}

static int expand_glob(const char *pattern, name_list *paths, beton_error *err)
{
	glob_t found = {0};
	int outcome = glob(pattern, GLOB_NOMAGIC | GLOB_ERR, NULL, &found);
	int result = BETON_OK;
	if (outcome == GLOB_NOMATCH)
		result = no_such_file(pattern, err);
	else if (outcome == GLOB_NOSPACE)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", pattern);
	else if (outcome != 0)
		result = bt_fail(err, BETON_IO, "%s: cannot look through a folder of it", pattern);
	for (size_t i = 0; i < found.gl_pathc && result == BETON_OK; i++) {
		if (paths->count >= PATHS_MAX)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d files", pattern, PATHS_MAX);
		else if (!path_exists(found.gl_pathv[i]))
			result = no_such_file(found.gl_pathv[i], err);
		else
			result = name_list_add(paths, found.gl_pathv[i], err);
	}
	globfree(&found);
	return result;
}

/* {...} in a pattern, what is between the braces included. */
typedef struct braces {
	const char *begin; /* the opening one */
	const char *end;   /* after the closing one */
	bool counts;       /* {FIRST..LAST}, else {ONE,OTHER} */
	unsigned long first;
	unsigned long last;
	int digits; /* of FIRST */
} braces;

static bool parse_count(braces *found)
{
	char *after;
	const char *text = found->begin + 1;
	if (!isdigit((unsigned char)*text))
		return false;
	found->first = strtoul(text, &after, 10);
	found->digits = (int)(after - text);
	if (found->digits > 18 || strncmp(after, "..", 2) != 0 || !isdigit((unsigned char)after[2]))
		return false;
	found->last = strtoul(after + 2, &after, 10);
	return after + 1 == found->end && found->last >= found->first;
}

/* The first braces of the pattern that say something. */
static bool find_braces(const char *pattern, braces *found)
{
	for (const char *open = strchr(pattern, '{'); open; open = strchr(open + 1, '{')) {
		const char *close = strchr(open, '}');
		if (!close)
			return false;
		*found = (braces){.begin = open, .end = close + 1};
		found->counts = parse_count(found);
		if (found->counts || memchr(open, ',', (size_t)(close - open)))
			return true;
	}
	return false;
}

/* Expands the pattern with the braces replaced by text. */
static int expand_with(const char *pattern, const braces *replaced, const char *text, int length, name_list *paths,
		       beton_error *err)
{
	char *one = bt_format("%.*s%.*s%s", (int)(replaced->begin - pattern), pattern, length, text, replaced->end);
	int result = one ? paths_expand(one, paths, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", pattern);
	free(one);
	return result;
}

int paths_expand(const char *argument, name_list *paths, beton_error *err)
{
	braces found;
	int result = BETON_OK;
	if (path_exists(argument))
		return name_list_add(paths, argument, err);
	if (!find_braces(argument, &found))
		return expand_glob(argument, paths, err);
	if (found.counts && found.last - found.first >= PATHS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d files", argument, PATHS_MAX);
	for (unsigned long i = found.first; found.counts && i <= found.last && result == BETON_OK; i++) {
		char number[24];
		int length = snprintf(number, sizeof(number), "%0*lu", found.digits, i);
		result = expand_with(argument, &found, number, length, paths, err);
	}
	const char *part = found.begin + 1;
	while (!found.counts && part < found.end && result == BETON_OK) {
		int length = (int)strcspn(part, ",}");
		result = expand_with(argument, &found, part, length, paths, err);
		part += length + 1;
	}
	return result;
}

int path_open_unnamed(const char *folder, int *fd, beton_error *err)
{
	*fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*fd >= 0)
		return BETON_OK;
	/* Not every file system has such files: a name for a moment does the same. */
	char *name = bt_format("%s/.beton-write.XXXXXX", folder);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	*fd = mkostemp(name, O_CLOEXEC);
	int number = errno;
	if (*fd >= 0)
		unlink(name);
	free(name);
	return *fd >= 0 ? BETON_OK : bt_fail_errno(err, number, "%s: cannot create a temporary file", folder);
}
