/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation of a step's communication on timelines that are made up, the costs that are fitted to transfers, and
 * what a transfer is hidden by. Times are in milliseconds, chosen so that the results are simple.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/overlap.h>

enum { NODES = 8 };

static beton_error err;

typedef struct made_up {
	dtrain_overlap_node nodes[NODES];
	dtrain_overlap_transfer transfers[NODES];
	dtrain_overlap overlap;
} made_up;

/* Nodes of 10 ms. */
static void make(made_up *self, int nodes, const dtrain_overlap_transfer *transfers, int count)
{
	memset(self, 0, sizeof(*self));
	self->overlap = (dtrain_overlap){
		.nodes = self->nodes, .num_nodes = nodes, .transfers = self->transfers, .num_transfers = count};
	for (int i = 0; i < nodes; i++)
		self->nodes[i].ms = 10;
	for (int i = 0; i < count; i++)
		self->transfers[i] = transfers[i];
}

/* A unit that is complete after a node. */
static dtrain_overlap_transfer unit(int32_t after, int32_t wait, uint64_t bytes)
{
	return (dtrain_overlap_transfer){.kind = DTRAIN_OVERLAP_SUM,
					 .bytes = bytes,
					 .complete = after,
					 .issue = after,
					 .wait = wait,
					 .behind = -1};
}

static dtrain_overlap_transfer gather(int32_t after, int32_t wait, uint64_t bytes)
{
	dtrain_overlap_transfer transfer = unit(after, wait, bytes);
	transfer.kind = DTRAIN_OVERLAP_GATHER;
	transfer.lane = 1;
	transfer.complete = -1;
	return transfer;
}

/* One byte takes 1 ms. */
static dtrain_overlap_totals simulate(made_up *self, double latency, const dtrain_overlap_change *change)
{
	dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS];
	dtrain_overlap_totals totals;
	for (int i = 0; i < DTRAIN_OVERLAP_KINDS; i++)
		costs[i] = (dtrain_overlap_cost){.latency_ms = latency, .byte_ms = 1};
	assert_int_equal(dtrain_overlap_simulate(&self->overlap, costs, change, &totals, &err), BETON_OK);
	return totals;
}

static void check_transfer(const made_up *self, int index, double begin, double end, double exposed)
{
	const dtrain_overlap_transfer *transfer = &self->transfers[index];
	assert_float_equal(transfer->begin_ms, begin, 1e-9);
	assert_float_equal(transfer->end_ms, end, 1e-9);
	assert_float_equal(transfer->exposed_ms, exposed, 1e-9);
}

static void check_totals(const dtrain_overlap_totals *totals, double step, double exposed)
{
	assert_float_equal(totals->step_ms, step, 1e-9);
	assert_float_equal(totals->exposed_ms, exposed, 1e-9);
}

static void one_unit_is_exposed_whole(void **state)
{
	(void)state;
	const dtrain_overlap_transfer transfers[] = {unit(3, 4, 25)};
	made_up self;
	make(&self, 4, transfers, 1);
	const dtrain_overlap_totals totals = simulate(&self, 5, NULL);
	check_totals(&totals, 70, 30);
	check_transfer(&self, 0, 40, 70, 30);
	/* No node computed meanwhile. */
	const dtrain_overlap_hidden hidden = dtrain_overlap_hidden_by(&self.overlap, 0);
	assert_float_equal(hidden.ms, 0, 1e-9);
	assert_int_equal(hidden.first, -1);
}

static void nothing_is_sent(void **state)
{
	(void)state;
	made_up self;
	make(&self, 3, NULL, 0);
	dtrain_overlap_totals totals = simulate(&self, 5, NULL);
	check_totals(&totals, 30, 0);
	/* No bytes, no latency: over at once. */
	const dtrain_overlap_transfer transfers[] = {unit(-1, 1, 0), unit(2, 3, 0)};
	make(&self, 3, transfers, 2);
	totals = simulate(&self, 0, NULL);
	check_totals(&totals, 30, 0);
	check_transfer(&self, 1, 30, 30, 0);
	/* The latency is left. */
	totals = simulate(&self, 5, NULL);
	check_totals(&totals, 35, 5);
	/* No nodes either. */
	make(&self, 0, transfers, 0);
	totals = simulate(&self, 0, NULL);
	check_totals(&totals, 0, 0);
}

