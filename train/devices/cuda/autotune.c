/* SPDX-License-Identifier: Apache-2.0 */
#include "autotune.h"

#include <inttypes.h>
#include <string.h>

#include "algorithms.h"
#include "algorithms_bench.h"
#include "common/system.h"
#include "core/op.h"

enum { MAX_OPERANDS = 2 * DTRAIN_OP_MAX_OPERANDS, SIGNATURE_SIZE = 512 };

/* An op on the device, and its operands' offsets in the bench's memory. */
typedef struct entry {
	dtrain_op op;
	size_t offsets[MAX_OPERANDS], workspace;
} entry;

typedef struct side {
	entry ops[CUDA_CHAIN];
	int count; /* 0: this way cannot run it */
	size_t bytes;
} side;

typedef struct autotune {
	cuda_bench bench;
	side sides[2];
	int index, tried; /* -1: none */
	bool lacks_memory;
} autotune;

static dtrain_operand *operand_of(dtrain_op_desc *desc, int index)
{
	return index < desc->num_inputs ? &desc->inputs[index] : &desc->outputs[index - desc->num_inputs];
}

static int num_operands(const dtrain_op_desc *desc)
{
	return desc->num_inputs + desc->num_outputs;
}

static size_t bytes_of(const dtrain_operand *operand)
{
	size_t least = (size_t)dtrain_shape_count(&operand->shape) * dtrain_dtype_size(operand->dtype);
	return operand->bytes > least ? operand->bytes : least;
}

/* ---- the store ---- */

static void sign_operand(char *text, const dtrain_operand *operand)
{
	bt_append(text, SIGNATURE_SIZE, " %s%s", dtrain_dtype_name(operand->dtype),
		  cuda_is_nhwc(operand) ? "-nhwc" : "");
	for (int i = 0; i < operand->shape.ndim; i++)
		bt_append(text, SIGNATURE_SIZE, "%c%lld", i ? 'x' : ':', (long long)operand->shape.dim[i]);
}

static void signature_of(const dtrain_device *device, const dtrain_op_desc *desc, char text[SIGNATURE_SIZE])
{
	bool window = desc->kind == DTRAIN_OP_MAX_POOL || desc->kind == DTRAIN_OP_MAX_POOL_BWD ||
		      desc->kind == DTRAIN_OP_CONV2D;
	const dtrain_window_attrs *a = window ? &desc->attrs.window : &(dtrain_window_attrs){.stride = {0}};
	text[0] = 0;
	bt_append(text, SIGNATURE_SIZE, "contest %016" PRIx64 " %s%s k%dx%d s%dx%d p%dx%d", device->build,
		  dtrain__op_name(desc->kind), desc->attrs.relu ? " relu" : "", a->kernel[0], a->kernel[1],
		  a->stride[0], a->stride[1], a->padding[0], a->padding[1]);
	if (a->fusion != DTRAIN_FUSION_NONE)
		bt_append(text, SIGNATURE_SIZE, " fusion%d", (int)a->fusion);
	if (desc->kind == DTRAIN_OP_ATTENTION || desc->kind == DTRAIN_OP_ATTENTION_BWD) {
		const dtrain_attention_attrs *heads = &desc->attrs.attention;
		bt_append(text, SIGNATURE_SIZE, " %d/%d%s%s", heads->heads, heads->kv_heads,
			  heads->causal ? " causal" : "", heads->packed ? " packed" : "");
	}
	for (int i = 0; i < desc->num_inputs; i++)
		sign_operand(text, &desc->inputs[i]);
	bt_append(text, SIGNATURE_SIZE, " ->");
	for (int i = 0; i < desc->num_outputs; i++)
		sign_operand(text, &desc->outputs[i]);
}

static bool recall(const dtrain_device *device, const char *signature, int *winner)
{
	cuda_algorithm known;
	if (!cuda_algorithms_find(device->algorithms, signature, &known) || known.count != 1 || known.numbers[0] < 0 ||
	    known.numbers[0] > 1)
		return false;
	*winner = (int)known.numbers[0];
	return true;
}

/* ---- making the ops ---- */

/* The offset of the op's output that only its maker can read. */
static bool find_private(entry *first, size_t *offset)
{
	for (int i = 0; i < first->op.desc.num_outputs; i++)
		if (first->op.desc.outputs[i].dtype == DTRAIN_U8) {
			*offset = first->offsets[first->op.desc.num_inputs + i];
			return true;
		}
	return false;
}

static int add_op(side *s, dtrain_device *device, const dtrain_op_desc *desc, cuda_builder *build)
{
	entry *e = &s->ops[s->count];
	dtrain_op_desc local = *desc;
	e->op = (dtrain_op){.device = device};
	local.workspace_bytes = 0;
	int status = build(&e->op, &local, NULL);
	if (status != BETON_OK) {
		if (e->op.destroy)
			e->op.destroy(e->op.state);
		return status;
	}
	e->op.desc = local;
	for (int i = 0; i < num_operands(&local); i++) {
		const dtrain_operand *operand = operand_of(&local, i);
		bool from_first = s->count > 0 && i < local.num_inputs && operand->dtype == DTRAIN_U8 &&
				  find_private(&s->ops[s->count - 1], &e->offsets[i]);
		if (!from_first)
			e->offsets[i] = cuda_reserve(&s->bytes, bytes_of(operand));
	}
	e->workspace = cuda_reserve(&s->bytes, local.workspace_bytes);
	s->count++;
	return BETON_OK;
}

