/* SPDX-License-Identifier: Apache-2.0 */
#include "swap.h"

#include <stddef.h>
#include <stdlib.h>

#include "common/error.h"
#include "program.h"
#include "shape.h"

/* Activations smaller than the largest one by this factor stay. */
#define LEAST_SHARE 100
/* How many of the last ones stay, too: backward wants them at once. */
enum { STAY = 2 };

struct dtrain__swap {
	dtrain__swaps *all;
	dtrain_tensor from, to;
	int32_t last_use, next_use; /* nodes: the last one of forward, the first one of backward */
	size_t place;               /* in the instance's pinned memory */
};

/* Each instance's events: a copy may begin; it has ended. */
typedef struct swap_state {
	dtrain_event *left[2], *returned[2];
} swap_state;

/* ---- which tensors, and what replaces them in backward ---- */

typedef struct swap_pass {
	dtrain_graph *graph;
	int32_t forward, tensors;     /* numbers of forward nodes, and of tensors before the pass */
	int32_t *last_use, *next_use; /* of each root; -1: none */
	dtrain_tensor *order;         /* roots that may leave, by last use */
	int32_t count;
	dtrain_tensor *again; /* what replaces a tensor; -1: nothing yet */
	bool *swapped;
} swap_pass;

static size_t bytes_of(const dtrain_graph *graph, dtrain_tensor tensor)
{
	return (size_t)dtrain_shape_count(&graph->tensors[tensor].shape) *
	       dtrain_dtype_size(graph->tensors[tensor].dtype);
}

static void find_uses(swap_pass *pass)
{
	const dtrain_graph *graph = pass->graph;
	for (int32_t i = 0; i < pass->tensors; i++)
		pass->last_use[i] = pass->next_use[i] = pass->again[i] = -1;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		for (int k = 0; k < node->num_inputs + node->num_outputs; k++) {
			bool reads = k < node->num_inputs;
			dtrain_tensor root = dtrain__graph_root(graph, reads ? node->inputs[k]
									     : node->outputs[k - node->num_inputs]);
			if (i < pass->forward)
				pass->last_use[root] = i;
			else if (reads && pass->next_use[root] < 0)
				pass->next_use[root] = i;
		}
	}
}

static bool may_leave(const swap_pass *pass, dtrain_tensor tensor)
{
	const dtrain__tensor *of = &pass->graph->tensors[tensor];
	return of->role == DTRAIN__ACTIVATION && of->parent < 0 && !of->keep && of->producer >= 0 &&
	       of->producer < pass->forward && pass->next_use[tensor] >= 0;
}

/* Lists them by last use: nodes come in that order. */
static void choose(swap_pass *pass)
{
	size_t largest = 0;
	for (int32_t i = 0; i < pass->tensors; i++)
		if (may_leave(pass, i) && bytes_of(pass->graph, i) > largest)
			largest = bytes_of(pass->graph, i);
	for (int32_t node = 0; node < pass->forward; node++)
		for (int32_t i = 0; i < pass->tensors; i++)
			if (pass->last_use[i] == node && may_leave(pass, i) &&
			    bytes_of(pass->graph, i) * LEAST_SHARE >= largest)
				pass->order[pass->count++] = i;
	pass->count = pass->count > STAY ? pass->count - STAY : 0;
	for (int32_t i = 0; i < pass->count; i++)
		pass->swapped[pass->order[i]] = true;
}

/* The tensor that backward reads in place of a tensor, or of a view of one. */
static dtrain_tensor renew(swap_pass *pass, dtrain_tensor tensor)
{
	dtrain_graph *graph = pass->graph;
	if (tensor >= pass->tensors || !pass->swapped[dtrain__graph_root(graph, tensor)])
		return tensor;
	if (pass->again[tensor] >= 0)
		return pass->again[tensor];
	const dtrain__tensor of = graph->tensors[tensor]; /* the list moves when it grows */
	if (of.parent >= 0) {
		dtrain_tensor parent = renew(pass, of.parent);
		pass->again[tensor] = dtrain__graph_view(graph, parent, &of.shape, of.offset);
		return pass->again[tensor];
	}
	dtrain_tensor made = dtrain__graph_activation(graph, of.dtype, &of.shape);
	if (made >= 0) {
		graph->tensors[made].plain = of.plain;
		graph->tensors[made].returns = tensor;
	}
	return pass->again[tensor] = made;
}

static void replace(swap_pass *pass)
{
	dtrain_graph *graph = pass->graph;
	for (int32_t i = pass->forward; i < graph->num_nodes && !dtrain__graph_failed(graph); i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++)
			graph->nodes[i].inputs[k] = renew(pass, graph->nodes[i].inputs[k]);
}

