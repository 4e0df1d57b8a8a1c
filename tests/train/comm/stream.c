/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered groups with real processes, on the test device "far": results that only the order of events makes
 * right, captures, splits, and what happens when a rank is killed, stopped, or shares another's device.
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

#include "comm/group/group.h"
#include "common/system.h"
#include "tests/train/support/far_place.h"

static beton_error err;

#define ORDER_ON(the_stream, call)                                      \
	do {                                                            \
		MUST(call);                                             \
		MUST(dtrain_work_stream_wait(&work, the_stream, &err)); \
		REQUIRE(work == NULL);                                  \
	} while (0)
#define ORDER(call) ORDER_ON(place->stream, call)

static int64_t value_of(int rank, int64_t i)
{
	return (rank + 1) * 3 + (i * 7) % 101 - 50;
}

/* Each operation between two copies on the stream, with nothing waited for by the host until the end. */
static void operations(struct rank *r, const struct place *place, int64_t count)
{
	int64_t size = r->size, total = count * size, sum = 0;
	int64_t *in = malloc((size_t)total * 8), *out = malloc((size_t)total * 8 * 8);
	char *a = device_memory(place, (size_t)total * 8), *b = device_memory(place, (size_t)total * 8);
	dtrain_work *work = NULL;
	int step = 0;

	REQUIRE(in && out);
	for (int64_t i = 0; i < total; i++)
		in[i] = value_of(r->rank, i);
	for (int rank = 0; rank < size; rank++)
		sum += value_of(rank, count - 1);
#define KEEP(from, n) \
	MUST(place->api->copy(place->stream, out + step++ * total, from, (size_t)(n)*8, DTRAIN_DEVICE_TO_HOST, &err))
	upload(place, a, in, (size_t)total * 8);
	ORDER(dtrain_all_to_all(r->group, b, a, count, DTRAIN_I64, after(place), &work, &err));
	KEEP(b, total);
	ORDER(dtrain_all_gather(r->group, b, a, count, DTRAIN_I64, after(place), &work, &err));
	KEEP(b, total);
	ORDER(dtrain_reduce_scatter(r->group, b, a, count, DTRAIN_I64, DTRAIN_SUM, after(place), &work, &err));
	KEEP(b, count);
	ORDER(dtrain_scatter(r->group, b, a, count, DTRAIN_I64, (int)size - 1, after(place), &work, &err));
	KEEP(b, count);
	ORDER(dtrain_gather(r->group, b, a, count, DTRAIN_I64, 0, after(place), &work, &err));
	KEEP(b, r->rank == 0 ? total : 1);
	ORDER(dtrain_allreduce(r->group, a, count, DTRAIN_I64, DTRAIN_SUM, after(place), &work, &err));
	KEEP(a, count);
	upload(place, a, in, (size_t)total * 8);
	ORDER(dtrain_broadcast(r->group, a, count, DTRAIN_I64, (int)size - 1, after(place), &work, &err));
	KEEP(a, count);
	upload(place, a, in, (size_t)total * 8);
	ORDER(dtrain_reduce(r->group, a, count, DTRAIN_I64, DTRAIN_MAX, 0, after(place), &work, &err));
	KEEP(a, count);
#undef KEEP
	MUST(dtrain_barrier(r->group, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	MUST(place->api->stream_synchronize(place->stream, &err));
	MUST(dtrain_group_check(r->group, &err));
	for (int rank = 0; rank < size; rank++) {
		REQUIRE(out[rank * count] == value_of(rank, r->rank * count));
		REQUIRE(out[total + rank * count] == value_of(rank, 0));
		REQUIRE(r->rank > 0 || out[4 * total + rank * count] == value_of(rank, 0));
	}
	if (r->rank == 0)
		REQUIRE(out[2 * total + count - 1] == sum);
	REQUIRE(out[3 * total] == value_of((int)size - 1, r->rank * count));
	REQUIRE(out[5 * total + count - 1] == sum);
	REQUIRE(out[6 * total] == value_of((int)size - 1, 0));
	REQUIRE(r->rank > 0 || out[7 * total] == value_of((int)size - 1, 0));
	place->api->free(place->device, a);
	place->api->free(place->device, b);
	free(in);
	free(out);
}

static void rank_operates(struct rank *r)
{
	struct place place;

	open_place(r, &place);
	for (int round = 0; round < 3; round++) {
		operations(r, &place, 1);
		operations(r, &place, 1021);
	}
	close_place(r, &place);
}

/* Messages of two ranks between collectives of all, also in a capture, which is counted at each launch. */
static void rank_sends(struct rank *r)
{
	struct place place;
	dtrain_work *work = NULL;
	void *captured = NULL;
	int64_t value, *memory;

	open_place(r, &place);
	memory = device_memory(&place, 16);
	for (int round = 0; round < 6; round++) {
		value = r->rank == 0 ? 10 + round : 1;
		upload(&place, memory, &value, 8);
		if (round == 3)
			MUST(place.api->capture_begin(place.stream, &err));
		if (round <= 3) {
			if (r->rank == 0)
				ORDER_ON(place.stream, dtrain_send(r->group, memory, 1, DTRAIN_I64, 1, 0, after(&place),
								   &work, &err));
			if (r->rank == 1)
				ORDER_ON(place.stream, dtrain_recv(r->group, memory, 1, DTRAIN_I64, 0, 0, after(&place),
								   &work, &err));
			ORDER_ON(place.stream, dtrain_allreduce(r->group, memory, 1, DTRAIN_I64, DTRAIN_SUM,
								after(&place), &work, &err));
		}
		if (round == 3)
			MUST(place.api->capture_end(place.stream, &captured, &err));
		if (round >= 3)
			MUST(place.api->capture_launch(captured, place.stream, &err));
		download(&place, &value, memory, 8);
		REQUIRE(value == 2 * (10 + round) + r->size - 2);
		MUST(dtrain_group_check(r->group, &err));
	}
	place.api->capture_destroy(captured);
	place.api->free(place.device, memory);
	close_place(r, &place);
}

/* More than a step has, in every state that a handle can be in when it is given up. */
static void rank_has_many(struct rank *r)
{
	enum { OPS = 40 };
	struct place place;
	dtrain_work *work[OPS];
	float *host = calloc(OPS, 4), *memory;

	open_place(r, &place);
	memory = device_memory(&place, OPS * 4);
	REQUIRE(host);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < OPS; i++)
			host[i] = (float)(i + r->rank);
		upload(&place, memory, host, OPS * 4);
		for (int i = 0; i < OPS; i++)
			MUST(dtrain_allreduce(r->group, memory + i, 1, DTRAIN_F32, DTRAIN_AVG, after(&place), &work[i],
					      &err));
		for (int i = OPS - 1; i >= 0; i--) {
			if (i % 3 == 0)
				MUST(dtrain_work_wait(&work[i], &err));
			else if (i % 3 == 1)
				MUST(dtrain_work_stream_wait(&work[i], place.stream, &err));
			else
				while (!dtrain_work_done(work[i]))
					poll(NULL, 0, 1);
		}
		for (int i = 2; i < OPS; i += 3)
			MUST(dtrain_work_wait(&work[i], &err));
		download(&place, host, memory, OPS * 4);
		for (int i = 0; i < OPS; i++)
			REQUIRE(fabsf(host[i] - (float)i - (float)(r->size - 1) / 2) < 1e-4f);
	}
	place.api->free(place.device, memory);
	free(host);
	close_place(r, &place);
}

