/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches, and messages with tags: with Gloo and on the device "far".
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "seat.h"

/* More than sockets hold, so that a send waits for its receiver. */
enum { LARGE = 1 << 20 };

static beton_error err;

static void put_value(const struct seat *seat, int64_t *to, int64_t value)
{
	seat_put(seat, to, &value, sizeof(value));
}

static int64_t get_value(const struct seat *seat, const int64_t *from)
{
	int64_t value;

	seat_get(seat, &value, from, sizeof(value));
	return value;
}

/* All ranks send to the next one before they receive from the previous one: of two ranks that is the same one. */
static void exchange(struct rank *r, const struct seat *seat, int64_t count)
{
	int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
	int64_t *out = seat_memory(seat, (size_t)count * 8), *in = seat_memory(seat, (size_t)count * 8);
	int64_t *host = calloc((size_t)count, sizeof(*host));
	dtrain_work *work = NULL;

	REQUIRE(host);
	for (int round = 0; round < 3; round++) {
		for (int64_t i = 0; i < count; i++)
			host[i] = r->rank * 1000 + round + i;
		seat_put(seat, out, host, (size_t)count * 8);
		MUST(dtrain_group_begin(r->group, &err));
		MUST(dtrain_send(r->group, out, count, DTRAIN_I64, next, 0, NULL, NULL, &err));
		MUST(dtrain_recv(r->group, in, count, DTRAIN_I64, previous, 0, NULL, NULL, &err));
		MUST(dtrain_group_end(r->group, &work, &err));
		MUST(dtrain_work_wait(&work, &err));
		seat_get(seat, host, in, (size_t)count * 8);
		for (int64_t i = 0; i < count; i++)
			REQUIRE(host[i] == previous * 1000 + round + i);
	}
	free(host);
	seat_free(seat, out);
	seat_free(seat, in);
}