static bool check_graph(dtrain_graph *graph)
{
	dtrain_device_caps caps;
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_get_api(device)->caps(device, &caps);
	if (caps.host_memory)
		dtrain__graph_fail(graph, BETON_UNSUPPORTED, "device '%s' is in host memory: no activations leave it",
				   dtrain_device_get_api(device)->name);
	else if (!graph->has_backward || graph->has_swaps)
		dtrain__graph_fail(graph, BETON_STATE, "offload: %s",
				   graph->has_swaps ? "called twice" : "the graph has no backward");
	return !dtrain__graph_failed(graph);
}

void dtrain_graph_offload(dtrain_graph *graph)
{
	if (!graph)
		return;
	if (dtrain__graph_failed(graph) || !check_graph(graph))
		return;
	graph->has_swaps = true;
	size_t tensors = (size_t)graph->num_tensors;
	swap_pass pass = {.graph = graph,
			  .forward = dtrain__graph_forward_nodes(graph),
			  .tensors = graph->num_tensors,
			  .last_use = calloc(4 * tensors, sizeof(int32_t)),
			  .swapped = calloc(tensors, sizeof(bool))};
	if (pass.last_use && pass.swapped) {
		pass.next_use = pass.last_use + tensors;
		pass.again = pass.next_use + tensors;
		pass.order = pass.again + tensors;
		find_uses(&pass);
		choose(&pass);
		replace(&pass);
	} else {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d tensors", graph->num_tensors);
	}
	free(pass.last_use);
	free(pass.swapped);
}

/* ---- calls ---- */

static int begin(const dtrain__swap *swap, dtrain_event *const events[2], dtrain_stream *own, const dtrain__run *run,
		 beton_error *err)
{
	const dtrain_device_api *api = swap->all->program->api;
	int status = api->event_record(events[0], run->stream, err);
	return status == BETON_OK ? api->stream_wait(own, events[0], err) : status;
}

static void *address_of(const dtrain__swap *swap, const dtrain__run *run, dtrain_tensor tensor)
{
	return dtrain__address(run->instance, swap->all->program->places[tensor]);
}

static int issue_offload(void *context, const dtrain__run *run, beton_error *err)
{
	const dtrain__swap *swap = context;
	const dtrain_program *program = swap->all->program;
	dtrain_stream *own = swap->all->leaving;
	swap_state *state = run->state;
	int status = begin(swap, state->left, own, run, err);
	if (status == BETON_OK)
		status = program->api->copy(own, (char *)run->instance->swapped + swap->place,
					    address_of(swap, run, swap->from), program->operands[swap->from].bytes,
					    DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? program->api->event_record(state->left[1], own, err) : status;
}

static int wait_offload(void *context, const dtrain__run *run, beton_error *err)
{
	const dtrain__swap *swap = context;
	const swap_state *state = run->state;
	return swap->all->program->api->stream_wait(run->stream, state->left[1], err);
}

static int issue_return(void *context, const dtrain__run *run, beton_error *err)
{
	const dtrain__swap *swap = context;
	const dtrain_program *program = swap->all->program;
	dtrain_stream *own = swap->all->returning;
	swap_state *state = run->state;
	int status = begin(swap, state->returned, own, run, err);
	if (status == BETON_OK)
		status = program->api->stream_wait(own, state->left[1], err);
	if (status == BETON_OK)
		status = program->api->copy(own, address_of(swap, run, swap->to),
					    (char *)run->instance->swapped + swap->place,
					    program->operands[swap->to].bytes, DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? program->api->event_record(state->returned[1], own, err) : status;
}

static int wait_return(void *context, const dtrain__run *run, beton_error *err)
{
	const dtrain__swap *swap = context;
	const swap_state *state = run->state;
	return swap->all->program->api->stream_wait(run->stream, state->returned[1], err);
}

static void abandon(void *context, void *state)
{
	const dtrain__swap *swap = context;
	(void)state;
	const dtrain_device_api *api = swap->all->program->api;
	api->stream_synchronize(swap->all->leaving, NULL);
	api->stream_synchronize(swap->all->returning, NULL);
}

static int by_last_use(const void *a, const void *b)
{
	const dtrain__swap *x = a, *y = b;
	return (x->last_use > y->last_use) - (x->last_use < y->last_use);
}

/* The copy has the time until another activation was used last. */
static int32_t swapped_before(const dtrain__swaps *swaps, int32_t index, int32_t forward)
{
	for (int32_t i = index + 1; i < swaps->count; i++)
		if (swaps->list[i].last_use > swaps->list[index].last_use)
			return swaps->list[i].last_use + 1;
	return forward;
}

/* It starts to return after this node: right before the use of the tensor that returns before it. */
static int32_t returns_after(const dtrain__swaps *swaps, int32_t index, int32_t forward)
{
	int32_t after = forward - 1;
	for (int32_t i = 0; i < swaps->count; i++)
		if (swaps->list[i].next_use < swaps->list[index].next_use && swaps->list[i].next_use - 1 > after)
			after = swaps->list[i].next_use - 1;
	return after;
}

static int add_calls(dtrain_program *program, dtrain__swaps *swaps, int32_t index, int32_t forward, beton_error *err)
{
	dtrain__swap *swap = &swaps->list[index];
	const dtrain__state events = {.bytes = sizeof(swap_state),
				      .events = {offsetof(swap_state, left[0]), offsetof(swap_state, left[1]),
						 offsetof(swap_state, returned[0]), offsetof(swap_state, returned[1])},
				      .num_events = 4};
	int32_t state;
	int status = dtrain__schedule_state(&program->schedule, &events, &state, err);
	if (status != BETON_OK)
		return status;
	const dtrain__call leave = {.name = "activation to the host",
				    .issue = issue_offload,
				    .wait = wait_offload,
				    .abandon = abandon,
				    .context = swap,
				    .state = state,
				    .tensors = {swap->from},
				    .num_tensors = 1};
	const dtrain__call back = {.name = "activation from the host",
				   .issue = issue_return,
				   .wait = wait_return,
				   .abandon = abandon,
				   .context = swap,
				   .state = state,
				   .tensors = {swap->to},
				   .num_tensors = 1};
	status = dtrain__schedule_add(&program->schedule, &leave, swap->last_use, swapped_before(swaps, index, forward),
				      err);
	return status == BETON_OK ? dtrain__schedule_add(&program->schedule, &back,
							 returns_after(swaps, index, forward), swap->next_use, err)
				  : status;
}

static void find_swaps(const dtrain_graph *graph, dtrain__swaps *swaps, int32_t forward)
{
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].returns >= 0)
			swaps->list[swaps->count++] = (dtrain__swap){
				.all = swaps, .from = graph->tensors[i].returns, .to = i, .next_use = -1};
	for (int32_t i = 0; i < swaps->count; i++) {
		dtrain__swap *swap = &swaps->list[i];
		for (int32_t node = 0; node < graph->num_nodes; node++)
			for (int k = 0; k < graph->nodes[node].num_inputs; k++) {
				dtrain_tensor root = dtrain__graph_root(graph, graph->nodes[node].inputs[k]);
				if (root == swap->from && node < forward)
					swap->last_use = node;
				else if (root == swap->to && swap->next_use < 0)
					swap->next_use = node;
			}
		int32_t producer = graph->tensors[swap->from].producer;
		swap->last_use = producer > swap->last_use ? producer : swap->last_use;
	}
	qsort(swaps->list, (size_t)swaps->count, sizeof(*swaps->list), by_last_use);
}