/* A captured operation, launched again and again, with the values of the launch. */
static void rank_captures(struct rank *r)
{
	struct place place;
	dtrain_work *work = NULL;
	void *captured = NULL;
	double value, *memory;

	open_place(r, &place);
	memory = device_memory(&place, 8);
	MUST(place.api->capture_begin(place.stream, &err));
	MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F64, DTRAIN_SUM, after(&place), &work, &err));
	MUST(dtrain_work_stream_wait(&work, place.stream, &err));
	MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F64, DTRAIN_MAX, after(&place), &work, &err));
	REQUIRE(!dtrain_work_done(work));
	MUST(dtrain_work_stream_wait(&work, place.stream, &err));
	MUST(place.api->capture_end(place.stream, &captured, &err));
	for (int i = 0; i < 20; i++) {
		value = i + r->rank;
		upload(&place, memory, &value, 8);
		MUST(place.api->capture_launch(captured, place.stream, &err));
		MUST(dtrain_group_watch(r->group, after(&place), "a step", &err));
		download(&place, &value, memory, 8);
		REQUIRE(value == r->size * i + r->size * (r->size - 1) / 2.0);
		MUST(dtrain_group_check(r->group, &err));
	}
	dtrain_group_forget(r->group, place.event);
	/* One that is captured cannot be waited for. */
	MUST(place.api->capture_begin(place.stream, &err));
	MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F64, DTRAIN_SUM, after(&place), &work, &err));
	REQUIRE(dtrain_work_wait(&work, &err) == BETON_STATE);
	place.api->capture_destroy(captured);
	REQUIRE(place.api->capture_end(place.stream, &captured, &err) == BETON_STATE);
	/* Nor when the group is gone. */
	MUST(place.api->capture_begin(place.stream, &err));
	MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F64, DTRAIN_SUM, after(&place), &work, &err));
	REQUIRE(place.api->capture_end(place.stream, &captured, &err) == BETON_STATE);
	dtrain_group_destroy(&r->group);
	REQUIRE(dtrain_work_wait(&work, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "group \"world\": allreduce is part of a capture") != NULL);
	place.api->free(place.device, memory);
	close_place(r, &place);
}

