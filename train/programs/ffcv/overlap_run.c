/* SPDX-License-Identifier: Apache-2.0 */
#include "overlap_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/memory/memory_plan.h"
#include "engine/overlap_steps.h"
#include "launch/status_line.h"
#include "options/options_table.h"
#include "options/strategy.h"

/* The share of free memory to use; the device's libraries allocate from the rest. */
#define USABLE 0.95
/* A size is chosen only if it shortens the step by so much: smaller differences are measurement noise. */
#define LEAST_GAIN 0.01
/* Share of a step below which times that are waited do not matter. */
#define NOTICED 0.1
#define MIB (1 << 20)

/* ---- measuring ---- */

/* A rank's median step, in numbers, for the others: each node's time, and each transfer's begin, end and exposed time;
 * then for each step and transfer the time that the transfer took alone. */
typedef struct layout {
	size_t nodes, transfers, count;
} layout;

static layout layout_of(const dtrain_overlap *step)
{
	size_t nodes = (size_t)step->num_nodes, transfers = (size_t)step->num_transfers;
	return (layout){nodes, transfers, nodes + (3 + ENGINE_OVERLAP_STEPS) * transfers};
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return left < right ? -1 : left > right;
}

static double median(const double numbers[ENGINE_OVERLAP_STEPS])
{
	double sorted[ENGINE_OVERLAP_STEPS];
	memcpy(sorted, numbers, sizeof(sorted));
	qsort(sorted, ENGINE_OVERLAP_STEPS, sizeof(*sorted), compare);
	return sorted[ENGINE_OVERLAP_STEPS / 2];
}

/* The median over whole steps, not over their parts: medians of parts from differently disturbed steps would not fit
 * together. */
static const dtrain_overlap *median_step(dtrain_overlap *const steps[ENGINE_OVERLAP_STEPS])
{
	double ends[ENGINE_OVERLAP_STEPS];
	for (int k = 0; k < ENGINE_OVERLAP_STEPS; k++)
		ends[k] = dtrain_overlap_node_end(steps[k], steps[k]->num_nodes - 1);
	double middle = median(ends);
	int found = 0;
	while (ends[found] != middle)
		found++;
	return steps[found];
}

static void describe(dtrain_overlap *const steps[ENGINE_OVERLAP_STEPS], double *out)
{
	const layout l = layout_of(steps[0]);
	const dtrain_overlap *step = median_step(steps);
	for (size_t i = 0; i < l.nodes; i++)
		*out++ = step->nodes[i].ms;
	for (size_t i = 0; i < l.transfers; i++) {
		*out++ = step->transfers[i].begin_ms;
		*out++ = step->transfers[i].end_ms;
		*out++ = step->transfers[i].exposed_ms;
	}
	for (int k = 0; k < ENGINE_OVERLAP_STEPS; k++)
		for (size_t i = 0; i < l.transfers; i++)
			*out++ = dtrain_overlap_alone_ms(steps[k], (int32_t)i);
}

static double computes_ms(const double *of_rank, layout l)
{
	double sum = 0;
	for (size_t i = 0; i < l.nodes; i++)
		sum += of_rank[i];
	return sum;
}

/* The rank that begins a transfer last does not wait for others: of each step the shortest time counts. */
static int fit(const double *all, int ranks, layout l, run_overlap *out, beton_error *err)
{
	double *alone = calloc(l.transfers + 1, sizeof(*alone));
	if (!alone)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the times of %zu transfers", l.transfers);
	for (size_t i = 0; i < l.transfers; i++) {
		double shortest[ENGINE_OVERLAP_STEPS];
		for (size_t k = 0; k < ENGINE_OVERLAP_STEPS; k++) {
			const double *first = all + l.nodes + (3 + k) * l.transfers + i;
			shortest[k] = *first;
			for (int rank = 1; rank < ranks; rank++)
				shortest[k] = fmin(shortest[k], first[(size_t)rank * l.count]);
		}
		alone[i] = median(shortest);
	}
	dtrain_overlap_fit(out->step->transfers, alone, out->step->num_transfers, out->costs);
	free(alone);
	return BETON_OK;
}

