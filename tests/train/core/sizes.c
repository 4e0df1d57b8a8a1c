/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, facts and positions of programs of older and newer releases. */
#include "tests/train/support/net.h"

#include <dtrain/checkpoint.h>
#include <dtrain/comm.h>
#include <dtrain/hook.h>
#include <dtrain/local.h>
#include <dtrain/server.h>
#include <dtrain/sync.h>
#include <dtrain/transformer.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/sized.h"

static net n;
static char folder[] = "/tmp/dtrain-sizes-XXXXXX";

static int open_device(const void *options, beton_error *err)
{
	dtrain_device *device;
	int result = dtrain_device_open("ref", options, &device, err);
	dtrain_device_close(&device);
	return result;
}

static int create_sgd(const void *options, beton_error *err)
{
	dtrain_optimizer *sgd;
	int result = dtrain_optimizer_create(n.params, options, &sgd, err);
	dtrain_optimizer_destroy(&sgd);
	return result;
}

static int create_group(const void *options, beton_error *err)
{
	dtrain_group *one;
	int result = dtrain_group_create(NULL, 0, 1, options, &one, err);
	dtrain_group_destroy(&one);
	return result;
}

static int start_server(const void *options, beton_error *err)
{
	dtrain_store_server *server;
	int result = dtrain_store_server_start(options, &server, err);
	if (result == BETON_OK)
		dtrain_store_server_stop(&server);
	return result;
}

static int create_sync(const void *options, beton_error *err)
{
	dtrain_params *params;
	dtrain_sync *sync;
	expect_ok(dtrain_params_create(n.device, DTRAIN_F32, &params, err), err);
	int result = dtrain_sync_create(params, NULL, options, &sync, err);
	dtrain_sync_destroy(&sync);
	dtrain_params_destroy(&params);
	return result;
}

static int set_units(const void *policy, beton_error *err)
{
	dtrain_params *params;
	expect_ok(dtrain_params_create(n.device, DTRAIN_F32, &params, err), err);
	int result = dtrain_params_set_units(params, policy, err);
	dtrain_params_destroy(&params);
	return result;
}

static int add_batch_norm(const void *options, beton_error *err)
{
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_params_create(n.device, DTRAIN_F32, &params, err), err);
	expect_ok(dtrain_graph_create(params, false, &graph, err), err);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){4, {2, 3, 8, 8}});
	dtrain_graph_keep(graph, dtrain_batch_norm_with(graph, "bn", x, options));
	int result = dtrain_params_allocate(params, err);
	if (result == BETON_OK)
		result = dtrain_graph_compile(&graph, &program, err);
	if (result == BETON_OK)
		dtrain_program_destroy(&program);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	return result;
}

static int save_content(const void *content, beton_error *err)
{
	return dtrain_checkpoint_save(folder, 1, content, NULL, err);
}

static void options_of_every_size(void **state)
{
	(void)state;
	const dtrain_device_options device = {.struct_size = sizeof(device), .threads = 1};
	dtrain_optimizer_options sgd;
	dtrain_group_options grouping;
	dtrain_sync_options sync;
	dtrain_unit_policy units;
	dtrain_store_server_options serving;
	dtrain_batch_norm_options norm;
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content)};
	dtrain_optimizer_options_init(&sgd);
	dtrain_group_options_init(&grouping);
	dtrain_sync_options_init(&sync);
	dtrain_unit_policy_init(&units);
	dtrain_store_server_options_init(&serving);
	dtrain_batch_norm_options_init(&norm);
	sized_check(&(sized_options){"dtrain_device_open", &device, sizeof(device), open_device});
	sized_check(&(sized_options){"dtrain_optimizer_create", &sgd, sizeof(sgd), create_sgd});
	sized_check(&(sized_options){"dtrain_batch_norm_with", &norm, sizeof(norm), add_batch_norm});
	sized_check(&(sized_options){"dtrain_group_create", &grouping, sizeof(grouping), create_group});
	sized_check(&(sized_options){"dtrain_store_server_start", &serving, sizeof(serving), start_server});
	sized_check(&(sized_options){"dtrain_sync_create", &sync, sizeof(sync), create_sync});
	sized_check(&(sized_options){"dtrain_params_set_units", &units, sizeof(units), set_units});
	sized_check(&(sized_options){"dtrain_checkpoint_save", &content, sizeof(content), save_content});
}

