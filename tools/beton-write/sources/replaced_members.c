/* SPDX-License-Identifier: Apache-2.0 */
#include "replaced_members.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "name_list.h"

/* Two names with one digest of 128 bits do not occur. */
typedef struct name_digest {
	XXH128_hash_t digest;
	uint64_t number;
} name_digest;

int replaced_members_note(replaced_members *self, const char *path, uint64_t number, beton_error *err)
{
	name_digest *names = list_grow(self->names, self->num_names, &self->names_capacity, sizeof(*names));
	if (!names)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	self->names = names;
	names[self->num_names++] = (name_digest){XXH3_128bits(path, strlen(path)), number};
	return BETON_OK;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a;
	uint64_t other = *(const uint64_t *)b;
	return (one > other) - (one < other);
}

static int compare_digests(const void *a, const void *b)
{
	const name_digest *one = a;
	const name_digest *other = b;
	int order = XXH128_cmp(&one->digest, &other->digest);
	return order ? order : compare_numbers(&one->number, &other->number);
}

int replaced_members_end_archive(replaced_members *self, beton_error *err)
{
	name_digest *names = self->names;
	size_t before = self->count;
	if (self->num_names)
		qsort(names, self->num_names, sizeof(*names), compare_digests);
	for (size_t i = 1; i < self->num_names; i++) {
		if (!XXH128_isEqual(names[i - 1].digest, names[i].digest))
			continue;
		uint64_t *numbers = list_grow(self->numbers, self->count, &self->capacity, sizeof(*numbers));
		if (!numbers)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for the members of an archive");
		self->numbers = numbers;
		numbers[self->count++] = names[i - 1].number;
	}
	if (self->count > before)
		qsort(self->numbers + before, self->count - before, sizeof(*self->numbers), compare_numbers);
	self->num_names = 0;
	return BETON_OK;
}

bool replaced_members_has(const replaced_members *self, uint64_t number)
{
	return self->count &&
	       bsearch(&number, self->numbers, self->count, sizeof(*self->numbers), compare_numbers) != NULL;
}

void replaced_members_free(replaced_members *self)
{
	free(self->numbers);
	free(self->names);
	*self = (replaced_members){0};
}
