/* SPDX-License-Identifier: Apache-2.0
 *
 * Process groups with real processes: rounding, order, and what happens when a rank is missing, killed or stopped.
 */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/half.h"
#include "tests/train/support/ranks.h"

static beton_error err;

static void finish(int status, dtrain_work **work, const char *what)
{
	must(status, &err, what);
	must(dtrain_work_wait(work, &err), &err, what);
	REQUIRE(*work == NULL);
}

#define DO(call) finish((call), &work, #call)

/* Ties between two numbers of 16 bits go to the even one, after each combination of two ranks' parts; reduce_scatter
 * combines all of them first. */
static void rank_rounds(struct rank *r)
{
	const dtrain_dtype types[2] = {DTRAIN_BF16, DTRAIN_F16};
	dtrain_work *work = NULL;

	for (int t = 0; t < 2; t++) {
		float step = types[t] == DTRAIN_BF16 ? 0x1p-7f : 0x1p-10f; /* above 1 */
		uint16_t (*narrow)(float) = types[t] == DTRAIN_BF16 ? bt_bfloat16 : bt_float16;
		uint16_t data[3], scattered, parts[3];
		float last = r->rank == 0 ? 1 : step / 2;

		data[0] = narrow(r->rank == 0 ? 1 : step / 2);
		data[1] = narrow(r->rank == 0 ? 1 + step : step / 2);
		data[2] = narrow(r->rank == 0 ? 1 : step * 0.75f);
		for (int i = 0; i < 3; i++)
			parts[i] = narrow(last);
		if (r->size == 2) {
			DO(dtrain_allreduce(r->group, data, 3, types[t], DTRAIN_SUM, NULL, &work, &err));
			REQUIRE(data[0] == narrow(1));
			REQUIRE(data[1] == narrow(1 + 2 * step));
			REQUIRE(data[2] == narrow(1 + step));
		}
		DO(dtrain_reduce_scatter(r->group, &scattered, parts, 1, types[t], DTRAIN_SUM, NULL, &work, &err));
		REQUIRE(scattered == narrow(r->size == 2 ? 1 : 1 + step));
	}
}

/* Two sums that Gloo's own float16 loses in part, because of their bits. */
static void rank_adds_halves(struct rank *r)
{
	dtrain_work *work = NULL;
	uint16_t data[] = {bt_float16(r->rank == 0 ? 21000 : 7500), bt_float16(r->rank == 0 ? 9000 : 21000)};
	DO(dtrain_allreduce(r->group, data, 2, DTRAIN_F16, DTRAIN_SUM, NULL, &work, &err));
	REQUIRE(bt_widen_float16(data[0]) == 28496 && bt_widen_float16(data[1]) == 29984);
	/* All sizes; the least have no leading bit. */
	enum { COUNT = 31 * 1024 };
	uint16_t *all = malloc(COUNT * sizeof(*all));
	REQUIRE(all);
	for (int i = 0; i < COUNT; i++)
		all[i] = (uint16_t)(r->rank == 0 ? i : 0x8000 | i * 7 % COUNT);
	DO(dtrain_allreduce(r->group, all, COUNT, DTRAIN_F16, DTRAIN_SUM, NULL, &work, &err));
	for (int i = 0; i < COUNT; i++) {
		float sum = bt_widen_float16((uint16_t)i) - bt_widen_float16((uint16_t)(i * 7 % COUNT));
		REQUIRE(bt_widen_float16(all[i]) == bt_widen_float16(bt_float16(sum)));
	}
	free(all);
}

/* Around the ring: even ranks send first. Twice the same slot, so that order shows. */
static void rank_point_to_point(struct rank *r)
{
	int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
	int64_t send[2] = {r->rank, r->rank + 100}, received[2] = {-1, -1};
	dtrain_work *work[4];
	int used = 0;

	for (int i = 0; i < 2; i++) {
		if (r->rank % 2 == 0)
			MUST(dtrain_send(r->group, &send[i], 1, DTRAIN_I64, next, 0, NULL, &work[used++], &err));
		MUST(dtrain_recv(r->group, &received[i], 1, DTRAIN_I64, previous, 0, NULL, &work[used++], &err));
		if (r->rank % 2 == 1)
			MUST(dtrain_send(r->group, &send[i], 1, DTRAIN_I64, next, 0, NULL, &work[used++], &err));
	}
	for (int i = 0; i < used; i++)
		MUST(dtrain_work_wait(&work[i], &err));
	REQUIRE(received[0] == previous && received[1] == previous + 100);
}

