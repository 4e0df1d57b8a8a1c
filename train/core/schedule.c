/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

int dtrain__schedule_create(const dtrain_graph *graph, dtrain__schedule *out, beton_error *err)
{
	*out = (dtrain__schedule){.graph = graph, .count = graph->num_nodes};
	out->steps = calloc((size_t)graph->num_nodes, sizeof(*out->steps));
	if (!out->steps)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a schedule of %d nodes", graph->num_nodes);
	for (int32_t i = 0; i < graph->num_nodes; i++)
		out->steps[i] = (dtrain__scheduled){DTRAIN__RUN, i};
	return BETON_OK;
}

void dtrain__schedule_free(dtrain__schedule *schedule)
{
	for (int32_t i = 0; i < schedule->num_calls; i++)
		free((char *)schedule->calls[i].name);
	for (int32_t i = 0; i < schedule->num_transients; i++)
		free((char *)schedule->transients[i].name);
	free(schedule->transients);
	free(schedule->states);
	free(schedule->calls);
	free(schedule->steps);
}

/* The index before node's op; for the number of nodes, the end. */
static int32_t place_before(const dtrain__schedule *schedule, int32_t node)
{
	for (int32_t i = 0; i < schedule->count; i++)
		if (schedule->steps[i].kind == DTRAIN__RUN && schedule->steps[i].index == node)
			return i;
	return schedule->count;
}

/* The index after node's op and the calls that are issued there; -1: the beginning. */
static int32_t place_behind(const dtrain__schedule *schedule, int32_t node)
{
	int32_t place = node < 0 ? 0 : place_before(schedule, node) + 1;
	while (place < schedule->count && schedule->steps[place].kind == DTRAIN__CALL)
		place++;
	return place;
}

static void insert(dtrain__schedule *schedule, int32_t place, dtrain__step_kind kind, int32_t index)
{
	memmove(&schedule->steps[place + 1], &schedule->steps[place],
		(size_t)(schedule->count - place) * sizeof(*schedule->steps));
	schedule->steps[place] = (dtrain__scheduled){kind, index};
	schedule->count++;
}

static int check(const dtrain__schedule *schedule, const dtrain__call *call, int32_t after, int32_t before,
		 beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	if (after < -1 || before <= after || before > graph->num_nodes || after >= graph->num_nodes)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "call %s: from node %d to node %d of %d", call->name, after,
			       before, graph->num_nodes);
	for (int32_t i = 0; i < call->num_tensors; i++)
		if (call->tensors[i] < 0 || call->tensors[i] >= graph->num_tensors)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "call %s: tensor %d does not exist", call->name,
				       call->tensors[i]);
	return BETON_OK;
}

int dtrain__schedule_add(dtrain__schedule *schedule, const dtrain__call *call, int32_t after, int32_t before,
			 beton_error *err)
{
	int status = check(schedule, call, after, before, err);
	if (status != BETON_OK)
		return status;
	char *name = strdup(call->name);
	dtrain__call *calls = realloc(schedule->calls, (size_t)(schedule->num_calls + 1) * sizeof(*calls));
	schedule->calls = calls ? calls : schedule->calls;
	dtrain__scheduled *steps = realloc(schedule->steps, (size_t)(schedule->count + 2) * sizeof(*steps));
	schedule->steps = steps ? steps : schedule->steps;
	if (!name || !calls || !steps) {
		free(name);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for call %s", call->name);
	}
	calls[schedule->num_calls] = *call;
	calls[schedule->num_calls].name = name;
	insert(schedule, place_before(schedule, before), DTRAIN__WAIT, schedule->num_calls);
	insert(schedule, place_behind(schedule, after), DTRAIN__CALL, schedule->num_calls);
	schedule->num_calls++;
	return BETON_OK;
}

int dtrain__schedule_state(dtrain__schedule *schedule, const dtrain__state *state, int32_t *out, beton_error *err)
{
	dtrain__state *states = realloc(schedule->states, (size_t)(schedule->num_states + 1) * sizeof(*states));
	if (!states)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the state of a call");
	schedule->states = states;
	states[schedule->num_states++] = *state;
	*out = schedule->num_states;
	return BETON_OK;
}

/* The end of the nodes before `node`, with the calls that are issued there, and the waits that belong to them. */
static int32_t end_of(dtrain__schedule *schedule, int32_t node)
{
	int32_t end = place_behind(schedule, node - 1);
	for (int32_t i = end; i < schedule->count && schedule->steps[i].kind == DTRAIN__WAIT; i++) {
		const dtrain__scheduled wait = schedule->steps[i];
		if (!schedule->calls[wait.index].ends_in_phase)
			continue;
		memmove(&schedule->steps[end + 1], &schedule->steps[end], (size_t)(i - end) * sizeof(wait));
		schedule->steps[end++] = wait;
	}
	return end;
}

void dtrain__schedule_cut(dtrain__schedule *schedule)
{
	const dtrain_graph *graph = schedule->graph;
	int32_t forward = dtrain__graph_forward_nodes(graph), backward;
	for (backward = forward; backward < graph->num_nodes && !graph->nodes[backward].is_deferred;)
		backward++;
	/* If nothing is trained, backward has no ops, and still the waits. */
	schedule->phase_ends[0] = graph->has_backward ? end_of(schedule, forward) : schedule->count;
	schedule->phase_ends[1] = backward < graph->num_nodes ? end_of(schedule, backward) : schedule->count;
	schedule->phase_ends[2] = schedule->count;
}

int dtrain__schedule_transient(dtrain__schedule *schedule, const dtrain__transient *transient, beton_error *err)
{
	if (transient->begin < 0 || transient->begin >= schedule->num_calls || transient->end >= schedule->num_calls)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: from call %d to call %d of %d", transient->name,
			       transient->begin, transient->end, schedule->num_calls);
	char *name = strdup(transient->name);
	dtrain__transient *transients =
		realloc(schedule->transients, (size_t)(schedule->num_transients + 1) * sizeof(*transients));
	schedule->transients = transients ? transients : schedule->transients;
	if (!name || !transients) {
		free(name);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %s", transient->name);
	}
	transients[schedule->num_transients] = *transient;
	transients[schedule->num_transients++].name = name;
	return BETON_OK;
}
