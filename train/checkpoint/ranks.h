/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that save or load together tell each other. ranks NULL, here: one that is alone. err is not NULL. */
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

/* A barrier with a result: what the first rank failed with, if one did, for all of them. MISMATCH, naming `what`: token
 * is not the same on all. */
int dtrain__ranks_agree(const dtrain_checkpoint_ranks *ranks, uint64_t token, const char *what, int status,
			beton_error *err);

/* `bytes`, the same on all ranks, of each; malloc'ed. */
int dtrain__ranks_gather(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t bytes, void **all,
			 beton_error *err);

/* What each rank has given, of any length: that of rank r is (char *)all + r * stride, and has lengths[r] bytes. */
typedef struct ranks_texts {
	void *all;
	size_t stride;
	uint64_t *lengths;
} ranks_texts;

int dtrain__ranks_gather_texts(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t length, ranks_texts *out,
			       beton_error *err);
void dtrain__ranks_texts_free(ranks_texts *texts);

#endif
