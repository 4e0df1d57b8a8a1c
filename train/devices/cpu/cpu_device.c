/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu device: oneDNN with the given number of threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/error.h"
#include "common/isa.h"
#include "common/system.h"
#include "core/builtin.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "cpu.h"

/* Only one of the compilers has omp.h. */
extern int omp_get_max_threads(void);

/* OpenMP's number of threads is a setting of the calling thread. It is changed during a call only, so that the caller's
 * own OpenMP code keeps its setting. */
static int enter_team(const dtrain_device *device)
{
	int before = omp_get_max_threads();
	if (before != device->threads)
		omp_set_num_threads(device->threads);
	return before;
}

static void leave_team(const dtrain_device *device, int before)
{
	if (before != device->threads)
		omp_set_num_threads(before);
}

static void cpu_close(dtrain_device *device)
{
	if (!device)
		return;
	if (device->stream)
		dnnl_stream_destroy(device->stream);
	if (device->engine)
		dnnl_engine_destroy(device->engine);
	if (device->ref)
		dtrain__ref_api.close(device->ref);
	free(device);
}

static bool has_isa(dnnl_cpu_isa_t isa)
{
	return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

/* Whether oneDNN trains in BF16 on this processor. It does with AMX or AVX-512's instructions for BF16, and with
 * AVX-512 alone more slowly. With AVX2's instructions for BF16 version 3 multiplies in it, too, but has no gradients.
 */
static bool has_bf16(const dtrain_device *device)
{
	if (!has_isa(dnnl_cpu_isa_avx512_core))
		return false;
	const dnnl_dims_t dims = {1, 1}, strides = {1, 1};
	onednn_md md = NULL;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status = dnnl_memory_desc_create_with_strides(&md, 2, dims, dnnl_bf16, strides);
	if (status == dnnl_success)
		status = dnnl_matmul_primitive_desc_create(&pd, device->engine, md, md, NULL, md, NULL);
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (md)
		dnnl_memory_desc_destroy(md);
	return status == dnnl_success;
}

/* oneDNN ignores an unknown name. Its newer versions know more names, which begin so, too. */
static int check_cap(beton_error *err)
{
	static const char *const variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
	static const char *const names[] = {"DEFAULT", "ALL", "SSE41", "AVX", "AVX2", "AVX2_", "AVX512_", "AVX10_"};
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		const char *value = getenv(variables[i]);
		bool known = !value || !*value;
		for (size_t k = 0; k < sizeof(names) / sizeof(*names) && !known; k++) {
			size_t length = strlen(names[k]);
			known = strncasecmp(value, names[k], length) == 0 &&
				(names[k][length - 1] == '_' || !value[length]);
		}
		if (!known)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: '%.40s' is not an instruction set that oneDNN knows, such as AVX2 or "
				       "AVX512_CORE",
				       variables[i], value);
	}
	return BETON_OK;
}

static int cpu_open(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	*out = NULL;
	int status = bt_isa_check(err);
	if (status == BETON_OK)
		status = check_cap(err);
	if (status != BETON_OK)
		return status;
	if (options->index != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device 'cpu': index %d; there is only 0", options->index);
	dtrain_device *device = calloc(1, sizeof(*device));
	if (!device)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device 'cpu'");
	device->api = &dtrain__cpu_api;
	device->vector = cpu_vector_find();
	device->winograd = cpu_winograd_find();
	device->tf32 = options->tf32;
	device->threads = options->threads ? options->threads : bt_available_cores();
	status = dtrain__ref_api.open(options, &device->ref, err);
	if (status == BETON_OK &&
	    (dnnl_engine_create(&device->engine, dnnl_cpu, 0) != dnnl_success ||
	     dnnl_stream_create(&device->stream, device->engine, dnnl_stream_in_order) != dnnl_success))
		status = bt_fail(err, BETON_DEVICE, "device 'cpu': oneDNN does not start");
	if (status != BETON_OK) {
		cpu_close(device);
		return status;
	}
	device->has_bf16 = has_bf16(device);
	device->has_fast_bf16 = has_isa(dnnl_cpu_isa_avx512_core_bf16);
	*out = device;
	return BETON_OK;
}

static const char *isa_name(void)
{
	static const struct {
		dnnl_cpu_isa_t isa;
		const char *name;
	} isas[] = {
		{dnnl_cpu_isa_avx512_core_amx, "AMX"},
		{dnnl_cpu_isa_avx512_core_bf16, "AVX-512 with BF16"},
		{dnnl_cpu_isa_avx512_core, "AVX-512"},
		{dnnl_cpu_isa_avx2, "AVX2"},
		{dnnl_cpu_isa_avx, "AVX"},
		{dnnl_cpu_isa_sse41, "SSE4.1"},
	};
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if (has_isa(isas[i].isa))
			return isas[i].name;
	return "other vectors";
}

static void cpu_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	*out = (dtrain_device_caps){.host_memory = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I64 | 1u << DTRAIN_U8 | 1u << DTRAIN_I32,
				    .alignment = DTRAIN__HOST_ALIGNMENT,
				    .weight_copies = true,
				    .threads = device->threads};
	const dnnl_version_t *version = dnnl_version();
	snprintf(out->description, sizeof(out->description), "oneDNN %d.%d.%d, %s, %d thread%s", version->major,
		 version->minor, version->patch, isa_name(), device->threads, device->threads == 1 ? "" : "s");
}

