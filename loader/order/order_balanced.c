/* SPDX-License-Identifier: Apache-2.0 */
#include "order_balanced.h"

#include <stdlib.h>

#include "common/error.h"

typedef struct labelled {
	int64_t value;
	uint64_t entry;
} labelled;

static int compare(const void *a, const void *b)
{
	const labelled *left = a, *right = b;
	if (left->value != right->value)
		return left->value < right->value ? -1 : 1;
	return left->entry < right->entry ? -1 : left->entry > right->entry;
}

static bool group(bt_balanced *out, const labelled *sorted, uint64_t n)
{
	out->classes = n > 0;
	for (uint64_t i = 1; i < n; i++)
		out->classes += sorted[i].value != sorted[i - 1].value;
	out->first = malloc((out->classes + 1) * sizeof(*out->first));
	out->members = malloc((n ? n : 1) * sizeof(*out->members));
	if (!out->first || !out->members)
		return false;
	uint64_t label = 0;
	for (uint64_t i = 0; i < n; i++) {
		if (i == 0 || sorted[i].value != sorted[i - 1].value)
			out->first[label++] = i;
		out->members[i] = sorted[i].entry;
	}
	out->first[label] = n;
	return true;
}

int bt_balanced_make(bt_balanced *out, const int64_t *values, uint64_t n, beton_error *err)
{
	*out = (bt_balanced){0};
	labelled *sorted = n <= SIZE_MAX / sizeof(*sorted) ? malloc((n ? n : 1) * sizeof(*sorted)) : NULL;
	for (uint64_t i = 0; sorted && i < n; i++)
		sorted[i] = (labelled){values[i], i};
	if (sorted)
		qsort(sorted, n, sizeof(*sorted), compare);
	bool good = sorted && group(out, sorted, n);
	free(sorted);
	if (good)
		return BETON_OK;
	bt_balanced_free(out);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for the classes of %llu samples", (unsigned long long)n);
}

void bt_balanced_free(bt_balanced *balanced)
{
	free(balanced->first);
	free(balanced->members);
	*balanced = (bt_balanced){0};
}

uint64_t bt_balanced_at(const bt_balanced *balanced, uint64_t key, uint64_t position)
{
	uint64_t round = position / balanced->classes;
	bt_permutation classes = bt_permutation_make(balanced->classes, bt_draw(key, BT_PURPOSE_CLASSES, round, 0));
	uint64_t label = bt_permutation_at(&classes, position % balanced->classes);
	uint64_t first = balanced->first[label];
	uint64_t count = balanced->first[label + 1] - first;
	bt_permutation members = bt_permutation_make(count, bt_draw(key, BT_PURPOSE_MEMBERS, label, round / count));
	return balanced->members[first + bt_permutation_at(&members, round % count)];
}