/* The other ranks wait for the rank that computes longest, whatever the units are. */
static int join_ranks(const double *all, int ranks, layout l, run_overlap *out, beton_error *err)
{
	for (int rank = 1; rank < ranks; rank++)
		if (computes_ms(all + (size_t)rank * l.count, l) > computes_ms(all + (size_t)out->rank * l.count, l))
			out->rank = rank;
	const double *slowest = all + (size_t)out->rank * l.count;
	out->step_ms = computes_ms(slowest, l);
	for (size_t i = 0; i < l.nodes; i++)
		out->step->nodes[i].ms = slowest[i];
	for (size_t i = 0; i < l.transfers; i++) {
		const double *times = slowest + l.nodes + 3 * i;
		out->step->transfers[i].begin_ms = times[0];
		out->step->transfers[i].end_ms = times[1];
		out->step->transfers[i].exposed_ms = times[2];
		out->exposed_ms += times[2];
	}
	out->step_ms += out->exposed_ms;
	return fit(all, ranks, l, out, err);
}

/* Takes a step of steps. */
static int agree(const run_session *session, dtrain_overlap *steps[ENGINE_OVERLAP_STEPS], run_overlap *out,
		 beton_error *err)
{
	const dtrain_checkpoint_ranks ranks = run_session_ranks(session);
	const layout l = layout_of(steps[0]);
	double *mine = calloc(l.count, sizeof(*mine)), *all = calloc(l.count * (size_t)ranks.size, sizeof(*all));
	int status = mine && all ? BETON_OK
				 : bt_fail(err, BETON_NO_MEMORY, "out of memory for the times of %d ranks", ranks.size);
	if (status == BETON_OK) {
		describe(steps, mine);
		status = ranks.all_gather(ranks.context, mine, l.count * sizeof(*mine), all, err);
	}
	if (status == BETON_OK) {
		out->step = steps[0];
		steps[0] = NULL;
		status = join_ranks(all, ranks.size, l, out, err);
	}
	free(mine);
	free(all);
	return status;
}

static int open_trial(const run_session *session, const run_options *options, const engine_data *data, engine_rank *out,
		      beton_error *err)
{
	const engine_job job = run_options_job(options);
	dtrain_sync_options sync = run_strategy_sync(options);
	sync.overlap = true;
	int status = engine_open(out, &job, data, session->engine.device, (engine_precision)options->precision,
				 session->mesh, &sync, err);
	if (status == BETON_OK)
		status = dtrain_params_initialize(out->params, options->seed, out->stream, err);
	if (status == BETON_OK)
		status = engine_synchronize(out, "the parameters", err);
	return status == BETON_OK ? dtrain_sync_start(out->sync, err) : status;
}

static int measure(const run_session *session, engine_rank *engine, run_overlap *out, beton_error *err)
{
	dtrain_overlap *steps[ENGINE_OVERLAP_STEPS] = {NULL};
	const engine_stepper_options stepper = {.group = session->group, .no_capture = session->options->no_capture};
	int status = engine_overlap_measure(engine, &stepper, steps, err);
	if (status == BETON_OK)
		status = agree(session, steps, out, err);
	for (int i = 0; i < ENGINE_OVERLAP_STEPS; i++)
		dtrain_overlap_destroy(&steps[i]);
	return status;
}

/* ---- other sizes ---- */

static size_t bytes_of(double mb)
{
	return mb > 0 ? 1 + (size_t)(mb * MIB) : 0;
}

static double units_mb(const dtrain_params *params, double *largest)
{
	double all = 0;
	*largest = 0;
	for (int i = 0; i < dtrain_params_unit_count(params); i++) {
		double mb = (double)dtrain_params_unit_at(params, i)->count *
			    (double)dtrain_dtype_size(dtrain_params_dtype(params)) / MIB;
		all += mb;
		*largest = fmax(*largest, mb);
	}
	return all;
}

