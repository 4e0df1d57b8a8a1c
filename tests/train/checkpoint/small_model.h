/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is quickly saved, for tests of checkpoints. */
#ifndef TESTS_TRAIN_CHECKPOINT_SMALL_MODEL_H
#define TESTS_TRAIN_CHECKPOINT_SMALL_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/params.h"
#include "programs/ffcv/weights.h"

/* A "model" with the tensors of one linear and one batch norm layer, and of a convolution that is not trained. Its
 * parameters have compute copies. */
typedef struct setup {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_optimizer *optimizer;
} setup;

static inline void declare(dtrain_params *params, int64_t outputs)
{
	dtrain_shape matrix = dtrain_shape_of(2, (int64_t[]){outputs, 3});
	dtrain_shape vector = dtrain_shape_of(1, &outputs);
	assert_true(dtrain_params_declare(params, "fc.weight", &matrix, DTRAIN_INIT_LINEAR_UNIFORM, 3, NULL) >= 0);
	assert_true(dtrain_params_declare(params, "fc.bias", &vector, DTRAIN_INIT_LINEAR_UNIFORM, 3, NULL) >= 0);
	assert_true(dtrain_params_declare(params, "bn.weight", &vector, DTRAIN_INIT_ONE, 0, NULL) >= 0);
	assert_true(dtrain_params_declare(params, "bn.bias", &vector, DTRAIN_INIT_ZERO, 0, NULL) >= 0);
	assert_true(dtrain_params_declare_buffer(params, "bn.running_mean", &vector, DTRAIN_INIT_ZERO, NULL) >= 0);
	assert_true(dtrain_params_declare_buffer(params, "bn.running_var", &vector, DTRAIN_INIT_ONE, NULL) >= 0);
	dtrain_shape window = dtrain_shape_of(4, (int64_t[]){outputs, 3, 2, 2});
	assert_true(dtrain_params_declare_fixed(params, "conv.weight", &window, DTRAIN_INIT_LINEAR_UNIFORM, NULL) >= 0);
}

static inline float *momentum_of(const setup *made)
{
	return dtrain_optimizer_state_at(made->optimizer, 0)->memory;
}

static inline setup make_of(const char *kind, uint64_t seed, int64_t outputs, bool lookahead)
{
	setup made = {0};
	dtrain_device_options device = {.struct_size = sizeof(device), .threads = 1};
	dtrain_optimizer_options optimizer;
	dtrain_optimizer_options_init(&optimizer);
	optimizer.kind = kind;
	optimizer.lookahead = lookahead;
	assert_int_equal(dtrain_device_open("ref", &device, &made.device, NULL), BETON_OK);
	made.api = dtrain_device_get_api(made.device);
	assert_int_equal(made.api->stream_create(made.device, &made.stream, NULL), BETON_OK);
	assert_int_equal(dtrain_params_create(made.device, DTRAIN_F32, &made.params, NULL), BETON_OK);
	declare(made.params, outputs);
	dtrain__copies_want(made.params, DTRAIN_BF16);
	assert_int_equal(dtrain_params_allocate(made.params, NULL), BETON_OK);
	assert_int_equal(dtrain_params_initialize(made.params, seed, made.stream, NULL), BETON_OK);
	assert_int_equal(dtrain_optimizer_create(made.params, &optimizer, &made.optimizer, NULL), BETON_OK);
	float *momentum = momentum_of(&made);
	for (int64_t i = 0; i < dtrain_params_flat_count(made.params); i++)
		momentum[i] = (float)seed * 0.5f + (float)i;
	return made;
}

static inline setup make_with(uint64_t seed, int64_t outputs, bool lookahead)
{
	return make_of("sgd", seed, outputs, lookahead);
}

static inline setup make(uint64_t seed, int64_t outputs)
{
	return make_with(seed, outputs, false);
}

static inline void unmake(setup *made)
{
	dtrain_optimizer_destroy(&made->optimizer);
	dtrain_params_destroy(&made->params);
	made->api->stream_destroy(made->stream);
	dtrain_device_close(&made->device);
}

static inline run_position at_step(int64_t step)
{
	return (run_position){.step = step,
			      .epoch = 1,
			      .position = 640,
			      .seed = UINT64_MAX,
			      .world_size = 4,
			      .batch_size = 8,
			      .model = "mlp",
			      .classes = 10,
			      .data_samples = 1000,
			      .data_fingerprint = UINT64_MAX,
			      .data_class_names = 1};
}

static inline run_weights weights_of(const setup *made)
{
	return (run_weights){.params = made->params, .optimizer = made->optimizer, .stream = made->stream};
}

static inline int load(const setup *to, const char *path, beton_error *err)
{
	const run_weights weights = weights_of(to);
	return run_weights_load(&weights, path, NULL, err);
}

static inline int save(const setup *made, int64_t step, int keep, beton_error *err)
{
	const run_weights weights = weights_of(made);
	run_position position = at_step(step);
	return run_weights_save(&weights, "c/d", keep, &position, NULL, NULL, err);
}

static inline void assert_same(const setup *a, const setup *b)
{
	for (int i = 0; i < dtrain_params_count(a->params); i++) {
		const dtrain_param *param = dtrain_params_at(a->params, i);
		size_t size = (size_t)param->count * sizeof(float);
		assert_memory_equal((float *)dtrain_params_values(a->params) + param->offset,
				    (float *)dtrain_params_values(b->params) + param->offset, size);
		assert_memory_equal(momentum_of(a) + param->offset, momentum_of(b) + param->offset, size);
		assert_memory_equal((uint16_t *)a->params->copies.memory + param->offset,
				    (uint16_t *)b->params->copies.memory + param->offset, size / 2);
	}
	for (int i = 0; i < dtrain_params_buffer_count(a->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(a->params, i);
		assert_memory_equal(buffer->data, dtrain_params_buffer_at(b->params, i)->data,
				    (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float));
	}
}

#define STEP "c/d/step-000000000120"

#endif