static void units_are_hidden(void **state)
{
	(void)state;
	const dtrain_overlap_transfer all[] = {unit(0, 4, 12), unit(1, 4, 15)};
	made_up self;
	make(&self, 4, all, 2);
	const dtrain_overlap_totals totals = simulate(&self, 1, NULL);
	check_totals(&totals, 40, 0);
	check_transfer(&self, 0, 10, 23, 0);
	/* The lane is taken when it is issued, at 20. */
	check_transfer(&self, 1, 23, 39, 0);
	const dtrain_overlap_hidden hidden = dtrain_overlap_hidden_by(&self.overlap, 1);
	assert_float_equal(hidden.ms, 16, 1e-9);
	assert_int_equal(hidden.first, 2);
	assert_int_equal(hidden.last, 3);
}

/* The first wait is for the first unit, so it has the exposed time up to its end, and the second one the rest. */
static void waits_at_the_end_add_up(void **state)
{
	(void)state;
	const dtrain_overlap_transfer transfers[] = {unit(0, 2, 30), unit(1, 2, 7)};
	made_up self;
	make(&self, 2, transfers, 2);
	const dtrain_overlap_totals totals = simulate(&self, 0, NULL);
	check_totals(&totals, 47, 27);
	check_transfer(&self, 0, 10, 40, 20);
	check_transfer(&self, 1, 40, 47, 7);
}

/* A wait within the step moves all later nodes. */
static void waits_within_the_step_delay_nodes(void **state)
{
	(void)state;
	const dtrain_overlap_transfer transfers[] = {gather(-1, 1, 14), gather(0, 2, 6)};
	made_up self;
	make(&self, 3, transfers, 2);
	const dtrain_overlap_totals totals = simulate(&self, 0, NULL);
	check_totals(&totals, 34, 4);
	check_transfer(&self, 0, 0, 14, 4);
	check_transfer(&self, 1, 14, 20, 0);
	assert_float_equal(dtrain_overlap_node_end(&self.overlap, -1), 0, 1e-9);
	assert_float_equal(dtrain_overlap_node_end(&self.overlap, 0), 10, 1e-9);
	assert_float_equal(dtrain_overlap_node_end(&self.overlap, 1), 24, 1e-9);
	assert_float_equal(dtrain_overlap_node_end(&self.overlap, 2), 34, 1e-9);
	const dtrain_overlap_hidden hidden = dtrain_overlap_hidden_by(&self.overlap, 0);
	assert_float_equal(hidden.ms, 10, 1e-9);
	assert_int_equal(hidden.last, 0);
}

/* Replicas begin when the shard is waited for. */
static void later_rounds_begin_with_waits(void **state)
{
	(void)state;
	dtrain_overlap_transfer transfers[] = {unit(0, 2, 4), unit(0, 4, 15), unit(2, 4, 5)};
	transfers[1].behind = 0;
	made_up self;
	make(&self, 4, transfers, 3);
	const dtrain_overlap_totals totals = simulate(&self, 0, NULL);
	check_transfer(&self, 0, 10, 14, 0);
	check_transfer(&self, 1, 20, 35, 0);
	check_transfer(&self, 2, 35, 40, 0);
	check_totals(&totals, 40, 0);
}

/* Two lanes share the link, but not the latency. */
static void lanes_share_the_link(void **state)
{
	(void)state;
	const dtrain_overlap_transfer transfers[] = {unit(0, 3, 10), gather(0, 3, 4)};
	made_up self;
	make(&self, 3, transfers, 2);
	simulate(&self, 0, NULL);
	check_transfer(&self, 0, 10, 24, 0);
	check_transfer(&self, 1, 10, 18, 0);
	assert_float_equal(dtrain_overlap_alone_ms(&self.overlap, 0), 10, 1e-9);
	assert_float_equal(dtrain_overlap_alone_ms(&self.overlap, 1), 4, 1e-9);
	const dtrain_overlap_change first = {.gathers_first = true};
	simulate(&self, 0, &first);
	check_transfer(&self, 0, 10, 24, 0);
	check_transfer(&self, 1, 10, 14, 0);
	/* Latencies run side by side: with one lane there are two of them, one after the other. */
	const dtrain_overlap_change one = {.lanes = 1};
	simulate(&self, 3, NULL);
	check_transfer(&self, 0, 10, 27, 0);
	simulate(&self, 3, &one);
	check_transfer(&self, 0, 10, 23, 0);
	check_transfer(&self, 1, 23, 30, 0);
	const dtrain_overlap_change more = {.lanes = 5};
	simulate(&self, 3, &more);
	check_transfer(&self, 0, 10, 27, 0);
}

/* The second unit is complete early, but waits for the first one. */
static void units_stand_in_line(void **state)
{
	(void)state;
	dtrain_overlap_transfer transfers[] = {unit(3, 4, 5), unit(3, 4, 20)};
	transfers[1].complete = 0;
	made_up self;
	make(&self, 4, transfers, 2);
	dtrain_overlap_totals totals = simulate(&self, 0, NULL);
	check_totals(&totals, 65, 25);
	const dtrain_overlap_change change = {.as_complete = true};
	totals = simulate(&self, 0, &change);
	check_totals(&totals, 45, 5);
	check_transfer(&self, 1, 10, 30, 0);
}