int dtrain__swaps_plan(dtrain_program *program, dtrain__swaps **out, beton_error *err)
{
	const dtrain_graph *graph = program->graph;
	int32_t forward = dtrain__graph_forward_nodes(graph);
	*out = NULL;
	if (!graph->has_swaps)
		return BETON_OK;
	dtrain__swaps *swaps = *out = calloc(1, sizeof(*swaps));
	if (swaps)
		swaps->list = calloc((size_t)graph->num_tensors, sizeof(*swaps->list));
	if (!swaps || !swaps->list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the activations that leave the device");
	swaps->program = program;
	find_swaps(graph, swaps, forward);
	int status = BETON_OK;
	for (int32_t i = 0; i < swaps->count && status == BETON_OK; i++)
		status = add_calls(program, swaps, i, forward, err);
	return status;
}

size_t dtrain__swaps_bytes(const dtrain__swaps *swaps)
{
	size_t bytes = 0;
	for (int32_t i = 0; swaps && i < swaps->count; i++)
		bytes += dtrain__round_up(swaps->program->operands[swaps->list[i].from].bytes, DTRAIN_PARAM_ALIGN);
	return bytes;
}

int dtrain__swaps_open(dtrain__swaps *swaps, beton_error *err)
{
	size_t place = 0;
	if (!swaps || !swaps->count)
		return BETON_OK;
	const dtrain_program *program = swaps->program;
	for (int32_t i = 0; i < swaps->count; i++) {
		swaps->list[i].place = place;
		place += dtrain__round_up(program->operands[swaps->list[i].from].bytes, DTRAIN_PARAM_ALIGN);
	}
	int status = program->api->stream_create(program->device, &swaps->leaving, err);
	return status == BETON_OK ? program->api->stream_create(program->device, &swaps->returning, err) : status;
}

void dtrain__swaps_destroy(dtrain__swaps *swaps)
{
	if (!swaps)
		return;
	if (swaps->leaving)
		swaps->program->api->stream_destroy(swaps->leaving);
	if (swaps->returning)
		swaps->program->api->stream_destroy(swaps->returning);
	free(swaps->list);
	free(swaps);
}
