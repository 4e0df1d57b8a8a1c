/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_cost.h"

#include <dtrain/overlap.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "engine/network.h"
#include "engine/stages.h"

/* The embedding is a transformer's first block, and the head its last one. */
enum { OUTER_BLOCKS = 2 };

/* Layers of the deepest stage that is planned: deeper ones add as much for a layer as its last one does. With fewer
 * layers the peak of memory may be at another place, such as the reduction of an embedding. */
enum { DEEPEST = 7 };
/* The largest micro-batch that is planned, a multiple of 2: each sample more adds as much as the last ones. */
enum { LARGEST = 4 };
/* Layers of the model whose blocks are counted. */
enum { SHALLOW = 2 };

typedef enum stage_kind {
	STAGE_WHOLE = 0,
	STAGE_FIRST = 1,
	STAGE_MIDDLE = 2,
	STAGE_LAST = 3,
	STAGE_KINDS = 4,
} stage_kind;

/* Costs that were measured: of a stage of that kind with so many layers; of a model without layers, of stage `number`
 * of `stages`. */
typedef struct plan_known {
	plan_cost_key key;
	int32_t stages, number, layers;
	plan_cost cost;
	int status;
	char *message;
	int next; /* of the chain: index + 1; 0: none */
} plan_known;

/* The first blocks of stages, for a number of stages. */
typedef struct plan_division {
	bool known;
	int32_t first[DTRAIN_MAX_STAGES];
} plan_division;

static bool has_layers(const plan_costs *costs)
{
	return costs->question->example.job.transformer != NULL;
}

static int no_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for the costs of a mesh");
}

/* ---- a planned stage ---- */

/* A shallow or whole model with the key's sizes. */
typedef struct variant {
	dtrain_transformer transformer;
	lm_options lm;
	engine_rank engine;
} variant;

static void make_variant(const plan_costs *costs, const plan_cost_key *key, int32_t layers, variant *out)
{
	const engine_rank *engine = &costs->question->engine;
	out->engine = *engine;
	engine_job *job = &out->engine.job;
	if (has_layers(costs)) {
		out->transformer = *job->transformer;
		out->transformer.layers = layers;
		job->transformer = &out->transformer;
	}
	if (job->task == &lm_task) {
		out->lm = costs->question->example.lm;
		int64_t length = out->lm.context_length ? out->lm.context_length : job->transformer->positions;
		out->lm.context_length = length / key->context;
		job->options = &out->lm;
	}
	job->tensor = key->tensor;
	job->sequence_parallel = key->sequence;
	job->batch_size = key->batch;
	/* All stages of these schedules keep as many micro-batches as there are, up to 2. */
	job->micro_batches = key->shares ? 2 : 1;
	job->schedule = key->splits_backward ? "zb1p" : "gpipe";
	engine_recompute_parse("--recompute", engine_recompute_name(key->recompute), &job->recompute, NULL);
}

/* Seconds at these speeds; with a bandwidth without limit, of the products alone. */
static int sum_nodes(const engine_rank *planned, double flops, double bandwidth, double *out, beton_error *err)
{
	dtrain_overlap *overlap = NULL;
	int status = dtrain_sync_get_overlap(planned->sync, &overlap, err);
	if (status == BETON_OK)
		status = dtrain_sync_estimate_overlap(planned->sync, flops, bandwidth, overlap, err);
	*out = 0;
	for (int32_t i = 0; status == BETON_OK && i < overlap->num_nodes; i++)
		*out += overlap->nodes[i].ms * 1e-3;
	dtrain_overlap_destroy(&overlap);
	return status;
}

static double received_bytes(const dtrain_stage *stage, const dtrain_graph *graph)
{
	const dtrain_crossing *crossing;
	double bytes = 0;
	for (int32_t i = 0; (crossing = dtrain_stage_received(stage, i)); i++)
		bytes += (double)dtrain_shape_count(dtrain_graph_shape(graph, crossing->value)) *
			 (double)dtrain_dtype_size(dtrain_graph_dtype(graph, crossing->value));
	return bytes;
}

