/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sized.h"
#include "core/graph.h"
#include "core/shape.h"

void dtrain_attention_options_init_sized(dtrain_attention_options *options, size_t size)
{
	const dtrain_attention_options defaults = {.struct_size = sizeof(defaults), .random = -1};
	bt_sized_init(options, size, &defaults);
}

/* False after a failure. */
static bool take_options(dtrain_graph *graph, const dtrain_attention_options *given, bool packed,
			 dtrain_attention_attrs *out, dtrain_tensor *random)
{
	dtrain_attention_options options;
	beton_error fault;
	dtrain_attention_options_init(&options);
	if (bt_sized_take(&options, given, "options", &fault) != BETON_OK) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "attention: %s", fault.message);
		return false;
	}
	int32_t kv_heads = options.kv_heads ? options.kv_heads : options.heads;
	if (options.heads < 1 || kv_heads < 1 || options.heads % kv_heads) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "attention: %d heads for %d heads of keys",
				   options.heads, kv_heads);
		return false;
	}
	if (!(options.dropout >= 0 && options.dropout < 1)) {
		dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "attention: dropout %g is not in [0, 1)",
				   options.dropout);
		return false;
	}
	bool drops = graph->training && options.dropout > 0;
	*random = drops ? options.random : -1;
	if (drops && !dtrain__graph_tensor(graph, *random))
		return false;
	*out = (dtrain_attention_attrs){.dropout = drops ? options.dropout : 0,
					.layer = options.layer,
					.all_heads = options.all_heads,
					.first_head = options.first_head,
					.heads = options.heads,
					.kv_heads = kv_heads,
					.causal = options.causal,
					.packed = packed,
					.scale = options.scale};
	return true;
}

/* Queries, keys and values next to each other, apart. */
static void unpack(dtrain_graph *graph, dtrain_tensor *inputs, dtrain_attention_attrs *attrs)
{
	const dtrain_shape *known = dtrain_graph_shape(graph, inputs[0]);
	int64_t all = attrs->heads + 2 * (int64_t)attrs->kv_heads, at = 0;
	int64_t head = known && known->ndim == 3 ? known->dim[2] / all : 0; /* the list moves when it grows */
	int64_t widths[] = {attrs->heads * head, attrs->kv_heads * head, attrs->kv_heads * head};
	dtrain_tensor packed = inputs[0];
	for (int i = 0; i < 3 && head; i++, at += widths[i - 1])
		inputs[i] = dtrain_slice(graph, packed, 2, at, widths[i]);
	attrs->packed = false;
}

/* Where the ranks along "context" divide sequences, queries are this rank's, and keys and values all ranks'. */
static void gather_keys(dtrain_graph *graph, dtrain_tensor *inputs, dtrain_attention_attrs *attrs)
{
	const dtrain__line line = dtrain__graph_line(graph, DTRAIN_AXIS_CONTEXT);
	if (line.size == 1)
		return;
	attrs->chunks = dtrain_graph_chunks(graph);
	if (attrs->packed)
		unpack(graph, inputs, attrs);
	const dtrain_shape *known = dtrain_graph_shape(graph, inputs[1]);
	if (!known || known->ndim != 3)
		return;
	dtrain_shape whole = *known;
	whole.dim[1] *= line.size;
	/* Both are under way before the first is waited for. */
	for (int i = 1; i < 3; i++)
		inputs[i] = dtrain__graph_gather(graph, inputs[i], 1u << DTRAIN_AXIS_CONTEXT, true);
	for (int i = 1; i < 3; i++)
		inputs[i] = dtrain__graph_op(graph, DTRAIN_OP_JOIN_CHUNKS, NULL, &whole, 1, &inputs[i]);
}

