/* SPDX-License-Identifier: Apache-2.0
 *
 * Cures where no mesh fits: the same search without one of its limits, without all of them, or with more
 * ranks. */
#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "mesh_answer.h"

/* More ranks than so many times the given ones are not tried, nor more than --world-size allows. */
enum { MOST_TIMES = 64, MOST_RANKS = 65536 };

static void print_cure(const char *how, const plan_mesh *mesh)
{
	char axes[96];
	plan_mesh_text(mesh, axes, sizeof(axes));
	printf("  %s: --mesh %s --strategy %s --micro-batch %" PRId64 " --recompute %s", how, axes, mesh->strategy,
	       mesh->batch, engine_recompute_name(mesh->recompute));
	if (mesh->pipeline > 1)
		printf(" --schedule %s", mesh->schedule);
	puts("");
}

/* The first mesh that fits is enough. */
static int try_cure(plan_costs *costs, plan_search_options search, const char *how, int *cures, beton_error *err)
{
	plan_found found;
	search.only_first = true;
	int status = plan_search(costs, &search, &found, err);
	if (status == BETON_OK && found.count) {
		if (++*cures == 1)
			puts("; these would, for example:");
		print_cure(how, &found.rows[0].mesh);
	}
	plan_found_close(&found);
	return status;
}

static bool has_axes(const plan_search_options *search)
{
	bool any = false;
	for (int i = 0; i < DTRAIN_AXES; i++)
		any = any || search->axes.size[i] > 0;
	return any;
}

static plan_search_options without_limits(const plan_search_options *search)
{
	return (plan_search_options){.ranks = search->ranks, .samples = search->samples, .recompute = -1};
}

/* Leaves out each limit that is given, and then all. */
static int try_limits(plan_costs *costs, const plan_search_options *search, int *cures, beton_error *err)
{
	const plan_search_options none = without_limits(search);
	const struct {
		const char *how;
		bool given;
	} all[] = {
		{"without --recompute", search->recompute >= 0},
		{"without --strategy", search->strategy != NULL},
		{"without --schedule", search->schedule != NULL},
		{"without --micro-batch", search->batch > 0},
		{"with --mesh any", has_axes(search)},
	};
	enum { COUNT = sizeof(all) / sizeof(all[0]) };
	int status = BETON_OK, given = 0;
	for (int i = 0; i < COUNT && status == BETON_OK; i++) {
		plan_search_options fewer = *search;
		fewer.recompute = i == 0 ? -1 : fewer.recompute;
		fewer.strategy = i == 1 ? NULL : fewer.strategy;
		fewer.schedule = i == 2 ? NULL : fewer.schedule;
		fewer.batch = i == 3 ? 0 : fewer.batch;
		fewer.axes = i == 4 ? none.axes : fewer.axes;
		given += all[i].given;
		if (all[i].given)
			status = try_cure(costs, fewer, all[i].how, cures, err);
	}
	return status == BETON_OK && *cures == 0 && given > 1
		       ? try_cure(costs, none, "with --mesh any, without the other limits", cures, err)
		       : status;
}

/* Doubles the ranks until a mesh fits. */
static int try_ranks(plan_costs *costs, plan_search_options search, const char *how, int *cures, beton_error *err)
{
	const plan_machine *machine = costs->machine;
	const int64_t most = machine->between.rate > 0 ? MOST_RANKS : machine->host_ranks;
	const int before = *cures;
	int status = BETON_OK;
	for (int times = 2; times <= MOST_TIMES && status == BETON_OK && *cures == before; times *= 2) {
		char text[96];
		plan_search_options more = search;
		if ((int64_t)search.ranks * times > most)
			break;
		more.ranks = search.ranks * times;
		snprintf(text, sizeof(text), "with --world-size %" PRId32 "%s", more.ranks, how);
		status = try_cure(costs, more, text, cures, err);
	}
	return status;
}

int plan_mesh_cures(plan_costs *costs, const plan_search_options *search, beton_error *err)
{
	int cures = 0;
	int status = try_limits(costs, search, &cures, err);
	if (status == BETON_OK)
		status = try_ranks(costs, *search, "", &cures, err);
	if (status == BETON_OK && cures == 0)
		status = try_ranks(costs, without_limits(search), " and --mesh any, without the other limits", &cures,
				   err);
	if (cures == 0)
		puts("");
	return status;
}
