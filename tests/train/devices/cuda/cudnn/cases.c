/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "core/op.h"

static dtrain_operand operand(dtrain_dtype dtype, const dtrain_shape *shape)
{
	return (dtrain_operand){
		.dtype = dtype, .shape = *shape, .bytes = (size_t)dtrain_shape_count(shape) * dtrain_dtype_size(dtype)};
}

static void add(record *out, dtrain_op_kind kind, const dtrain__op_case *c, int num_inputs,
		const dtrain_operand *inputs, int num_outputs, const dtrain_operand *outputs)
{
	dtrain_op_desc *desc = &out->ops[out->count++];
	*desc = (dtrain_op_desc){.kind = kind, .attrs = c->attrs, .num_inputs = num_inputs, .num_outputs = num_outputs};
	for (int i = 0; i < num_inputs; i++)
		desc->inputs[i] = inputs[i];
	for (int i = 0; i < num_outputs; i++)
		desc->outputs[i] = outputs[i];
}

static void add_conv(record *out, const dtrain__op_case *c, dtrain_dtype dtype)
{
	dtrain_operand x = operand(dtype, &c->shapes[0]), w = operand(DTRAIN_F32, &c->shapes[1]);
	dtrain_operand y = operand(dtype, &c->shapes[2]);
	add(out, DTRAIN_OP_CONV2D, c, 2, (dtrain_operand[]){x, w}, 1, &y);
	add(out, DTRAIN_OP_CONV2D_BWD_DATA, c, 2, (dtrain_operand[]){y, w}, 1, &x);
	add(out, DTRAIN_OP_CONV2D_BWD_DATA, c, 3, (dtrain_operand[]){y, w, x}, 1, &x);
	add(out, DTRAIN_OP_CONV2D_BWD_WEIGHT, c, 2, (dtrain_operand[]){x, y}, 1, &w);
}

static void add_norm(record *out, const dtrain__op_case *c, dtrain_dtype dtype)
{
	if (c->shapes[0].ndim != 4)
		return;
	dtrain_operand x = operand(dtype, &c->shapes[0]), v = operand(DTRAIN_F32, &c->shapes[1]);
	dtrain_operand mask = operand(DTRAIN_U8, &c->shapes[0]);
	int relu = c->attrs.relu, residual = c->optional_inputs;
	add(out, DTRAIN_OP_BATCH_NORM_TRAIN, c, 5 + residual, (dtrain_operand[]){x, v, v, v, v, x}, 3 + relu,
	    (dtrain_operand[]){x, v, v, mask});
	add(out, DTRAIN_OP_BATCH_NORM_BWD, c, 5 + relu, (dtrain_operand[]){x, x, v, v, v, mask}, 3 + residual,
	    (dtrain_operand[]){x, v, v, x});
}

static void add_pool(record *out, const dtrain__op_case *c, dtrain_dtype dtype)
{
	dtrain_operand x = operand(dtype, &c->shapes[0]), y = operand(dtype, &c->shapes[1]);
	dtrain_operand index = operand(DTRAIN_U8, &c->shapes[1]);
	add(out, DTRAIN_OP_MAX_POOL, c, 1, &x, 2, (dtrain_operand[]){y, index});
	add(out, DTRAIN_OP_MAX_POOL_BWD, c, 2, (dtrain_operand[]){y, index}, 1, &x);
}

/* q, k, v and gradients in rows of d elements for a head. */
static void add_attention(record *out, dtrain_dtype dtype, int64_t batch, int64_t rows, int64_t d,
			  dtrain_attention_attrs heads)
{
	const dtrain__op_case c = {.attrs.attention = heads};
	int64_t queries = heads.heads * d, keys = heads.kv_heads * d, packed = queries + 2 * keys;
	dtrain_shape x = dtrain_shape_of(3, (int64_t[]){batch, rows, heads.packed ? packed : queries});
	dtrain_shape shared = dtrain_shape_of(3, (int64_t[]){batch, rows, heads.packed ? packed : keys});
	dtrain_shape result = dtrain_shape_of(3, (int64_t[]){batch, rows, queries});
	dtrain_shape sums = dtrain_shape_of(3, (int64_t[]){batch, heads.heads, rows});
	dtrain_operand q = operand(dtype, &x), k = operand(dtype, &shared), y = operand(dtype, &result);
	dtrain_operand lse = operand(DTRAIN_F32, &sums);
	add(out, DTRAIN_OP_ATTENTION, &c, 3, (dtrain_operand[]){q, k, k}, 2, (dtrain_operand[]){y, lse});
	add(out, DTRAIN_OP_ATTENTION_BWD, &c, 6, (dtrain_operand[]){q, k, k, y, y, lse}, heads.packed ? 1 : 3,
	    (dtrain_operand[]){q, k, k});
}

void record_attention(record *out, dtrain_dtype dtype)
{
	add_attention(out, dtype, 2, 2048, 64,
		      (dtrain_attention_attrs){.heads = 4, .kv_heads = 2, .causal = true, .packed = true});
	add_attention(out, dtype, 64, 1024, 64,
		      (dtrain_attention_attrs){.heads = 12, .kv_heads = 12, .causal = true, .packed = true});
	add_attention(out, dtype, 256, 197, 64, (dtrain_attention_attrs){.heads = 12, .kv_heads = 12, .packed = true});
	add_attention(out, dtype, 64, 256, 64,
		      (dtrain_attention_attrs){.heads = 6, .kv_heads = 6, .causal = true, .packed = true});
	add_attention(out, dtype, 4, 1000, 128, (dtrain_attention_attrs){.heads = 8, .kv_heads = 2, .causal = true});
}

void record_examples(record *out, dtrain_dtype dtype)
{
	static const struct {
		dtrain_op_kind kind;
		void (*add)(record *out, const dtrain__op_case *c, dtrain_dtype dtype);
	} kinds[] = {
		{DTRAIN_OP_CONV2D, add_conv}, {DTRAIN_OP_BATCH_NORM_TRAIN, add_norm}, {DTRAIN_OP_MAX_POOL, add_pool}};
	for (int k = 0; k < 3; k++) {
		const dtrain__op_rules *rules = dtrain__op_rules_of(kinds[k].kind);
		for (int i = 0; i < rules->num_cases; i++)
			kinds[k].add(out, &rules->cases[i], dtype);
	}
}
