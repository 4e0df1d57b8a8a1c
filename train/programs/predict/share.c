/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"

/* Letters of a rank that rank 0 has not read yet. */
enum { LETTERS = 4 };

/* A letter has a head and, of a batch, its rows. */
enum { NUMBER, BYTES, COUNT, BAD, STOPPED, HEAD };

#define LAST INT64_MAX /* number of the letter after the last batch */

typedef struct predict_letter {
	int64_t head[HEAD];
	char *text;
	dtrain_work *works[2];
	bool read; /* rank 0 has read the head */
} predict_letter;

static bool is_first(const predict_share *share)
{
	return share->team->env.rank == 0;
}

static uint64_t ranks_of(const predict_share *share)
{
	return rank_team_shares(share->team) ? (uint64_t)share->team->env.world_size : 1;
}

static uint64_t rank_of(const predict_share *share)
{
	return rank_team_shares(share->team) ? (uint64_t)share->team->env.rank : 0;
}

int predict_share_open(predict_share *share, const rank_team *team, predict_rows *rows, uint64_t batch_size,
		       beton_error *err)
{
	*share = (predict_share){.team = team, .rows = rows, .batch_size = batch_size};
	uint64_t ranks = ranks_of(share);
	if (ranks == 1)
		return BETON_OK;
	share->letters = calloc(is_first(share) ? ranks : LETTERS, sizeof(*share->letters));
	return share->letters ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the rows of the ranks");
}

uint64_t predict_share_batches(const predict_share *share, uint64_t samples)
{
	uint64_t batches = (samples + share->batch_size - 1) / share->batch_size;
	return (batches + ranks_of(share) - 1 - rank_of(share)) / ranks_of(share);
}

uint64_t predict_share_sample(const predict_share *share, uint64_t position)
{
	uint64_t batch = position / share->batch_size * ranks_of(share) + rank_of(share);
	return batch * share->batch_size + position % share->batch_size;
}

/* The last batch of all may be short. */
uint64_t predict_share_samples(const predict_share *share, uint64_t samples)
{
	uint64_t batches = predict_share_batches(share, samples), most = batches * share->batch_size;
	uint64_t end = batches ? predict_share_sample(share, most - 1) + 1 : 0;
	return end > samples ? most - (end - samples) : most;
}

static int send_letter(predict_share *share, predict_letter *letter, beton_error *err)
{
	dtrain_group *group = share->team->host_group;
	int status = dtrain_send(group, letter->head, HEAD, DTRAIN_I64, 0, 0, NULL, &letter->works[0], err);
	if (status == BETON_OK && letter->head[BYTES])
		status = dtrain_send(group, letter->text, letter->head[BYTES], DTRAIN_U8, 0, 0, NULL, &letter->works[1],
				     err);
	return status;
}

static int wait_for(predict_letter *letter, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < 2; i++)
		if (letter->works[i]) {
			int ended = dtrain_work_wait(&letter->works[i], status == BETON_OK ? err : NULL);
			status = status == BETON_OK ? ended : status;
		}
	free(letter->text);
	*letter = (predict_letter){.read = false};
	return status;
}

static int post(predict_share *share, const int64_t *head, char *text, beton_error *err)
{
	predict_letter *letter = &share->letters[share->next];
	share->next = (share->next + 1) % LETTERS;
	int status = wait_for(letter, err);
	for (int i = 0; i < HEAD; i++)
		letter->head[i] = head[i];
	letter->text = text;
	return status == BETON_OK ? send_letter(share, letter, err) : status;
}

/* ---- rank 0 ---- */