/* Ops without a builder run on the reference device, with plain operands. */
static void build_on_ref(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	cpu_place_plain_inputs(build);
	if (build->status == BETON_OK)
		build->status = dtrain__ref_api.op_create(build->device->ref, desc, &build->op->ref, build->err);
	build->op->scratch = (cpu_place){.operand = CPU_WORKSPACE, .offset = build->workspace};
	build->workspace += desc->workspace_bytes;
}

/* Batch norm takes no residuals. */
static const struct {
	void (*build)(cpu_build *build); /* NULL: on ref */
	int inputs, outputs;             /* maximum; 0: as in the op's rules */
} builders[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_CONV2D] = {cpu_build_conv},
	[DTRAIN_OP_CONV2D_BWD_DATA] = {cpu_build_conv},
	[DTRAIN_OP_CONV2D_BWD_WEIGHT] = {cpu_build_conv},
	[DTRAIN_OP_LINEAR] = {cpu_build_linear},
	[DTRAIN_OP_LINEAR_BWD_DATA] = {cpu_build_linear},
	[DTRAIN_OP_LINEAR_BWD_WEIGHT] = {cpu_build_linear},
	[DTRAIN_OP_BATCH_NORM_TRAIN] = {cpu_build_batch_norm, .inputs = 5},
	[DTRAIN_OP_BATCH_NORM_EVAL] = {cpu_build_batch_norm, .inputs = 5},
	[DTRAIN_OP_BATCH_NORM_BWD] = {cpu_build_batch_norm, .outputs = 3},
	[DTRAIN_OP_BATCH_NORM_MOMENTS] = {cpu_build_batch_norm_sync},
	[DTRAIN_OP_BATCH_NORM_SYNC] = {cpu_build_batch_norm_sync, .inputs = 6},
	[DTRAIN_OP_BATCH_NORM_SUMS] = {cpu_build_batch_norm_sync},
	[DTRAIN_OP_BATCH_NORM_SYNC_BWD] = {cpu_build_batch_norm_sync, .outputs = 1},
	[DTRAIN_OP_RELU] = {cpu_build_elementwise},
	[DTRAIN_OP_RELU_BWD] = {cpu_build_elementwise},
	[DTRAIN_OP_GELU] = {cpu_build_elementwise},
	[DTRAIN_OP_GELU_BWD] = {cpu_build_elementwise},
	[DTRAIN_OP_CHANNEL_BIAS] = {cpu_build_channel_bias},
	[DTRAIN_OP_CHANNEL_BIAS_BWD] = {cpu_build_channel_bias},
	[DTRAIN_OP_ADD] = {cpu_build_elementwise},
	[DTRAIN_OP_SCALE] = {cpu_build_elementwise},
	[DTRAIN_OP_MAX_POOL] = {cpu_build_pool},
	[DTRAIN_OP_MAX_POOL_BWD] = {cpu_build_pool},
	[DTRAIN_OP_GLOBAL_AVG_POOL] = {cpu_build_pool},
	[DTRAIN_OP_GLOBAL_AVG_POOL_BWD] = {cpu_build_pool},
	[DTRAIN_OP_FLATTEN] = {cpu_build_flatten},
	[DTRAIN_OP_FLATTEN_BWD] = {cpu_build_flatten},
	[DTRAIN_OP_SGD] = {cpu_build_optimizer},
	[DTRAIN_OP_SCALER_INSPECT] = {cpu_build_optimizer},
	[DTRAIN_OP_GRAD_NORM] = {cpu_build_grad_norm},
	[DTRAIN_OP_LOOKAHEAD] = {cpu_build_optimizer},
	[DTRAIN_OP_ADAM] = {cpu_build_adaptive},
	[DTRAIN_OP_LION] = {cpu_build_adaptive},
	[DTRAIN_OP_LAMB] = {cpu_build_trust},
	[DTRAIN_OP_LARS] = {cpu_build_trust},
	[DTRAIN_OP_MUON] = {cpu_build_muon},
	[DTRAIN_OP_SLICE] = {cpu_build_parts},
	[DTRAIN_OP_JOIN_CHUNKS] = {cpu_build_chunks},
	[DTRAIN_OP_SPLIT_CHUNKS] = {cpu_build_chunks},
	[DTRAIN_OP_SLICE_BWD] = {cpu_build_parts},
	[DTRAIN_OP_PERMUTE] = {cpu_build_permute},
	[DTRAIN_OP_PREPEND] = {cpu_build_prepend},
	[DTRAIN_OP_PREPEND_BWD] = {cpu_build_prepend},
	[DTRAIN_OP_CAST] = {cpu_build_cast},
	[DTRAIN_OP_LAYER_NORM] = {cpu_build_row_norm},
	[DTRAIN_OP_LAYER_NORM_BWD] = {cpu_build_row_norm},
	[DTRAIN_OP_RMS_NORM] = {cpu_build_row_norm},
	[DTRAIN_OP_RMS_NORM_BWD] = {cpu_build_row_norm},
	[DTRAIN_OP_SILU] = {cpu_build_elementwise},
	[DTRAIN_OP_SILU_BWD] = {cpu_build_elementwise},
	[DTRAIN_OP_SWIGLU] = {cpu_build_gated},
	[DTRAIN_OP_SWIGLU_BWD] = {cpu_build_gated},
	[DTRAIN_OP_EMBEDDING] = {cpu_build_embedding},
	[DTRAIN_OP_EMBEDDING_BWD] = {cpu_build_embedding},
	[DTRAIN_OP_ROTARY] = {cpu_build_rotary},
	[DTRAIN_OP_ATTENTION] = {cpu_build_attention},
	[DTRAIN_OP_ATTENTION_BWD] = {cpu_build_attention},
	[DTRAIN_OP_ATTENTION_CACHED] = {cpu_build_attention},
	[DTRAIN_OP_ATTENTION_DROPOUT] = {cpu_build_attention},
	[DTRAIN_OP_ATTENTION_DROPOUT_BWD] = {cpu_build_attention},
	[DTRAIN_OP_DROPOUT] = {cpu_build_dropout},
	[DTRAIN_OP_LINEAR_XENT] = {cpu_build_linear_loss},
	[DTRAIN_OP_LINEAR_XENT_EVAL] = {cpu_build_linear_loss},
	[DTRAIN_OP_LINEAR_XENT_BIAS] = {cpu_build_linear_loss},
	[DTRAIN_OP_LINEAR_XENT_BIAS_EVAL] = {cpu_build_linear_loss},
	[DTRAIN_OP_XENT_PART] = {cpu_build_xent_part},
	[DTRAIN_OP_XENT_PART_BWD] = {cpu_build_xent_part},
	[DTRAIN_OP_MATMUL] = {cpu_build_matmul},
	[DTRAIN_OP_NARROW] = {cpu_build_compress},
	[DTRAIN_OP_WIDEN] = {cpu_build_compress},
	[DTRAIN_OP_CARRY] = {cpu_build_compress},
	[DTRAIN_OP_QUANTIZE] = {cpu_build_compress},
	[DTRAIN_OP_DEQUANTIZE] = {cpu_build_compress},
	[DTRAIN_OP_TOP_K] = {cpu_build_compress},
	[DTRAIN_OP_SPREAD] = {cpu_build_compress},
};