static int read_cost(const plan_costs *costs, engine_rank *planned, plan_cost *out, beton_error *err)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	dtrain_sync_info sync = {.struct_size = sizeof(sync)};
	engine_network network = {0};
	*out = (plan_cost){0};
	int status = engine_build_network(planned, true, &network, err);
	if (status == BETON_OK) {
		out->received = received_bytes(network.stage, network.graph);
		planned->job.micro_batches = 2;
		out->batches = (double)engine_batches_bytes(planned, true, &network);
		planned->job.micro_batches = 1;
		out->batch = (double)engine_batches_bytes(planned, true, &network);
		status = dtrain_sync_measure(planned->sync, &network.graph, &info, err);
	}
	engine_clear_network(&network);
	if (status == BETON_OK)
		status = sum_nodes(planned, 1, 1e300, &out->products, err);
	if (status == BETON_OK)
		status = sum_nodes(planned, costs->machine->flops, costs->machine->bandwidth, &out->seconds, err);
	if (status != BETON_OK)
		return status;
	dtrain_sync_get_info(planned->sync, 1, &sync);
	for (int i = 0; i < dtrain_params_count(planned->params); i++) {
		const dtrain_param *param = dtrain_params_at(planned->params, i);
		bool shared = (param->stages & (param->stages - 1)) != 0;
		out->elements += (double)param->count;
		out->shared += shared ? (double)param->count : 0;
	}
	out->arena = (double)info.arena_bytes + (double)info.workspace_bytes;
	out->common = info.shared_bytes ? (double)info.shared_bytes + (double)info.workspace_bytes : 0;
	out->exchanged = (double)sync.exchanged;
	return BETON_OK;
}

/* Stage `number` of `stages`, of a model of so many layers. blocks: of each stage; NULL: as the trainer divides them.
 */
static int measure(const plan_costs *costs, const plan_cost_key *key, int32_t layers, const char *blocks,
		   int32_t stages, int32_t number, plan_cost *out, beton_error *err)
{
	static const char *const strategies[] = {"ddp", "zero2", "zero3"};
	const engine_layout layout = {.strategy = strategies[key->family],
				      .ranks = key->family == PLAN_FAMILY_WHOLE ? 1 : 2};
	variant varied;
	engine_rank planned;
	make_variant(costs, key, layers, &varied);
	engine_rank *engine = &varied.engine;
	engine->job.stages = blocks;
	int status = engine_stages_plan(engine, stages, number, err);
	dtrain_sync_options options = engine_layout_options(engine, &layout);
	options.overlap = true;
	options.accumulates = true;
	options.sequence_parallel = key->sequence;
	if (status == BETON_OK) {
		status = engine_planned_open(engine, &options, &planned, err);
		if (status == BETON_OK)
			status = read_cost(costs, &planned, out, err);
		engine_planned_close(&planned);
	}
	dtrain_pipeline_schedule_destroy(&engine->stages.schedule);
	return status;
}

/* ---- costs that are known ---- */

static plan_cost combine(const plan_cost *a, double times, const plan_cost *b)
{
	return (plan_cost){.elements = a->elements + times * b->elements,
			   .arena = a->arena + times * b->arena,
			   .common = a->common + times * b->common,
			   .batches = a->batches + times * b->batches,
			   .batch = a->batch + times * b->batch,
			   .products = a->products + times * b->products,
			   .seconds = a->seconds + times * b->seconds,
			   .exchanged = a->exchanged + times * b->exchanged,
			   .received = a->received + times * b->received,
			   .shared = a->shared + times * b->shared,
			   .layers = a->layers + times * b->layers};
}

/* The other stages have a layer each. */
static int measure_layers(const plan_costs *costs, const plan_cost_key *key, int32_t layers, stage_kind kind,
			  plan_cost *out, beton_error *err)
{
	const int32_t own = kind == STAGE_FIRST ? layers : 1, middle = kind == STAGE_MIDDLE ? layers : 1,
		      last = kind == STAGE_LAST ? layers : 1;
	char blocks[64];
	snprintf(blocks, sizeof(blocks), "%d,%d,%d", 1 + own, middle, last + 1);
	int status = kind == STAGE_WHOLE ? measure(costs, key, layers, NULL, 1, 0, out, err)
					 : measure(costs, key, layers + 2, blocks, 3,
						   (int32_t)kind - (int32_t)STAGE_FIRST, out, err);
	out->layers = layers;
	return status;
}