static void rank_splits(struct rank *r)
{
	int color = r->rank == r->size - 1 && r->size > 2 ? -1 : r->rank % 2;
	dtrain_group *sub = NULL;
	struct place place;
	dtrain_work *work = NULL;
	int64_t value, *memory;

	open_place(r, &place);
	memory = device_memory(&place, 8);
	for (int round = 0; round < 2; round++) {
		MUST(dtrain_group_split(r->group, color, -r->rank, NULL, &sub, &err)); /* in reverse order */
		REQUIRE((color < 0) == (sub == NULL));
		if (sub) {
			int members = 0, below = 0;
			int64_t sum = 0;

			for (int rank = 0; rank < r->size - (r->size > 2); rank++) {
				members += rank % 2 == color;
				below += rank % 2 == color && rank > r->rank;
				sum += rank % 2 == color ? rank : 0;
			}
			REQUIRE(dtrain_group_size(sub) == members && dtrain_group_rank(sub) == below);
			value = r->rank;
			upload(&place, memory, &value, 8);
			MUST(dtrain_allreduce(sub, memory, 1, DTRAIN_I64, DTRAIN_SUM, after(&place), &work, &err));
			MUST(dtrain_work_stream_wait(&work, place.stream, &err));
			download(&place, &value, memory, 8);
			REQUIRE(value == sum);
		}
		dtrain_group_destroy(&sub);
		MUST(dtrain_barrier(r->group, &work, &err));
		MUST(dtrain_work_wait(&work, &err));
	}
	place.api->free(place.device, memory);
	close_place(r, &place);
}

