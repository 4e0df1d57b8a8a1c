/* SPDX-License-Identifier: Apache-2.0 */
#include "group_progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"

void dtrain__rank_list_add(rank_list *list, int rank)
{
	size_t used = strlen(list->names);
	list->count++;
	if (used + 16 < sizeof(list->names))
		snprintf(list->names + used, sizeof(list->names) - used, used ? ", %d" : "%d", rank);
	else if (strcmp(list->names + used - 3, "...") != 0)
		snprintf(list->names + used, sizeof(list->names) - used, " ...");
}

/* Appends "rank 1 is" or "ranks 1, 2 are". */
static void append_ranks(char *text, size_t size, const rank_list *list, const char *one, const char *several)
{
	bt_append(text, size, "rank%s %s %s", list->count > 1 ? "s" : "", list->names, list->count > 1 ? several : one);
}

static void describe(const dtrain_record *record, char *text, size_t size)
{
	snprintf(text, size, record->label[0] ? "%s #%u (%s)" : "%s #%u", record->kind, record->sequence,
		 record->label);
	for (; *text; text++)
		if ((unsigned char)*text < 0x20)
			*text = ' ';
}

/* Looks at one record, newest first. False: older ones do not matter. */
static bool look_at(const dtrain_record *record, const group_membership *member, group_progress *out)
{
	/* Skip messages, which have tags, and captured operations, whose state is unknown. */
	if (record->tag >= 0 || record->state == DTRAIN_RECORD_CAPTURED)
		return true;
	if (record->state == DTRAIN_RECORD_COMPLETED) {
		out->completed = record->sequence;
		describe(record, out->last, sizeof(out->last));
		return false;
	}
	out->current = record->sequence;
	out->begun = record->started_ns != 0;
	describe(record, out->next, sizeof(out->next));
	snprintf(out->signature, sizeof(out->signature), "%s of %lld %s", record->kind, (long long)record->count,
		 dtrain_dtype_name(record->dtype));
	if (record->reduce >= 0)
		bt_append(out->signature, sizeof(out->signature), " (%s)",
			  dtrain__reduce_name((dtrain_reduce_op)record->reduce));
	if (record->peer >= 0)
		bt_append(out->signature, sizeof(out->signature), " (root %d)",
			  dtrain__world_rank(member, record->peer));
	return true;
}

void dtrain__progress_take(group_history *history, const group_membership *member, group_progress *out)
{
	*out = (group_progress){.known = true};
	pthread_mutex_lock(&history->mutex);
	for (uint64_t back = 0; back < history->count && back < DTRAIN_HISTORY_LENGTH; back++)
		if (!look_at(&history->records[(history->count - back) % DTRAIN_HISTORY_LENGTH], member, out))
			break;
	pthread_mutex_unlock(&history->mutex);
}

void dtrain__progress_format(const group_progress *progress, int code, char text[GROUP_PROGRESS_TEXT])
{
	snprintf(text, GROUP_PROGRESS_TEXT, "%d %u %u %d\n%s\n%s\n%s", code, progress->completed, progress->current,
		 progress->begun, progress->last, progress->next, progress->signature);
}

/* Copies the text up to the end of the line; returns the rest, or NULL. */
static const char *take_line(const char *text, char *out, size_t size)
{
	if (!text)
		return NULL;
	size_t length = strcspn(text, "\n");
	snprintf(out, size, "%.*s", (int)length, text);
	return text[length] ? text + length + 1 : NULL;
}

bool dtrain__progress_parse(const char *text, int *code, group_progress *out)
{
	*out = (group_progress){0};
	*code = atoi(text);
	unsigned completed, current;
	int begun, used = 0;
	if (sscanf(text, "%*d %u %u %d%n", &completed, &current, &begun, &used) != 3 || text[used] != '\n')
		return false;
	*out = (group_progress){.known = true, .completed = completed, .current = current, .begun = begun != 0};
	text = take_line(text + used + 1, out->last, sizeof(out->last));
	text = take_line(text, out->next, sizeof(out->next));
	take_line(text, out->signature, sizeof(out->signature));
	return true;
}

