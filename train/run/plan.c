/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "engine/recompute.h"

static void print_bytes(const char *what, size_t bytes)
{
	if (bytes)
		printf("  %-26s %12.3f MB\n", what, (double)bytes / 1e6);
}

static void print_program(const char *activations, const char *scratch, const dtrain_program *program)
{
	dtrain_program_facts facts = {.struct_size = sizeof(facts)};
	if (!program)
		return;
	dtrain_program_get_facts(program, &facts);
	print_bytes(activations, facts.arena_bytes);
	print_bytes(scratch, facts.workspace_bytes);
}

static size_t state_bytes(const dtrain_optimizer *optimizer, size_t element)
{
	const dtrain_optimizer_state *state;
	size_t bytes = 0;
	for (int i = 0; optimizer && (state = dtrain_optimizer_state_at(optimizer, i)); i++)
		bytes += (size_t)state->count * element;
	return bytes;
}

static size_t buffer_bytes(const dtrain_params *params, size_t element)
{
	size_t bytes = 0;
	for (int i = 0; i < dtrain_params_buffer_count(params); i++)
		bytes += (size_t)dtrain_shape_count(&dtrain_params_buffer_at(params, i)->shape) * element;
	return bytes;
}

int run_plan_print(run_session *session, beton_error *err)
{
	engine_rank *engine = &session->engine;
	size_t element = dtrain_dtype_size(dtrain_params_dtype(engine->params));
	size_t parameters = (size_t)dtrain_params_flat_count(engine->params) * element;
	const dtrain_program *program = engine->train.program ? engine->train.program : engine->val.program;
	char *text = NULL, *table = NULL;
	int status = dtrain_program_plan(program, &text, err);
	if (status == BETON_OK && engine->train.program)
		status = engine_recompute_table(engine, &table, err);
	if (status != BETON_OK) {
		free(text);
		free(table);
		return status;
	}
	printf("memory of each rank on device %s:\n", engine->api->name);
	print_bytes("parameters", parameters);
	print_bytes("gradients", parameters);
	print_bytes("optimizer state", state_bytes(session->optimizer, element));
	print_bytes("compute copies", dtrain_params_copy_bytes(engine->params));
	print_bytes("buffers", buffer_bytes(engine->params, element));
	print_program("activations, training", "scratch memory, training", engine->train.program);
	print_program("activations, evaluation", "scratch memory, evaluation", engine->val.program);
	int printed = printf("\n%s%s%s", table ? table : "", table ? "\n" : "", text);
	free(text);
	free(table);
	return printed >= 0 && fflush(stdout) == 0 ? BETON_OK : bt_fail_errno(err, errno, "standard output");
}
