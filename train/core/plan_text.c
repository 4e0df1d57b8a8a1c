/* SPDX-License-Identifier: Apache-2.0
 *
 * A program's memory for the reader: what is alive when, and what makes the peak.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "op.h"
#include "program.h"
#include "shape.h"

static bool is_alive(const dtrain__span *span, int32_t node)
{
	return span->bytes && span->first <= node && span->last >= node;
}

static size_t alive_bytes(const dtrain_program *program, int32_t node)
{
	size_t bytes = 0;
	for (int32_t i = 0; i < program->graph->num_tensors; i++)
		if (is_alive(&program->spans[i], node))
			bytes += program->spans[i].bytes;
	return bytes;
}

static const char *op_of(const dtrain_program *program, int32_t node)
{
	return dtrain__op_name(program->graph->nodes[node].kind);
}

static void print_tensor(FILE *out, const dtrain_program *program, int32_t index)
{
	const dtrain__tensor *tensor = &program->graph->tensors[index];
	const dtrain__span *span = &program->spans[index];
	char text[DTRAIN__SHAPE_TEXT];
	fprintf(out, "%12zu  %s %s ", span->bytes, dtrain_dtype_name(tensor->dtype),
		dtrain__shape_text(&tensor->shape, text));
	if (tensor->role == DTRAIN__INPUT)
		fprintf(out, "an input\n");
	else if (tensor->keep)
		fprintf(out, "of node %d, %s, kept\n", span->first, op_of(program, span->first));
	else
		fprintf(out, "of node %d, %s, for node %d, %s\n", span->first, op_of(program, span->first), span->last,
			op_of(program, span->last));
}

/* By size, the earlier first. */
static void print_alive(FILE *out, const dtrain_program *program, int32_t node)
{
	const dtrain__span *spans = program->spans;
	size_t below = SIZE_MAX;
	for (;;) {
		size_t next = 0;
		for (int32_t i = 0; i < program->graph->num_tensors; i++)
			if (is_alive(&spans[i], node) && spans[i].bytes < below && spans[i].bytes > next)
				next = spans[i].bytes;
		if (!next)
			return;
		for (int32_t i = 0; i < program->graph->num_tensors; i++)
			if (is_alive(&spans[i], node) && spans[i].bytes == next)
				print_tensor(out, program, i);
		below = next;
	}
}

static void print_nodes(FILE *out, const dtrain_program *program)
{
	char text[DTRAIN__SHAPE_TEXT];
	fprintf(out, "\n node  block          alive  op\n");
	for (int32_t i = 0; i < program->graph->num_nodes; i++) {
		const dtrain__node *node = &program->graph->nodes[i];
		fprintf(out, "%5d  %4d %c  %12zu  %s > %s\n", i, node->block, node->is_backward ? 'b' : 'f',
			alive_bytes(program, i), op_of(program, i),
			dtrain__shape_text(&program->graph->tensors[node->outputs[0]].shape, text));
	}
}

static void print_plan(FILE *out, const dtrain_program *program)
{
	const dtrain_program_facts *facts = &program->facts;
	int32_t peak = 0;
	size_t most = 0;
	for (int32_t i = 0; i < program->graph->num_nodes; i++) {
		size_t bytes = alive_bytes(program, i);
		peak = bytes > most ? i : peak;
		most = bytes > most ? bytes : most;
	}
	fprintf(out, "activations and inputs: %zu bytes, without sharing %zu; workspace: %zu bytes\n",
		facts->arena_bytes, facts->unshared_bytes, facts->workspace_bytes);
	fprintf(out, "peak: %zu bytes are alive at node %d, %s:\n", most, peak, op_of(program, peak));
	print_alive(out, program, peak);
	print_nodes(out, program);
}

int dtrain_program_plan(const dtrain_program *program, char **out, beton_error *err)
{
	size_t size;
	FILE *stream = open_memstream(out, &size);
	if (stream)
		print_plan(stream, program);
	if (!stream || fclose(stream) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the plan's text");
	return BETON_OK;
}