/* *first: [stages], of costs. A division takes the cube of the blocks, and each mesh asks for one. */
static int divide(const plan_costs *costs, int32_t stages, const int32_t **first, beton_error *err)
{
	static const int32_t whole[1] = {0};
	*first = whole;
	if (stages == 1)
		return BETON_OK;
	plan_division *division = stages <= DTRAIN_MAX_STAGES ? &costs->divisions[stages] : &costs->divisions[0];
	int status = BETON_OK;
	if (!division->known)
		status = dtrain_stage_divide(costs->block_costs, costs->blocks, stages, division->first, err);
	division->known = status == BETON_OK;
	*first = division->first;
	return status;
}

static int learn(const plan_costs *costs, plan_known *known, beton_error *err)
{
	return has_layers(costs)
		       ? measure_layers(costs, &known->key, known->layers, (stage_kind)known->number, &known->cost, err)
		       : measure(costs, &known->key, 0, NULL, known->stages, known->number, &known->cost, err);
}

static bool is_key(const plan_cost_key *a, const plan_cost_key *b)
{
	return a->tensor == b->tensor && a->context == b->context && a->batch == b->batch &&
	       a->recompute == b->recompute && a->family == b->family && a->sequence == b->sequence &&
	       a->splits_backward == b->splits_backward && a->shares == b->shares;
}

static int *chain_of(plan_costs *costs, const plan_cost_key *key, int32_t stages, int32_t number, int32_t layers)
{
	const int64_t parts[] = {key->tensor,   key->context,         key->batch,  key->recompute, (int64_t)key->family,
				 key->sequence, key->splits_backward, key->shares, stages,         number,
				 layers};
	uint64_t hash = 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		hash = (hash ^ (uint64_t)parts[i]) * 0x9e3779b97f4a7c15u;
	return &costs->heads[(hash >> 32) % PLAN_COSTS_HEADS];
}

/* Finds or measures costs. */
static int look_up(plan_costs *costs, const plan_cost_key *key, int32_t stages, int32_t number, int32_t layers,
		   plan_cost *out, beton_error *err)
{
	int *head = chain_of(costs, key, stages, number, layers);
	for (int at = *head; at; at = costs->known[at - 1].next) {
		const plan_known *known = &costs->known[at - 1];
		if (!is_key(&known->key, key) || known->stages != stages || known->number != number ||
		    known->layers != layers)
			continue;
		*out = known->cost;
		return known->status == BETON_OK ? BETON_OK : bt_fail(err, known->status, "%s", known->message);
	}
	if (costs->count == costs->capacity) {
		int capacity = costs->capacity ? 2 * costs->capacity : 64;
		plan_known *grown = realloc(costs->known, (size_t)capacity * sizeof(*grown));
		if (!grown)
			return no_memory(err);
		costs->known = grown;
		costs->capacity = capacity;
	}
	beton_error fault = {0};
	plan_known *known = &costs->known[costs->count];
	*known = (plan_known){.key = *key, .stages = stages, .number = number, .layers = layers};
	known->status = learn(costs, known, &fault);
	known->message = known->status == BETON_OK ? NULL : strdup(fault.message);
	if (known->status != BETON_OK && !known->message)
		return no_memory(err);
	known->next = *head;
	*head = ++costs->count;
	*out = known->cost;
	return known->status == BETON_OK ? BETON_OK : bt_fail(err, known->status, "%s", known->message);
}

/* Ranks of the axis context attend to all tokens; the plan for a short text counts its own tokens alone. The products:
 * two of forward, five of backward, and two that are computed again. */
static void add_context(const plan_costs *costs, const plan_cost_key *key, plan_cost *cost)
{
	const engine_job *job = &costs->question->example.job;
	if (key->context == 1)
		return;
	double length = (double)(costs->question->example.lm.context_length ? costs->question->example.lm.context_length
									    : job->transformer->positions) /
			key->context;
	double width = (double)(job->transformer->heads * job->transformer->head_size) / key->tensor;
	double times = 3.5 + (key->recompute == DTRAIN_RECOMPUTE_FULL);
	double products = times * 2 * (double)key->batch * width * length * length * (key->context - 1) * cost->layers;
	cost->products += products;
	cost->seconds += products / costs->machine->flops;
}

