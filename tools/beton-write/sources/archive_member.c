/* SPDX-License-Identifier: Apache-2.0 */
#include "archive_member.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "paths.h"
#include "tools/beton-write/images/file_bytes.h"

const char *member_path(const char *name)
{
	while (strncmp(name, "./", 2) == 0) {
		name += 2;
		name += strspn(name, "/");
	}
	return name;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

size_t member_key_length(const char *path)
{
	const char *name = last_part(path);
	return (size_t)(name - path) + strcspn(name, ".");
}

char *member_folder(const char *path)
{
	const char *name = last_part(path);
	size_t length = (size_t)(name - path);
	while (length > 0 && path[length - 1] == '/')
		length--;
	return strndup(path, length);
}

bool member_is_picture(const char *path)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (path_ends_with(path, endings[i]))
			return true;
	return false;
}

bool member_is_meta(const char *path)
{
	const char *name = last_part(path);
	size_t length = strlen(name);
	return length >= 4 && strncmp(name, "__", 2) == 0 && strcmp(name + length - 2, "__") == 0;
}

char *member_describe(const archive_member *member)
{
	if (member->hard_link)
		return bt_format("a hard link to '%s'; an archive made with tar --hard-dereference has the file itself",
				 member->hard_link);
	if (member->soft_link)
		return bt_format("a symbolic link to '%s'; an archive made with tar --dereference has the file itself",
				 member->soft_link);
	return strdup("a device or pipe, not a file");
}

int member_read(archive_input *input, const char *name, uint64_t *bytes, raw_value *value, beton_error *err)
{
	uint8_t *data = NULL;
	size_t size = 0;
	size_t capacity = 0;
	int result;
	for (;;) {
		if (size == capacity) {
			capacity = capacity ? capacity * 2 : 4096;
			uint8_t *grown = realloc(data, capacity);
			if (!grown) {
				result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a member", name);
				break;
			}
			data = grown;
		}
		size_t got;
		result = archive_input_read(input, data + size, capacity - size, &got, err);
		if (result != BETON_OK || got == 0)
			break;
		size += got;
		*bytes += got;
		if (*bytes <= FILE_BYTES_MAX)
			continue;
		result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: the sample has more than %lld bytes", name,
				 (long long)FILE_BYTES_MAX);
		break;
	}
	if (result != BETON_OK) {
		free(data);
		return result;
	}
	*value = (raw_value){.kind = RAW_FILE, .data = data, .size = size, .owned = data};
	return BETON_OK;
}
