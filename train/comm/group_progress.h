/* SPDX-License-Identifier: Apache-2.0
 *
 * How far each rank of a group came, as ranks tell each other after a failure: which rank did not begin what the others
 * are in, and where ranks called different operations.
 */
#ifndef DTRAIN_COMM_GROUP_PROGRESS_H
#define DTRAIN_COMM_GROUP_PROGRESS_H

#include "group_history.h"

/* "1, 2, 3", cut with "..." when it gets long. */
typedef struct rank_list {
	char names[160];
	int count;
} rank_list;

void dtrain__rank_list_add(rank_list *list, int rank);

/* Of the collectives of one rank; messages between two ranks say nothing about the others. */
typedef struct group_progress {
	bool known;
	uint32_t completed; /* sequence of the last one that is complete; 0: none */
	uint32_t current;   /* of the first one behind it that was called; 0: none */
	bool begun;         /* the current one was started */
	char last[112];     /* "allreduce #416 (bucket 2)": the completed one */
	char next[112];     /* the current one */
	char signature[96]; /* "allreduce of 1024 f32 (sum)": what has to be the same on all ranks of the current one */
} group_progress;

/* As text of three lines behind `code`, and back. parse: false when it is no such text; *code is set in any case. */
#define GROUP_PROGRESS_TEXT 400
void dtrain__progress_take(group_history *history, group_progress *out);
void dtrain__progress_format(const group_progress *progress, int code, char text[GROUP_PROGRESS_TEXT]);
bool dtrain__progress_parse(const char *text, int *code, group_progress *out);

/* What the known ones of `size` ranks' differ in, behind what is in text already. */
void dtrain__progress_compare(const group_progress *ranks, int size, char *text, size_t text_size);

#endif