/* inputs: q, k, v, random, segment; negative: not given */
static dtrain_tensor attention(dtrain_graph *graph, const dtrain_tensor *inputs, const dtrain_attention_attrs *attrs)
{
	const dtrain__tensor *q = dtrain__graph_operand(graph, "attention", inputs[0]);
	const dtrain__tensor *k = dtrain__graph_operand(graph, "attention", inputs[1]);
	const dtrain__tensor *v = dtrain__graph_operand(graph, "attention", inputs[2]);
	if (!q || !k || !v)
		return -1;
	dtrain_shape shape = q->shape, of_k = k->shape;
	char text[2][DTRAIN__SHAPE_TEXT];
	int64_t divisor = attrs->packed ? attrs->heads + 2 * (int64_t)attrs->kv_heads : attrs->heads;
	if (shape.ndim != 3 || shape.dim[2] % divisor || of_k.ndim != 3 || !dtrain__shape_equal(&of_k, &v->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "attention: %s and %s with %d heads, %d of keys; needs [b, t, heads * d]",
					  dtrain__shape_text(&shape, text[0]), dtrain__shape_text(&of_k, text[1]),
					  attrs->heads, attrs->kv_heads);
	shape.dim[2] = shape.dim[2] / divisor * attrs->heads;
	dtrain_shape of_lse = dtrain_shape_of(3, (int64_t[]){shape.dim[0], attrs->heads, shape.dim[1]});
	dtrain__node node = {.kind = DTRAIN_OP_ATTENTION,
			     .attrs = {.attention = *attrs},
			     .num_inputs = 3,
			     .num_outputs = 2,
			     .inputs = {inputs[0], inputs[1], inputs[2]}};
	if (inputs[3] >= 0) {
		node.kind = DTRAIN_OP_ATTENTION_DROPOUT;
		node.inputs[node.num_inputs++] = inputs[3];
	}
	if (inputs[4] >= 0)
		node.inputs[node.num_inputs++] = inputs[4];
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &shape);
	node.outputs[1] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &of_lse);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_attention(dtrain_graph *graph, dtrain_tensor q, dtrain_tensor k, dtrain_tensor v,
			       dtrain_tensor segment, const dtrain_attention_options *options)
{
	if (!graph)
		return -1;
	dtrain_attention_attrs attrs;
	dtrain_tensor inputs[] = {q, k, v, -1, segment};
	if (!take_options(graph, options, false, &attrs, &inputs[3]))
		return -1;
	gather_keys(graph, inputs, &attrs);
	return attention(graph, inputs, &attrs);
}

dtrain_tensor dtrain_attention_packed(dtrain_graph *graph, dtrain_tensor qkv, dtrain_tensor segment,
				      const dtrain_attention_options *options)
{
	if (!graph)
		return -1;
	dtrain_attention_attrs attrs;
	dtrain_tensor inputs[] = {qkv, qkv, qkv, -1, segment};
	if (!take_options(graph, options, true, &attrs, &inputs[3]))
		return -1;
	gather_keys(graph, inputs, &attrs);
	return attention(graph, inputs, &attrs);
}

dtrain_tensor dtrain_attention_cached(dtrain_graph *graph, dtrain_tensor q, dtrain_tensor k, dtrain_tensor v,
				      dtrain_tensor keys, dtrain_tensor values, dtrain_tensor past,
				      const dtrain_attention_options *options)
{
	if (!graph)
		return -1;
	dtrain_op_attrs attrs = {.relu = false};
	dtrain_tensor none; /* nothing is dropped in evaluation */
	const dtrain__tensor *source = dtrain__graph_operand(graph, "attention", q);
	if (!source || !take_options(graph, options, false, &attrs.attention, &none))
		return -1;
	for (int i = 0; i < 2; i++) {
		const dtrain__tensor *cache = dtrain__graph_tensor(graph, i ? values : keys);
		if (cache && cache->role != DTRAIN__MEMORY)
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "attention: keys and values are not memory of the caller");
	}
	return dtrain__graph_op(graph, DTRAIN_OP_ATTENTION_CACHED, &attrs, &source->shape, 6,
				(dtrain_tensor[]){q, k, v, keys, values, past});
}

dtrain_tensor dtrain_rotary(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor position, int head_dim, double theta,
			    bool interleaved)
{
	if (!graph)
		return -1;
	const dtrain__tensor *source = dtrain__graph_operand(graph, "rotary", x);
	if (!source)
		return -1;
	dtrain_op_attrs attrs = {.rotary = {.head_dim = head_dim, .interleaved = interleaved, .theta = theta}};
	return dtrain__graph_op(graph, DTRAIN_OP_ROTARY, &attrs, &source->shape, position < 0 ? 1 : 2,
				(dtrain_tensor[]){x, position});
}