static bool is_supported(const dtrain_op_desc *desc)
{
	int inputs = builders[desc->kind].inputs, outputs = builders[desc->kind].outputs;
	return !dtrain__op_rules_of(desc->kind)->collective && (!inputs || desc->num_inputs <= inputs) &&
	       (!outputs || desc->num_outputs <= outputs);
}

static void destroy_md(onednn_md md)
{
	if (md)
		dnnl_memory_desc_destroy(md);
}

static void cpu_op_destroy(dtrain_op *op)
{
	for (int i = 0; i < op->num_steps; i++) {
		cpu_step *step = &op->steps[i];
		for (int k = 0; k < step->count; k++)
			dnnl_memory_destroy(step->args[k].memory);
		if (step->primitive)
			dnnl_primitive_destroy(step->primitive);
	}
	for (int i = 0; i < 2; i++) {
		destroy_md(op->layouts[i].md);
		destroy_md(op->layouts[i].pool_x);
		destroy_md(op->layouts[i].pool_y);
	}
	for (int i = 0; i < op->num_tilings; i++)
		cpu_destroy_tiling(&op->tilings[i]);
	if (op->ref)
		dtrain__ref_api.op_destroy(op->ref);
	if (op->half.wide)
		cpu_op_destroy(op->half.wide);
	if (op->half.activation)
		cpu_op_destroy(op->half.activation);
	free(op->table);
	free(op);
}

