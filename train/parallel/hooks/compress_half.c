/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are sent in a type of 16 bits.
 */
#include "compress.h"
#include "parallel/data/traffic.h"

typedef struct half_range {
	compress_range base;
	dtrain_dtype dtype;
	void *rounded;
	dtrain_op *narrow, *widen;
} half_range;

static void destroy(void *state)
{
	half_range *half = state;
	dtrain__compress_destroy_op(&half->base, half->narrow);
	dtrain__compress_destroy_op(&half->base, half->widen);
	dtrain__compress_close(&half->base);
}

dtrain_op_desc dtrain__compression_narrow(int64_t count, dtrain_dtype dtype, int ranks)
{
	return (dtrain_op_desc){.kind = DTRAIN_OP_NARROW,
				.attrs.factor = 1.0 / ranks,
				.num_inputs = 1,
				.num_outputs = 1,
				.inputs = {dtrain__compress_operand(DTRAIN_F32, count, 0, 0)},
				.outputs = {dtrain__compress_operand(dtype, count, 0, 0)}};
}

dtrain_op_desc dtrain__compression_widen(int64_t count, dtrain_dtype dtype, int ranks)
{
	return (dtrain_op_desc){.kind = DTRAIN_OP_WIDEN,
				.attrs.factor = ranks,
				.num_inputs = 1,
				.num_outputs = 1,
				.inputs = {dtrain__compress_operand(dtype, count, 0, 0)},
				.outputs = {dtrain__compress_operand(DTRAIN_F32, count, 0, 0)}};
}

/* A rank's input of the allreduce. */
static uint64_t given(const half_range *half)
{
	return (uint64_t)half->base.range.count * dtrain_dtype_size(half->dtype);
}

static uint64_t sent(const void *state, int round)
{
	const half_range *half = state;
	(void)round;
	return dtrain__sent_for_sum(given(half), half->base.ranks);
}

static int create_ops(half_range *half, beton_error *err)
{
	int64_t count = half->base.range.count;
	const dtrain_op_desc narrow = dtrain__compression_narrow(count, half->dtype, half->base.ranks),
			     widen = dtrain__compression_widen(count, half->dtype, half->base.ranks);
	int status = dtrain__compress_alloc(&half->base, (size_t)given(half), &half->rounded, err);
	if (status == BETON_OK)
		status = dtrain__compress_op(&half->base, &narrow, &half->narrow, err);
	return status == BETON_OK ? dtrain__compress_op(&half->base, &widen, &half->widen, err) : status;
}

static int create(void *context, const dtrain_hook_range *range, dtrain_dtype dtype, void **out, beton_error *err)
{
	int status = dtrain__compress_open(context, range, sizeof(half_range), false, out, err);
	if (status != BETON_OK)
		return status;
	((half_range *)*out)->dtype = dtype;
	status = create_ops(*out, err);
	if (status != BETON_OK)
		destroy(*out);
	return status;
}

static int create_f16(void *context, const dtrain_hook_range *range, void **out, beton_error *err)
{
	return create(context, range, DTRAIN_F16, out, err);
}

static int create_bf16(void *context, const dtrain_hook_range *range, void **out, beton_error *err)
{
	return create(context, range, DTRAIN_BF16, out, err);
}

static int run_round(void *state, dtrain_hook_round *round, beton_error *err)
{
	half_range *half = state;
	const dtrain_hook_range *range = &half->base.range;
	int status = dtrain__compress_run(&half->base, half->narrow, round->stream,
					  (void *[]){range->memory, half->rounded}, err);
	if (status == BETON_OK)
		status = half->base.api->event_record(round->ready, round->stream, err);
	round->bytes = given(half);
	return status == BETON_OK ? dtrain_allreduce(range->group, half->rounded, range->count, half->dtype, DTRAIN_SUM,
						     round->ready, &round->work, err)
				  : status;
}

static int finish(void *state, dtrain_stream *stream, beton_error *err)
{
	half_range *half = state;
	return dtrain__compress_run(&half->base, half->widen, stream,
				    (void *[]){half->rounded, half->base.range.memory}, err);
}

#define METHOD(type)                                                                                       \
	{                                                                                                  \
		.struct_size = sizeof(dtrain_hook), .name = #type, .rounds = 1, .create = create_##type,   \
		.destroy = destroy, .round = run_round, .finish = finish, .bytes = dtrain__compress_bytes, \
		.sent = sent,                                                                              \
	}

const dtrain_hook dtrain__compress_f16 = METHOD(f16), dtrain__compress_bf16 = METHOD(bf16);

bool dtrain__compression_rounds(const dtrain_hook *hook, dtrain_dtype *out)
{
	bool rounds = hook->create == create_f16 || hook->create == create_bf16;
	if (rounds)
		*out = hook->create == create_f16 ? DTRAIN_F16 : DTRAIN_BF16;
	return rounds;
}