static void clear(side *s)
{
	while (s->count > 0) {
		dtrain_op *op = &s->ops[--s->count].op;
		if (op->destroy)
			op->destroy(op->state);
	}
}

static void make_side(side *s, dtrain_device *device, const dtrain_op_desc *desc, cuda_describer *next,
		      const cuda_way *way)
{
	dtrain_op_desc described = *desc;
	for (int i = 0; i < (next ? CUDA_CHAIN : 1) && way->builders[i]; i++) {
		if (i > 0)
			described = next(&s->ops[i - 1].op.desc);
		if (add_op(s, device, &described, way->builders[i]) == BETON_OK)
			continue;
		clear(s);
		return;
	}
}

/* ---- timing ---- */

static bool is_real(const dtrain_operand *operand)
{
	return operand->dtype == DTRAIN_F32 || operand->dtype == DTRAIN_F16 || operand->dtype == DTRAIN_BF16;
}

/* Variances are at least 0. */
static int fill(autotune *c, side *s)
{
	int status = BETON_OK;
	for (int k = 0; k < s->count; k++)
		for (int i = 0; i < s->ops[k].op.desc.num_inputs && status == BETON_OK; i++) {
			const dtrain_operand *operand = &s->ops[k].op.desc.inputs[i];
			if (is_real(operand))
				status = cuda_bench_fill(&c->bench, s->ops[k].offsets[i], bytes_of(operand),
							 operand->dtype, operand->shape.ndim == 1, NULL);
		}
	return status;
}

static int run_side(void *context, cudaStream_t stream, beton_error *err)
{
	autotune *c = context;
	side *s = &c->sides[c->index];
	int status = BETON_OK;
	for (int k = 0; k < s->count && status == BETON_OK; k++) {
		entry *e = &s->ops[k];
		void *operands[MAX_OPERANDS];
		for (int i = 0; i < num_operands(&e->op.desc); i++)
			operands[i] = (char *)c->bench.memory + e->offsets[i];
		status = e->op.run(&e->op, stream, operands, (char *)c->bench.memory + e->workspace, err);
	}
	return status;
}

/* Both sides use the same memory, one after the other. */
static int time_side(void *context, int index, double *ms, beton_error *err)
{
	autotune *c = context;
	int status = BETON_OK;
	if (c->sides[index].count == 0)
		return BETON_UNSUPPORTED;
	c->index = index;
	if (c->tried != index) {
		status = fill(c, &c->sides[index]);
		if (status == BETON_OK)
			status = cuda_bench_try(&c->bench, run_side, c, err);
		c->tried = index;
	}
	if (status == BETON_OK)
		status = cuda_bench_time(&c->bench, run_side, c, ms, err);
	c->lacks_memory |= status == BETON_NO_MEMORY;
	return status;
}

/* -1: unknown. */
static int time_both(autotune *c, dtrain_device *device)
{
	size_t bytes = c->sides[0].bytes > c->sides[1].bytes ? c->sides[0].bytes : c->sides[1].bytes;
	c->bench.gate = device->gate;
	if (cuda_bench_open(&c->bench, bytes, NULL) != BETON_OK)
		return -1;
	int winner = cuda_fastest(2, time_side, c);
	if (device->dnn)
		(void)cudnnSetStream(device->dnn, NULL); /* the handle must not keep a stream that is destroyed */
	cuda_bench_close(&c->bench);
	return c->lacks_memory ? -1 : winner;
}

static int hold(dtrain_device *device, const char *signature, const dtrain_op_desc *desc, cuda_describer *next,
		const cuda_way ways[2])
{
	autotune c = {.tried = -1};
	for (int i = 0; i < 2; i++)
		make_side(&c.sides[i], device, desc, next, &ways[i]);
	int winner = time_both(&c, device);
	clear(&c.sides[0]);
	clear(&c.sides[1]);
	if (winner < 0)
		return 0;
	const cuda_algorithm algorithm = {.count = 1, .numbers = {winner}};
	/* If the file cannot be written, the next process only loses time. */
	(void)cuda_algorithms_put(device->algorithms, signature, &algorithm, NULL);
	return winner;
}

int cuda_autotune(dtrain_device *device, const dtrain_op_desc *desc, cuda_describer *next, const cuda_way ways[2])
{
	char signature[SIGNATURE_SIZE];
	int winner = 0;
	signature_of(device, desc, signature);
	if (recall(device, signature, &winner))
		return winner;
	if (device->tuner) {
		device->untuned = true;
		return ways[0].compiles;
	}
	/* Another process may have chosen during the wait. */
	cuda_algorithms_begin(device->algorithms, &device->lock);
	if (!recall(device, signature, &winner))
		winner = hold(device, signature, desc, next, ways);
	cuda_algorithms_end(device->algorithms);
	return winner;
}

bool cuda_second_wins(dtrain_device *device, cuda_preference preference, const dtrain_op_desc *desc,
		      cuda_describer *next, const cuda_way ways[2])
{
	if (preference != CUDA_FASTEST)
		return preference == CUDA_KERNELS;
	return device->algorithms && !device->deterministic && cuda_autotune(device, desc, next, ways) == 1;
}
