/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of --overlap. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "overlap_run.h"

static void name_transfer(const dtrain_overlap_transfer *transfer, const char *unit, char *out, size_t size)
{
	static const char *const rounds[] = {[DTRAIN_OVERLAP_SUM] = "",
					     [DTRAIN_OVERLAP_SCATTER] = ", to shards",
					     [DTRAIN_OVERLAP_REPLICAS] = ", replicas",
					     [DTRAIN_OVERLAP_GATHER] = ", gathered"};
	if (transfer->unit < 0)
		snprintf(out, size, "metrics");
	else
		snprintf(out, size, "%s %d%s", unit, transfer->unit + 1, rounds[transfer->kind]);
}

/* The parameter of the first node from `node` on, in the direction `to`, that has one. */
static const char *param_near(const dtrain_overlap *step, const dtrain_params *params, int32_t node, int32_t to)
{
	int32_t by = to >= node ? 1 : -1;
	for (int32_t i = node; i >= 0 && i != to + by; i += by)
		if (step->nodes[i].param >= 0)
			return dtrain_params_at(params, step->nodes[i].param)->name;
	return NULL;
}

static void print_transfer(const dtrain_overlap *step, const dtrain_params *params, const char *unit, int32_t index)
{
	const dtrain_overlap_transfer *transfer = &step->transfers[index];
	const dtrain_overlap_hidden hidden = dtrain_overlap_hidden_by(step, index);
	const char *first = hidden.first < 0 ? NULL : param_near(step, params, hidden.first, hidden.last);
	const char *last = hidden.first < 0 ? NULL : param_near(step, params, hidden.last, hidden.first);
	char name[40], complete[16] = "";
	name_transfer(transfer, unit, name, sizeof(name));
	if (transfer->complete >= 0)
		snprintf(complete, sizeof(complete), "%.2f", dtrain_overlap_node_end(step, transfer->complete));
	printf("%-20s %9.3f %9s %9.2f %9.2f %9.2f %9.2f", name, (double)transfer->bytes / 1e6, complete,
	       transfer->begin_ms, transfer->end_ms, transfer->exposed_ms, hidden.ms);
	if (first && last)
		printf("  %s%s%s", first, first != last ? " ... " : "", first != last ? last : "");
	putchar('\n');
}

static void print_costs(const run_overlap *self)
{
	static const char *const names[] = {[DTRAIN_OVERLAP_SUM] = "sum over all ranks",
					    [DTRAIN_OVERLAP_SCATTER] = "sum to shards",
					    [DTRAIN_OVERLAP_REPLICAS] = "sum over replicas",
					    [DTRAIN_OVERLAP_GATHER] = "gather"};
	puts("\ntransfer alone         latency ms     ms a MB");
	for (int i = 0; i < DTRAIN_OVERLAP_KINDS; i++)
		if (self->costs[i].latency_ms > 0 || self->costs[i].byte_ms > 0)
			printf("%-20s %12.3f %11.3f\n", names[i], self->costs[i].latency_ms,
			       self->costs[i].byte_ms * 1e6);
}

static void print_size(const run_overlap *self, const run_options *options, int index)
{
	const run_overlap_size *size = &self->sizes[index];
	char name[40];
	snprintf(name, sizeof(name), options->unit_pattern ? "%ss by --unit-pattern" : "the default %ss",
		 run_overlap_unit(options));
	if (size->mb > 0)
		snprintf(name, sizeof(name), "--%s %.3g", run_overlap_option(options), size->mb);
	printf("%c %-32s %6d %12.2f %12.2f\n", index == self->best ? '*' : ' ', name, size->units,
	       size->totals.exposed_ms, size->totals.step_ms);
}

/* The units that were measured, in another order, or in other lanes. */
static int print_changes(const run_overlap *self, beton_error *err)
{
	static const struct {
		const char *name;
		dtrain_overlap_change change;
	} changes[] = {{"as they are complete", {.as_complete = true}},
		       {"gathers first", {.gathers_first = true}},
		       {"one lane", {.lanes = 1}},
		       {"two lanes", {.lanes = 2}},
		       {"four lanes", {.lanes = 4}}};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]) && status == BETON_OK; i++) {
		dtrain_overlap_totals totals;
		status = dtrain_overlap_simulate(self->step, self->costs, &changes[i].change, &totals, err);
		if (status == BETON_OK)
			printf("  %-32s %6d %12.2f %12.2f\n", changes[i].name, self->sizes[0].units, totals.exposed_ms,
			       totals.step_ms);
	}
	return status;
}

int run_overlap_print(const run_overlap *self, const run_options *options, const engine_rank *engine, beton_error *err)
{
	const char *unit = run_overlap_unit(options);
	printf("forward and backward of a step, without the update, in ms on rank %d, which computes longest:\n"
	       "complete: when the gradients of the %s were complete; begins, ends: its transfer; exposed: how long "
	       "the\n"
	       "step waited for it; hidden: how long the rank computed meanwhile; by computing: the parameters of "
	       "that\n\n"
	       "transfer                    MB  complete    begins      ends   exposed    hidden  by computing\n",
	       self->rank, unit);
	for (int32_t i = 0; i < self->step->num_transfers; i++)
		print_transfer(self->step, engine->params, unit, i);
	print_costs(self);
	printf("\n  %-32s %5ss %12s %12s\n  %-32s %6d %12.2f %12.2f\nexpected with (* is the shortest):\n",
	       "step, in ms", unit, "exposed", "step", "measured", self->sizes[0].units, self->exposed_ms,
	       self->step_ms);
	for (int i = 0; i < self->count; i++)
		print_size(self, options, i);
	int status = print_changes(self, err);
	return status == BETON_OK && fflush(stdout) != 0 ? bt_fail_errno(err, errno, "standard output") : status;
}
