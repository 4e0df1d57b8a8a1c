/* SPDX-License-Identifier: Apache-2.0 */
#include "naming.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/system.h"
#include "target.h"
#include "tools/common/sources.h"
#include "tools/common/text.h"

/* PART_MAX: of a part of a path; file systems take 255, and an ending follows. WHOLE_MAX: of all of it; system calls
 * take 4095, and the output's own path precedes it when the folder is removed. */
enum { PART_MAX = 230, WHOLE_MAX = 2048 };

/* The ending of a picture's name, from its dot on; NULL: it has none. */
static const char *picture_ending(const char *name)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < sizeof(endings) / sizeof(*endings); i++)
		if (strcasecmp(dot, endings[i]) == 0)
			return dot;
	return NULL;
}

/* path with one more part, in its place; NULL: no memory. *fits becomes false if a file system takes no such part. */
static char *add_part(char *path, const char *part, size_t size, bool *fits)
{
	char *text = strndup(part, size);
	char *harmless = text ? text_file_name(text) : NULL;
	char *longer = harmless ? bt_format("%s%s%s", path, *path ? "/" : "", harmless) : NULL;
	*fits = *fits && harmless && strlen(harmless) <= PART_MAX;
	free(text);
	free(harmless);
	free(path);
	return longer;
}

char *naming_path(const char *source)
{
	char *path = strdup("");
	bool fits = true;
	size_t first = strcspn(source, "/");
	char *archive = strndup(source, first);
	const char *at = archive && target_is_tar(archive) && source[first] ? source + first : source;
	free(archive);
	while (path && *(at += strspn(at, "/"))) {
		size_t size = strcspn(at, "/");
		path = add_part(path, at, size, &fits);
		at += size;
	}
	if (path && (!fits || strlen(path) > WHOLE_MAX))
		*path = 0;
	return path;
}

char *naming_picture(const char *path, const char *ending)
{
	const char *name = source_last_part(path);
	const char *own = picture_ending(name);
	bool same = own &&
		    (strcasecmp(own + 1, ending) == 0 || (strcmp(ending, "jpg") == 0 && strcasecmp(own, ".jpeg") == 0));
	return same ? strdup(name) : bt_format("%.*s.%s", own ? (int)(own - name) : (int)strlen(name), name, ending);
}

char *naming_key(const char *path)
{
	char *key = strdup(path);
	if (!key)
		return NULL;
	char *name = key + (source_last_part(key) - key);
	const char *ending = picture_ending(name);
	if (ending)
		key[ending - key] = 0;
	for (char *at = name; *at; at++)
		if (*at == '.')
			*at = '_';
	return key;
}
