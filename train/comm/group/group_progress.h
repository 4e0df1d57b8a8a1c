/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress of each rank, which ranks exchange after a failure: shows which rank did not begin the operation that
 * the others are in, and where ranks called different operations.
 */
#ifndef DTRAIN_COMM_GROUP_GROUP_PROGRESS_H
#define DTRAIN_COMM_GROUP_GROUP_PROGRESS_H

#include "group_history.h"

/* "1, 2, 3", cut with "..." when it gets long. */
typedef struct rank_list {
	char names[160];
	int count;
} rank_list;

void dtrain__rank_list_add(rank_list *list, int rank);

/* Progress of one rank's collectives. Messages between two ranks say nothing about other ranks. */
typedef struct group_progress {
	bool known;
	int rank;           /* for messages; set by the caller of compare */
	uint32_t completed; /* sequence of the last complete one; 0: none */
	uint32_t current;   /* sequence of the first called one after it; 0: none */
	bool begun;         /* the current one was started */
	char last[112];     /* the completed one: "allreduce #416 (bucket 2)" */
	char next[112];     /* the current one */
	char signature[96]; /* must be equal on all ranks in the current one: "allreduce of 1024 f32 (sum)" */
} group_progress;

/* Takes the progress of a rank of the group. */
void dtrain__progress_take(group_history *history, const group_membership *member, group_progress *out);
/* Progress as text: `code`, then three lines. parse returns false for any other text, but always sets *code. */
#define GROUP_PROGRESS_TEXT 400
void dtrain__progress_format(const group_progress *progress, int code, char text[GROUP_PROGRESS_TEXT]);
bool dtrain__progress_parse(const char *text, int *code, group_progress *out);

/* Appends the differences between the known ones of `size` ranks to text. */
void dtrain__progress_compare(const group_progress *ranks, int size, char *text, size_t text_size);

#endif