static int receive(const predict_share *share, int rank, void *data, int64_t count, dtrain_dtype dtype,
		   beton_error *err)
{
	dtrain_work *work = NULL;
	int status = dtrain_recv(share->team->host_group, data, count, dtype, rank, 0, NULL, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

static int read_heads(predict_share *share, beton_error *err)
{
	int status = BETON_OK;
	for (int rank = 1; rank < share->team->env.world_size && status == BETON_OK; rank++) {
		predict_letter *letter = &share->letters[rank];
		if (letter->read)
			continue;
		status = receive(share, rank, letter->head, HEAD, DTRAIN_I64, err);
		letter->read = status == BETON_OK;
		if (status == BETON_OK && letter->head[STOPPED])
			status = bt_fail(err, BETON_PEER_LOST, "rank %d was asked to stop", rank);
	}
	return status;
}

static int write_letter(predict_share *share, int rank, beton_error *err)
{
	predict_letter *letter = &share->letters[rank];
	size_t bytes = (size_t)letter->head[BYTES];
	char *text = malloc(bytes + 1);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the rows of rank %d", rank);
	int status = receive(share, rank, text, (int64_t)bytes, DTRAIN_U8, err);
	if (status == BETON_OK && fwrite(text, 1, bytes, share->rows->file) != bytes)
		status = bt_fail_errno(err, errno, "cannot write the results");
	free(text);
	letter->read = false;
	return status;
}

/* Writes the rows of all batches below the number. */
static int collect(predict_share *share, int64_t number, beton_error *err)
{
	for (;;) {
		int first = 1, status = read_heads(share, err);
		if (status != BETON_OK)
			return status;
		for (int rank = 2; rank < share->team->env.world_size; rank++)
			if (share->letters[rank].head[NUMBER] < share->letters[first].head[NUMBER])
				first = rank;
		if (share->letters[first].head[NUMBER] >= number)
			return BETON_OK;
		status = write_letter(share, first, err);
		if (status != BETON_OK)
			return status;
	}
}

/* ---- batches ---- */

int predict_share_begin(predict_share *share, uint64_t number, beton_error *err)
{
	if (!share->letters)
		return BETON_OK;
	if (is_first(share))
		return collect(share, (int64_t)(number / share->batch_size), err);
	share->rows->file = open_memstream(&share->text, &share->size);
	return share->rows->file ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the rows of a batch");
}

int predict_share_end(predict_share *share, uint64_t number, beton_error *err)
{
	if (!share->letters || is_first(share))
		return BETON_OK;
	int closed = fclose(share->rows->file);
	char *text = share->text;
	const int64_t head[HEAD] = {[NUMBER] = (int64_t)(number / share->batch_size), [BYTES] = (int64_t)share->size};
	share->rows->file = NULL;
	share->text = NULL;
	if (closed != 0) {
		free(text);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the rows of a batch");
	}
	return post(share, head, text, err);
}

int predict_share_finish(predict_share *share, bool interrupted, int64_t *count, int64_t *bad, beton_error *err)
{
	const int64_t head[HEAD] = {[NUMBER] = LAST, [COUNT] = *count, [BAD] = *bad, [STOPPED] = interrupted};
	if (!share->letters)
		return BETON_OK;
	if (!is_first(share)) {
		int status = post(share, head, NULL, err);
		for (int i = 0; i < LETTERS && status == BETON_OK; i++)
			status = wait_for(&share->letters[i], err);
		return status;
	}
	int status = interrupted ? BETON_OK : collect(share, LAST, err);
	for (int rank = 1; rank < share->team->env.world_size && status == BETON_OK && !interrupted; rank++) {
		*count += share->letters[rank].head[COUNT];
		*bad += share->letters[rank].head[BAD];
	}
	return status;
}

/* After a failure the groups have ended the letters on their way. */
void predict_share_close(predict_share *share)
{
	int letters = share->letters && !is_first(share) ? LETTERS : 0;
	if (letters && share->rows->file)
		fclose(share->rows->file);
	if (letters)
		share->rows->file = NULL;
	free(share->text);
	for (int i = 0; i < letters; i++)
		wait_for(&share->letters[i], NULL);
	free(share->letters);
	*share = (predict_share){.team = NULL};
}