SIZED_INIT(dtrain_optimizer_options)
SIZED_INIT(dtrain_loss_options)
SIZED_INIT(dtrain_linear_options)
SIZED_INIT(dtrain_attention_options)
SIZED_INIT(dtrain_batch_norm_options)
SIZED_INIT(dtrain_server_options)
SIZED_INIT(dtrain_sync_options)
SIZED_INIT(dtrain_local_options)
SIZED_INIT(dtrain_checkpoint_export_options)
SIZED_INIT(dtrain_group_options)
SIZED_INIT(dtrain_group_split_options)
SIZED_INIT(dtrain_store_server_options)
SIZED_INIT(dtrain_compression)
SIZED_INIT(dtrain_unit_policy)
SIZED_INIT(dtrain_transformer)
SIZED_INIT(dtrain_transformer_inputs)
SIZED_INIT(dtrain_transformer_outputs)

static void defaults_of_every_size(void **state)
{
	(void)state;
	SIZED_CHECK_INIT(dtrain_optimizer_options);
	SIZED_CHECK_INIT(dtrain_loss_options);
	SIZED_CHECK_INIT(dtrain_linear_options);
	SIZED_CHECK_INIT(dtrain_attention_options);
	SIZED_CHECK_INIT(dtrain_batch_norm_options);
	SIZED_CHECK_INIT(dtrain_server_options);
	SIZED_CHECK_INIT(dtrain_sync_options);
	SIZED_CHECK_INIT(dtrain_local_options);
	SIZED_CHECK_INIT(dtrain_checkpoint_export_options);
	SIZED_CHECK_INIT(dtrain_group_options);
	SIZED_CHECK_INIT(dtrain_group_split_options);
	SIZED_CHECK_INIT(dtrain_store_server_options);
	SIZED_CHECK_INIT(dtrain_compression);
	SIZED_CHECK_INIT(dtrain_unit_policy);
	SIZED_CHECK_INIT(dtrain_transformer);
	SIZED_CHECK_INIT(dtrain_transformer_inputs);
	SIZED_CHECK_INIT(dtrain_transformer_outputs);
}

static void get_info(void *facts)
{
	dtrain_program_get_info(n.program, facts);
}

static void get_memory(void *memory)
{
	dtrain_params_get_memory(n.params, memory);
}

static void get_sync_info(void *facts)
{
	beton_error err;
	dtrain_params *params;
	dtrain_sync *sync;
	expect_ok(dtrain_params_create(n.device, DTRAIN_F32, &params, &err), &err);
	expect_ok(dtrain_sync_create(params, NULL, NULL, &sync, &err), &err);
	dtrain_sync_get_info(sync, 1, facts);
	dtrain_sync_destroy(&sync);
	dtrain_params_destroy(&params);
}

static void structs_of_every_size_are_filled_in(void **state)
{
	(void)state;
	sized_check_filled("dtrain_params_get_memory", sizeof(dtrain_params_memory), get_memory);
	sized_check_filled("dtrain_sync_get_facts", sizeof(dtrain_sync_info), get_sync_info);
	sized_check_filled("dtrain_program_get_facts", sizeof(dtrain_program_info), get_info);
}

static int set_up(void **state)
{
	(void)state;
	net_open(&n, "ref", DTRAIN_F32, "mlp", 2, 4, 3);
	assert_non_null(mkdtemp(folder));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	char command[sizeof(folder) + 16];
	net_close(&n);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_every_size),
		cmocka_unit_test(defaults_of_every_size),
		cmocka_unit_test(structs_of_every_size_are_filled_in),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