/* Places the workspace: the scratchpad of the running step, then the build's own memory. */
static void place_workspace(cpu_build *build)
{
	size_t scratchpad = dtrain__round_up(build->scratchpad, DTRAIN__HOST_ALIGNMENT);
	for (int i = 0; i < build->op->num_steps; i++) {
		cpu_step *step = &build->op->steps[i];
		for (int k = 0; k < step->count; k++)
			if (step->places[k].operand == CPU_WORKSPACE)
				step->places[k].offset += scratchpad;
	}
	build->op->result.offset += scratchpad;
	for (int i = 0; i < DTRAIN_OP_MAX_OPERANDS; i++)
		build->op->plain[i].offset += scratchpad;
	build->op->scratch.offset += scratchpad;
	build->desc->workspace_bytes = scratchpad + build->workspace;
}

/* NULL: the device does not compute in the type. */
static const cpu_rows *rows_of(const dtrain_device *device, dtrain_dtype dtype)
{
	switch (dtype) {
	case DTRAIN_F32:
		return device->vector->f32;
	case DTRAIN_F16:
		return device->vector->f16;
	case DTRAIN_BF16:
		return device->vector->bf16;
	default:
		return NULL;
	}
}

static int cpu_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	*out = NULL;
	int status = dtrain__op_check(desc, err);
	if (status != BETON_OK)
		return status;
	dtrain_dtype dtype = dtrain__op_compute_type(desc);
	if (!rows_of(device, dtype) || !is_supported(desc))
		return bt_fail(err, BETON_UNSUPPORTED, "device 'cpu': op %s in %s with %d operands",
			       dtrain__op_name(desc->kind), dtrain_dtype_name(dtype),
			       desc->num_inputs + desc->num_outputs);
	dtrain_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->device = device;
	op->attrs = desc->attrs;
	op->dtype = dtype;
	op->element = dtrain_dtype_size(dtype);
	op->rows = rows_of(device, dtype);
	op->num_inputs = desc->num_inputs;
	op->num_outputs = desc->num_outputs;
	op->count = dtrain_shape_count(&desc->inputs[0].shape);
	for (int i = 0; i < desc->num_inputs; i++) {
		op->shapes[i] = desc->inputs[i].shape;
		op->dtypes[i] = desc->inputs[i].dtype;
	}
	cpu_build build = {.device = device, .desc = desc, .op = op, .err = err};
	int before = enter_team(device);
	cpu_check(&build, dnnl_primitive_attr_create(&build.attr), "attributes");
	if (build.attr)
		cpu_check(&build, dnnl_primitive_attr_set_scratchpad_mode(build.attr, dnnl_scratchpad_mode_user),
			  "attributes");
	if (build.status == BETON_OK && cpu_half_widens(device, desc->kind, dtype))
		cpu_build_half(&build);
	else if (build.status == BETON_OK && builders[desc->kind].build)
		builders[desc->kind].build(&build);
	else if (build.status == BETON_OK)
		build_on_ref(&build);
	for (int i = 0; i < build.num_made; i++)
		dnnl_primitive_desc_destroy(build.made[i]);
	for (int i = 0; i < build.num_mds; i++)
		destroy_md(build.mds[i]);
	if (build.attr)
		dnnl_primitive_attr_destroy(build.attr);
	leave_team(device, before);
	if (build.status != BETON_OK) {
		cpu_op_destroy(op);
		return build.status;
	}
	place_workspace(&build);
	*out = op;
	return BETON_OK;
}