/* Messages of some ranks between collectives of all: no two ranks take part in as many operations. */
static void rank_uneven(struct rank *r)
{
	int64_t sum, got[3] = {-1, -1, -1}, sent[3];
	dtrain_work *work = NULL, *messages[3];

	for (int round = 0; round < 4; round++) {
		/* Rank 0 sends round + 1 messages to rank 1, which passes the last of them on to the last rank. */
		for (int i = 0; i <= round && i < 3; i++) {
			sent[i] = 100 * round + i;
			if (r->rank == 0)
				MUST(dtrain_send(r->group, &sent[i], 1, DTRAIN_I64, 1, 0, NULL, &messages[i], &err));
			if (r->rank == 1)
				MUST(dtrain_recv(r->group, &got[i], 1, DTRAIN_I64, 0, 0, NULL, &messages[i], &err));
		}
		for (int i = 0; i <= round && i < 3 && r->rank < 2; i++) {
			MUST(dtrain_work_wait(&messages[i], &err));
			REQUIRE(r->rank == 0 || got[i] == sent[i]);
		}
		sum = 1;
		DO(dtrain_allreduce(r->group, &sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
		REQUIRE(sum == r->size);
		if (r->rank == 1)
			DO(dtrain_send(r->group, &got[0], 1, DTRAIN_I64, r->size - 1, 0, NULL, &work, &err));
		if (r->rank == r->size - 1) {
			DO(dtrain_recv(r->group, &got[0], 1, DTRAIN_I64, 1, 0, NULL, &work, &err));
			REQUIRE(got[0] == 100 * round);
		}
		DO(dtrain_broadcast(r->group, &sum, 1, DTRAIN_I64, round % r->size, NULL, &work, &err));
		DO(dtrain_barrier(r->group, &work, &err));
	}
}

/* Many in flight, of different kinds and sizes, waited for in the reverse order. */
static void rank_many_in_flight(struct rank *r)
{
	enum { OPS = 60 };
	static float data[OPS][997];
	dtrain_work *work[OPS];

	for (int i = 0; i < OPS; i++) {
		for (int k = 0; k < 997; k++)
			data[i][k] = (float)(r->rank + i);
		if (i % 3 == 0)
			MUST(dtrain_broadcast(r->group, data[i], 997, DTRAIN_F32, i % r->size, NULL, &work[i], &err));
		else if (i % 3 == 1)
			MUST(dtrain_allreduce(r->group, data[i], i * 16, DTRAIN_F32, DTRAIN_SUM, NULL, &work[i], &err));
		else
			MUST(dtrain_barrier(r->group, &work[i], &err));
	}
	for (int i = OPS - 1; i >= 0; i--)
		MUST(dtrain_work_wait(&work[i], &err));
	for (int i = 0; i < OPS; i++) {
		if (i % 3 == 0)
			REQUIRE(data[i][996] == (float)(i % r->size + i));
		else if (i % 3 == 1)
			REQUIRE(data[i][i * 16 - 1] == (float)(r->size * i + r->size * (r->size - 1) / 2));
	}
}

/* Fractions whose sum depends on the order: every rank must see the same bits. */
static void same_bits(struct rank *r, int64_t count)
{
	size_t bytes = (size_t)count * sizeof(float);
	float *data = malloc(bytes), *all = malloc((size_t)r->size * bytes);
	dtrain_work *work = NULL;

	REQUIRE(data && all);
	for (int64_t i = 0; i < count; i++)
		data[i] = 1.0f / (float)(1 + i % 977 + r->rank * 13) * (i % 3 ? 1e-4f : 1e3f);
	DO(dtrain_allreduce(r->group, data, count, DTRAIN_F32, DTRAIN_AVG, NULL, &work, &err));
	DO(dtrain_all_gather(r->group, all, data, count, DTRAIN_F32, NULL, &work, &err));
	for (int rank = 0; rank < r->size; rank++)
		REQUIRE(memcmp(all + (size_t)rank * (size_t)count, data, bytes) == 0);
	free(data);
	free(all);
}

/* Small, and large enough for another algorithm; neither divides by the number of ranks. */
static void rank_same_bits(struct rank *r)
{
	same_bits(r, 3);
	same_bits(r, 70001);
	same_bits(r, 1200007);
}

static void rank_split(struct rank *r)
{
	int color = r->rank == r->size - 1 && r->size > 2 ? -1 : r->rank % 2;
	int64_t mine = r->rank, sum = 0;
	dtrain_group *sub = NULL;
	dtrain_work *work = NULL;

	for (int round = 0; round < 2; round++) {
		MUST(dtrain_group_split(r->group, color, -r->rank, NULL, &sub, &err)); /* in reverse order */
		REQUIRE((color < 0) == (sub == NULL));
		if (sub) {
			int members = 0, below = 0;

			for (int rank = 0; rank < r->size - (r->size > 2); rank++) {
				members += rank % 2 == color;
				below += rank % 2 == color && rank > r->rank;
				sum += rank % 2 == color ? rank : 0;
			}
			REQUIRE(dtrain_group_size(sub) == members && dtrain_group_rank(sub) == below);
			mine = r->rank;
			DO(dtrain_allreduce(sub, &mine, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
			REQUIRE(mine == sum);
			sum = 0;
		}
		dtrain_group_destroy(&sub);
		DO(dtrain_barrier(r->group, &work, &err));
	}
}

static void rank_bad_arguments(struct rank *r)
{
	int64_t x = 0;
	float y = 0;
	dtrain_work *work = NULL;

	REQUIRE(dtrain_allreduce(r->group, &x, -1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_allreduce(r->group, &x, 1, DTRAIN_I64, DTRAIN_AVG, NULL, &work, &err) == BETON_UNSUPPORTED);
	REQUIRE(dtrain_allreduce(r->group, &x, 1, DTRAIN_U8, DTRAIN_AVG, NULL, &work, &err) == BETON_UNSUPPORTED);
	REQUIRE(dtrain_allreduce(r->group, &x, 1, (dtrain_dtype)99, DTRAIN_SUM, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_send(r->group, &x, 1, DTRAIN_I64, (r->rank + 1) % r->size, -1, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_allreduce(r->group, &x, 1, DTRAIN_I64, (dtrain_reduce_op)9, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_broadcast(r->group, &x, 1, DTRAIN_I64, r->size, NULL, &work, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_broadcast(r->group, &x, INT64_MAX, DTRAIN_I64, 0, NULL, &work, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_send(r->group, &x, 1, DTRAIN_I64, r->rank, 0, NULL, &work, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_work_wait(&work, &err) == BETON_STATE);
	DO(dtrain_allreduce(r->group, &y, 1, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err));
}

static int rank_reduces_for_ever(struct rank *r)
{
	enum { COUNT = 1 << 18 };
	float *data = calloc(COUNT, sizeof(*data));
	dtrain_work *work = NULL;
	int status = BETON_OK;

	REQUIRE(data);
	for (int i = 0; !status; i++) {
		MUST(dtrain_allreduce(r->group, data, COUNT, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err));
		status = dtrain_work_wait(&work, &err);
		if (i == 3)
			mark(r);
	}
	fprintf(stderr, "%s\n", err.message);
	/* It stays so, at once. */
	if (!dtrain_barrier(r->group, &work, &err))
		REQUIRE(dtrain_work_wait(&work, &err) == status);
	free(data);
	return -status;
}

/* In a part of a part, where ranks 1, 3 and 5 are 0, 1 and 2. */
static int rank_reduces_in_a_part(struct rank *r)
{
	dtrain_group *world = r->group, *part = NULL;
	MUST(dtrain_group_split(world, r->rank % 2, -r->rank, NULL, &part, &err));
	MUST(dtrain_group_split(part, 7, -dtrain_group_rank(part), NULL, &r->group, &err));
	int status = rank_reduces_for_ever(r);
	dtrain_group_destroy(&r->group);
	dtrain_group_destroy(&part);
	r->group = world;
	return status;
}

static int rank_destroys_with_work(struct rank *r)
{
	float data[4] = {0};
	dtrain_work *work[3];

	if (r->rank == 1) {
		await_marks(r, r->size - 1);
		return 0;
	}
	for (int i = 0; i < 3; i++)
		MUST(dtrain_allreduce(r->group, data, 4, DTRAIN_F32, DTRAIN_SUM, NULL, &work[i], &err));
	poll(NULL, 0, 50);
	dtrain_group_destroy(&r->group);
	mark(r);
	for (int i = 0; i < 3; i++)
		REQUIRE(dtrain_work_wait(&work[i], &err) == BETON_CANCELLED);
	return 0;
}

static int rank_joins(struct rank *r, int rank, int size, const char *backend)
{
	dtrain_group_options options;
	int status;

	dtrain_group_options_init(&options);
	options.timeout_ms = r->timeout_ms;
	/* The first rank comes later than an operation may take. */
	if (strcmp(r->mode, "no-group-late") == 0) {
		options.join_timeout_ms = 100 * r->timeout_ms;
		poll(NULL, 0, rank == 0 ? 3 * r->timeout_ms : 0);
	}
	options.backend = backend;
	status = dtrain_group_create(r->store, rank, size, &options, &r->group, &err);
	if (status)
		fprintf(stderr, "%s\n", err.message);
	return -status;
}

static int rank_main(struct rank *r)
{
	if (strcmp(r->mode, "rounds") == 0)
		rank_rounds(r);
	else if (strcmp(r->mode, "halves") == 0)
		rank_adds_halves(r);
	else if (strcmp(r->mode, "in-flight") == 0)
		rank_many_in_flight(r);
	else if (strcmp(r->mode, "point-to-point") == 0)
		rank_point_to_point(r);
	else if (strcmp(r->mode, "uneven") == 0)
		rank_uneven(r);
	else if (strcmp(r->mode, "same-bits") == 0)
		rank_same_bits(r);
	else if (strcmp(r->mode, "split") == 0)
		rank_split(r);
	else if (strcmp(r->mode, "bad-arguments") == 0)
		rank_bad_arguments(r);
	else if (strcmp(r->mode, "for-ever") == 0)
		return rank_reduces_for_ever(r);
	else if (strcmp(r->mode, "parts") == 0)
		return rank_reduces_in_a_part(r);
	else if (strcmp(r->mode, "destroy") == 0)
		return rank_destroys_with_work(r);
	else if (strcmp(r->mode, "no-group-joins") == 0 || strcmp(r->mode, "no-group-late") == 0)
		return rank_joins(r, r->rank, r->size, NULL);
	else if (strcmp(r->mode, "no-group-double") == 0)
		return rank_joins(r, 0, r->size, NULL);
	else if (strcmp(r->mode, "no-group-sizes") == 0)
		return rank_joins(r, r->rank, r->size + r->rank, NULL);
	else if (strcmp(r->mode, "no-group-backend") == 0)
		return rank_joins(r, r->rank, r->size, "smoke signals");
	else
		return 9;
	return 0;
}

static void sums_of_16_bits_are_rounded_as_stated(void **state)
{
	(void)state;
	run_ranks("rounds", 2);
	run_ranks("rounds", 3);
	run_ranks("halves", 2);
}

static void order_holds_with_many_in_flight(void **state)
{
	(void)state;
	run_ranks("in-flight", 1);
	run_ranks("in-flight", 8);
}

static void point_to_point(void **state)
{
	(void)state;
	run_ranks("point-to-point", 2);
	run_ranks("point-to-point", 8);
}

static void messages_of_some_ranks_leave_the_others_in_step(void **state)
{
	(void)state;
	run_ranks("uneven", 3);
	run_ranks("uneven", 5);
}

static void all_ranks_have_the_same_bits(void **state)
{
	(void)state;
	run_ranks("same-bits", 2);
	run_ranks("same-bits", 3);
	run_ranks("same-bits", 6);
	run_ranks("same-bits", 7);
	run_ranks("same-bits", 8);
}

static void groups_split(void **state)
{
	(void)state;
	run_ranks("split", 1);
	run_ranks("split", 3);
	run_ranks("split", 8);
}

static void bad_arguments_are_refused(void **state)
{
	(void)state;
	run_ranks("bad-arguments", 1);
	run_ranks("bad-arguments", 2);
}

/* A rank may be between two operations when it hears of the loss. Its message then ends with the next one. */
static bool says_lost(const char *text, const char *group, int rank)
{
	char line[128];

	snprintf(line, sizeof(line), "group \"%s\": allreduce: rank %d is lost", group, rank);
	if (strstr(text, line))
		return true;
	snprintf(line, sizeof(line), "group \"%s\": between operations: rank %d is lost", group, rank);
	return strstr(text, line) && strstr(text, "; not begun: allreduce");
}

static void killed_rank_is_named_by_all(void **state)
{
	struct ranks ranks;
	int failed = 0;

	(void)state;
	start_ranks(&ranks, "for-ever", 0, 8, 60000);
	wait_for_marks(&ranks, 8);
	kill(ranks.pids[5], SIGKILL);
	assert_int_equal(end_rank(&ranks, 5), 1000 + SIGKILL);
	for (int rank = 0; rank < 8; rank++) {
		int status = rank == 5 ? 0 : end_rank(&ranks, rank);

		if (rank == 5 || (status == -BETON_PEER_LOST && says_lost(ranks.err[rank], "world", 5)))
			continue;
		print_error("rank %d: status %d: %s\n", rank, status, ranks.err[rank]);
		failed++;
	}
	assert_int_equal(failed, 0);
	end_store(&ranks);
}

static void parts_name_ranks_as_the_world_does(void **state)
{
	struct ranks ranks;
	(void)state;
	start_ranks(&ranks, "parts", 0, 6, 60000);
	wait_for_marks(&ranks, 6);
	kill(ranks.pids[5], SIGKILL);
	assert_int_equal(end_rank(&ranks, 5), 1000 + SIGKILL);
	for (int rank = 1; rank < 5; rank += 2) {
		assert_int_equal(end_rank(&ranks, rank), -BETON_PEER_LOST);
		if (!says_lost(ranks.err[rank], "world.1.1.1.7", 5) ||
		    (!strstr(ranks.err[rank], "(rank 1: ") && !strstr(ranks.err[rank], "(rank 3: ")))
			fail_msg("rank %d: %s", rank, ranks.err[rank]);
	}
	for (int rank = 0; rank < 6; rank += 2) {
		kill(ranks.pids[rank], SIGKILL);
		end_rank(&ranks, rank);
	}
	end_store(&ranks);
}

static void stopped_rank_is_named_after_the_timeout(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "for-ever", 0, 4, 2000);
	wait_for_marks(&ranks, 4);
	kill(ranks.pids[2], SIGSTOP);
	for (int rank = 0; rank < 4; rank++) {
		if (rank == 2)
			continue;
		assert_int_equal(end_rank(&ranks, rank), -BETON_TIMEOUT);
		if (!strstr(ranks.err[rank], "no sign of rank 2 within 2000 ms"))
			fail_msg("rank %d: %s", rank, ranks.err[rank]);
		assert_null(strstr(ranks.err[rank], "given up"));
	}
	/* Late, it does not speak as if it were one of the others. */
	kill(ranks.pids[2], SIGCONT);
	assert_int_equal(end_rank(&ranks, 2), -BETON_TIMEOUT);
	assert_non_null(strstr(ranks.err[2], "the other ranks have given up rank 2, which is this one: "));
	end_store(&ranks);
}

/* As when a virtual machine is moved, or a disk is slow: a pause of half the timeout is not a fault. */
static void paused_rank_is_waited_for(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "for-ever", 0, 4, 8000);
	wait_for_marks(&ranks, 4);
	kill(ranks.pids[2], SIGSTOP);
	poll(NULL, 0, 4000);
	kill(ranks.pids[2], SIGCONT);
	poll(NULL, 0, 500);
	for (int rank = 0; rank < 4; rank++)
		assert_int_equal(kill(ranks.pids[rank], SIGKILL), 0);
	for (int rank = 0; rank < 4; rank++)
		assert_int_equal(end_rank(&ranks, rank), 1000 + SIGKILL);
	end_store(&ranks);
}

static void absent_rank_is_named(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-joins", 2, 5, 500);
	for (int rank = 2; rank < 5; rank++) {
		assert_int_equal(end_rank(&ranks, rank), -BETON_TIMEOUT);
		assert_non_null(strstr(ranks.err[rank], "group \"world\" of 5: ranks 0, 1 did not come within 500 ms"));
	}
	end_store(&ranks);
}

static void joining_may_take_longer(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-late", 0, 3, 300);
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(end_rank(&ranks, rank), 0);
	end_store(&ranks);
}

static void expect_mismatch(const char *mode, const char *text)
{
	struct ranks ranks;
	int named = 0;

	start_ranks(&ranks, mode, 0, 2, 1000);
	for (int rank = 0; rank < 2; rank++) {
		int status = end_rank(&ranks, rank);

		assert_true(status == -BETON_MISMATCH || status == -BETON_TIMEOUT);
		named += strstr(ranks.err[rank], text) != NULL;
	}
	assert_true(named >= 1);
	end_store(&ranks);
}

static void ranks_that_disagree_are_refused(void **state)
{
	(void)state;
	expect_mismatch("no-group-double", "two processes say that they are rank 0");
	expect_mismatch("no-group-sizes", "2 ranks");
}

static void unknown_backend_is_named(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-backend", 1, 2, 500);
	assert_int_equal(end_rank(&ranks, 1), -BETON_UNSUPPORTED);
	assert_non_null(strstr(ranks.err[1], "\"smoke signals\""));
	end_store(&ranks);
}

static void destroying_cancels_work(void **state)
{
	(void)state;
	run_ranks("destroy", 2);
}

static void group_of_one_needs_no_store(void **state)
{
	dtrain_group *group = NULL;
	dtrain_work *work = NULL;
	double x = 4;

	(void)state;
	assert_int_equal(dtrain_group_create(NULL, 0, 2, NULL, &group, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_group_create(NULL, 0, 1, NULL, &group, &err), BETON_OK);
	assert_int_equal(dtrain_allreduce(group, &x, 1, DTRAIN_F64, DTRAIN_AVG, NULL, &work, &err), BETON_OK);
	assert_int_equal(dtrain_work_wait(&work, &err), BETON_OK);
	assert_true(x == 4);
	dtrain_group_destroy(&group);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(group_of_one_needs_no_store),
		cmocka_unit_test(sums_of_16_bits_are_rounded_as_stated),
		cmocka_unit_test(order_holds_with_many_in_flight),
		cmocka_unit_test(point_to_point),
		cmocka_unit_test(messages_of_some_ranks_leave_the_others_in_step),
		cmocka_unit_test(all_ranks_have_the_same_bits),
		cmocka_unit_test(groups_split),
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(killed_rank_is_named_by_all),
		cmocka_unit_test(parts_name_ranks_as_the_world_does),
		cmocka_unit_test(stopped_rank_is_named_after_the_timeout),
		cmocka_unit_test(paused_rank_is_waited_for),
		cmocka_unit_test(absent_rank_is_named),
		cmocka_unit_test(joining_may_take_longer),
		cmocka_unit_test(ranks_that_disagree_are_refused),
		cmocka_unit_test(unknown_backend_is_named),
		cmocka_unit_test(destroying_cancels_work),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
