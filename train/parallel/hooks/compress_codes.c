/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte for each gradient, and a scale for each block. Rank r gets all ranks' codes of part r, adds them up, and sends
 * codes of the sum to all, so that the bytes of a rank do not grow with the number of ranks. Codes of the sum leave a
 * remainder, too, which its rank feeds back to the part.
 */
#include "compress.h"
#include "parallel/data/traffic.h"

typedef struct codes_range {
	compress_range base;
	int64_t part;          /* blocks of a part */
	void *codes, *parts;   /* of all parts: this rank's, later the sum's; of this rank's part: all ranks' */
	void *own;             /* codes of the part's sum */
	float *sum;            /* of the part */
	float *error;          /* of the sums that were sent; NULL: it is not fed back */
	dtrain_op *quantize;   /* the range */
	dtrain_op *add_up;     /* of all ranks the codes of the part */
	dtrain_op *add_error;  /* error += sum */
	dtrain_op *round_sum;  /* the sum's codes */
	dtrain_op *dequantize; /* the range */
} codes_range;

static void destroy(void *state)
{
	codes_range *codes = state;
	dtrain_op *ops[] = {codes->quantize, codes->add_up, codes->add_error, codes->round_sum, codes->dequantize};
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		dtrain__compress_destroy_op(&codes->base, ops[i]);
	dtrain__compress_close(&codes->base);
}

static size_t part_bytes(const codes_range *codes)
{
	return (size_t)codes->part * DTRAIN_CODE_BYTES;
}

/* A rank's inputs of the exchange of parts, and of the gather of their sums. */
static uint64_t given(const codes_range *codes, int round)
{
	return part_bytes(codes) * (round == 0 ? (uint64_t)codes->base.ranks : 1);
}

static uint64_t sent(const void *state, int round)
{
	const codes_range *codes = state;
	int ranks = codes->base.ranks;
	return dtrain__sent_of_parts(given(codes, round) * (round == 0 ? 1 : (uint64_t)ranks), ranks);
}

static int create_memories(codes_range *codes, beton_error *err)
{
	compress_range *base = &codes->base;
	size_t all = part_bytes(codes) * (size_t)base->ranks;
	size_t sum = (size_t)codes->part * DTRAIN_CODE_BLOCK * sizeof(float);
	int status = dtrain__compress_alloc(base, all, &codes->codes, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(base, all, &codes->parts, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(base, part_bytes(codes), &codes->own, err);
	if (status == BETON_OK)
		status = dtrain__compress_alloc(base, sum, &codes->sum, err);
	return status == BETON_OK && base->feeds_back ? dtrain__compress_alloc(base, sum, &codes->error, err) : status;
}

static int create_ops(codes_range *codes, beton_error *err)
{
	compress_range *base = &codes->base;
	int64_t ranks = base->ranks, part = codes->part;
	const dtrain_operand all = dtrain__compress_operand(DTRAIN_F32, base->range.count, 0, 0),
			     sum = dtrain__compress_operand(DTRAIN_F32, part * DTRAIN_CODE_BLOCK, 0, 0),
			     sent = dtrain__compress_operand(DTRAIN_U8, ranks * part, DTRAIN_CODE_BYTES, 0),
			     parts = dtrain__compress_operand(DTRAIN_U8, ranks, part, DTRAIN_CODE_BYTES),
			     own = dtrain__compress_operand(DTRAIN_U8, part, DTRAIN_CODE_BYTES, 0),
			     whole = dtrain__compress_operand(DTRAIN_U8, 1, ranks * part, DTRAIN_CODE_BYTES);
	const struct {
		dtrain_op_desc desc;
		dtrain_op **op;
	} made[] = {
		{{.kind = DTRAIN_OP_QUANTIZE, {0}, 1, 2, {all}, {sent, all}}, &codes->quantize},
		{{.kind = DTRAIN_OP_DEQUANTIZE, {0}, 1, 1, {parts}, {sum}}, &codes->add_up},
		{{.kind = DTRAIN_OP_ADD, {0}, 2, 1, {sum, sum}, {sum}}, &codes->add_error},
		{{.kind = DTRAIN_OP_QUANTIZE, {0}, 1, 2, {sum}, {own, sum}}, &codes->round_sum},
		{{.kind = DTRAIN_OP_DEQUANTIZE, {0}, 1, 1, {whole}, {all}}, &codes->dequantize},
	};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]) && status == BETON_OK; i++)
		status = dtrain__compress_op(base, &made[i].desc, made[i].op, err);
	return status;
}

