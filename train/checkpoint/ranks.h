/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks that save or load together. ranks is NULL for a single rank; err is not NULL. */
#ifndef DTRAIN_CHECKPOINT_RANKS_H
#define DTRAIN_CHECKPOINT_RANKS_H

#include <dtrain/checkpoint.h>

static inline int dtrain__ranks_self(const dtrain_checkpoint_ranks *ranks)
{
	return ranks ? ranks->rank : 0;
}

static inline int dtrain__ranks_size(const dtrain_checkpoint_ranks *ranks)
{
	return ranks ? ranks->size : 1;
}

/* A barrier that returns the first failing rank's error on all ranks. MISMATCH, naming `what`: token differs between
 * ranks. */
int dtrain__ranks_agree(const dtrain_checkpoint_ranks *ranks, uint64_t token, const char *what, int status,
			beton_error *err);

/* Gathers `bytes` bytes (the same number on all ranks) from each rank; malloc'ed. */
int dtrain__ranks_gather(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t bytes, void **all,
			 beton_error *err);

/* Texts of any length from each rank: that of rank r is at (char *)all + r * stride, and has lengths[r] bytes. */
typedef struct ranks_texts {
	void *all;
	size_t stride;
	uint64_t *lengths;
} ranks_texts;

int dtrain__ranks_gather_texts(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t length, ranks_texts *out,
			       beton_error *err);
void dtrain__ranks_texts_free(ranks_texts *texts);

#endif
