/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <stdlib.h>

void merge_work_free(merge_work *work)
{
	free(work->symbols);
	free(work->heap);
	free(work->tokens);
	*work = (merge_work){0};
}

static bool make_room(merge_work *work, size_t size)
{
	if (size <= work->room)
		return true;
	size_t room = size + size / 2 + 64;
	merge_work_free(work);
	work->symbols = reallocarray(NULL, room, sizeof(*work->symbols));
	/* There are size - 1 pairs at first, and two new ones for each of at most size - 1 merges. */
	work->heap = reallocarray(NULL, 3 * room, sizeof(*work->heap));
	work->tokens = reallocarray(NULL, room, sizeof(*work->tokens));
	if (!work->symbols || !work->heap || !work->tokens)
		return false;
	work->room = room;
	return true;
}

static bool is_before(const merge_candidate *a, const merge_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(merge_work *work, merge_candidate added)
{
	size_t at = work->candidates++;
	for (size_t parent; at > 0 && is_before(&added, &work->heap[parent = (at - 1) / 2]); at = parent)
		work->heap[at] = work->heap[parent];
	work->heap[at] = added;
}

static merge_candidate pop(merge_work *work)
{
	merge_candidate first = work->heap[0], last = work->heap[--work->candidates];
	size_t at = 0;
	for (size_t child; (child = 2 * at + 1) < work->candidates; at = child) {
		child += child + 1 < work->candidates && is_before(&work->heap[child + 1], &work->heap[child]);
		if (!is_before(&work->heap[child], &last))
			break;
		work->heap[at] = work->heap[child];
	}
	work->heap[at] = last;
	return first;
}

/* Remembers that the symbol and its right neighbour can be merged, if they can. */
static void consider(const vocabulary *words, merge_work *work, uint32_t at)
{
	const merge_symbol *left = &work->symbols[at];
	if (left->next == VOCABULARY_NONE)
		return;
	uint32_t right = work->symbols[left->next].token;
	const token_pair *pair = vocabulary_pair(words, left->token, right);
	if (pair)
		push(work, (merge_candidate){.rank = pair->rank, .at = at, .left = left->token, .right = right});
}

static void merge(const vocabulary *words, merge_work *work, const merge_candidate *what)
{
	merge_symbol *left = &work->symbols[what->at];
	uint32_t next = left->next;
	if (left->token != what->left || next == VOCABULARY_NONE || work->symbols[next].token != what->right)
		return; /* one of the two was merged with another one */
	merge_symbol *right = &work->symbols[next];
	left->token = vocabulary_pair(words, what->left, what->right)->merged;
	left->next = right->next;
	right->token = VOCABULARY_NONE;
	if (left->next != VOCABULARY_NONE)
		work->symbols[left->next].previous = what->at;
	consider(words, work, what->at);
	if (left->previous != VOCABULARY_NONE)
		consider(words, work, left->previous);
}

bool merge_piece(const vocabulary *words, const uint32_t byte_tokens[256], merge_work *work, const uint8_t *piece,
		 size_t size, size_t *count)
{
	if (!make_room(work, size))
		return false;
	work->candidates = 0;
	for (size_t i = 0; i < size; i++)
		work->symbols[i] = (merge_symbol){.token = byte_tokens[piece[i]],
						  .previous = i > 0 ? (uint32_t)i - 1 : VOCABULARY_NONE,
						  .next = i + 1 < size ? (uint32_t)i + 1 : VOCABULARY_NONE};
	for (size_t i = 0; i + 1 < size; i++)
		consider(words, work, (uint32_t)i);
	while (work->candidates > 0) {
		merge_candidate first = pop(work);
		merge(words, work, &first);
	}
	*count = 0;
	for (uint32_t at = 0; at != VOCABULARY_NONE; at = work->symbols[at].next)
		work->tokens[(*count)++] = work->symbols[at].token;
	return true;
}