static int create(void *context, const dtrain_hook_range *range, void **out, beton_error *err)
{
	int status = dtrain__compress_open(context, range, sizeof(codes_range), true, out, err);
	if (status != BETON_OK)
		return status;
	codes_range *codes = *out;
	int64_t blocks = (range->count + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK;
	codes->part = (blocks + codes->base.ranks - 1) / codes->base.ranks;
	status = create_memories(codes, err);
	if (status == BETON_OK)
		status = create_ops(codes, err);
	if (status != BETON_OK)
		destroy(codes);
	return status;
}

static int send_codes(codes_range *codes, dtrain_hook_round *round, beton_error *err)
{
	compress_range *base = &codes->base;
	float *from;
	int status = dtrain__compress_take(base, round->stream, &from, err);
	if (status == BETON_OK)
		status = dtrain__compress_run(base, codes->quantize, round->stream,
					      (void *[]){from, codes->codes, from}, err);
	if (status == BETON_OK)
		status = base->api->event_record(round->ready, round->stream, err);
	round->bytes = given(codes, 0);
	return status == BETON_OK
		       ? dtrain_all_to_all(base->range.group, codes->parts, codes->codes, (int64_t)part_bytes(codes),
					   DTRAIN_U8, round->ready, &round->work, err)
		       : status;
}

static int send_sum(codes_range *codes, dtrain_hook_round *round, beton_error *err)
{
	compress_range *base = &codes->base;
	float *from = codes->error ? codes->error : codes->sum;
	int status =
		dtrain__compress_run(base, codes->add_up, round->stream, (void *[]){codes->parts, codes->sum}, err);
	if (status == BETON_OK && codes->error)
		status = dtrain__compress_run(base, codes->add_error, round->stream,
					      (void *[]){codes->error, codes->sum, codes->error}, err);
	if (status == BETON_OK)
		status = dtrain__compress_run(base, codes->round_sum, round->stream, (void *[]){from, codes->own, from},
					      err);
	if (status == BETON_OK)
		status = base->api->event_record(round->ready, round->stream, err);
	round->bytes = given(codes, 1);
	return status == BETON_OK
		       ? dtrain_all_gather(base->range.group, codes->codes, codes->own, (int64_t)part_bytes(codes),
					   DTRAIN_U8, round->ready, &round->work, err)
		       : status;
}

static int run_round(void *state, dtrain_hook_round *round, beton_error *err)
{
	return round->index == 0 ? send_codes(state, round, err) : send_sum(state, round, err);
}

static int finish(void *state, dtrain_stream *stream, beton_error *err)
{
	codes_range *codes = state;
	return dtrain__compress_run(&codes->base, codes->dequantize, stream,
				    (void *[]){codes->codes, codes->base.range.memory}, err);
}

/* Lists this rank's part of the error sum of each parameter. */
static int sum_tensors(codes_range *codes, dtrain_hook_tensor *out, int capacity)
{
	compress_range *base = &codes->base;
	int64_t elements = codes->part * DTRAIN_CODE_BLOCK, first = elements * base->rank;
	for (int i = 0; codes->error && i < base->range.num_parts && i < capacity; i++) {
		const dtrain_hook_part *part = &base->range.parts[i];
		int64_t begin = part->offset < first ? first : part->offset, end = part->offset + part->count;
		end = end < first + elements ? end : first + elements;
		out[i] = (dtrain_hook_tensor){
			.name = dtrain__compress_name(base, part->param->name, "compress_sum_error"),
			.dtype = DTRAIN_F32,
			.shape = dtrain_shape_of(1, &part->param->count),
			.extent = {part->param->count},
			.first = end > begin ? part->begin + begin - part->offset : 0,
			.count = end > begin ? end - begin : 0,
			.memory = end > begin ? codes->error + (begin - first) : codes->error,
			.device = base->range.device};
	}
	return codes->error ? base->range.num_parts : 0;
}

static int tensors(void *state, dtrain_hook_tensor *out, int capacity)
{
	int count = dtrain__compress_error_tensors(state, out, capacity);
	return count +
	       sum_tensors(state, out + (count < capacity ? count : capacity), count < capacity ? capacity - count : 0);
}

const dtrain_hook dtrain__compress_int8 = {.struct_size = sizeof(dtrain_hook),
					   .name = "int8",
					   .rounds = 2,
					   .create = create,
					   .destroy = destroy,
					   .round = run_round,
					   .finish = finish,
					   .tensors = tensors,
					   .bytes = dtrain__compress_bytes,
					   .sent = sent};
