/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that hid a step's communication, the cost of transfers, and a simulation of a step from both.
 */
#include <dtrain/overlap.h>

#include <math.h>
#include <stdlib.h>

#include "common/error.h"

void dtrain_overlap_destroy(dtrain_overlap **overlap)
{
	if (!overlap)
		return;
	if (!*overlap)
		return;
	free((*overlap)->nodes);
	free((*overlap)->transfers);
	free(*overlap);
	*overlap = NULL;
}

/* Transfers that the step waits for before the node. */
static double waits_before(const dtrain_overlap *overlap, int32_t node)
{
	double ms = 0;
	for (int32_t i = 0; i < overlap->num_transfers; i++)
		ms += overlap->transfers[i].wait == node ? overlap->transfers[i].exposed_ms : 0;
	return ms;
}

double dtrain_overlap_node_end(const dtrain_overlap *overlap, int32_t node)
{
	if (!overlap)
		return 0;
	double end = 0;
	for (int32_t i = 0; i <= node; i++)
		end += waits_before(overlap, i) + overlap->nodes[i].ms;
	return end;
}

dtrain_overlap_hidden dtrain_overlap_hidden_by(const dtrain_overlap *overlap, int32_t transfer)
{
	if (!overlap)
		return (dtrain_overlap_hidden){0};
	const dtrain_overlap_transfer *of = &overlap->transfers[transfer];
	dtrain_overlap_hidden out = {.first = -1, .last = -1};
	double ends = 0;
	for (int32_t i = 0; i < overlap->num_nodes; i++) {
		double begins = ends + waits_before(overlap, i);
		ends = begins + overlap->nodes[i].ms;
		double common = fmin(ends, of->end_ms) - fmax(begins, of->begin_ms);
		if (common <= 0)
			continue;
		out.ms += common;
		out.first = out.first < 0 ? i : out.first;
		out.last = i;
	}
	return out;
}

/* ---- costs ---- */

/* Between two of the times at which some transfer begins or ends, the same lanes are busy. */
double dtrain_overlap_alone_ms(const dtrain_overlap *overlap, int32_t transfer)
{
	if (!overlap)
		return 0;
	const dtrain_overlap_transfer *of = &overlap->transfers[transfer];
	double alone = 0;
	for (double at = of->begin_ms; at < of->end_ms;) {
		double next = of->end_ms;
		int busy = 0;
		for (int32_t i = 0; i < overlap->num_transfers; i++) {
			const dtrain_overlap_transfer *other = &overlap->transfers[i];
			bool runs = other->begin_ms <= at && other->end_ms > at;
			double changes = runs ? other->end_ms : other->begin_ms;
			busy += runs;
			next = changes > at && changes < next ? changes : next;
		}
		alone += (next - at) / busy;
		at = next;
	}
	return alone;
}

/* Sums over the transfers of a kind, weighted by the inverse of their times: small ones tell of the latency, and large
 * ones are most of what may be exposed. */
typedef struct fit_sums {
	double weight, bytes, squares, ms, products;
	uint64_t least, most;
	int32_t count;
	bool has_units;
} fit_sums;

static fit_sums add_up(const dtrain_overlap_transfer *transfers, const double *alone_ms, int32_t count,
		       dtrain_overlap_kind kind)
{
	fit_sums sums = {.least = UINT64_MAX};
	for (int32_t i = 0; i < count; i++) {
		double ms = alone_ms[i], bytes = (double)transfers[i].bytes;
		if (transfers[i].kind != kind || ms <= 0)
			continue;
		double weight = 1 / ms;
		sums.weight += weight;
		sums.bytes += weight * bytes;
		sums.squares += weight * bytes * bytes;
		sums.ms += weight * ms;
		sums.products += weight * bytes * ms;
		sums.least = transfers[i].bytes < sums.least ? transfers[i].bytes : sums.least;
		sums.most = transfers[i].bytes > sums.most ? transfers[i].bytes : sums.most;
		sums.count++;
		sums.has_units = sums.has_units || transfers[i].unit >= 0;
	}
	return sums;
}

/* fastest: time of the fastest transfer of any kind. */
static dtrain_overlap_cost fit_kind(const fit_sums *sums, double fastest)
{
	dtrain_overlap_cost cost = {0};
	if (!sums->count)
		return cost;
	double mean = sums->ms / sums->weight;
	if (!sums->has_units)
		return (dtrain_overlap_cost){.latency_ms = mean};
	if (sums->least == sums->most) {
		cost.latency_ms = fmin(fastest, mean);
		cost.byte_ms = sums->most ? (mean - cost.latency_ms) / (double)sums->most : 0;
		return cost;
	}
	double spread = sums->weight * sums->squares - sums->bytes * sums->bytes;
	cost.byte_ms = (sums->weight * sums->products - sums->bytes * sums->ms) / spread;
	cost.latency_ms = (sums->ms - cost.byte_ms * sums->bytes) / sums->weight;
	if (cost.byte_ms < 0)
		return (dtrain_overlap_cost){.latency_ms = mean};
	if (cost.latency_ms < 0)
		return (dtrain_overlap_cost){.byte_ms = sums->products / sums->squares};
	return cost;
}

