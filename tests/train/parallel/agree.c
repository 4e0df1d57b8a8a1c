/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks with different options get an error at the start of a sync. Each would otherwise wait for transfers that
 * another rank never begins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/sync.h>

#include "tests/train/support/far_place.h"

enum { WIDTH = 16 };

static beton_error err;

/* Options of rank 1 alone. */
static bool is_other(const struct rank *r, const char *what)
{
	return r->rank == 1 && strcmp(r->mode + strlen("no-group-"), what) == 0;
}

static dtrain_graph *make_graph(dtrain_params *params)
{
	const dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, WIDTH});
	dtrain_graph *graph = NULL;
	MUST(dtrain_graph_create(params, true, &graph, &err));
	dtrain_tensor y = dtrain_linear(graph, "layer", dtrain_graph_input(graph, "x", DTRAIN_F32, &row), WIDTH);
	dtrain_tensor d_y = dtrain_graph_input(graph, "d_y", DTRAIN_F32, &row);
	dtrain_graph_backward_from(graph, 1, &y, &d_y);
	return graph;
}

/* The status of dtrain_sync_start, negated. */
static int rank_main(struct rank *r)
{
	const dtrain_mesh_axis axis = {"shard", r->size};
	struct place place;
	dtrain_device *host = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_mesh *mesh = NULL;
	dtrain_program *program = NULL;
	dtrain_sync_options options;
	open_place(r, &place);
	MUST(dtrain_device_open("ref", NULL, &host, &err));
	MUST(dtrain_params_create(place.device, DTRAIN_F32, &params, &err));
	if (is_other(r, "optimizer") || is_other(r, "units"))
		MUST(dtrain_params_offload(params, host, is_other(r, "units"), &err));
	dtrain_sync_options_init(&options);
	options.strategy = is_other(r, "strategy") ? "zero2" : "zero3";
	options.keep_gathered = is_other(r, "gathered");
	options.sum_micro_batches_locally = is_other(r, "sums");
	if (is_other(r, "buffers"))
		options.buffers = DTRAIN_BUFFERS_BROADCAST;
	MUST(dtrain_mesh_create(r->group, &axis, 1, &mesh, &err));
	MUST(dtrain_sync_create(params, mesh, &options, &sync, &err));
	dtrain_graph *graph = make_graph(params);
	MUST(dtrain_sync_compile(sync, &graph, &program, &err));
	int status = dtrain_sync_start(sync, &err);
	fprintf(stderr, "%s\n", status == BETON_OK ? "started" : err.message);
	dtrain_program_destroy(&program);
	dtrain_sync_destroy(&sync);
	dtrain_mesh_destroy(&mesh);
	dtrain_params_destroy(&params);
	dtrain_device_close(&host);
	close_place(r, &place);
	return -status;
}

static void expect(const char *mode, int status, const char *text)
{
	struct ranks ranks;
	start_ranks(&ranks, mode, 0, 2, 20000);
	expect_all(&ranks, -1, status, text);
	end_store(&ranks);
}

static void ranks_that_agree_start(void **state)
{
	(void)state;
	expect("no-group-none", BETON_OK, "started");
}

static void other_options_are_named(void **state)
{
	static const char *const modes[] = {"no-group-strategy", "no-group-gathered", "no-group-sums",
					    "no-group-buffers"};
	(void)state;
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		expect(modes[i], BETON_MISMATCH, "rank 1 has another model than rank 0: strategy or its options");
}

static void other_offload_is_named(void **state)
{
	(void)state;
	expect("no-group-optimizer", BETON_MISMATCH,
	       "rank 1 has another model than rank 0: values in host memory (1 instead of 0)");
	expect("no-group-units", BETON_MISMATCH, "values in host memory (2 instead of 0)");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_agree_start),
		cmocka_unit_test(other_options_are_named),
		cmocka_unit_test(other_offload_is_named),
	};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
