/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest gradients alone, as pairs of index and value.
 */
#include "compress.h"
#include "parallel/data/traffic.h"

typedef struct pairs_range {
	compress_range base;
	int64_t k;          /* pairs of a rank */
	void *chosen, *all; /* this rank's pairs, and all ranks' pairs */
	dtrain_op *top_k, *spread;
} pairs_range;

static void destroy(void *state)
{
	pairs_range *pairs = state;
	dtrain__compress_destroy_op(&pairs->base, pairs->top_k);
	dtrain__compress_destroy_op(&pairs->base, pairs->spread);
	dtrain__compress_close(&pairs->base);
}

/* A rank's input of the gather. */
static uint64_t given(const pairs_range *pairs)
{
	return (uint64_t)pairs->k * DTRAIN_PAIR_BYTES;
}

static uint64_t sent(const void *state, int round)
{
	const pairs_range *pairs = state;
	(void)round;
	return dtrain__sent_of_parts(given(pairs) * (uint64_t)pairs->base.ranks, pairs->base.ranks);
}

static int prepare(pairs_range *pairs, beton_error *err)
{
	int64_t count = pairs->base.range.count, k = (int64_t)(pairs->base.context->options.ratio * (double)count);
	pairs->k = k < 1 ? 1 : k;
	size_t bytes = (size_t)given(pairs);
	const dtrain_operand all = dtrain__compress_operand(DTRAIN_F32, count, 0, 0);
	const dtrain_op_desc top_k = {.kind = DTRAIN_OP_TOP_K,
				      .num_inputs = 1,
				      .num_outputs = 2,
				      .inputs = {all},
				      .outputs = {dtrain__compress_operand(DTRAIN_U8, pairs->k, DTRAIN_PAIR_BYTES, 0),
						  all}},
			     spread = {.kind = DTRAIN_OP_SPREAD,
				       .num_inputs = 1,
				       .num_outputs = 1,
				       .inputs = {dtrain__compress_operand(DTRAIN_U8, pairs->base.ranks, pairs->k,
									   DTRAIN_PAIR_BYTES)},
				       .outputs = {all}};
	int status = dtrain__compress_alloc(&pairs->base, bytes, &pairs->chosen, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(&pairs->base, bytes * (size_t)pairs->base.ranks, &pairs->all, err);
	if (status == BETON_OK)
		status = dtrain__compress_op(&pairs->base, &top_k, &pairs->top_k, err);
	return status == BETON_OK ? dtrain__compress_op(&pairs->base, &spread, &pairs->spread, err) : status;
}

static int create(void *context, const dtrain_hook_range *range, void **out, beton_error *err)
{
	int status = dtrain__compress_open(context, range, sizeof(pairs_range), true, out, err);
	if (status == BETON_OK && (status = prepare(*out, err)) != BETON_OK)
		destroy(*out);
	return status;
}

static int run_round(void *state, dtrain_hook_round *round, beton_error *err)
{
	pairs_range *pairs = state;
	float *from;
	int status = dtrain__compress_take(&pairs->base, round->stream, &from, err);
	if (status == BETON_OK)
		status = dtrain__compress_run(&pairs->base, pairs->top_k, round->stream,
					      (void *[]){from, pairs->chosen, from}, err);
	if (status == BETON_OK)
		status = pairs->base.api->event_record(round->ready, round->stream, err);
	round->bytes = given(pairs);
	return status == BETON_OK
		       ? dtrain_all_gather(pairs->base.range.group, pairs->all, pairs->chosen,
					   pairs->k * DTRAIN_PAIR_BYTES, DTRAIN_U8, round->ready, &round->work, err)
		       : status;
}

static int finish(void *state, dtrain_stream *stream, beton_error *err)
{
	pairs_range *pairs = state;
	return dtrain__compress_run(&pairs->base, pairs->spread, stream,
				    (void *[]){pairs->all, pairs->base.range.memory}, err);
}

const dtrain_hook dtrain__compress_topk = {.struct_size = sizeof(dtrain_hook),
					   .name = "topk",
					   .rounds = 1,
					   .create = create,
					   .destroy = destroy,
					   .round = run_round,
					   .finish = finish,
					   .tensors = dtrain__compress_error_tensors,
					   .bytes = dtrain__compress_bytes,
					   .sent = sent};
