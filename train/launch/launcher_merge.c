/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"

#define WAIT_NS UINT64_C(200000000)
#define PREFIX_BYTES 256

/* "[rank 3] " or "[ranks 0-2, 5] " */
static void describe_ranks(const unsigned char *ranks, int world_size, char *out, size_t size)
{
	int count = 0;
	*out = 0;
	for (int i = 0; i < world_size; i++)
		count += ranks[i];
	bt_append(out, size, "[rank%s", count == 1 ? "" : "s");
	const char *separator = " ";
	for (int first = 0; first < world_size; first++) {
		int last = first;
		if (!ranks[first])
			continue;
		while (last + 1 < world_size && ranks[last + 1])
			last++;
		/* Room for the longest pair and the end. */
		if (strlen(out) + 32 > size) {
			bt_append(out, size, ", ...");
			break;
		}
		bt_append(out, size, last > first ? "%s%d-%d" : "%s%d", separator, first, last);
		separator = ", ";
		first = last;
	}
	bt_append(out, size, "] ");
}

/* Prefix and line are written in one call, so that the line stays whole even if others write to the same file. */
static int print(const struct merge *merge, const struct merge_line *line)
{
	char prefix[PREFIX_BYTES];
	describe_ranks(line->ranks, merge->world_size, prefix, sizeof(prefix));
	size_t length = strlen(prefix);
	char *whole = malloc(length + line->size);
	if (!whole)
		return ENOMEM;
	memcpy(whole, prefix, length);
	memcpy(whole + length, line->text, line->size);
	int failure = merge->status ? status_line_clear(merge->status) : 0;
	if (bt_write_full(merge->to, whole, length + line->size) != 0)
		failure = errno;
	free(whole);
	return failure;
}

static void drop_first(struct merge *merge)
{
	merge->printed++;
	free(merge->lines[0].text);
	free(merge->lines[0].ranks);
	merge->count--;
	memmove(&merge->lines[0], &merge->lines[1], (size_t)merge->count * sizeof(merge->lines[0]));
}

int dtrain__merge_flush(struct merge *merge, unsigned long until)
{
	int failure = 0;
	while (merge->count && (merge->printed < until || bt_now_ns() - merge->lines[0].since_ns >= WAIT_NS)) {
		int result = print(merge, &merge->lines[0]);
		failure = failure ? failure : result;
		drop_first(merge);
	}
	return failure;
}

/* The rank's lines stay in order: a line is joined only if no later line is the rank's own. */
static struct merge_line *find_same(struct merge *merge, int rank, const char *text, size_t size)
{
	for (int i = merge->count - 1; i >= 0 && !merge->lines[i].ranks[rank]; i--)
		if (merge->lines[i].size == size + 1 && memcmp(merge->lines[i].text, text, size) == 0)
			return &merge->lines[i];
	return NULL;
}

int dtrain__merge_add(struct merge *merge, int rank, const char *line, size_t size)
{
	struct merge_line *same = find_same(merge, rank, line, size);
	int failure = 0;
	if (same) {
		same->ranks[rank] = 1;
		return 0;
	}
	if (merge->count == MERGE_LINES) {
		failure = print(merge, &merge->lines[0]);
		drop_first(merge);
	}
	struct merge_line added = {.text = malloc(size + 1),
				   .size = size + 1,
				   .since_ns = bt_now_ns(),
				   .ranks = calloc((size_t)merge->world_size, 1)};
	if (!added.text || !added.ranks) {
		free(added.text);
		free(added.ranks);
		return ENOMEM;
	}
	memcpy(added.text, line, size);
	added.text[size] = '\n';
	added.ranks[rank] = 1;
	merge->lines[merge->count++] = added;
	return failure;
}

int dtrain__merge_timeout_ms(const struct merge *merge)
{
	if (!merge->count)
		return -1;
	uint64_t waited = bt_now_ns() - merge->lines[0].since_ns;
	return waited >= WAIT_NS ? 0 : (int)((WAIT_NS - waited) / 1000000 + 1);
}