/* Whether the axis tensor divides the rows of the batch; if not, the fault names it. Batches with the same rest of the
 * division by the ranks are alike in that. */
static int check_rows(plan_costs *costs, const plan_cost_key *key, int32_t stages, int32_t number, int32_t layers,
		      beton_error *err)
{
	plan_cost cost;
	plan_cost_key smaller = *key;
	smaller.batch = key->sequence ? key->batch % key->tensor : 0;
	if (smaller.batch == 0 || look_up(costs, &smaller, stages, number, layers, &cost, NULL) == BETON_OK)
		return BETON_OK;
	return look_up(costs, key, stages, number, layers, &cost, err);
}

/* Costs of any batch, from the costs of two small ones. */
static int find_batch(plan_costs *costs, const plan_cost_key *key, int32_t stages, int32_t number, int32_t layers,
		      plan_cost *out, beton_error *err)
{
	plan_cost large, half;
	plan_cost_key smaller = *key;
	/* Rows of pictures are divided by samples. */
	const int64_t largest = LARGEST * (int64_t)(key->sequence ? key->tensor : 1);
	if (key->batch <= largest)
		return look_up(costs, key, stages, number, layers, out, err);
	int status = check_rows(costs, key, stages, number, layers, err);
	smaller.batch = largest;
	if (status == BETON_OK)
		status = look_up(costs, &smaller, stages, number, layers, &large, err);
	smaller.batch = largest / 2;
	if (status == BETON_OK)
		status = look_up(costs, &smaller, stages, number, layers, &half, err);
	if (status != BETON_OK)
		return status;
	const plan_cost more = combine(&large, -1, &half);
	*out = combine(&large, (double)(key->batch - largest) / (double)(largest / 2), &more);
	return BETON_OK;
}

static int find_layers(plan_costs *costs, const plan_cost_key *key, stage_kind kind, int32_t layers, plan_cost *out,
		       beton_error *err)
{
	plan_cost deep, less;
	if (layers <= DEEPEST)
		return find_batch(costs, key, 0, (int32_t)kind, layers, out, err);
	int status = find_batch(costs, key, 0, (int32_t)kind, DEEPEST, &deep, err);
	if (status == BETON_OK)
		status = find_batch(costs, key, 0, (int32_t)kind, DEEPEST - 1, &less, err);
	if (status != BETON_OK)
		return status;
	const plan_cost each = combine(&deep, -1, &less);
	*out = combine(&deep, layers - DEEPEST, &each);
	return BETON_OK;
}

static plan_cost_key key_of_stage(const plan_cost_key *key, int32_t stages, int32_t number, const int32_t *live)
{
	plan_cost_key own = *key;
	own.shares = stages > 1 && (!live || live[number] > 1);
	return own;
}

static int find_stages(plan_costs *costs, const plan_cost_key *key, int32_t stages, const int32_t *live,
		       const int32_t *first, plan_cost *out, beton_error *err)
{
	int32_t layers_before = -1;
	bool shared_before = false;
	int status = BETON_OK;
	for (int32_t i = 0; i < stages && status == BETON_OK; i++) {
		const bool ends = i + 1 == stages;
		const int32_t end = ends ? costs->blocks : first[i + 1];
		const int32_t layers = end - first[i] - (i == 0) - ends;
		const plan_cost_key own = key_of_stage(key, stages, i, live);
		const stage_kind kind = stages == 1 ? STAGE_WHOLE
					: i == 0    ? STAGE_FIRST
					: ends      ? STAGE_LAST
						    : STAGE_MIDDLE;
		/* Stages between the ends are mostly alike. */
		if (kind == STAGE_MIDDLE && i > 1 && layers == layers_before && own.shares == shared_before) {
			out[i] = out[i - 1];
			continue;
		}
		status = find_layers(costs, &own, kind, layers, &out[i], err);
		if (status == BETON_OK)
			add_context(costs, &own, &out[i]);
		layers_before = layers;
		shared_before = own.shares;
	}
	return status;
}

