/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch memory of a graph: it is part of the op's workspace, apart from the plan's own, and it is cleared before
 * each run for versions of cuDNN that do not do that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/op.h"
#include "devices/cuda/cudnn/dnn_run.h"

enum { SCRATCH = 1000, WORKSPACE = 300, ROWS = 4 };

const char cuda_nhwc[] = "NHWC", cuda_nhwc_sums[] = "NHWC with sums";

static struct {
	size_t version, scratch, workspace; /* the last two in bytes */
	int runs;
	char *memory; /* the op's workspace */
} plays;

/* ---- in the place of cuDNN, CUDA, and the choice ---- */

size_t cudnnGetVersion(void)
{
	return plays.version;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)kind;
	(void)stream;
	memcpy(to, from, bytes);
	return cudaSuccess;
}

int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err)
{
	static dnn_graph graph;
	static dnn_plan made;
	(void)device;
	(void)desc;
	(void)err;
	graph = (dnn_graph){.scratch_bytes = plays.scratch};
	made = (dnn_plan){.graph = &graph, .workspace_bytes = plays.workspace};
	*plan = &made;
	return BETON_OK;
}

void dnn_release(dtrain_device *device, dnn_plan *plan)
{
	(void)device;
	(void)plan;
}

void dnn_pack_clear(dnn_pack *pack)
{
	(void)pack;
}

/* Fills both, so that each must be there, and apart. The op clears the scratch, or leaves it as it was. */
int dnn_plan_run(const dnn_plan *plan, dnn_pack *pack, cudnnHandle_t handle, cudaStream_t stream,
		 void *const *addresses, void *workspace, beton_error *err)
{
	(void)pack;
	(void)handle;
	(void)stream;
	(void)err;
	unsigned char *scratch = addresses[DNN_SCRATCH];
	bool clean = plays.version < 90600;
	for (size_t i = 0; i < plan->graph->scratch_bytes; i++)
		assert_int_equal(scratch[i], clean ? 0 : 0x55);
	assert_true((workspace != NULL) == (plan->workspace_bytes > 0));
	memset(scratch, 0x11, plan->graph->scratch_bytes);
	if (workspace)
		memset(workspace, 0x22, plan->workspace_bytes);
	for (size_t i = 0; i < plan->graph->scratch_bytes; i++)
		assert_int_equal(scratch[i], 0x11);
	assert_true((uintptr_t)scratch % 256 == (uintptr_t)plays.memory % 256);
	plays.runs++;
	return BETON_OK;
}

/* ---- tests ---- */

static void run(size_t version, size_t scratch, size_t workspace)
{
	enum { GUARD = 64 };
	const dtrain_operand x = {
		.dtype = DTRAIN_BF16, .shape = dtrain_shape_of(3, (int64_t[]){1, ROWS, 8}), .bytes = 2 * ROWS * 8};
	const dtrain_operand lse = {
		.dtype = DTRAIN_F32, .shape = dtrain_shape_of(3, (int64_t[]){1, 1, ROWS}), .bytes = 4 * ROWS};
	dtrain_op_desc desc = {.kind = DTRAIN_OP_ATTENTION_BWD,
			       .num_inputs = 6,
			       .num_outputs = 3,
			       .inputs = {x, x, x, x, x, lse},
			       .outputs = {x, x, x},
			       .attrs.attention = {.heads = 1, .kv_heads = 1}};
	dtrain_device device = {.index = 0};
	void *operands[DNN_MAX_OPERANDS] = {NULL};
	dnn_op *op;
	memset(&plays, 0, sizeof(plays));
	plays.version = version;
	plays.scratch = scratch;
	plays.workspace = workspace;
	assert_int_equal(dnn_op_create(&device, &desc, NULL, &op, NULL), BETON_OK);
	assert_true(op->bytes >= scratch + workspace);
	assert_int_equal(op->bytes % 256, 0);
	plays.memory = malloc(op->bytes + GUARD);
	assert_non_null(plays.memory);
	for (int i = 0; i < 2; i++) {
		memset(plays.memory, 0x55, op->bytes + GUARD);
		assert_int_equal(dnn_op_run(op, NULL, operands, plays.memory, NULL), BETON_OK);
		for (int k = 0; k < GUARD; k++)
			assert_int_equal(plays.memory[op->bytes + (size_t)k], 0x55);
	}
	assert_int_equal(plays.runs, 2);
	free(plays.memory);
	dnn_op_destroy(op);
}

static void scratch_is_in_the_workspace(void **state)
{
	(void)state;
	run(91900, SCRATCH, WORKSPACE);
	run(91900, SCRATCH, 0);
	run(91900, 0, WORKSPACE);
}

static void scratch_is_cleared_before_cudnn_9_6(void **state)
{
	(void)state;
	run(90501, SCRATCH, WORKSPACE);
	run(90501, 0, WORKSPACE);
	run(90600, SCRATCH, WORKSPACE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scratch_is_in_the_workspace),
		cmocka_unit_test(scratch_is_cleared_before_cudnn_9_6),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
