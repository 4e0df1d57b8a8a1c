/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of compressed gradients, with real processes: the bytes that a plan counts equal the bytes that its steps
 * measure, and a sync that only plans knows them, and the memory, without the ranks.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sync_model.h"

#define LAYERS 4
#define WIDTH 60
#define STEP_METRICS_BYTES (4.0 * DTRAIN_STEP_METRICS)

static beton_error err;

static dtrain_sync_options options_of(const dtrain_compression *compression, int plan_ranks)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.first_unit_bytes = 1000;
	options.unit_bytes = 20000;
	options.compression = compression;
	options.plan_ranks = plan_ranks;
	return options;
}

/* The bytes that leave a rank of n, of the bytes given to a method's operations. */
static double leaving(const char *name, double given, double n)
{
	if (strcmp(name, "topk") == 0)
		return given * (n - 1);
	return 2 * given * (n - 1) / (strcmp(name, "int8") == 0 ? n + 1 : n);
}

static void check_traffic(const sync_model *model, const char *name, double n, const dtrain_sync_info *facts)
{
	const dtrain_sync_step step = sync_model_times(model, model->trace);
	double units = dtrain_params_unit_count(model->params);
	double right =
		leaving(name, (double)step.bytes - STEP_METRICS_BYTES, n) + leaving("none", STEP_METRICS_BYTES, n);
	REQUIRE(n == 1 ? step.bytes == 0 && facts->added_up == 0
		       : step.bytes > STEP_METRICS_BYTES && facts->added_up > 0);
	/* Each array is divided on its own. */
	REQUIRE(n == 1 || fabs((double)facts->added_up - right) <= 2 * (units + 1));
}

static void check_plan(const sync_model *model, const dtrain_compression *compression, int ranks,
		       const dtrain_sync_info *facts)
{
	const dtrain_sync_options options = options_of(compression, ranks);
	dtrain_sync_info planned = {.struct_size = sizeof(planned)};
	dtrain_params *params;
	dtrain_sync *sync;
	sync_model_plan(model->device, &options, WIDTH, LAYERS, &params, &sync);
	dtrain_sync_get_info(sync, 1, &planned);
	REQUIRE(planned.added_up == facts->added_up && planned.replicas == ranks);
	REQUIRE(dtrain_sync_hook_bytes(sync) == dtrain_sync_hook_bytes(model->sync));
	REQUIRE((dtrain_sync_hook_bytes(sync) == 0) == (ranks == 1 || strcmp(compression->method, "none") == 0));
	dtrain_sync_destroy(&sync);
	dtrain_params_destroy(&params);
}

static void check(struct rank *r, dtrain_device *device, dtrain_stream *stream, const dtrain_compression *compression)
{
	const dtrain_sync_options options = options_of(compression, 0);
	dtrain_sync_info facts = {.struct_size = sizeof(facts)};
	sync_model model;
	sync_model_open(&model, device, stream, sync_model_mesh(r->group), &options, WIDTH, LAYERS);
	MUST(dtrain_sync_start(model.sync, &err));
	REQUIRE(dtrain_params_unit_count(model.params) > 2);
	sync_model_fill(&model, r->rank, 0);
	MUST(dtrain_program_run(model.program, stream, 0, 1, &err));
	MUST(model.api->stream_synchronize(stream, &err));
	dtrain_sync_get_info(model.sync, 1, &facts);
	check_traffic(&model, compression->method, r->size, &facts);
	check_plan(&model, compression, r->size, &facts);
	sync_model_close(&model);
}

/* Whether a sync of shards takes a method agrees with dtrain_compression_is_for_shards. */
static void check_shards(struct rank *r, dtrain_device *device, const dtrain_compression *compression)
{
	const dtrain_mesh_axis axis = {"shard", r->size};
	dtrain_sync_options options = options_of(compression, 0);
	dtrain_mesh *mesh = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	options.strategy = "zero2";
	MUST(dtrain_mesh_create(r->group, &axis, 1, &mesh, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	bool right = r->size == 1 || dtrain_compression_is_for_shards(compression->method);
	REQUIRE(dtrain_sync_create(params, mesh, &options, &sync, &err) == (right ? BETON_OK : BETON_UNSUPPORTED));
	dtrain_sync_destroy(&sync);
	dtrain_params_destroy(&params);
	dtrain_mesh_destroy(&mesh);
}

static int rank_main(struct rank *r)
{
	static const char *const names[] = {"none", "f16", "bf16", "int8", "topk", "powersgd"};
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	REQUIRE(dtrain_compression_is_for_shards(NULL));
	const dtrain_device_api *api = dtrain_device_get_api(device);
	MUST(api->stream_create(device, &stream, &err));
	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		dtrain_compression compression;
		dtrain_compression_init(&compression);
		compression.method = names[i / 2];
		compression.error_feedback = i % 2;
		compression.ratio = 0.05;
		compression.start = 0;
		check(r, device, stream, &compression);
		check_shards(r, device, &compression);
	}
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	return 0;
}

static void plans_are_what_steps_measure(void **state)
{
	(void)state;
	for (int size = 1; size <= 3; size++)
		run_ranks("plan", size);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_what_steps_measure)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
