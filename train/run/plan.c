/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "engine/network.h"
#include "engine/recompute.h"

/* Returns bytes. */
static size_t print_bytes(const char *what, size_t bytes)
{
	if (bytes)
		printf("  %-26s %12.3f MB\n", what, (double)bytes / 1e6);
	return bytes;
}

static size_t print_program(const char *activations, const char *scratch, const dtrain_program *program)
{
	dtrain_program_facts facts = {.struct_size = sizeof(facts)};
	if (!program)
		return 0;
	dtrain_program_get_facts(program, &facts);
	size_t arena = print_bytes(activations, facts.arena_bytes);
	return arena + print_bytes(scratch, facts.workspace_bytes);
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

/* Buffers of a feed are for the batches of training and of evaluation. */
static size_t print_batches(const engine_rank *engine)
{
	const engine_network *largest = engine->train.program ? &engine->train : &engine->val;
	if (engine->staged)
		return print_bytes("batches", engine_batches_bytes(engine, largest));
	size_t training = print_bytes("batches, training", engine_batches_bytes(engine, &engine->train));
	return training + print_bytes("batches, evaluation", engine_batches_bytes(engine, &engine->val));
}

static size_t print_parameters(const run_session *session)
{
	const engine_rank *engine = &session->engine;
	size_t element = dtrain_dtype_size(dtrain_params_dtype(engine->params));
	size_t parameters = (size_t)dtrain_params_flat_count(engine->params) * element, bytes = 0;
	bytes += print_bytes("parameters", parameters);
	bytes += print_bytes("gradients", parameters);
	bytes += print_bytes("optimizer state", state_bytes(session->optimizer, element));
	/* The shared parameters and their momentum. */
	bytes += print_bytes("outer optimizer", session->local ? 2 * parameters : 0);
	bytes += print_bytes("compute copies", dtrain_params_copy_bytes(engine->params));
	bytes += print_bytes("sums of gradients", session->options->accumulate > 1 ? parameters : 0);
	bytes += print_bytes("compression of gradients", (size_t)dtrain_sync_hook_bytes(engine->sync));
	bytes += print_bytes("buffers", buffer_bytes(engine->params, element));
	return bytes;
}

int run_plan_print(run_session *session, beton_error *err)
{
	engine_rank *engine = &session->engine;
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
	size_t bytes = print_parameters(session);
	bytes += print_program("activations, training", "scratch memory, training", engine->train.program);
	bytes += print_program("activations, evaluation", "scratch memory, evaluation", engine->val.program);
	bytes += print_batches(engine);
	print_bytes("all of these", bytes);
	int printed = printf("\n%s%s%s", table ? table : "", table ? "\n" : "", text);
	free(text);
	free(table);
	return printed >= 0 && fflush(stdout) == 0 ? BETON_OK : bt_fail_errno(err, errno, "standard output");
}