void *cpu_address(cpu_place place, void *const *operands, void *workspace)
{
	if (place.operand >= 0)
		return operands[place.operand];
	return place.operand == CPU_WORKSPACE ? (char *)workspace + place.offset : workspace;
}

static dnnl_status_t run_step(cpu_step *step, dnnl_stream_t stream, void *const *operands, void *workspace)
{
	for (int i = 0; i < step->count; i++) {
		void *address = cpu_address(step->places[i], operands, workspace);
		if (address == step->addresses[i])
			continue;
		dnnl_status_t status = dnnl_memory_set_data_handle(step->args[i].memory, address);
		if (status != dnnl_success)
			return status;
		step->addresses[i] = address;
	}
	return dnnl_primitive_execute(step->primitive, stream, step->count, step->args);
}

/* Steps [begin, end). */
static int run_steps(dtrain_op *op, int begin, int end, void *const *operands, void *workspace, beton_error *err)
{
	dnnl_stream_t stream = op->device->stream;
	dnnl_status_t answer = dnnl_success;
	for (int i = begin; i < end && answer == dnnl_success; i++)
		answer = run_step(&op->steps[i], stream, operands, workspace);
	if (answer == dnnl_success && end > begin)
		answer = dnnl_stream_wait(stream);
	if (answer != dnnl_success)
		return bt_fail(err, BETON_DEVICE, "oneDNN failed with status %d", (int)answer);
	return BETON_OK;
}

static int run_on_ref(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	void *plain[2 * DTRAIN_OP_MAX_OPERANDS];
	for (int i = 0; i < op->num_inputs + op->num_outputs; i++)
		plain[i] = operands[i];
	for (int i = 0; i < op->num_inputs; i++)
		plain[i] = cpu_address(op->plain[i], operands, workspace);
	return dtrain__ref_api.op_run(op->ref, stream, plain, cpu_own_scratch(op, 0, workspace), err);
}

static int cpu_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	const dtrain_device *device = op->device;
	int before = enter_team(device);
	int first = op->num_steps - op->late_steps;
	int status = run_steps(op, 0, first, operands, workspace, err);
	if (status == BETON_OK && op->half.wide)
		status = cpu_run_half(op, stream, operands, workspace, err);
	else if (status == BETON_OK && op->ref)
		status = run_on_ref(op, stream, operands, workspace, err);
	else if (status == BETON_OK && op->finish)
		status = op->finish(op, operands, workspace, err);
	if (status == BETON_OK)
		status = run_steps(op, first, op->num_steps, operands, workspace, err);
	leave_team(device, before);
	return status;
}

static int cpu_measure_flops(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err)
{
	int before = enter_team(device);
	int status = cpu_time_product(device, dtype, out, err);
	leave_team(device, before);
	return status;
}

const dtrain_device_api dtrain__cpu_api = {
	.api_version = DTRAIN_DEVICE_API_VERSION,
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.caps = cpu_caps,
	DTRAIN__HOST_SLOTS,
	.op_create = cpu_op_create,
	.op_destroy = cpu_op_destroy,
	.op_run = cpu_op_run,
	.measure_flops = cpu_measure_flops,
};
