/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

int dtrain__ranks_gather(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t bytes, void **all,
			 beton_error *err)
{
	int size = dtrain__ranks_size(ranks);
	*all = malloc(bytes * (size_t)size);
	if (!*all)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for what %d ranks say", size);
	if (!ranks) {
		memcpy(*all, mine, bytes);
		return BETON_OK;
	}
	int status = ranks->all_gather(ranks->context, mine, bytes, *all, err);
	if (status != BETON_OK) {
		free(*all);
		*all = NULL;
	}
	return status;
}

int dtrain__ranks_agree(const dtrain_checkpoint_ranks *ranks, uint64_t token, const char *what, int status,
			beton_error *err)
{
	struct said {
		beton_error error;
		uint64_t token;
	} mine, *all = NULL;
	if (!ranks)
		return status;
	memset(&mine, 0, sizeof(mine));
	if (status != BETON_OK) {
		mine.error = *err;
		mine.error.code = status;
	}
	mine.token = token;
	status = dtrain__ranks_gather(ranks, &mine, sizeof(mine), (void **)&all, err);
	for (int rank = 0; rank < ranks->size && status == BETON_OK; rank++) {
		if (all[rank].error.code == BETON_OK)
			continue;
		*err = all[rank].error;
		status = err->code;
		/* An error that this rank found, too, is not attributed to one rank. */
		if (strcmp(err->message, mine.error.message) != 0)
			bt_prefix(err, "rank %d", rank);
	}
	for (int rank = 0; rank < ranks->size && status == BETON_OK; rank++)
		if (all[rank].token != all[0].token)
			status = bt_fail(err, BETON_MISMATCH, "%s: that of rank %d is not that of rank 0", what, rank);
	free(all);
	return status;
}

int dtrain__ranks_gather_texts(const dtrain_checkpoint_ranks *ranks, const void *mine, size_t length, ranks_texts *out,
			       beton_error *err)
{
	uint64_t own = length, *lengths = NULL, longest = 1;
	char *padded = NULL;
	*out = (ranks_texts){0};
	int status = dtrain__ranks_gather(ranks, &own, sizeof(own), (void **)&lengths, err);
	if (status != BETON_OK)
		return status;
	for (int rank = 0; rank < dtrain__ranks_size(ranks); rank++)
		longest = lengths[rank] > longest ? lengths[rank] : longest;
	padded = calloc(1, longest);
	if (!padded)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for what this rank has to say");
	else if (length)
		memcpy(padded, mine, length);
	status = dtrain__ranks_agree(ranks, 0, "", status, err);
	if (status == BETON_OK)
		status = dtrain__ranks_gather(ranks, padded, longest, &out->all, err);
	free(padded);
	out->stride = longest;
	out->lengths = lengths;
	if (status != BETON_OK)
		dtrain__ranks_texts_free(out);
	return status;
}

void dtrain__ranks_texts_free(ranks_texts *texts)
{
	free(texts->all);
	free(texts->lengths);
	*texts = (ranks_texts){0};
}
