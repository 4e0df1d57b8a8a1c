/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of <dtrain/device.h> for NULL: no public function of the library crashes when all its pointers are NULL, and
 * each function with a status refuses it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/checkpoint.h>
#include <dtrain/comm.h>
#include <dtrain/device.h>
#include <dtrain/graph.h>
#include <dtrain/hook.h>
#include <dtrain/local.h>
#include <dtrain/mesh.h>
#include <dtrain/model.h>
#include <dtrain/optim.h>
#include <dtrain/optimizer.h>
#include <dtrain/overlap.h>
#include <dtrain/pipeline.h>
#include <dtrain/params.h>
#include <dtrain/server.h>
#include <dtrain/stage.h>
#include <dtrain/sync.h>
#include <dtrain/tensor_file.h>
#include <dtrain/transformer.h>

#include "tests/train/support/net.h"

#define REFUSES(call)                                                       \
	do {                                                                \
		beton_error err = {0};                                      \
		if ((call) == BETON_OK || !strstr(err.message, " is NULL")) \
			fail_msg("%s: '%s'", #call, err.message);           \
	} while (0)

static void checkpoints_refuse_null(void **state)
{
	(void)state;
	REFUSES(dtrain_checkpoint_lock_take(NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_prepare(NULL, &err));
	REFUSES(dtrain_checkpoint_save(NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_saver_create(NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_saver_reserve(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_saver_begin(NULL, NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_link(NULL, 0, NULL, &err));
	REFUSES(dtrain_checkpoint_latest(NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_open(NULL, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_tensors(NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_load(NULL, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_export(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_checkpoint_set_aside(NULL, &err));
	REFUSES(dtrain_params_create_outline(NULL, NULL, &err));
	REFUSES(dtrain_stage_divide(NULL, 0, 0, NULL, &err));
	REFUSES(dtrain_stage_create(NULL, NULL, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_tensor_file_open(NULL, NULL, &err));
	REFUSES(dtrain_tensor_file_read(NULL, 0, NULL, &err));
	REFUSES(dtrain_transformer_read(NULL, NULL, &err));
	REFUSES(dtrain_transformer_parse(NULL, NULL, NULL, &err));
	REFUSES(dtrain_transformer_text(NULL, NULL, &err));
	REFUSES(dtrain_transformer_find(NULL, NULL, &err));
}

static void groups_refuse_null(void **state)
{
	(void)state;
	REFUSES(dtrain_store_server_start(NULL, NULL, &err));
	REFUSES(dtrain_store_server_check(NULL, &err));
	REFUSES(dtrain_store_connect(NULL, 0, NULL, 0, NULL, &err));
	REFUSES(dtrain_store_set(NULL, NULL, NULL, 0, &err));
	REFUSES(dtrain_store_set_within(NULL, NULL, NULL, 0, 0, &err));
	REFUSES(dtrain_store_add_within(NULL, NULL, 0, 0, NULL, &err));
	REFUSES(dtrain_store_get(NULL, NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_presence_begin(NULL, NULL, NULL, &err));
	REFUSES(dtrain_presence_check(NULL, &err));
	REFUSES(dtrain_store_add(NULL, NULL, 0, NULL, &err));
	REFUSES(dtrain_group_create(NULL, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_group_decline(NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_allreduce(NULL, NULL, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_reduce_scatter(NULL, NULL, NULL, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_all_gather(NULL, NULL, NULL, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_broadcast(NULL, NULL, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_reduce(NULL, NULL, 0, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_gather(NULL, NULL, NULL, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_scatter(NULL, NULL, NULL, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_all_to_all(NULL, NULL, NULL, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_send(NULL, NULL, 0, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_recv(NULL, NULL, 0, 0, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_barrier(NULL, NULL, &err));
	REFUSES(dtrain_group_begin(NULL, &err));
	REFUSES(dtrain_group_end(NULL, NULL, &err));
	REFUSES(dtrain_group_memory_create(NULL, 0, 0, NULL, &err));
	REFUSES(dtrain_group_memory_register(NULL, NULL, &err));
	REFUSES(dtrain_work_wait(NULL, &err));
	REFUSES(dtrain_work_stream_wait(NULL, NULL, &err));
	REFUSES(dtrain_group_check(NULL, &err));
	REFUSES(dtrain_group_watch(NULL, NULL, NULL, &err));
	REFUSES(dtrain_group_split(NULL, 0, 0, NULL, NULL, &err));
	REFUSES(dtrain_worker_create(NULL, NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_worker_pull(NULL, NULL, NULL, &err));
	REFUSES(dtrain_worker_push(NULL, NULL, &err));
}

static void graphs_refuse_null(void **state)
{
	(void)state;
	REFUSES(dtrain_device_open(NULL, NULL, NULL, &err));
	REFUSES(dtrain_graph_create(NULL, 0, NULL, &err));
	REFUSES(dtrain_graph_compile(NULL, NULL, &err));
	REFUSES(dtrain_program_run(NULL, NULL, 0, 1, &err));
	REFUSES(dtrain_program_run_collectives(NULL, NULL, &err));
	REFUSES(dtrain_instance_create(NULL, NULL, &err));
	REFUSES(dtrain_instance_run(NULL, NULL, DTRAIN_ALL_PHASES, 0, 1, &err));
	REFUSES(dtrain_instance_bind(NULL, 0, NULL, &err));
	REFUSES(dtrain_graph_measure(NULL, NULL, &err));
	REFUSES(dtrain_program_plan(NULL, NULL, &err));
}

static void optimizers_refuse_null(void **state)
{
	(void)state;
	REFUSES(dtrain_scaler_create(NULL, NULL, NULL, &err));
	REFUSES(dtrain_optimizer_create(NULL, NULL, NULL, &err));
	REFUSES(dtrain_optimizer_measure(NULL, NULL, NULL, &err));
	REFUSES(dtrain_optimizer_start(NULL, NULL, &err));
	REFUSES(dtrain_optimizer_set_rate(NULL, 0, NULL, &err));
	REFUSES(dtrain_optimizer_apply(NULL, NULL, &err));
	REFUSES(dtrain_optimizer_unit_complete(NULL, 0, NULL, &err));
	REFUSES(dtrain_optimizer_abandon(NULL, NULL, &err));
	REFUSES(dtrain_optimizer_check(NULL, &err));
	REFUSES(dtrain_optimizer_step(NULL, 0, NULL, &err));
	REFUSES(dtrain_optimizer_set(NULL, 0, NULL, 0, &err));
	REFUSES(dtrain_optimizer_look_ahead(NULL, 0, NULL, &err));
	REFUSES(dtrain_optimizer_average(NULL, 0, NULL, &err));
	REFUSES(dtrain_optimizer_exchange_average(NULL, NULL, &err));
	REFUSES(dtrain_params_create(NULL, 0, NULL, &err));
	REFUSES(dtrain_params_declare(NULL, NULL, NULL, 0, 0, &err));
	REFUSES(dtrain_params_declare_buffer(NULL, NULL, NULL, 0, &err));
	REFUSES(dtrain_params_declare_fixed(NULL, NULL, NULL, 0, &err));
	REFUSES(dtrain_params_declare_placed(NULL, NULL, NULL, NULL, 0, 0, &err));
	REFUSES(dtrain_params_freeze(NULL, NULL, &err));
	REFUSES(dtrain_params_set_units(NULL, NULL, &err));
	REFUSES(dtrain_params_allocate(NULL, &err));
	REFUSES(dtrain_params_only_plan(NULL, &err));
	REFUSES(dtrain_params_offload(NULL, NULL, 0, &err));
	REFUSES(dtrain_params_initialize(NULL, 0, NULL, &err));
	REFUSES(dtrain_params_changed(NULL, NULL, &err));
}

static void syncs_refuse_null(void **state)
{
	(void)state;
	REFUSES(dtrain_local_create(NULL, NULL, NULL, &err));
	REFUSES(dtrain_local_start(NULL, 0, NULL, &err));
	REFUSES(dtrain_local_end(NULL, 0, NULL, NULL, NULL, &err));
	REFUSES(dtrain_local_show(NULL, NULL, &err));
	REFUSES(dtrain_local_hide(NULL, NULL, &err));
	REFUSES(dtrain_mesh_create(NULL, NULL, 0, NULL, &err));
	REFUSES(dtrain_pipeline_schedule_create(NULL, NULL, &err));
	REFUSES(dtrain_pipeline_schedule_lower(NULL, &err));
	REFUSES(dtrain_pipeline_schedule_check(NULL, &err));
	REFUSES(dtrain_pipeline_schedule_read(NULL, NULL, &err));
	REFUSES(dtrain_pipeline_schedule_parse(NULL, NULL, NULL, &err));
	REFUSES(dtrain_pipeline_schedule_text(NULL, NULL, &err));
	REFUSES(dtrain_pipeline_schedule_svg(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_pipeline_simulate(NULL, NULL, NULL, &err));
	REFUSES(dtrain_pipeline_predict(NULL, NULL, NULL, &err));
	REFUSES(dtrain_sync_get_overlap(NULL, NULL, &err));
	REFUSES(dtrain_sync_read_overlap(NULL, NULL, &err));
	REFUSES(dtrain_overlap_simulate(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_server_create(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_server_publish(NULL, NULL, &err));
	REFUSES(dtrain_server_take(NULL, 0, NULL, NULL, &err));
	REFUSES(dtrain_server_buffers(NULL, NULL, &err));
	REFUSES(dtrain_sync_create(NULL, NULL, NULL, NULL, &err));
	REFUSES(dtrain_sync_compile(NULL, NULL, NULL, &err));
	REFUSES(dtrain_sync_measure(NULL, NULL, NULL, &err));
	REFUSES(dtrain_sync_start(NULL, &err));
	REFUSES(dtrain_sync_trace_create(NULL, NULL, &err));
	REFUSES(dtrain_sync_get_step(NULL, NULL, &err));
	REFUSES(dtrain_sync_gather(NULL, NULL, &err));
	REFUSES(dtrain_sync_add_shards(NULL, NULL, 0, NULL, &err));
	REFUSES(dtrain_sync_add_model(NULL, NULL, 0, NULL, &err));
	REFUSES(dtrain_sync_gather_axis(NULL, DTRAIN_AXIS_TENSOR, NULL, NULL, 0, NULL, &err));
	REFUSES(dtrain_sync_tensors(NULL, NULL, 0, &err));
	REFUSES(dtrain_sync_buffers(NULL, NULL, &err));
}

static void builders_without_a_graph_return_no_tensor(void **state)
{
	(void)state;
	assert_true(dtrain_graph_input(NULL, NULL, 0, NULL) < 0);
	assert_true(dtrain_graph_memory(NULL, 0, NULL, NULL) < 0);
	assert_true(dtrain_normalize(NULL, 0, NULL, NULL) < 0);
	assert_true(dtrain_conv2d(NULL, NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_conv2d_fixed(NULL, NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_channel_bias(NULL, NULL, 0) < 0);
	assert_true(dtrain_graph_parameter(NULL, NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_graph_placed_parameter(NULL, NULL, NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_linear(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_linear_of(NULL, 0, 0, 0, 0) < 0);
	assert_true(dtrain_linear_with(NULL, 0, 0, 0, NULL) < 0);
	assert_true(dtrain_linear_relu(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_linear_without_bias(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_batch_norm(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_batch_norm_with(NULL, NULL, 0, NULL) < 0);
	assert_true(dtrain_batch_norm_add(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_layer_norm(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_layer_norm_without_bias(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_rms_norm(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_relu(NULL, 0) < 0);
	assert_true(dtrain_gelu(NULL, 0) < 0);
	assert_true(dtrain_gelu_tanh(NULL, 0) < 0);
	assert_true(dtrain_silu(NULL, 0) < 0);
	assert_true(dtrain_swiglu(NULL, 0, 0) < 0);
	assert_true(dtrain_add(NULL, 0, 0, 0) < 0);
	assert_true(dtrain_scale(NULL, 0, 0) < 0);
	assert_true(dtrain_max_pool(NULL, 0, 0, 0, 0) < 0);
	assert_true(dtrain_global_max_pool(NULL, 0) < 0);
	assert_true(dtrain_global_avg_pool(NULL, 0) < 0);
	assert_true(dtrain_flatten(NULL, 0) < 0);
	assert_true(dtrain_embedding(NULL, 0, 0) < 0);
	assert_true(dtrain_attention(NULL, 0, 0, 0, 0, NULL) < 0);
	assert_true(dtrain_attention_packed(NULL, 0, 0, NULL) < 0);
	assert_true(dtrain_attention_cached(NULL, 0, 0, 0, 0, 0, 0, NULL) < 0);
	assert_true(dtrain_rotary(NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_dropout(NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_matmul(NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_reshape(NULL, 0, NULL) < 0);
	assert_true(dtrain_slice(NULL, 0, 0, 0, 0) < 0);
	assert_true(dtrain_prepend(NULL, 0, 0) < 0);
	assert_true(dtrain_permute(NULL, 0, NULL) < 0);
	assert_true(dtrain_reduce_from_axis(NULL, 0, DTRAIN_AXIS_TENSOR) < 0);
	assert_true(dtrain_copy_to_axis(NULL, 0, DTRAIN_AXIS_TENSOR) < 0);
	assert_true(dtrain_linear_cross_entropy(NULL, 0, 0, 0, 0, NULL) < 0);
	assert_true(dtrain_softmax_cross_entropy_with(NULL, 0, 0, NULL) < 0);
	assert_true(dtrain_mean_loss(NULL, 0) < 0);
	assert_true(dtrain_softmax_cross_entropy(NULL, 0, 0, 0) < 0);
	assert_true(dtrain_softmax_cross_entropy_mixed(NULL, 0, 0, 0, 0, 0) < 0);
	assert_true(dtrain_one_hot(NULL, 0, 0, 0, 0) < 0);
	assert_true(dtrain_softmax_cross_entropy_soft(NULL, 0, 0, NULL) < 0);
	assert_true(dtrain_binary_cross_entropy(NULL, 0, 0, NULL) < 0);
	assert_true(dtrain_squared_error(NULL, 0, 0) < 0);
	assert_true(dtrain_mean(NULL, 0) < 0);
	assert_true(dtrain_graph_grad(NULL, 0) < 0);
	assert_true(dtrain_label_hits(NULL, 0) < 0);
	assert_true(dtrain_model_build(NULL, NULL, 0, 0) < 0);
	assert_true(dtrain_transformer_build(NULL, NULL, NULL, NULL) < 0);
	assert_true(dtrain_transformer_losses(NULL, NULL, 0, NULL) < 0);
	assert_true(dtrain_transformer_logits(NULL, NULL, 0) < 0);
	assert_true(dtrain_vit_build(NULL, NULL, 0, 0, 0) < 0);
}

static dtrain_tensor build_losses(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor label)
{
	return dtrain_linear_cross_entropy(graph, x, x, -1, label, NULL);
}

static dtrain_tensor build_attention(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor label)
{
	(void)label;
	return dtrain_attention(graph, x, x, x, -1, NULL);
}

static dtrain_tensor build_linear(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor label)
{
	(void)label;
	return dtrain_linear_with(graph, x, x, -1, NULL);
}

/* Builders whose only NULL is the struct of options. */
static void builders_refuse_null_options(void **state)
{
	dtrain_tensor (*const builders[])(dtrain_graph *, dtrain_tensor,
					  dtrain_tensor) = {build_losses, build_attention, build_linear};
	(void)state;
	for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++) {
		beton_error fault;
		dtrain_device *device;
		dtrain_params *params;
		dtrain_graph *graph;
		dtrain_program *program;
		const dtrain_shape square = dtrain_shape_of(2, (int64_t[]){4, 4}),
				   four = dtrain_shape_of(1, square.dim);
		expect_ok(dtrain_device_open("ref", NULL, &device, &fault), &fault);
		expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &fault), &fault);
		expect_ok(dtrain_graph_create(params, true, &graph, &fault), &fault);
		dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &square);
		assert_true(builders[i](graph, x, dtrain_graph_input(graph, "label", DTRAIN_I64, &four)) < 0);
		REFUSES(dtrain_graph_compile(&graph, &program, &err));
		dtrain_graph_destroy(&graph);
		dtrain_params_destroy(&params);
		dtrain_device_close(&device);
	}
}

static void checkpoints_take_null(void **state)
{
	(void)state;
	beton_error err;
	dtrain_checkpoint_lock_describe(NULL, 0);
	dtrain_checkpoint_lock_release(NULL);
	(void)dtrain_checkpoint_view_whole(NULL, 0, NULL, NULL, NULL);
	(void)dtrain_checkpoint_saver_wait(NULL, &err);
	(void)dtrain_checkpoint_saver_has_failed(NULL);
	(void)dtrain_checkpoint_saver_is_idle(NULL, 0);
	(void)dtrain_checkpoint_saver_busy_ns(NULL);
	dtrain_checkpoint_saver_destroy(NULL);
	(void)dtrain_checkpoint_holds(NULL);
	dtrain_checkpoint_close(NULL);
	(void)dtrain_checkpoint_state(NULL);
	dtrain_checkpoint_export_options_init_sized(NULL, 0);
	(void)dtrain_checkpoint_export_path(NULL, 0, 0);
	dtrain_tensor_file_close(NULL);
	(void)dtrain_tensor_file_at(NULL, 0);
	(void)dtrain_tensor_file_metadata(NULL, NULL);
	(void)dtrain_tensor_file_absent(NULL, NULL);
	dtrain_transformer_init_sized(NULL, 0);
	(void)dtrain_transformer_unused(NULL);
	(void)dtrain_transformer_name(0);
	(void)dtrain_stage_costs(NULL, NULL, 0);
	dtrain_stage_destroy(NULL);
	dtrain_graph_interleave(NULL);
	(void)dtrain_params_last_block(NULL);
	(void)dtrain_stage_graph(NULL);
	(void)dtrain_stage_take_graph(NULL);
	(void)dtrain_stage_tensor(NULL, 0);
	dtrain_stage_backward(NULL, 0);
	(void)dtrain_stage_received(NULL, 0);
	(void)dtrain_stage_sent(NULL, 0);
	dtrain_transformer_inputs_init_sized(NULL, 0);
	dtrain_transformer_outputs_init_sized(NULL, 0);
}

static void groups_take_null(void **state)
{
	(void)state;
	beton_error err;
	dtrain_store_server_options_init_sized(NULL, 0);
	(void)dtrain_store_server_port(NULL);
	dtrain_store_server_stop(NULL);
	dtrain_store_close(NULL);
	dtrain_presence_options_init_sized(NULL, 0);
	dtrain_presence_end(NULL);
	dtrain_group_options_init_sized(NULL, 0);
	dtrain_group_destroy(NULL);
	(void)dtrain_group_note(NULL);
	(void)dtrain_group_rank(NULL);
	(void)dtrain_group_size(NULL);
	(void)dtrain_group_memory_data(NULL);
	(void)dtrain_group_memory_is_registered(NULL, NULL);
	dtrain_group_memory_destroy(NULL);
	(void)dtrain_work_done(NULL);
	(void)dtrain_group_peek(NULL, &err);
	dtrain_group_forget(NULL, NULL);
	dtrain_group_split_options_init_sized(NULL, 0);
	(void)dtrain_group_history(NULL, NULL, 0);
	dtrain_group_label(NULL, NULL);
	dtrain_worker_destroy(NULL);
}

static void graphs_take_null(void **state)
{
	(void)state;
	(void)dtrain_dtype_size(0);
	(void)dtrain_dtype_name(0);
	(void)dtrain_shape_of(0, NULL);
	(void)dtrain_shape_count(NULL);
	(void)dtrain_device_find(NULL);
	(void)dtrain_device_at(0);
	dtrain_device_close(NULL);
	(void)dtrain_device_get_api(NULL);
	dtrain_graph_destroy(NULL);
	(void)dtrain_graph_training(NULL);
	(void)dtrain_graph_shape(NULL, 0);
	(void)dtrain_graph_dtype(NULL, 0);
	dtrain_graph_set_dtype(NULL, 0);
	dtrain_graph_set_scaler(NULL, NULL);
	dtrain_graph_next_block(NULL);
	dtrain_linear_options_init_sized(NULL, 0);
	dtrain_batch_norm_options_init_sized(NULL, 0);
	dtrain_attention_options_init_sized(NULL, 0);
	dtrain_split(NULL, 0, 0, 0, NULL);
	dtrain_loss_options_init_sized(NULL, 0);
	dtrain_graph_require_grad(NULL, 0);
	dtrain_graph_backward(NULL, 0);
	dtrain_graph_backward_from(NULL, 0, NULL, NULL);
	dtrain_graph_recompute(NULL, 0, 0);
	dtrain_graph_defer_weights(NULL);
	dtrain_instance_abandon(NULL);
	dtrain_graph_offload(NULL);
	dtrain_graph_keep(NULL, 0);
	dtrain_graph_step_metric(NULL, 0, 0);
	dtrain_program_destroy(NULL);
	(void)dtrain_program_data(NULL, 0);
	(void)dtrain_program_shape(NULL, 0);
	(void)dtrain_program_dtype(NULL, 0);
	dtrain_instance_destroy(NULL);
	(void)dtrain_instance_data(NULL, 0);
	dtrain_program_get_info(NULL, NULL);
	(void)dtrain_model_name(0);
}

static void optimizers_take_null(void **state)
{
	(void)state;
	dtrain_scaler_destroy(NULL);
	(void)dtrain_scaler_memory(NULL);
	(void)dtrain_lookahead_weight(0, 0, 0);
	(void)dtrain_average_weight(0, 0, 0);
	(void)dtrain_schedule_lr(NULL, 0);
	(void)dtrain_optimizer_kind_at(0);
	dtrain_optimizer_options_init_sized(NULL, 0);
	dtrain_optimizer_destroy(NULL);
	(void)dtrain_optimizer_memory_device(NULL);
	(void)dtrain_optimizer_clip(NULL);
	(void)dtrain_optimizer_name(NULL);
	(void)dtrain_optimizer_step_count(NULL);
	(void)dtrain_optimizer_range_count(NULL);
	(void)dtrain_optimizer_range_at(NULL, 0, NULL);
	(void)dtrain_optimizer_state_at(NULL, 0);
	(void)dtrain_optimizer_state_find(NULL, NULL);
	(void)dtrain_optimizer_state_buffer(NULL, NULL, 0);
	dtrain_params_destroy(NULL);
	dtrain_params_next_block(NULL);
	(void)dtrain_pattern_matches(NULL, NULL);
	(void)dtrain_params_unused_pattern(NULL);
	dtrain_unit_policy_init_sized(NULL, 0);
	dtrain_params_get_memory(NULL, NULL);
	(void)dtrain_params_host(NULL);
	(void)dtrain_params_count(NULL);
	(void)dtrain_params_at(NULL, 0);
	(void)dtrain_params_buffer_count(NULL);
	(void)dtrain_params_buffer_at(NULL, 0);
	(void)dtrain_params_unit_count(NULL);
	(void)dtrain_params_unit_at(NULL, 0);
	(void)dtrain_params_range_count(NULL);
	(void)dtrain_params_range_at(NULL, 0);
	(void)dtrain_params_copy_bytes(NULL);
	(void)dtrain_params_flat_count(NULL);
	(void)dtrain_params_values(NULL);
	(void)dtrain_params_grads(NULL);
	(void)dtrain_params_step_metrics(NULL);
	(void)dtrain_params_dtype(NULL);
	(void)dtrain_params_device(NULL);
}

static void syncs_take_null(void **state)
{
	(void)state;
	beton_error err;
	dtrain_compression_init_sized(NULL, 0);
	(void)dtrain_compression_is_for_shards(NULL);
	dtrain_local_options_init_sized(NULL, 0);
	dtrain_local_destroy(NULL);
	(void)dtrain_local_is_unsynchronized(NULL, 0);
	dtrain_local_begin(NULL, 0, NULL);
	(void)dtrain_local_own(NULL);
	(void)dtrain_local_momentum(NULL);
	dtrain_mesh_destroy(NULL);
	(void)dtrain_mesh_group(NULL, NULL);
	(void)dtrain_mesh_data_group(NULL);
	(void)dtrain_mesh_model_group(NULL);
	(void)dtrain_mesh_placement(NULL, NULL, 0);
	dtrain_pipeline_options_init_sized(NULL, 0);
	dtrain_pipeline_schedule_destroy(NULL);
	dtrain_pipeline_timeline_destroy(NULL);
	dtrain_overlap_destroy(NULL);
	(void)dtrain_overlap_node_end(NULL, 0);
	(void)dtrain_overlap_hidden_by(NULL, 0);
	(void)dtrain_overlap_alone_ms(NULL, 0);
	dtrain_overlap_fit(NULL, NULL, 0, NULL);
	dtrain_server_options_init_sized(NULL, 0);
	dtrain_server_destroy(NULL);
	(void)dtrain_server_lost(NULL, NULL, &err);
	dtrain_sync_options_init_sized(NULL, 0);
	dtrain_sync_destroy(NULL);
	dtrain_sync_get_info(NULL, 0, NULL);
	(void)dtrain_sync_deterministic_shard(NULL, 0);
	dtrain_sync_set_listener(NULL, NULL, NULL);
	(void)dtrain_sync_is_sharded(NULL);
	(void)dtrain_sync_gathers_always(NULL);
	dtrain_sync_stop(NULL);
	dtrain_sync_trace_destroy(NULL);
	dtrain_sync_set_trace(NULL, NULL);
	(void)dtrain_sync_unit_exposed_ms(NULL, 0);
	(void)dtrain_sync_is_settled(NULL);
	(void)dtrain_sync_hook_bytes(NULL);
}

/* A handle that is NULL, at an address that is not. */
static void handles_may_be_null(void **state)
{
	(void)state;
	dtrain_device *device = NULL;
	dtrain_params *params = NULL;
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	dtrain_optimizer *optimizer = NULL;
	dtrain_device_close(&device);
	dtrain_params_destroy(&params);
	dtrain_graph_destroy(&graph);
	dtrain_program_destroy(&program);
	dtrain_optimizer_destroy(&optimizer);
}

static void names_are_needed(void **state)
{
	(void)state;
	const dtrain_shape shape = dtrain_shape_of(4, (int64_t[]){1, 3, 4, 4});
	beton_error why = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_device_open("ref", NULL, &device, &why), &why);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &why), &why);
	REFUSES(dtrain_params_declare(params, NULL, &shape, DTRAIN_INIT_ZERO, 0, &err));
	expect_ok(dtrain_graph_create(params, false, &graph, &why), &why);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	assert_true(dtrain_conv2d(graph, NULL, x, 2, 3, 1, 1) < 0);
	assert_int_equal(dtrain_graph_compile(&graph, &program, &why), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(why.message, "dtrain_conv2d: name is NULL"));
	dtrain_graph_destroy(&graph);
	/* A graph is compiled once. */
	expect_ok(dtrain_graph_create(params, false, &graph, &why), &why);
	dtrain_graph_keep(graph, dtrain_relu(graph, dtrain_graph_input(graph, "x", DTRAIN_F32, &shape)));
	expect_ok(dtrain_graph_compile(&graph, &program, &why), &why);
	assert_null(graph);
	REFUSES(dtrain_graph_compile(&graph, &program, &err));
	dtrain_program_destroy(&program);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checkpoints_refuse_null),
		cmocka_unit_test(groups_refuse_null),
		cmocka_unit_test(graphs_refuse_null),
		cmocka_unit_test(optimizers_refuse_null),
		cmocka_unit_test(syncs_refuse_null),
		cmocka_unit_test(builders_without_a_graph_return_no_tensor),
		cmocka_unit_test(builders_refuse_null_options),
		cmocka_unit_test(checkpoints_take_null),
		cmocka_unit_test(groups_take_null),
		cmocka_unit_test(graphs_take_null),
		cmocka_unit_test(optimizers_take_null),
		cmocka_unit_test(syncs_take_null),
		cmocka_unit_test(handles_may_be_null),
		cmocka_unit_test(names_are_needed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