/* Everybody to everybody, in an order of each rank's own, around two collectives. */
static void mix(struct rank *r, const struct seat *seat)
{
	int64_t *out = seat_memory(seat, 8), *in = seat_memory(seat, (size_t)r->size * 8);
	int64_t *sum = seat_memory(seat, 8), *all = seat_memory(seat, (size_t)r->size * 8);
	dtrain_work *work = NULL;

	for (int round = 0; round < 3; round++) {
		put_value(seat, out, 10 * r->rank + round);
		put_value(seat, sum, r->rank);
		MUST(dtrain_group_begin(r->group, &err));
		for (int i = 1; i < r->size; i++) {
			int to = (r->rank + (r->rank % 2 ? i : r->size - i)) % r->size;
			int from = (r->rank + (r->rank % 2 ? r->size - i : i)) % r->size;

			MUST(dtrain_send(r->group, out, 1, DTRAIN_I64, to, 0, NULL, NULL, &err));
			if (i == 1)
				MUST(dtrain_allreduce(r->group, sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
			MUST(dtrain_recv(r->group, in + from, 1, DTRAIN_I64, from, 0, NULL, NULL, &err));
		}
		MUST(dtrain_all_gather(r->group, all, out, 1, DTRAIN_I64, NULL, NULL, &err));
		MUST(dtrain_group_end(r->group, &work, &err));
		MUST(dtrain_work_wait(&work, &err));
		REQUIRE(get_value(seat, sum) == r->size * (r->size - 1) / 2);
		for (int rank = 0; rank < r->size; rank++) {
			REQUIRE(rank == r->rank || get_value(seat, in + rank) == 10 * rank + round);
			REQUIRE(get_value(seat, all + rank) == 10 * rank + round);
		}
	}
	seat_free(seat, out);
	seat_free(seat, in);
	seat_free(seat, sum);
	seat_free(seat, all);
}

static void rank_exchanges(struct rank *r, const struct seat *seat)
{
	exchange(r, seat, 1);
	exchange(r, seat, LARGE);
	mix(r, seat);
}

/* A refused call, on all ranks: nothing of the batch happens, and the group goes on. */
static void rank_is_refused(struct rank *r, const struct seat *seat)
{
	int64_t *data = seat_memory(seat, 8), *other = seat_memory(seat, 8);
	dtrain_work *work = NULL;
	dtrain_group *part = NULL;

	REQUIRE(dtrain_group_end(r->group, &work, &err) == BETON_STATE);
	REQUIRE(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err) ==
		BETON_INVALID_ARGUMENT);
	put_value(seat, data, 1);
	put_value(seat, other, 1);
	MUST(dtrain_group_begin(r->group, &err));
	REQUIRE(dtrain_group_begin(r->group, &err) == BETON_STATE);
	REQUIRE(dtrain_group_split(r->group, 0, 0, NULL, &part, &err) == BETON_STATE);
	MUST(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
	REQUIRE(dtrain_broadcast(r->group, other, 1, DTRAIN_I64, r->size, NULL, NULL, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_allreduce(r->group, other, 1, DTRAIN_I64, DTRAIN_AVG, NULL, NULL, &err) == BETON_UNSUPPORTED);
	REQUIRE(dtrain_group_end(r->group, &work, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(!work && strstr(err.message, "broadcast: rank 2 of 2"));
	REQUIRE(get_value(seat, data) == 1);
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_group_end(r->group, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	MUST(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(get_value(seat, data) == 2);
	/* The group may end within one. */
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
	seat_free(seat, data);
	seat_free(seat, other);
}

/* Rank 0 cannot put its batch on the stream: the group fails on both with one message. */
static int rank_fails_to_submit(struct rank *r, const struct seat *seat)
{
	int64_t *data = seat_memory(seat, 8), host = 0;
	dtrain_work *work = NULL;
	int status;

	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
	MUST(dtrain_allreduce(r->group, r->rank ? data : &host, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
	status = dtrain_group_end(r->group, &work, &err);
	if (!status)
		status = dtrain_work_wait(&work, &err);
	fprintf(stderr, "%s\n", err.message);
	REQUIRE(dtrain_barrier(r->group, &work, &err) == status);
	seat_free(seat, data);
	return -status;
}

/* Rank 0's messages, two of a batch, get no answer. */
static int rank_waits_for_messages(struct rank *r, bool destroys)
{
	int64_t data[3] = {0};
	dtrain_work *work[2];
	int status;

	if (r->rank == 1)
		mark(r);
	while (r->rank == 1)
		pause(); /* the test ends it */
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_recv(r->group, &data[0], 1, DTRAIN_I64, 1, 0, NULL, NULL, &err));
	MUST(dtrain_recv(r->group, &data[1], 1, DTRAIN_I64, 1, 1, NULL, NULL, &err));
	MUST(dtrain_group_end(r->group, &work[0], &err));
	MUST(dtrain_recv(r->group, &data[2], 1, DTRAIN_I64, 1, 2, NULL, &work[1], &err));
	poll(NULL, 0, 50);
	if (destroys)
		dtrain_group_destroy(&r->group);
	status = dtrain_work_wait(&work[0], &err);
	fprintf(stderr, "%s\n", err.message);
	REQUIRE(dtrain_work_wait(&work[1], &err) == status);
	return -status;
}

/* With Gloo: a message goes to the receive with its tag, and holds up nothing. */
static void rank_tags(struct rank *r)
{
	static int64_t large[2][LARGE];
	int other = 1 - r->rank;
	int64_t out[4] = {70, 30, 71, 31}, in[4] = {0}, sum = 1;
	const int tags[4] = {7, INT32_MAX, 7, INT32_MAX};
	dtrain_work *sends[4], *receives[4], *work = NULL;

	for (int i = 0; i < 4 && r->rank == 0; i++)
		MUST(dtrain_send(r->group, &out[i], 1, DTRAIN_I64, 1, tags[i], NULL, &sends[i], &err));
	/* The other tag first, and each waited for; a collective is not held up by messages that are not received. */
	for (int k = 0; k < 4 && r->rank == 1; k++) {
		MUST(dtrain_recv(r->group, &in[k], 1, DTRAIN_I64, 0, k < 2 ? INT32_MAX : 7, NULL, &receives[k], &err));
		MUST(dtrain_work_wait(&receives[k], &err));
		REQUIRE(in[k] == (k < 2 ? 30 + k : 70 + k - 2));
		if (k == 0) {
			MUST(dtrain_allreduce(r->group, &sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
			MUST(dtrain_work_wait(&work, &err));
		}
	}
	if (r->rank == 0) {
		MUST(dtrain_allreduce(r->group, &sum, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
		MUST(dtrain_work_wait(&work, &err));
	}
	REQUIRE(sum == 2);
	for (int i = 0; i < 4 && r->rank == 0; i++)
		MUST(dtrain_work_wait(&sends[i], &err));
	/* Each to the other before either receives; the last receive is waited for first. */
	large[0][LARGE - 1] = 100 + r->rank;
	MUST(dtrain_send(r->group, large[0], LARGE, DTRAIN_I64, other, 1, NULL, &sends[0], &err));
	MUST(dtrain_send(r->group, &out[r->rank], 1, DTRAIN_I64, other, 2, NULL, &sends[1], &err));
	MUST(dtrain_recv(r->group, large[1], LARGE, DTRAIN_I64, other, 1, NULL, &receives[0], &err));
	MUST(dtrain_recv(r->group, &in[0], 1, DTRAIN_I64, other, 2, NULL, &receives[1], &err));
	MUST(dtrain_work_wait(&receives[1], &err));
	MUST(dtrain_work_wait(&receives[0], &err));
	MUST(dtrain_work_wait(&sends[1], &err));
	MUST(dtrain_work_wait(&sends[0], &err));
	REQUIRE(in[0] == out[other] && large[1][LARGE - 1] == 100 + other);
}

/* On streams, as with NCCL: by order alone. */
static void rank_has_no_tags(struct rank *r, const struct seat *seat)
{
	int64_t *data = seat_memory(seat, 16);
	dtrain_work *work[2];

	for (int i = 0; i < 2; i++) {
		put_value(seat, data + i, r->rank == 0 ? 50 + i : 0);
		if (r->rank == 0)
			MUST(dtrain_send(r->group, data + i, 1, DTRAIN_I64, 1, i, NULL, &work[i], &err));
		else
			MUST(dtrain_recv(r->group, data + i, 1, DTRAIN_I64, 0, 1 - i, NULL, &work[i], &err));
	}
	for (int i = 0; i < 2; i++) {
		MUST(dtrain_work_wait(&work[i], &err));
		REQUIRE(get_value(seat, data + i) == 50 + i);
	}
	seat_free(seat, data);
}

/* A captured batch, which sends and sums anew at each launch. */
static void rank_captures(struct rank *r, const struct seat *seat)
{
	const struct place *place = &seat->place;
	int64_t *data = seat_memory(seat, 24);
	dtrain_work *work = NULL;
	void *captured = NULL;

	MUST(place->api->capture_begin(place->stream, &err));
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_send(r->group, data, 1, DTRAIN_I64, 1 - r->rank, 0, after(place), NULL, &err));
	MUST(dtrain_recv(r->group, data + 1, 1, DTRAIN_I64, 1 - r->rank, 0, NULL, NULL, &err));
	MUST(dtrain_allreduce(r->group, data + 2, 1, DTRAIN_I64, DTRAIN_SUM, NULL, NULL, &err));
	MUST(dtrain_group_end(r->group, &work, &err));
	MUST(dtrain_work_stream_wait(&work, place->stream, &err));
	MUST(place->api->capture_end(place->stream, &captured, &err));
	for (int i = 0; i < 5; i++) {
		put_value(seat, data, 10 * i + r->rank);
		put_value(seat, data + 2, i);
		MUST(place->api->capture_launch(captured, place->stream, &err));
		REQUIRE(get_value(seat, data + 1) == 10 * i + 1 - r->rank && get_value(seat, data + 2) == 2 * i);
	}
	place->api->capture_destroy(captured);
	seat_free(seat, data);
}

static int rank_main(struct rank *r)
{
	struct seat seat = {0};
	const char *mode = take_seat(r, &seat);
	int status = 0;

	if (strcmp(mode, "exchanges") == 0)
		rank_exchanges(r, &seat);
	else if (strcmp(mode, "refused") == 0)
		rank_is_refused(r, &seat);
	else if (strcmp(mode, "fails") == 0)
		status = rank_fails_to_submit(r, &seat);
	else if (strcmp(mode, "lost") == 0 || strcmp(mode, "destroys") == 0)
		status = rank_waits_for_messages(r, strcmp(mode, "destroys") == 0);
	else if (strcmp(mode, "tags") == 0)
		rank_tags(r);
	else if (strcmp(mode, "no-tags") == 0)
		rank_has_no_tags(r, &seat);
	else if (strcmp(mode, "captures") == 0)
		rank_captures(r, &seat);
	else
		status = 9;
	leave_seat(r, &seat);
	return status;
}

/* ---- the tests ---- */

static void order_within_a_batch_holds_up_nothing(void **state)
{
	(void)state;
	run_ranks("exchanges", 2);
	run_ranks("exchanges", 5);
	run_ranks("no-group-far-exchanges", 2);
	run_ranks("no-group-far-exchanges", 3);
}

static void refused_batch_leaves_the_group_usable(void **state)
{
	(void)state;
	run_ranks("refused", 2);
	run_ranks("no-group-far-refused", 2);
}

static void batch_that_is_not_submitted_fails_all_ranks(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-far-fails", 0, 2, 60000);
	expect_all(&ranks, -1, BETON_INVALID_ARGUMENT, "batch of 2: rank 0: far: an operation on host memory");
	end_store(&ranks);
}

static void lost_rank_ends_waits_for_messages(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "lost", 0, 2, 60000);
	wait_for_marks(&ranks, 1);
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	expect_all(&ranks, 1, BETON_PEER_LOST, "rank 1 is lost");
	end_store(&ranks);
}

static void message_that_nobody_sends_times_out(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "lost", 0, 2, 500);
	assert_int_equal(end_rank(&ranks, 0), -BETON_TIMEOUT);
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	end_store(&ranks);
}

static void destroying_cancels_waits_for_messages(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "destroys", 0, 2, 60000);
	assert_int_equal(end_rank(&ranks, 0), -BETON_CANCELLED);
	/* It stayed until then, so that it cannot be what ended the waits. */
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	end_store(&ranks);
}

static void messages_go_by_their_tags(void **state)
{
	(void)state;
	run_ranks("tags", 2);
	run_ranks("no-group-far-no-tags", 2);
}

static void batches_are_captured(void **state)
{
	(void)state;
	run_ranks("no-group-far-captures", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_within_a_batch_holds_up_nothing),
		cmocka_unit_test(refused_batch_leaves_the_group_usable),
		cmocka_unit_test(batch_that_is_not_submitted_fails_all_ranks),
		cmocka_unit_test(lost_rank_ends_waits_for_messages),
		cmocka_unit_test(message_that_nobody_sends_times_out),
		cmocka_unit_test(destroying_cancels_waits_for_messages),
		cmocka_unit_test(messages_go_by_their_tags),
		cmocka_unit_test(batches_are_captured),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
