/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes a program's memory as text: the tensors alive at each step, and those at the peak.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "op.h"
#include "program.h"
#include "shape.h"

static bool is_alive(const dtrain__span *span, int32_t step)
{
	return span->bytes && span->first <= step && span->last >= step;
}

static size_t alive_bytes(const dtrain_program *program, int32_t step)
{
	size_t bytes = 0;
	for (int32_t i = 0; i < program->num_spans; i++)
		if (is_alive(&program->spans[i], step))
			bytes += program->spans[i].bytes;
	return bytes;
}

/* Prints "12, conv2d" or "13, wait for reduction 2". */
static void print_step(FILE *out, const dtrain_program *program, int32_t index)
{
	const dtrain__scheduled *step = &program->schedule.steps[index];
	if (step->kind == DTRAIN__RUN)
		fprintf(out, "%d, %s", index, dtrain__op_name(program->graph->nodes[step->index].kind));
	else
		fprintf(out, "%d, %s%s", index, step->kind == DTRAIN__WAIT ? "wait for " : "",
			program->schedule.calls[step->index].name);
}

/* A tensor whose memory a kept one has taken over lives as long. */
static void print_life(FILE *out, const dtrain_program *program, const dtrain__span *span)
{
	const bool kept = span->last >= program->schedule.count;
	fprintf(out, "of step ");
	print_step(out, program, span->first);
	fputs(kept ? ", kept" : ", until step ", out);
	if (!kept)
		print_step(out, program, span->last);
	fprintf(out, "\n");
}

/* index: of a tensor or, after the tensors, of a transient buffer. */
static void print_tensor(FILE *out, const dtrain_program *program, int32_t index)
{
	const dtrain__span *span = &program->spans[index];
	char text[DTRAIN__SHAPE_TEXT];
	if (index >= program->graph->num_tensors) {
		const dtrain__transient *transient = &program->schedule.transients[index - program->graph->num_tensors];
		fprintf(out, "%12zu  %s ", span->bytes, transient->name);
		print_life(out, program, span);
		return;
	}
	const dtrain__tensor *tensor = &program->graph->tensors[index];
	fprintf(out, "%12zu  %s %s ", span->bytes, dtrain_dtype_name(tensor->dtype),
		dtrain__shape_text(&tensor->shape, text));
	if (tensor->role == DTRAIN__INPUT) {
		fprintf(out, "an input\n");
	} else {
		print_life(out, program, span);
	}
}

/* Prints tensors by size; of equal ones, the earlier first. */
static void print_alive(FILE *out, const dtrain_program *program, int32_t step)
{
	const dtrain__span *spans = program->spans;
	size_t below = SIZE_MAX;
	for (;;) {
		size_t next = 0;
		for (int32_t i = 0; i < program->num_spans; i++)
			if (is_alive(&spans[i], step) && spans[i].bytes < below && spans[i].bytes > next)
				next = spans[i].bytes;
		if (!next)
			return;
		for (int32_t i = 0; i < program->num_spans; i++)
			if (is_alive(&spans[i], step) && spans[i].bytes == next)
				print_tensor(out, program, i);
		below = next;
	}
}

/* f: forward; b: backward; r: a forward op that is repeated in backward. */
static char direction_of(const dtrain__node *node)
{
	if (!node)
		return ' ';
	return node->is_repeated ? 'r' : node->is_backward ? 'b' : 'f';
}

static void print_steps(FILE *out, const dtrain_program *program)
{
	char text[DTRAIN__SHAPE_TEXT];
	fprintf(out, "\nblock          alive  step\n");
	for (int32_t i = 0; i < program->schedule.count; i++) {
		const dtrain__scheduled *step = &program->schedule.steps[i];
		const dtrain__node *node = step->kind == DTRAIN__RUN ? &program->graph->nodes[step->index] : NULL;
		fprintf(out, "%4d %c", node ? node->block : -1, direction_of(node));
		fprintf(out, " %12zu  ", alive_bytes(program, i));
		print_step(out, program, i);
		if (node)
			fprintf(out, " > %s",
				dtrain__shape_text(&program->graph->tensors[node->outputs[0]].shape, text));
		fprintf(out, "\n");
	}
}

static void print_plan(FILE *out, const dtrain_program *program)
{
	const dtrain_program_info *info = &program->info;
	int32_t peak = 0;
	size_t most = 0;
	for (int32_t i = 0; i < program->schedule.count; i++) {
		size_t bytes = alive_bytes(program, i);
		peak = bytes > most ? i : peak;
		most = bytes > most ? bytes : most;
	}
	fprintf(out, "activations and inputs: %zu bytes, without sharing %zu; workspace: %zu bytes\n",
		info->arena_bytes, info->unshared_bytes, info->workspace_bytes);
	fprintf(out, "peak: %zu bytes are alive at step ", most);
	print_step(out, program, peak);
	fprintf(out, ":\n");
	print_alive(out, program, peak);
	print_steps(out, program);
}

int dtrain_program_plan(const dtrain_program *program, char **out, beton_error *err)
{
	if (BT_MISSING(err, program, out))
		return BETON_INVALID_ARGUMENT;
	size_t size;
	FILE *stream = open_memstream(out, &size);
	if (stream)
		print_plan(stream, program);
	if (!stream || fclose(stream) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the plan's text");
	return BETON_OK;
}