/* Bytes that all of a rank's memory may have; the trial's is in use, and given back. SIZE_MAX: not known. */
static size_t find_limit(const engine_rank *engine)
{
	engine_memory used;
	uint64_t available = engine->api->free_memory(engine->device);
	return available == UINT64_MAX || engine_memory_read(engine, &used, NULL) != BETON_OK
		       ? SIZE_MAX
		       : (size_t)((double)available * USABLE) + engine_memory_total(&used) - used.states - used.updates;
}

static int simulate(const run_overlap *self, dtrain_overlap *plan, dtrain_overlap_totals *out, beton_error *err)
{
	if (plan->num_nodes != self->step->num_nodes)
		return bt_fail(err, BETON_STATE, "units of another size: %d nodes, and %d were measured",
			       plan->num_nodes, self->step->num_nodes);
	for (int32_t i = 0; i < plan->num_nodes; i++)
		plan->nodes[i].ms = self->step->nodes[i].ms;
	return dtrain_overlap_simulate(plan, self->costs, NULL, out, err);
}

static int units_of(const dtrain_overlap *plan)
{
	int units = 0;
	for (int32_t i = 0; i < plan->num_transfers; i++)
		units += plan->transfers[i].unit >= 0 && (plan->transfers[i].kind == DTRAIN_OVERLAP_SUM ||
							  plan->transfers[i].kind == DTRAIN_OVERLAP_SCATTER);
	return units;
}

/* Adds a size if its units fit into memory. */
static int add_size(const engine_rank *engine, double mb, size_t unit_bytes, size_t limit, run_overlap *self,
		    beton_error *err)
{
	dtrain_overlap *plan = NULL;
	size_t memory;
	run_overlap_size *size = &self->sizes[self->count];
	*size = (run_overlap_size){.mb = mb};
	int status = engine_overlap_plan(engine, unit_bytes, &plan, &memory, err);
	if (status == BETON_OK)
		status = simulate(self, plan, &size->totals, err);
	if (status == BETON_OK) {
		size->units = units_of(plan);
		self->count += self->count == 0 || memory <= limit;
	}
	dtrain_overlap_destroy(&plan);
	return status;
}

/* Factors of 2 around the largest of the units that were measured. */
static int find_sizes(const engine_rank *engine, double measured_mb, run_overlap *self, beton_error *err)
{
	static const double factors[] = {1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2, 4};
	double largest, all = units_mb(engine->params, &largest);
	size_t limit = find_limit(engine);
	int status = add_size(engine, measured_mb, bytes_of(measured_mb), limit, self, err);
	for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]) && status == BETON_OK; i++) {
		char text[32];
		snprintf(text, sizeof(text), "%.3g", largest * factors[i]);
		double mb = strtod(text, NULL);
		/* Larger ones have everything in one unit, too. */
		if (mb > 0 && mb < 2 * all && mb != measured_mb)
			status = add_size(engine, mb, bytes_of(mb), limit, self, err);
	}
	for (int i = 1; i < self->count; i++) {
		double least = self->sizes[self->best].totals.step_ms;
		double needed = self->best ? least : least * (1 - LEAST_GAIN);
		self->best = self->sizes[i].totals.step_ms < needed ? i : self->best;
	}
	return status;
}

/* ---- the options ---- */

const char *run_overlap_option(const run_options *options)
{
	return options->strategy == RUN_STRATEGY_DDP ? "bucket-mb" : "unit-mb";
}

const char *run_overlap_unit(const run_options *options)
{
	return options->strategy == RUN_STRATEGY_DDP ? "bucket" : "unit";
}

static double size_of(const run_options *options)
{
	return options->strategy == RUN_STRATEGY_DDP ? options->bucket_mb : options->unit_mb;
}

static void set_size(run_options *options, double mb)
{
	if (options->strategy == RUN_STRATEGY_DDP)
		options->bucket_mb = mb;
	else
		options->unit_mb = mb;
}