/* The same bytes in more units: hidden earlier, at the cost of latencies. */
static void smaller_units_pay_until_latency_does(void **state)
{
	(void)state;
	const dtrain_overlap_transfer whole[] = {unit(3, 4, 32)};
	const dtrain_overlap_transfer pieces[] = {unit(0, 4, 8), unit(1, 4, 8), unit(2, 4, 8), unit(3, 4, 8)};
	made_up one, four;
	make(&one, 4, whole, 1);
	make(&four, 4, pieces, 4);
	dtrain_overlap_totals totals = simulate(&four, 1, NULL);
	check_totals(&totals, 49, 9);
	totals = simulate(&one, 1, NULL);
	check_totals(&totals, 73, 33);
	totals = simulate(&four, 20, NULL);
	check_totals(&totals, 122, 82);
	totals = simulate(&one, 20, NULL);
	check_totals(&totals, 92, 52);
}

static void costs_are_fitted(void **state)
{
	(void)state;
	dtrain_overlap_transfer transfers[] = {unit(0, 1, 1000), unit(0, 1, 3000), gather(0, 1, 500), unit(0, 1, 64)};
	dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS];
	const double line[] = {2 + 10, 2 + 30, 7, 2 + 0.64};
	dtrain_overlap_fit(transfers, line, 4, costs);
	assert_float_equal(costs[DTRAIN_OVERLAP_SUM].latency_ms, 2, 1e-9);
	assert_float_equal(costs[DTRAIN_OVERLAP_SUM].byte_ms, 0.01, 1e-12);
	/* Transfers of one size: with the latency of the fastest one. */
	assert_float_equal(costs[DTRAIN_OVERLAP_GATHER].latency_ms, 2.64, 1e-9);
	assert_float_equal(costs[DTRAIN_OVERLAP_GATHER].byte_ms, (7 - 2.64) / 500, 1e-12);
	assert_float_equal(costs[DTRAIN_OVERLAP_SCATTER].byte_ms, 0, 0);
	/* Larger transfers that were faster have no cost for bytes, and none has less than nothing. */
	const double falling[] = {20, 10, 7, 30};
	dtrain_overlap_fit(transfers, falling, 4, costs);
	assert_float_equal(costs[DTRAIN_OVERLAP_SUM].byte_ms, 0, 0);
	assert_true(costs[DTRAIN_OVERLAP_SUM].latency_ms > 10 && costs[DTRAIN_OVERLAP_SUM].latency_ms < 30);
	const double steep[] = {1, 9, 7, 0.01};
	dtrain_overlap_fit(transfers, steep, 4, costs);
	assert_true(costs[DTRAIN_OVERLAP_SUM].latency_ms >= 0 && costs[DTRAIN_OVERLAP_SUM].byte_ms > 0);
	/* Transfers that were not measured, or took no time. */
	const double none[] = {0, 0, 0, 0};
	dtrain_overlap_fit(transfers, none, 4, costs);
	assert_float_equal(costs[DTRAIN_OVERLAP_SUM].latency_ms, 0, 0);
	assert_float_equal(costs[DTRAIN_OVERLAP_SUM].byte_ms, 0, 0);
}

static void timelines_that_cannot_be_are_refused(void **state)
{
	(void)state;
	const dtrain_overlap_cost costs[DTRAIN_OVERLAP_KINDS] = {{0}};
	dtrain_overlap_transfer wrong[] = {unit(2, 2, 1), unit(1, 5, 1), unit(-2, 2, 1), unit(0, 2, 1), unit(0, 2, 1)};
	dtrain_overlap_totals totals;
	wrong[3].behind = 0;
	wrong[4].lane = -1;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		made_up self;
		make(&self, 4, &wrong[i], 1);
		assert_int_equal(dtrain_overlap_simulate(&self.overlap, costs, NULL, &totals, &err),
				 BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "transfer 0 of 1"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_unit_is_exposed_whole),
		cmocka_unit_test(nothing_is_sent),
		cmocka_unit_test(units_are_hidden),
		cmocka_unit_test(waits_at_the_end_add_up),
		cmocka_unit_test(waits_within_the_step_delay_nodes),
		cmocka_unit_test(later_rounds_begin_with_waits),
		cmocka_unit_test(lanes_share_the_link),
		cmocka_unit_test(units_stand_in_line),
		cmocka_unit_test(smaller_units_pay_until_latency_does),
		cmocka_unit_test(costs_are_fitted),
		cmocka_unit_test(timelines_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