/* The ranks that have, or have not, begun the collective `sequence`. */
static rank_list select_ranks(const group_progress *ranks, int size, uint32_t sequence, bool begun)
{
	rank_list list = {0};
	for (int rank = 0; rank < size; rank++) {
		const group_progress *one = &ranks[rank];
		bool has = one->completed >= sequence || (one->current == sequence && one->begun);
		if (one->known && has == begun)
			dtrain__rank_list_add(&list, ranks[rank].rank);
	}
	return list;
}

/* The collective's name on a rank that is in it or has just left it; NULL: no rank is. */
static const char *find_name(const group_progress *ranks, int size, uint32_t sequence)
{
	for (int rank = 0; rank < size; rank++) {
		if (ranks[rank].known && ranks[rank].current == sequence && ranks[rank].begun)
			return ranks[rank].next;
		if (ranks[rank].known && ranks[rank].completed == sequence)
			return ranks[rank].last;
	}
	return NULL;
}

static bool is_in(const group_progress *rank, uint32_t sequence)
{
	return rank->known && rank->current == sequence;
}

/* The signature of more than half of the ranks, if there is one. A rank is not right just because it is the first. */
static const char *find_majority(const group_progress *ranks, int size, uint32_t sequence)
{
	const char *candidate = NULL;
	int votes = 0;
	for (int rank = 0; rank < size; rank++) {
		if (!is_in(&ranks[rank], sequence))
			continue;
		if (votes == 0)
			candidate = ranks[rank].signature;
		votes += strcmp(candidate, ranks[rank].signature) == 0 ? 1 : -1;
	}
	return candidate;
}

static rank_list ranks_with(const group_progress *ranks, int size, uint32_t sequence, const char *signature)
{
	rank_list list = {0};
	for (int rank = 0; rank < size; rank++)
		if (is_in(&ranks[rank], sequence) && strcmp(ranks[rank].signature, signature) == 0)
			dtrain__rank_list_add(&list, ranks[rank].rank);
	return list;
}

static void compare_signatures(const group_progress *ranks, int size, uint32_t sequence, char *text, size_t text_size)
{
	const char *most = find_majority(ranks, size, sequence);
	for (int rank = 0; rank < size && most; rank++) {
		if (!is_in(&ranks[rank], sequence) || strcmp(ranks[rank].signature, most) == 0)
			continue;
		rank_list some = ranks_with(ranks, size, sequence, most);
		rank_list others = ranks_with(ranks, size, sequence, ranks[rank].signature);
		bt_append(text, text_size, "; collective #%u is ", sequence);
		bt_append(text, text_size, "%s on ", most);
		append_ranks(text, text_size, &some, "and", "and");
		bt_append(text, text_size, " %s on rank%s %s", ranks[rank].signature, others.count > 1 ? "s" : "",
			  others.names);
		return;
	}
}

void dtrain__progress_compare(const group_progress *ranks, int size, char *text, size_t text_size)
{
	const group_progress *least = NULL;
	int known = 0;
	for (int rank = 0; rank < size; rank++) {
		known += ranks[rank].known;
		if (ranks[rank].known && (!least || ranks[rank].completed < least->completed))
			least = &ranks[rank];
	}
	if (!least)
		return;
	rank_list behind = select_ranks(ranks, size, least->completed + 1, false);
	const char *name = find_name(ranks, size, least->completed + 1);
	if (behind.count && select_ranks(ranks, size, least->completed + 1, true).count) {
		bt_append(text, text_size, "; ");
		append_ranks(text, text_size, &behind, "has", "have");
		if (name)
			bt_append(text, text_size, " not begun %s", name);
		else
			bt_append(text, text_size, " not begun collective #%u", least->completed + 1);
	}
	compare_signatures(ranks, size, least->completed + 1, text, text_size);
	if (least->completed)
		bt_append(text, text_size, "; the last that %s completed is %s",
			  known == size ? "all ranks" : "all ranks that answer", least->last);
}