static void tell_choice(const run_overlap *self, const run_options *options)
{
	const run_overlap_size *standard = &self->sizes[0], *chosen = &self->sizes[self->best];
	const char *unit = run_overlap_unit(options);
	printf("--tune-units: ");
	if (self->best)
		printf("--%s %.3g is chosen: a step of %.1f ms is expected with its %d %s%s; %.1f of it wait for "
		       "communication; ",
		       run_overlap_option(options), chosen->mb, chosen->totals.step_ms, chosen->units, unit,
		       bt_plural((uint64_t)chosen->units), chosen->totals.exposed_ms);
	else
		printf("the default %ss are kept: ", unit);
	printf("a step of %.1f ms is expected with the default %d %s%s; %.1f of it wait%s (measured: %.1f, %.1f)\n",
	       standard->totals.step_ms, standard->units, unit, bt_plural((uint64_t)standard->units),
	       standard->totals.exposed_ms, self->best ? "" : " for communication", self->step_ms, self->exposed_ms);
	fflush(stdout);
}

/* The simulation knows nothing of what else runs on the machine. */
static void warn_of_noise(const run_overlap *self, const run_options *options, const char *option)
{
	double simulated = self->sizes[0].totals.exposed_ms, more = fmax(self->exposed_ms, simulated);
	if (more <= 2 * fmin(self->exposed_ms, simulated) || more < self->step_ms * NOTICED)
		return;
	status_line_warn("dtrain-ffcv: --%s: the ranks waited %.1f ms for communication, and %.1f are expected of the "
			 "same %ss: the machine may be busy, or a rank may not have a core of its own",
			 option, self->exposed_ms, simulated, run_overlap_unit(options));
}

typedef int (*use_sizes)(const run_overlap *self, const run_options *options, const engine_rank *engine,
			 beton_error *err);

/* Measures with the options, and calls use on rank 0. out->step is destroyed. */
static int try_steps(const run_session *session, const run_options *options, use_sizes use, run_overlap *out,
		     beton_error *err)
{
	engine_rank engine = {0};
	engine_data data = session->info->data;
	data.val = (engine_dataset){0};
	*out = (run_overlap){0};
	int status = open_trial(session, options, &data, &engine, err);
	if (status == BETON_OK)
		status = measure(session, &engine, out, err);
	if (status == BETON_OK && session->rank == 0)
		status = find_sizes(&engine, size_of(options), out, err);
	if (status == BETON_OK && session->rank == 0)
		status = use(out, options, &engine, err);
	dtrain_overlap_destroy(&out->step);
	if (engine.sync)
		dtrain_sync_stop(engine.sync);
	engine_close_parts(&engine);
	return status;
}

static int use_choice(const run_overlap *self, const run_options *options, const engine_rank *engine, beton_error *err)
{
	(void)engine;
	(void)err;
	if (!options->quiet)
		tell_choice(self, options);
	return BETON_OK;
}

int run_overlap_tune(const run_session *session, run_options *options, beton_error *err)
{
	run_overlap overlap;
	dtrain_work *work = NULL;
	if (!options->tune_units)
		return BETON_OK;
	set_size(options, 0);
	int status = try_steps(session, options, use_choice, &overlap, err);
	if (status == BETON_OK && session->rank == 0)
		warn_of_noise(&overlap, options, "tune-units");
	/* Ranks of other processors may round differently: rank 0 decides. */
	double mb = status == BETON_OK && session->rank == 0 ? overlap.sizes[overlap.best].mb : 0;
	if (status == BETON_OK)
		status = dtrain_broadcast(session->slow_group, &mb, 1, DTRAIN_F64, 0, NULL, &work, err);
	if (status == BETON_OK)
		status = dtrain_work_wait(&work, err);
	if (status != BETON_OK) {
		bt_prefix(err, "--tune-units");
		return status;
	}
	/* A checkpoint has the size, and a resumed run takes it from there. */
	set_size(options, mb);
	options->tune_units = false;
	return BETON_OK;
}

int run_overlap_report(const run_session *session, beton_error *err)
{
	run_overlap overlap;
	int status = try_steps(session, session->options, run_overlap_print, &overlap, err);
	if (status == BETON_OK && session->rank == 0)
		warn_of_noise(&overlap, session->options, "overlap");
	if (status != BETON_OK)
		bt_prefix(err, "--overlap");
	return status;
}