void dtrain_overlap_fit(const dtrain_overlap_transfer *transfers, const double *alone_ms, int32_t count,
			dtrain_overlap_cost out[DTRAIN_OVERLAP_KINDS])
{
	if (!transfers)
		return;
	double fastest = INFINITY;
	for (int32_t i = 0; i < count; i++)
		fastest = alone_ms[i] > 0 ? fmin(fastest, alone_ms[i]) : fastest;
	for (int kind = 0; kind < DTRAIN_OVERLAP_KINDS; kind++) {
		const fit_sums sums = add_up(transfers, alone_ms, count, (dtrain_overlap_kind)kind);
		out[kind] = fit_kind(&sums, fastest);
	}
}

/* ---- simulation ---- */

typedef struct flight {
	double latency_ms, work_ms; /* left; work as long as the link is not shared */
	double share;               /* of the link; 0: it needs none, or gets none */
	int32_t lane;
	bool begun, over;
} flight;

typedef struct simulation {
	dtrain_overlap *overlap;
	const dtrain_overlap_cost *costs;
	dtrain_overlap_change change;
	flight *flights;  /* of each transfer */
	int32_t *issued;  /* in order */
	int32_t *heads;   /* the transfers that run */
	bool *lane_taken; /* for finding them */
	int32_t num_issued, num_over, num_lanes;
	double now_ms;
} simulation;

static void issue(simulation *self, int32_t index)
{
	const dtrain_overlap_transfer *transfer = &self->overlap->transfers[index];
	const dtrain_overlap_cost *cost = &self->costs[transfer->kind];
	self->flights[index] = (flight){
		.latency_ms = cost->latency_ms,
		.work_ms = cost->byte_ms * (double)transfer->bytes,
		.lane = self->change.lanes > 0 ? self->num_issued % self->change.lanes : transfer->lane,
	};
	self->issued[self->num_issued++] = index;
}

/* The first transfer of each lane that is not over. */
static int32_t find_heads(simulation *self)
{
	int32_t count = 0;
	for (int32_t i = 0; i < self->num_lanes; i++)
		self->lane_taken[i] = false;
	for (int32_t i = self->num_over; i < self->num_issued; i++) {
		int32_t index = self->issued[i];
		flight *f = &self->flights[index];
		if (f->over || self->lane_taken[f->lane])
			continue;
		self->lane_taken[f->lane] = true;
		self->heads[count++] = index;
		if (!f->begun)
			self->overlap->transfers[index].begin_ms = self->now_ms;
		f->begun = true;
	}
	return count;
}

static bool is_gather(const simulation *self, int32_t index)
{
	return self->overlap->transfers[index].kind == DTRAIN_OVERLAP_GATHER;
}

/* Divides the link among the heads. A latency needs none of it. */
static void share_link(simulation *self, int32_t count)
{
	int32_t sharing = 0, gathers = 0;
	for (int32_t i = 0; i < count; i++) {
		bool needs = self->flights[self->heads[i]].latency_ms <= 0;
		sharing += needs;
		gathers += needs && is_gather(self, self->heads[i]);
	}
	bool first = self->change.gathers_first && gathers;
	for (int32_t i = 0; i < count; i++) {
		flight *f = &self->flights[self->heads[i]];
		bool gets = f->latency_ms <= 0 && (!first || is_gather(self, self->heads[i]));
		f->share = gets ? 1. / (first ? gathers : sharing) : 0;
	}
}

/* A time below rounding counts as 0. */
static void reduce_by(const simulation *self, double *left_ms, double ms)
{
	*left_ms = *left_ms - ms > 1e-12 * self->now_ms ? *left_ms - ms : 0;
}