int plan_costs_of(plan_costs *costs, const plan_cost_key *key, int32_t stages, const int32_t *live, plan_cost *out,
		  beton_error *err)
{
	const int32_t *first;
	int status = divide(costs, stages, &first, err);
	if (status != BETON_OK || has_layers(costs))
		return status == BETON_OK ? find_stages(costs, key, stages, live, first, out, err) : status;
	for (int32_t i = 0; i < stages && status == BETON_OK; i++) {
		const plan_cost_key own = key_of_stage(key, stages, i, live);
		status = find_batch(costs, &own, stages, i, 0, &out[i], err);
	}
	return status;
}

/* ---- the whole model ---- */

/* The products of each block. */
static int find_blocks(plan_costs *costs, const plan_cost_key *key, beton_error *err)
{
	const dtrain_transformer *t = costs->question->example.job.transformer;
	variant varied;
	engine_network network = {0};
	make_variant(costs, key, SHALLOW, &varied);
	int status = engine_create_params(&varied.engine, &varied.engine.params, err);
	if (status == BETON_OK)
		status = engine_build_network(&varied.engine, true, &network, err);
	if (status == BETON_OK) {
		int32_t built = dtrain_stage_costs(network.graph, NULL, 0);
		costs->blocks = t ? (int32_t)t->layers + OUTER_BLOCKS : built;
		costs->block_costs = calloc((size_t)costs->blocks + SHALLOW, sizeof(*costs->block_costs));
		costs->divisions = calloc(DTRAIN_MAX_STAGES + 1, sizeof(*costs->divisions));
		status = costs->block_costs && costs->divisions ? BETON_OK : no_memory(err);
		if (status == BETON_OK)
			dtrain_stage_costs(network.graph, costs->block_costs, built);
	}
	for (int32_t i = SHALLOW + 1; t && status == BETON_OK && i + 1 < costs->blocks; i++) {
		costs->block_costs[i + 1] = costs->block_costs[i];
		costs->block_costs[i] = costs->block_costs[i - 1];
	}
	engine_clear_network(&network);
	dtrain_params_destroy(&varied.engine.params);
	return status;
}

/* 6 operations for each parameter and token, and 12 for each element of an attention matrix and its width, as in the
 * appendix B of PaLM (2204.02311); positions are looked up. Of pictures: as the operations are. */
static double products_of_sample(const plan_costs *costs, const plan_cost *whole)
{
	const engine_job *job = &costs->question->example.job;
	const dtrain_transformer *t = job->transformer;
	if (job->task != &lm_task)
		return whole->products;
	double length = (double)(costs->question->example.lm.context_length ? costs->question->example.lm.context_length
									    : t->positions);
	double positions = t->type == DTRAIN_TRANSFORMER_LLAMA ? 0 : (double)(t->positions * t->width);
	return length *
	       (6 * (whole->elements - positions) + 12 * (double)(t->layers * t->heads * t->head_size) * length);
}

int plan_costs_open(plan_costs *out, const plan_question *question, const plan_machine *machine, beton_error *err)
{
	const plan_cost_key key = {.tensor = 1, .context = 1, .batch = 1};
	plan_cost whole;
	*out = (plan_costs){.question = question, .machine = machine};
	int status = find_blocks(out, &key, err);
	if (status == BETON_OK)
		status = plan_costs_of(out, &key, 1, NULL, &whole, err);
	if (status != BETON_OK)
		return status;
	out->elements = whole.elements;
	out->sample_products = products_of_sample(out, &whole);
	return BETON_OK;
}

void plan_costs_forget(plan_costs *costs)
{
	for (int i = 0; i < costs->count; i++)
		free(costs->known[i].message);
	memset(costs->heads, 0, sizeof(costs->heads));
	costs->count = 0;
}

void plan_costs_close(plan_costs *costs)
{
	plan_costs_forget(costs);
	free(costs->known);
	free(costs->block_costs);
	free(costs->divisions);
	*costs = (plan_costs){0};
}