static void rank_misuses(struct rank *r)
{
	struct place place;
	dtrain_work *work = NULL;
	dtrain_group *other = NULL;
	dtrain_group_options options;
	int64_t on_host = 0;

	open_place(r, &place);
	REQUIRE(dtrain_allreduce(r->group, &on_host, 1, DTRAIN_U8, DTRAIN_SUM, NULL, &work, &err) == BETON_UNSUPPORTED);
	REQUIRE(strstr(err.message, "allreduce with far does not take elements of type u8") != NULL);
	REQUIRE(dtrain_allreduce(r->group, &on_host, -1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	dtrain_group_options_init(&options);
	options.device = place.device;
	options.backend = "gloo";
	options.name = "other";
	options.timeout_ms = 500;
	REQUIRE(dtrain_group_create(r->store, r->rank, r->size, &options, &other, &err) == BETON_UNSUPPORTED);
	REQUIRE(strstr(err.message, "gloo cannot reach the memory of the device \"far\"") != NULL);
	options.backend = "nccl";
	REQUIRE(dtrain_group_create(r->store, r->rank, r->size, &options, &other, &err) == BETON_UNSUPPORTED);
	options.backend = "far";
	options.device = NULL;
	REQUIRE(dtrain_group_create(r->store, r->rank, r->size, &options, &other, &err) == BETON_UNSUPPORTED);
	/* An operation that could not be put on the stream ends the group: the ranks would not agree any more. */
	REQUIRE(dtrain_allreduce(r->group, &on_host, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(strstr(err.message, "an operation on host memory") != NULL);
	REQUIRE(dtrain_barrier(r->group, &work, &err) == BETON_INVALID_ARGUMENT);
	REQUIRE(dtrain_group_check(r->group, &err) == BETON_INVALID_ARGUMENT);
	close_place(r, &place);
}

/* Ends when the group fails: with what the group says. */
static int rank_reduces_for_ever(struct rank *r, bool in_capture)
{
	struct place place;
	dtrain_work *work = NULL;
	void *captured = NULL;
	float *memory;
	int status = BETON_OK;

	open_place(r, &place);
	memory = device_memory(&place, 4096);
	if (in_capture) {
		MUST(place.api->capture_begin(place.stream, &err));
		MUST(dtrain_allreduce(r->group, memory, 1024, DTRAIN_F32, DTRAIN_SUM, after(&place), &work, &err));
		MUST(dtrain_work_stream_wait(&work, place.stream, &err));
		MUST(place.api->capture_end(place.stream, &captured, &err));
	}
	for (int i = 0; !status; i++) {
		if (in_capture) {
			MUST(place.api->capture_launch(captured, place.stream, &err));
			status = dtrain_group_watch(r->group, after(&place), "step 7", &err);
			if (!status)
				MUST(place.api->stream_synchronize(place.stream, &err));
			if (!status)
				status = dtrain_group_check(r->group, &err);
		} else {
			status = dtrain_allreduce(r->group, memory, 1024, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err);
			if (!status)
				status = i % 2 ? dtrain_work_wait(&work, &err)
					       : dtrain_work_stream_wait(&work, place.stream, &err);
		}
		if (i == 3)
			mark(r);
	}
	fprintf(stderr, "%s\n", err.message);
	/* It stays so, at once. */
	REQUIRE(dtrain_barrier(r->group, &work, &err) == status);
	if (getenv("DTRAIN_FAR_DEAF"))
		_exit(-status); /* its streams will not end */
	dtrain_group_forget(r->group, place.event);
	place.api->capture_destroy(captured);
	place.api->free(place.device, memory);
	close_place(r, &place);
	return -status;
}

/* Rank 2 stays away from one of two groups: both fail everywhere, and say why. */
static int rank_has_two_groups(struct rank *r)
{
	struct place place;
	dtrain_group *second = NULL;
	dtrain_work *work = NULL;
	float *memory;
	int status;

	open_place(r, &place);
	memory = device_memory(&place, 4);
	MUST(dtrain_group_split(r->group, 0, r->rank, NULL, &second, &err));
	MUST(dtrain_allreduce(second, memory, 1, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	while (r->rank == 2)
		pause(); /* the test ends it */
	MUST(dtrain_allreduce(second, memory, 1, DTRAIN_F32, DTRAIN_SUM, NULL, &work, &err));
	REQUIRE(dtrain_work_wait(&work, &err) == BETON_TIMEOUT);
	fprintf(stderr, "%s\n", err.message);
	status = dtrain_group_check(r->group, &err);
	fprintf(stderr, "%s\n", err.message);
	mark(r);
	dtrain_group_destroy(&second);
	place.api->free(place.device, memory);
	close_place(r, &place);
	return -status;
}

/* Rank 0 gives up an operation that the others do not begin; they hear of it while its communicator is still being
 * aborted. */
static int rank_fails_first(struct rank *r)
{
	struct place place;
	dtrain_work *work = NULL;
	float *memory;
	int status;

	if (r->rank == 0)
		setenv("DTRAIN_FAR_ABORT_US", "3000000", 1);
	open_place(r, &place);
	memory = device_memory(&place, 4);
	if (r->rank == 0)
		MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F32, DTRAIN_SUM, after(&place), &work, &err));
	while ((status = dtrain_group_check(r->group, &err)) == BETON_OK)
		poll(NULL, 0, 1);
	fprintf(stderr, "%s\n", err.message);
	if (work)
		dtrain_work_wait(&work, &err);
	place.api->free(place.device, memory);
	close_place(r, &place);
	return -status;
}

/* Rank 1's operation waits for kernels of its own; the others give up. */
static int rank_computes_long(struct rank *r)
{
	struct place place;
	dtrain_work *work = NULL;
	uint64_t began = bt_now_ns();
	float *memory;
	int status;

	if (r->rank == 1)
		setenv("DTRAIN_FAR_DELAY_US", "1000000", 1);
	open_place(r, &place);
	memory = device_memory(&place, 4);
	for (int i = 0; i < 60 && r->rank == 1; i++)
		MUST(place.api->zero(place.stream, memory, 4, &err));
	MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F32, DTRAIN_SUM, after(&place), &work, &err));
	status = dtrain_work_wait(&work, &err);
	fprintf(stderr, "%s\n", err.message);
	REQUIRE(bt_now_ns() - began < 30 * 1000000000ull);
	_exit(-status);
}

static int rank_destroys_with_work(struct rank *r)
{
	struct place place;
	dtrain_work *work[3];
	float *memory;

	open_place(r, &place);
	memory = device_memory(&place, 4);
	if (r->rank == 1) {
		await_marks(r, r->size - 1);
		dtrain_group_destroy(&r->group);
		_exit(0);
	}
	for (int i = 0; i < 3; i++)
		MUST(dtrain_allreduce(r->group, memory, 1, DTRAIN_F32, DTRAIN_SUM, NULL, &work[i], &err));
	poll(NULL, 0, 50);
	dtrain_group_destroy(&r->group);
	mark(r);
	MUST(place.api->stream_synchronize(place.stream, &err));
	REQUIRE(dtrain_work_done(work[0]));
	REQUIRE(dtrain_work_wait(&work[0], &err) == BETON_CANCELLED);
	REQUIRE(dtrain_work_stream_wait(&work[1], place.stream, &err) == BETON_CANCELLED);
	REQUIRE(dtrain_work_wait(&work[2], &err) == BETON_CANCELLED);
	place.api->free(place.device, memory);
	close_place(r, &place);
	return 0;
}

static int rank_shares(struct rank *r)
{
	dtrain_group_options options;
	dtrain_device *device = NULL;
	int status;

	MUST(dtrain_device_open("far", NULL, &device, &err));
	dtrain_group_options_init(&options);
	options.timeout_ms = r->timeout_ms;
	options.device = device;
	options.share_device = strcmp(r->mode, "no-group-shares") == 0;
	status = dtrain_group_create(r->store, r->rank, r->size, &options, &r->group, &err);
	fprintf(stderr, "%s\n", err.message);
	dtrain_group_destroy(&r->group);
	dtrain_device_close(&device);
	return -status;
}

static int rank_main(struct rank *r)
{
	const char *mode = r->mode + strlen("no-group-");

	if (strcmp(mode, "operates") == 0)
		rank_operates(r);
	else if (strcmp(mode, "many") == 0)
		rank_has_many(r);
	else if (strcmp(mode, "sends") == 0)
		rank_sends(r);
	else if (strcmp(mode, "captures") == 0)
		rank_captures(r);
	else if (strcmp(mode, "splits") == 0)
		rank_splits(r);
	else if (strcmp(mode, "misuses") == 0)
		rank_misuses(r);
	else if (strcmp(mode, "for-ever") == 0)
		return rank_reduces_for_ever(r, false);
	else if (strcmp(mode, "for-ever-captured") == 0)
		return rank_reduces_for_ever(r, true);
	else if (strcmp(mode, "two-groups") == 0)
		return rank_has_two_groups(r);
	else if (strcmp(mode, "fails-first") == 0)
		return rank_fails_first(r);
	else if (strcmp(mode, "computes-long") == 0)
		return rank_computes_long(r);
	else if (strcmp(mode, "destroys") == 0)
		return rank_destroys_with_work(r);
	else if (strcmp(mode, "shares") == 0 || strcmp(mode, "shares-not") == 0)
		return rank_shares(r);
	else
		return 9;
	return 0;
}

/* ---- the tests ---- */

/* After each test, also one that failed: the ranks of the next one would wait for a device that cannot abort. */
static int forget_variables(void **state)
{
	static const char *const names[] = {"DTRAIN_FAR_DELAY_US", "DTRAIN_FAR_SILENT", "DTRAIN_FAR_DEAF",
					    "DTRAIN_FAR_SHARING", "DTRAIN_FAR_UUID"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	return 0;
}

static void operations_follow_events(void **state)
{
	(void)state;
	run_ranks("no-group-operates", 1);
	setenv("DTRAIN_FAR_DELAY_US", "300", 1);
	run_ranks("no-group-operates", 2);
	run_ranks("no-group-operates", 3);
	run_ranks("no-group-many", 1);
	run_ranks("no-group-many", 3);
	run_ranks("no-group-sends", 3);
}

static void operations_are_captured(void **state)
{
	(void)state;
	run_ranks("no-group-captures", 1);
	run_ranks("no-group-captures", 3);
}

static void groups_split(void **state)
{
	(void)state;
	run_ranks("no-group-splits", 1);
	run_ranks("no-group-splits", 2);
	run_ranks("no-group-splits", 5);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("no-group-misuses", 2);
}

static void kill_one(const char *mode)
{
	struct ranks ranks;

	start_ranks(&ranks, mode, 0, 4, 60000);
	wait_for_marks(&ranks, 4);
	kill(ranks.pids[2], SIGKILL);
	assert_int_equal(end_rank(&ranks, 2), 1000 + SIGKILL);
	expect_all(&ranks, 2, BETON_PEER_LOST, "rank 2 is lost");
	end_store(&ranks);
}

static void killed_rank_is_named_by_all(void **state)
{
	(void)state;
	kill_one("no-group-for-ever");
	kill_one("no-group-for-ever-captured");
}

/* Where the engine notices nothing the store does. */
static void killed_rank_is_named_where_nothing_tells(void **state)
{
	(void)state;
	setenv("DTRAIN_FAR_SILENT", "1", 1);
	kill_one("no-group-for-ever");
	kill_one("no-group-for-ever-captured");
}

static void killed_rank_is_named_where_nothing_can_be_aborted(void **state)
{
	(void)state;
	setenv("DTRAIN_FAR_DEAF", "1", 1);
	kill_one("no-group-for-ever");
}

static void stop_one(const char *mode, const char *where)
{
	struct ranks ranks;

	start_ranks(&ranks, mode, 0, 3, 2000);
	wait_for_marks(&ranks, 3);
	kill(ranks.pids[1], SIGSTOP);
	expect_all(&ranks, 1, BETON_TIMEOUT, "no sign of rank 1 within 2000 ms");
	assert_non_null(strstr(ranks.err[0], where));
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	end_store(&ranks);
}

static void stopped_rank_is_named_after_the_timeout(void **state)
{
	(void)state;
	stop_one("no-group-for-ever", "allreduce");
	stop_one("no-group-for-ever-captured", "step 7");
}

/* The store's machine is gone with a rank's: the ranks cannot agree, and do not wait for that. */
static void silent_store_holds_up_nobody(void **state)
{
	const char *const modes[] = {"no-group-for-ever", "no-group-for-ever-captured"};
	struct ranks ranks;

	(void)state;
	for (int i = 0; i < 2; i++) {
		uint64_t began;

		start_ranks_apart(&ranks, modes[i], 3, 2000);
		wait_for_marks(&ranks, 3);
		kill(ranks.store_pid, SIGSTOP);
		kill(ranks.pids[1], SIGSTOP);
		began = bt_now_ns();
		expect_all(&ranks, 1, BETON_TIMEOUT, "within 2000 ms");
		/* About 8 s; a minute and a half where each question to the store is given its 30 s. */
		assert_true(bt_now_ns() - began < 30 * 1000000000ull);
		kill(ranks.pids[1], SIGKILL);
		assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
		end_store(&ranks);
	}
}

static void failure_reaches_all_groups(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-two-groups", 0, 3, 5000);
	wait_for_marks(&ranks, 2);
	expect_all(&ranks, 2, BETON_TIMEOUT, "aborted with group \"world.1.0\"");
	kill(ranks.pids[2], SIGKILL);
	assert_int_equal(end_rank(&ranks, 2), 1000 + SIGKILL);
	end_store(&ranks);
}

/* Ranks that hear of a failure from others do not know its cause, and do not tell another one. */
static void first_failure_is_told(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-fails-first", 0, 3, 1000);
	expect_all(&ranks, -1, BETON_TIMEOUT, "rank 0: it did not end within 1000 ms");
	end_store(&ranks);
}

static void failure_reaches_a_rank_that_computes(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-computes-long", 0, 3, 1000);
	expect_all(&ranks, -1, BETON_TIMEOUT, "allreduce: ");
	end_store(&ranks);
}

static void destroying_cancels_work(void **state)
{
	(void)state;
	run_ranks("no-group-destroys", 2);
}

static void end_shares(const char *mode, int status, const char *text)
{
	struct ranks ranks;

	start_ranks(&ranks, mode, 0, 3, 20000);
	expect_all(&ranks, -1, status, text);
	end_store(&ranks);
}

static void shared_device_is_refused(void **state)
{
	(void)state;
	setenv("DTRAIN_FAR_UUID", "one-and-the-same", 1);
	end_shares("no-group-shares-not", BETON_INVALID_ARGUMENT,
		   "ranks 0, 1, 2 have the same device: a far device (one-and-the-same)");
	end_shares("no-group-shares", BETON_UNSUPPORTED, "set DTRAIN_FAR_SHARING");
	setenv("DTRAIN_FAR_SHARING", "1", 1);
	end_shares("no-group-shares", BETON_OK, "");
}

static void only_the_same_device_is_refused(void **state)
{
	device_place places[40] = {{"machine", "gpu-1", "node1", "H200"},
				   {"machine", "gpu-2", "node1", "H200"},
				   {"another", "gpu-1", "node2", "H200"},
				   {"machine", "gpu-2", "node1", "H200"}};

	(void)state;
	assert_int_equal(dtrain__check_devices("g", places, 3, &err), BETON_OK);
	assert_int_equal(dtrain__check_devices("g", places, 4, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "ranks 1, 3 have the same device: H200 (gpu-2) on node1"));
	assert_non_null(
		strstr(err.message, "--share-device, with NCCL 2.30.3 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1"));
	/* As many as there may be: the list is cut. */
	for (int i = 0; i < 40; i++)
		places[i] = places[0];
	assert_int_equal(dtrain__check_devices("g", places, 40, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "ranks 0, 1, 2"));
	assert_non_null(strstr(err.message, "... have the same device"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_same_device_is_refused),
		cmocka_unit_test_teardown(operations_follow_events, forget_variables),
		cmocka_unit_test(operations_are_captured),
		cmocka_unit_test(groups_split),
		cmocka_unit_test(misuse_is_named),
		cmocka_unit_test(killed_rank_is_named_by_all),
		cmocka_unit_test_teardown(killed_rank_is_named_where_nothing_tells, forget_variables),
		cmocka_unit_test_teardown(killed_rank_is_named_where_nothing_can_be_aborted, forget_variables),
		cmocka_unit_test(stopped_rank_is_named_after_the_timeout),
		cmocka_unit_test(silent_store_holds_up_nobody),
		cmocka_unit_test(failure_reaches_all_groups),
		cmocka_unit_test(first_failure_is_told),
		cmocka_unit_test(failure_reaches_a_rank_that_computes),
		cmocka_unit_test(destroying_cancels_work),
		cmocka_unit_test_teardown(shared_device_is_refused, forget_variables),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