/* Until the next transfer has passed its latency, or is over; at most until `limit`. Returns false if none runs. */
static bool progress(simulation *self, double limit)
{
	int32_t count = find_heads(self);
	double ms = limit - self->now_ms;
	share_link(self, count);
	for (int32_t i = 0; i < count; i++) {
		const flight *f = &self->flights[self->heads[i]];
		if (f->latency_ms > 0)
			ms = fmin(ms, f->latency_ms);
		else if (f->share > 0)
			ms = fmin(ms, f->work_ms / f->share);
	}
	if (!count)
		return false;
	self->now_ms += ms;
	for (int32_t i = 0; i < count; i++) {
		flight *f = &self->flights[self->heads[i]];
		if (f->latency_ms > 0)
			reduce_by(self, &f->latency_ms, ms);
		else
			reduce_by(self, &f->work_ms, ms * f->share);
		f->over = f->latency_ms <= 0 && f->work_ms <= 0;
		if (f->over)
			self->overlap->transfers[self->heads[i]].end_ms = self->now_ms;
	}
	while (self->num_over < self->num_issued && self->flights[self->issued[self->num_over]].over)
		self->num_over++;
	return true;
}

static void compute(simulation *self, double ms)
{
	double until = self->now_ms + ms;
	while (self->now_ms < until && progress(self, until))
		;
	self->now_ms = until;
}

static int32_t issue_of(const simulation *self, const dtrain_overlap_transfer *transfer)
{
	bool reduces = transfer->kind != DTRAIN_OVERLAP_GATHER && transfer->unit >= 0;
	return self->change.as_complete && reduces ? transfer->complete : transfer->issue;
}

/* Issues the transfers that come after the node, and waits for the transfers that the next node needs. */
static void pass_node(simulation *self, int32_t node, dtrain_overlap_totals *out)
{
	dtrain_overlap *overlap = self->overlap;
	for (int32_t i = 0; i < overlap->num_transfers; i++)
		if (overlap->transfers[i].behind < 0 && issue_of(self, &overlap->transfers[i]) == node)
			issue(self, i);
	for (int32_t i = 0; i < overlap->num_transfers; i++) {
		dtrain_overlap_transfer *transfer = &overlap->transfers[i];
		double began = self->now_ms;
		if (transfer->wait != node + 1)
			continue;
		while (!self->flights[i].over && progress(self, INFINITY))
			;
		transfer->exposed_ms = self->now_ms - began;
		out->exposed_ms += transfer->exposed_ms;
		for (int32_t k = 0; k < overlap->num_transfers; k++)
			if (overlap->transfers[k].behind == i)
				issue(self, k);
	}
}

static int check(const dtrain_overlap *overlap, beton_error *err)
{
	for (int32_t i = 0; i < overlap->num_transfers; i++) {
		const dtrain_overlap_transfer *t = &overlap->transfers[i];
		bool after = t->behind < 0 ? t->issue >= -1 && t->issue < t->wait && t->complete <= t->issue
					   : t->behind < i && overlap->transfers[t->behind].wait <= t->wait;
		if (!after || t->wait > overlap->num_nodes || t->lane < 0 || (unsigned)t->kind >= DTRAIN_OVERLAP_KINDS)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "overlap: transfer %d of %d: from node %d to node %d of %d, after transfer %d, "
				       "lane %d",
				       i, overlap->num_transfers, t->issue, t->wait, overlap->num_nodes, t->behind,
				       t->lane);
	}
	return BETON_OK;
}

int dtrain_overlap_simulate(dtrain_overlap *overlap, const dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS],
			    const dtrain_overlap_change *change, dtrain_overlap_totals *out, beton_error *err)
{
	if (BT_MISSING(err, overlap, out))
		return BETON_INVALID_ARGUMENT;
	simulation self = {.overlap = overlap, .costs = costs, .change = change ? *change : (dtrain_overlap_change){0}};
	size_t count = (size_t)overlap->num_transfers;
	*out = (dtrain_overlap_totals){0};
	int status = check(overlap, err);
	if (status != BETON_OK)
		return status;
	self.num_lanes = self.change.lanes;
	for (int32_t i = 0; i < overlap->num_transfers && self.change.lanes == 0; i++)
		if (overlap->transfers[i].lane >= self.num_lanes)
			self.num_lanes = overlap->transfers[i].lane + 1;
	self.flights = calloc(count + 1, sizeof(*self.flights));
	self.issued = calloc(count + 1, sizeof(*self.issued));
	self.heads = calloc(count + 1, sizeof(*self.heads));
	self.lane_taken = calloc((size_t)self.num_lanes + 1, sizeof(*self.lane_taken));
	if (self.flights && self.issued && self.heads && self.lane_taken) {
		pass_node(&self, -1, out);
		for (int32_t node = 0; node < overlap->num_nodes; node++) {
			compute(&self, overlap->nodes[node].ms);
			pass_node(&self, node, out);
		}
		out->step_ms = self.now_ms;
	} else {
		status = bt_fail(err, BETON_NO_MEMORY, "overlap: out of memory for %d transfers",
				 overlap->num_transfers);
	}
	free(self.flights);
	free(self.issued);
	free(self.heads);
	free(self.lane_taken);
	return status;
}
