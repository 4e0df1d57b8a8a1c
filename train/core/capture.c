/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "program.h"

/* The host launches a captured piece about as fast as one op, so a piece of one op saves nothing. */
enum { LEAST_OPS = 2 };

/* A piece as it was captured with these bases. Micro-batches that use the same memory launch the same capture. */
typedef struct captured_piece {
	void *graph;      /* the device's; NULL: none yet */
	uintptr_t *bases; /* the instance's when it was captured */
	uint64_t used;    /* the last launch */
} captured_piece;

struct dtrain__captures {
	int32_t micro_batches, count; /* count: of pieces, each in as many captures as micro-batches at most */
	int32_t *piece_of;            /* of each step of the schedule; -1: a call, or an op by itself */
	captured_piece *pieces;       /* [micro_batches][count] */
	uint64_t launches;
};

/* A phase ends a piece, because the next run may begin there. */
static void find_pieces(const dtrain__schedule *schedule, dtrain__captures *captures)
{
	for (int32_t i = 0, phase = 0, end; i < schedule->count; i = end) {
		while (schedule->phase_ends[phase] <= i)
			phase++;
		end = i;
		while (end < schedule->phase_ends[phase] && schedule->steps[end].kind == DTRAIN__RUN)
			end++;
		const int32_t piece = end - i >= LEAST_OPS ? captures->count++ : -1;
		end = end > i ? end : i + 1;
		for (int32_t k = i; k < end; k++)
			captures->piece_of[k] = piece;
	}
}

static int create(const dtrain__schedule *schedule, int32_t micro_batches, dtrain__captures **out, beton_error *err)
{
	dtrain__captures *captures = *out = calloc(1, sizeof(*captures));
	if (captures) {
		captures->micro_batches = micro_batches;
		captures->piece_of = calloc((size_t)schedule->count, sizeof(*captures->piece_of));
	}
	if (captures && captures->piece_of) {
		find_pieces(schedule, captures);
		captures->pieces =
			calloc((size_t)micro_batches * (size_t)captures->count + 1, sizeof(*captures->pieces));
	}
	return captures && captures->pieces
		       ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "out of memory for captures of %d steps", schedule->count);
}

void dtrain__captures_destroy(const dtrain_instance *instance, dtrain__captures *captures)
{
	if (!captures)
		return;
	for (int32_t i = 0; captures->pieces && i < captures->micro_batches * captures->count; i++) {
		if (captures->pieces[i].graph)
			instance->program->api->capture_destroy(captures->pieces[i].graph);
		free(captures->pieces[i].bases);
	}
	free(captures->pieces);
	free(captures->piece_of);
	free(captures);
}

int dtrain__instance_capture(dtrain_instance *instance, int32_t micro_batches, beton_error *err)
{
	const dtrain_program *program = instance->program;
	dtrain__captures *captures;
	dtrain_device_caps caps;
	program->api->caps(program->device, &caps);
	if (!caps.graph_capture)
		return bt_fail(err, BETON_UNSUPPORTED, "device '%s' has no captures", program->api->name);
	if (instance->captures && instance->captures->micro_batches == micro_batches)
		return BETON_OK;
	int status = create(&program->schedule, micro_batches, &captures, err);
	dtrain__captures *unused = status == BETON_OK ? instance->captures : captures;
	if (status == BETON_OK)
		instance->captures = captures;
	dtrain__captures_destroy(instance, unused);
	return status;
}

static int run_ops(const dtrain__run *run, int32_t first, int32_t end, beton_error *err)
{
	const dtrain__schedule *schedule = &run->instance->program->schedule;
	int status = BETON_OK;
	for (int32_t i = first; i < end && status == BETON_OK; i++)
		status = dtrain__instance_run_node(run->instance, schedule->steps[i].index, run->stream, err);
	return status;
}

/* A capture that fails is ended, too: the stream would stay unusable. */
static int capture(const dtrain__run *run, int32_t first, int32_t end, void **out, beton_error *err)
{
	const dtrain_device_api *api = run->instance->program->api;
	int status = api->capture_begin(run->stream, err);
	if (status == BETON_OK) {
		void *graph = NULL;
		status = run_ops(run, first, end, err);
		int ended = api->capture_end(run->stream, &graph, status == BETON_OK ? err : NULL);
		status = status == BETON_OK ? ended : status;
		if (status == BETON_OK)
			*out = graph;
		else if (graph)
			api->capture_destroy(graph);
	}
	if (status != BETON_OK)
		bt_prefix(err, "capturing %d ops (--no-capture avoids this)", end - first);
	return status;
}

/* Makes the captured piece one of the instance's memory as it is now. */
static int renew(const dtrain__run *run, captured_piece *piece, int32_t first, int32_t end, beton_error *err)
{
	const dtrain_program *program = run->instance->program;
	const size_t bytes = program->num_bases * sizeof(*piece->bases);
	int status = BETON_OK;
	if (piece->graph && memcmp(piece->bases, run->instance->bases, bytes) == 0)
		return BETON_OK;
	if (piece->graph) {
		/* The last launch may still be running. */
		status = program->api->stream_synchronize(run->stream, err);
		program->api->capture_destroy(piece->graph);
		piece->graph = NULL;
	}
	if (!piece->bases)
		piece->bases = malloc(bytes);
	if (!piece->bases)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a capture");
	memcpy(piece->bases, run->instance->bases, bytes);
	return status == BETON_OK ? capture(run, first, end, &piece->graph, err) : status;
}

/* The piece's capture with the instance's memory, or a free one. If there is none, the least recently launched one. */
static captured_piece *find_capture(const dtrain__run *run, const dtrain__captures *captures, int32_t piece_index)
{
	const size_t bytes = run->instance->program->num_bases * sizeof(uintptr_t);
	captured_piece *oldest = &captures->pieces[piece_index];
	for (int32_t i = 0; i < captures->micro_batches; i++) {
		captured_piece *piece = &captures->pieces[i * captures->count + piece_index];
		if (!piece->graph || memcmp(piece->bases, run->instance->bases, bytes) == 0)
			return piece;
		oldest = piece->used < oldest->used ? piece : oldest;
	}
	return oldest;
}

int dtrain__captures_run(const dtrain__run *run, int32_t first, int32_t *end, beton_error *err)
{
	const dtrain_instance *instance = run->instance;
	const dtrain__schedule *schedule = &instance->program->schedule;
	dtrain__captures *captures = instance->captures;
	const bool captured = captures && run->micro_batch < captures->micro_batches;
	const int32_t piece_index = captured ? captures->piece_of[first] : -1;
	*end = first + 1;
	if (piece_index < 0)
		return run_ops(run, first, *end, err);
	while (*end < schedule->count && captures->piece_of[*end] == piece_index)
		++*end;
	captured_piece *piece = find_capture(run, captures, piece_index);
	piece->used = ++captures->launches;
	int status = renew(run, piece, first, *end, err);
	return status == BETON_OK ? instance->program->api->capture_launch(piece->graph, run->stream, err) : status;
}
