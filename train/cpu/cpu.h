/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the cpu device. An op is a list of oneDNN primitives (steps) that is made once; running it hands them
 * their addresses and executes them. Where an operand arrives in another layout than the primitive wants, or the output
 * must be plain, a reorder is one more step.
 */
#ifndef DTRAIN_CPU_CPU_H
#define DTRAIN_CPU_CPU_H

#include <dtrain/device.h>

#include "onednn.h"

struct dtrain_device {
	const dtrain_device_api *api;
	int threads;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dtrain_device *ref; /* runs the ops that are too small to matter */
};

/* What dtrain_operand.layout points to; the op's. */
typedef struct cpu_layout {
	onednn_md md;
	onednn_md pool_x, pool_y; /* of a max pool's index: the layouts that made it */
} cpu_layout;

/* Where a tensor is while the op runs. */
typedef struct cpu_place {
	int operand;   /* index among inputs and outputs, or one of those below */
	size_t offset; /* in the workspace */
} cpu_place;

/* Places that are no operand. */
enum { CPU_WORKSPACE = -1, CPU_SCRATCHPAD = -2 };

/* A tensor while the op is being built: where it will be, and its layout, which the build owns, a primitive's
 * description or the op that made the input. */
typedef struct cpu_view {
	const_dnnl_memory_desc_t md;
	cpu_place place;
} cpu_view;

#define CPU_STEP_MAX_ARGS 12
#define CPU_OP_MAX_STEPS 6
#define CPU_BUILD_MAX_MDS 32

typedef struct cpu_step {
	dnnl_primitive_t primitive;
	int count;
	dnnl_exec_arg_t args[CPU_STEP_MAX_ARGS];
	cpu_place places[CPU_STEP_MAX_ARGS];
	void *addresses[CPU_STEP_MAX_ARGS]; /* that the memory objects have now */
} cpu_step;

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_attrs attrs;
	int num_inputs, num_outputs;
	int64_t count; /* elements of input 0 */
	int64_t batch, channels;
	cpu_step steps[CPU_OP_MAX_STEPS];
	int num_steps;
	cpu_layout layouts[2]; /* of the output that is not plain, and of the private one */
	/* After the steps, on the host; NULL: nothing. */
	int (*finish)(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err);
	dtrain_op *ref;
	cpu_place plain[DTRAIN_OP_MAX_OPERANDS]; /* inputs as ref, or finish, takes them */
};

/* An op while it is being built. The first failure stays in status, and makes the rest do nothing. */
typedef struct cpu_build {
	dtrain_device *device;
	dtrain_op_desc *desc;
	dtrain_op *op;
	dnnl_primitive_attr_t attr; /* says that scratchpads come from the workspace */
	dnnl_primitive_desc_t made[CPU_OP_MAX_STEPS + 2];
	int num_made;
	onednn_md mds[CPU_BUILD_MAX_MDS];
	int num_mds;
	size_t workspace, scratchpad;
	int status;
	beton_error *err;
} cpu_build;

/* Layouts of a shape: row-major, and what a tag of oneDNN's says (dnnl_format_tag_any: any). They are the build's, as
 * all that is handed out here; NULL after a failure. */
const_dnnl_memory_desc_t cpu_plain_md(cpu_build *build, const dtrain_shape *shape);
const_dnnl_memory_desc_t cpu_tag_md(cpu_build *build, const dtrain_shape *shape, dnnl_format_tag_t tag);
const_dnnl_memory_desc_t cpu_any_md(cpu_build *build, const dtrain_shape *shape);

/* Remembers oneDNN's refusal. */
void cpu_check(cpu_build *build, dnnl_status_t status, const char *what);

cpu_view cpu_input(cpu_build *build, int index);
cpu_view cpu_scratch(cpu_build *build, const_dnnl_memory_desc_t md);
void cpu_reorder(cpu_build *build, cpu_view from, cpu_view to);
/* The view itself, or a copy of it in layout md in the workspace. */
cpu_view cpu_convert(cpu_build *build, cpu_view view, const_dnnl_memory_desc_t md);

/* The place for a primitive that writes output `index` in layout md: the operand, or scratch when it has to be plain
 * and md is not; cpu_store after that step puts it right. At most one output of an op is not plain. */
cpu_view cpu_output(cpu_build *build, int index, const_dnnl_memory_desc_t md);
void cpu_store(cpu_build *build, int index, cpu_view view);
/* An output that only another op of this device reads: a workspace of oneDNN's. */
cpu_view cpu_private_output(cpu_build *build, int index, const_dnnl_memory_desc_t md, const_dnnl_memory_desc_t pool_x,
			    const_dnnl_memory_desc_t pool_y);
/* An output or input as it is, seen as md. */
cpu_view cpu_operand_as(const_dnnl_memory_desc_t md, int operand);

/* Takes a primitive's description that oneDNN has made, or its refusal; NULL after a failure. */
dnnl_primitive_desc_t cpu_made(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_status_t status, const char *what);
/* y = a + b; b may have a side of 1 where a and y have more. */
dnnl_primitive_desc_t cpu_add_pd(cpu_build *build, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b,
				 const_dnnl_memory_desc_t y, const_dnnl_primitive_attr_t attr);
/* The attributes of a primitive with relu behind it; the caller destroys them. */
dnnl_primitive_attr_t cpu_relu_attr(cpu_build *build);
const_dnnl_memory_desc_t cpu_query(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

typedef struct cpu_argument {
	int arg; /* DNNL_ARG_... */
	cpu_view view;
} cpu_argument;
void cpu_step_add(cpu_build *build, dnnl_primitive_desc_t pd, int count, const cpu_argument *arguments);

/* Where that is while the op runs. */
void *cpu_address(cpu_place place, void *const *operands, void *workspace);

/* Builders for each family of ops. */
void cpu_build_conv(cpu_build *build);
void cpu_build_linear(cpu_build *build);
void cpu_build_batch_norm(cpu_build *build);
void cpu_build_elementwise(cpu_build *build);
void cpu_build_pool(cpu_build *build);
void cpu_build_flatten(cpu_build *build);
void cpu_build_channel_bias(cpu_build *build);
void cpu_build_optimizer(cpu_build *build);
void cpu_build_grad_norm(cpu_build *build);

#endif
