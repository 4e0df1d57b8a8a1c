/* SPDX-License-Identifier: Apache-2.0
 *
 * A group's record of its last operations, with Gloo and on the device "far": while it works, and the ranks' verdict
 * from it after a failure.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "comm/group/group_progress.h"
#include "common/system.h"
#include "seat.h"

static beton_error err;

static int64_t *data;

static void reduce(struct rank *r, dtrain_reduce_op op, int64_t count)
{
	dtrain_work *work = NULL;

	MUST(dtrain_allreduce(r->group, data, count, DTRAIN_I64, op, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
}

static void check_times(const dtrain_record *record, uint64_t began)
{
	REQUIRE(record->state == DTRAIN_RECORD_COMPLETED);
	REQUIRE(record->enqueued_ns >= began && record->ended_ns >= record->enqueued_ns);
	REQUIRE(record->started_ns >= began && record->started_ns <= record->ended_ns);
	REQUIRE(record->ended_ns <= bt_now_ns());
}

/* On streams what ended is seen by the group's thread, which then knows when it began. */
static int read_settled(struct rank *r, dtrain_record *records, int capacity)
{
	uint64_t began = bt_now_ns();

	for (;;) {
		int count = dtrain_group_history(r->group, records, capacity), settled = 0;

		for (int i = 0; i < count; i++)
			settled += records[i].started_ns != 0;
		if (settled == count)
			return count;
		REQUIRE(bt_now_ns() - began < 60000000000);
		poll(NULL, 0, 1);
	}
}

static void rank_records(struct rank *r, const struct seat *seat)
{
	dtrain_record records[8];
	dtrain_work *work = NULL;
	uint64_t began = bt_now_ns();
	int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
	int before = dtrain_group_history(r->group, records, 8), count;

	(void)seat;
	REQUIRE(before == 0);
	reduce(r, DTRAIN_MAX, 3);
	dtrain_group_label(r->group, "unit \"7\"");
	MUST(dtrain_broadcast(r->group, data, 0, DTRAIN_U8, 1, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	dtrain_group_label(r->group, NULL);
	MUST(dtrain_group_begin(r->group, &err));
	MUST(dtrain_send(r->group, data, 1, DTRAIN_I64, next, 5, NULL, NULL, &err));
	MUST(dtrain_recv(r->group, data + 1, 1, DTRAIN_I64, previous, 5, NULL, NULL, &err));
	MUST(dtrain_group_end(r->group, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	reduce(r, DTRAIN_SUM, 1);
	count = read_settled(r, records, 8);
	REQUIRE(count == 5);
	for (int i = 0; i < count; i++) {
		REQUIRE(records[i].number == (uint64_t)i + 1);
		REQUIRE(records[i].batch == (i == 2 || i == 3 ? 3 : 0));
		check_times(&records[i], began);
	}
	REQUIRE(strcmp(records[0].kind, "allreduce") == 0 && records[0].sequence == 1 && records[0].bytes == 24 &&
		records[0].count == 3 && records[0].dtype == DTRAIN_I64 && records[0].reduce == DTRAIN_MAX &&
		records[1].reduce == -1 && records[0].peer == -1 && records[0].tag == -1 && !records[0].label[0]);
	REQUIRE(strcmp(records[1].kind, "broadcast") == 0 && records[1].sequence == 2 && records[1].peer == 1 &&
		strcmp(records[1].label, "unit \"7\"") == 0);
	REQUIRE(strcmp(records[2].kind, "send") == 0 && records[2].sequence == 1 && records[2].peer == next &&
		records[2].tag == 5 && !records[2].label[0]);
	REQUIRE(strcmp(records[3].kind, "recv") == 0 && records[3].sequence == 1 && records[3].peer == previous);
	REQUIRE(records[4].sequence == 3 && records[4].enqueued_ns >= records[0].ended_ns);
	REQUIRE(dtrain_group_history(r->group, records, 2) == 2 && records[0].number == 4);
	REQUIRE(dtrain_group_history(r->group, NULL, 0) == 0);
}

struct reader {
	dtrain_group *group;
	atomic_bool stop;
	int reads;
};

/* Whatever is read while the group works fits together. */
static void *read_history(void *argument)
{
	static dtrain_record records[DTRAIN_HISTORY_LENGTH];
	struct reader *reader = argument;

	while (!reader->stop || !reader->reads) {
		int count = dtrain_group_history(reader->group, records, DTRAIN_HISTORY_LENGTH);

		for (int i = 0; i < count; i++) {
			REQUIRE(records[i].number == records[0].number + (uint64_t)i);
			REQUIRE(strcmp(records[i].kind, "allreduce") == 0);
			REQUIRE(records[i].count == (int64_t)(records[i].number % 3));
		}
		reader->reads++;
	}
	return NULL;
}

static void rank_fills_the_ring(struct rank *r)
{
	enum { OPS = DTRAIN_HISTORY_LENGTH + 100, IN_FLIGHT = 50 };
	static dtrain_record records[DTRAIN_HISTORY_LENGTH + 1];
	struct reader reader = {.group = r->group};
	dtrain_work *work[IN_FLIGHT] = {NULL};
	pthread_t thread;

	REQUIRE(pthread_create(&thread, NULL, read_history, &reader) == 0);
	for (int i = 0; i < OPS; i++) {
		dtrain_work **one = &work[i % IN_FLIGHT];

		if (*one)
			MUST(dtrain_work_wait(one, &err));
		MUST(dtrain_allreduce(r->group, data, (i + 1) % 3, DTRAIN_I64, DTRAIN_MAX, NULL, one, &err));
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		MUST(dtrain_work_wait(&work[i], &err));
	reader.stop = true;
	pthread_join(thread, NULL);
	REQUIRE(read_settled(r, records, DTRAIN_HISTORY_LENGTH + 1) == DTRAIN_HISTORY_LENGTH);
	REQUIRE(records[0].number == OPS - DTRAIN_HISTORY_LENGTH + 1);
	for (int i = 0; i < DTRAIN_HISTORY_LENGTH; i++)
		REQUIRE(records[i].state == DTRAIN_RECORD_COMPLETED && records[i].started_ns <= records[i].ended_ns);
}

static void rank_captures(struct rank *r, const struct seat *seat)
{
	const struct place *place = &seat->place;
	dtrain_work *work = NULL;
	dtrain_record record;
	void *captured = NULL;

	MUST(place->api->capture_begin(place->stream, &err));
	MUST(dtrain_allreduce(r->group, data, 1, DTRAIN_I64, DTRAIN_SUM, after(place), &work, &err));
	MUST(dtrain_work_stream_wait(&work, place->stream, &err));
	MUST(place->api->capture_end(place->stream, &captured, &err));
	REQUIRE(dtrain_group_history(r->group, &record, 1) == 1);
	REQUIRE(record.state == DTRAIN_RECORD_CAPTURED && record.enqueued_ns && !record.started_ns);
	place->api->capture_destroy(captured);
}

/* The next operation then tells it, whichever it is. */
static int compute_until_the_others_fail(struct rank *r, dtrain_work **work)
{
	int64_t marks = 0;

	while (marks < r->size + r->size - 1) {
		poll(NULL, 0, 20);
		MUST(dtrain_store_add(r->store, "marks", 0, &marks, &err));
	}
	return dtrain_barrier(r->group, work, &err);
}

/* Three operations of all; then the last rank does something else. */
static int rank_falls_behind(struct rank *r, const char *how)
{
	char label[32];
	dtrain_work *work = NULL;
	int status = BETON_OK, last = r->size - 1;

	for (int i = 0; i < 3; i++) {
		snprintf(label, sizeof(label), "bucket %d", i);
		dtrain_group_label(r->group, label);
		reduce(r, DTRAIN_SUM, 2);
	}
	dtrain_group_label(r->group, "bucket 3");
	mark(r);
	if (r->rank == last && strcmp(how, "differs") == 0)
		status = dtrain_broadcast(r->group, data, 1, DTRAIN_F32, 0, NULL, &work, &err);
	else if (r->rank == last && strcmp(how, "dies") == 0)
		pause();
	else if (r->rank < last)
		status = dtrain_allreduce(r->group, data, 2, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err);
	else
		status = compute_until_the_others_fail(r, &work);
	if (!status)
		status = dtrain_work_wait(&work, &err);
	fprintf(stderr, "%s\n", err.message);
	mark(r);
	return -status;
}

static int rank_main(struct rank *r)
{
	struct seat seat = {0};
	const char *mode = take_seat(r, &seat);
	dtrain_group *whole = NULL;
	int status = 0;

	if (strcmp(mode, "reversed") == 0) {
		whole = r->group;
		MUST(dtrain_group_split(whole, 0, -r->rank, NULL, &r->group, &err));
		mode = "differs";
	}
	data = seat_memory(&seat, 4 * sizeof(*data));
	seat_put(&seat, data, (int64_t[4]){1, 2, 3, 4}, 4 * sizeof(*data));
	if (strcmp(mode, "records") == 0)
		rank_records(r, &seat);
	else if (strcmp(mode, "fills") == 0)
		rank_fills_the_ring(r);
	else if (strcmp(mode, "captures") == 0)
		rank_captures(r, &seat);
	else
		status = rank_falls_behind(r, mode);
	seat_free(&seat, data);
	if (whole) {
		dtrain_group_destroy(&r->group);
		r->group = whole;
	}
	leave_seat(r, &seat);
	return status;
}

/* ---- the tests ---- */

static void operations_are_recorded(void **state)
{
	(void)state;
	run_ranks("records", 2);
	run_ranks("records", 3);
	run_ranks("no-group-far-records", 2);
	run_ranks("no-group-far-captures", 2);
}

static void last_operations_are_kept(void **state)
{
	(void)state;
	run_ranks("fills", 1);
	run_ranks("fills", 2);
	run_ranks("no-group-far-fills", 2);
}

static void expect_verdict(const char *mode, int timeout_ms, int status, const char *first, const char *second)
{
	struct ranks ranks;

	start_ranks(&ranks, mode, 0, 3, timeout_ms);
	expect_all(&ranks, -1, status, first);
	for (int rank = 0; rank < 3; rank++)
		if (!strstr(ranks.err[rank], second))
			fail_msg("rank %d: %s", rank, ranks.err[rank]);
	end_store(&ranks);
}

/* The last rank is in no operation and asks once a second whether others failed. If a busy machine lets it ask too
 * late, it counts as silent, and the job is run again. */
static void run_until_the_last_answers(struct ranks *ranks, const char *mode)
{
	for (int tries = 9;; tries--) {
		start_ranks(ranks, mode, 0, 3, 3000);
		for (int rank = 0; rank < 3; rank++)
			assert_int_equal(end_rank(ranks, rank), -BETON_TIMEOUT);
		if (tries == 0 || !strstr(ranks->err[0], "no sign of rank 2"))
			return;
		end_store(ranks);
	}
}

static void expect_late(const char *mode, const char *late, const char *last)
{
	struct ranks ranks;

	run_until_the_last_answers(&ranks, mode);
	for (int rank = 0; rank < 3; rank++)
		if (!strstr(ranks.err[rank], late) || !strstr(ranks.err[rank], last))
			fail_msg("rank %d: %s", rank, ranks.err[rank]);
	end_store(&ranks);
}

/* The rank that is late is in no operation, and answers all the same. */
static void rank_that_is_behind_is_named(void **state)
{
	static const char late[] = "rank 2 has not begun allreduce #4 (bucket 3)";
	static const char last[] = "the last that all ranks completed is allreduce #3 (bucket 2)";

	(void)state;
	expect_late("late", late, last);
	expect_late("no-group-far-late", late, last);
}

static void ranks_that_differ_are_named(void **state)
{
	static const char differs[] =
		"collective #4 is allreduce of 2 i64 (sum) on ranks 0, 1 and broadcast of 1 f32 (root 0) "
		"on rank 2; the last that all ranks completed is allreduce #3 (bucket 2)";

	(void)state;
	expect_verdict("differs", 3000, BETON_TIMEOUT, differs, differs);
	/* In a part, whose ranks have other numbers. */
	expect_verdict("reversed", 3000, BETON_TIMEOUT, "collective #4 is allreduce of 2 i64 (sum) on ranks 1, 0 and ",
		       "broadcast of 1 f32 (root 2) on rank 2");
}

static void lost_rank_leaves_what_the_others_know(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "dies", 0, 3, 60000);
	wait_for_marks(&ranks, 3);
	kill(ranks.pids[2], SIGKILL);
	assert_int_equal(end_rank(&ranks, 2), 1000 + SIGKILL);
	expect_all(&ranks, 2, BETON_PEER_LOST,
		   "the last that all ranks that answer completed is allreduce #3 (bucket 2)");
	end_store(&ranks);
}

static void check_number(const json_t *line, const char *key, json_int_t expected)
{
	if (json_integer_value(json_object_get(line, key)) != expected)
		fail_msg("%s is %lld", key, (long long)json_integer_value(json_object_get(line, key)));
}

static void check_text(const json_t *line, const char *key, const char *expected)
{
	assert_string_equal(json_string_value(json_object_get(line, key)), expected);
}

/* The file of a rank that was in the fourth collective, or of the rank that was not: it may have begun the operation
 * that reports the failure to it. */
static void check_file(const char *folder, int rank, const char *reason)
{
	char path[200], line[4096];
	struct timespec real;
	json_t *object = NULL;
	FILE *file;
	int lines = 0;

	snprintf(path, sizeof(path), "%s/world.%d.jsonl", folder, rank);
	file = fopen(path, "r");
	assert_non_null(file);
	for (; fgets(line, sizeof(line), file); lines++) {
		json_decref(object);
		object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(object);
		if (lines == 0) {
			json_int_t offset = json_integer_value(json_object_get(object, "realtime_offset_ns"));

			check_text(object, "format", "dtrain-history");
			check_text(object, "group", "world");
			check_number(object, "rank", rank);
			check_number(object, "size", 3);
			assert_non_null(strstr(json_string_value(json_object_get(object, "reason")), reason));
			clock_gettime(CLOCK_REALTIME, &real);
			assert_true(llabs(offset + (json_int_t)bt_now_ns() - (json_int_t)real.tv_sec * 1000000000) <
				    3600 * 1000000000ll);
		} else {
			check_number(object, "number", lines);
			check_number(object, "sequence", lines);
			check_text(object, "kind", rank == 2 && lines > 3 ? "barrier" : "allreduce");
			if (rank != 2 || lines <= 3)
				check_text(object, "state", lines <= 3 ? "completed" : "failed");
			if (lines == 3)
				check_text(object, "label", "bucket 2");
		}
	}
	if (rank != 2)
		check_text(object, "label", "bucket 3");
	assert_in_range(lines, rank == 2 ? 4 : 5, 5);
	json_decref(object);
	fclose(file);
	unlink(path);
}

static void failure_leaves_a_file_for_each_rank(void **state)
{
	char folder[] = "/tmp/dtrain-history-XXXXXX";
	struct ranks ranks;

	(void)state;
	assert_non_null(mkdtemp(folder));
	setenv("DTRAIN_HISTORY", folder, 1);
	run_until_the_last_answers(&ranks, "late");
	for (int rank = 0; rank < 3; rank++)
		check_file(folder, rank, "rank 2 has not begun");
	end_store(&ranks);
	assert_int_equal(rmdir(folder), 0);
	/* A file that cannot be written is reported with the failure, and changes nothing else. */
	start_ranks(&ranks, "late", 0, 3, 3000);
	expect_all(&ranks, -1, BETON_TIMEOUT, "; DTRAIN_HISTORY: /tmp/dtrain-history-");
	end_store(&ranks);
	unsetenv("DTRAIN_HISTORY");
}

static void progress_is_compared(void **state)
{
	group_progress ranks[4], copy;
	char text[GROUP_PROGRESS_TEXT], again[GROUP_PROGRESS_TEXT], message[512];
	int code;

	(void)state;
	for (int rank = 0; rank < 4; rank++)
		ranks[rank] = (group_progress){.known = true,
					       .rank = rank,
					       .completed = 416,
					       .current = 417,
					       .begun = true,
					       .last = "allreduce #416 (bucket 2)",
					       .next = "allreduce #417 (bucket 3)",
					       .signature = "allreduce of 8 f32"};
	dtrain__progress_format(&ranks[0], -61, text);
	assert_true(dtrain__progress_parse(text, &code, &copy));
	assert_int_equal(code, -61);
	dtrain__progress_format(&copy, code, again);
	assert_true(copy.known);
	assert_string_equal(again, text);
	assert_false(dtrain__progress_parse("gone", &code, &copy));
	assert_false(copy.known);
	assert_true(dtrain__progress_parse("-5 1 2 0\n", &code, &copy));
	assert_true(copy.known && !copy.begun && !copy.next[0]);

	strcpy(message, "reason");
	dtrain__progress_compare(ranks, 4, message, sizeof(message));
	assert_string_equal(message, "reason; the last that all ranks completed is allreduce #416 (bucket 2)");
	ranks[0].begun = ranks[3].begun = false;
	message[0] = '\0';
	dtrain__progress_compare(ranks, 4, message, sizeof(message));
	assert_string_equal(message, "; ranks 0, 3 have not begun allreduce #417 (bucket 3); the last that all ranks "
				     "completed is allreduce #416 (bucket 2)");
	/* The first rank may be the differing one: the majority decides. */
	strcpy(ranks[0].signature, "broadcast of 8 f32");
	ranks[0].begun = ranks[3].begun = true;
	ranks[2].known = false;
	message[0] = '\0';
	dtrain__progress_compare(ranks, 4, message, sizeof(message));
	assert_string_equal(message,
			    "; collective #417 is allreduce of 8 f32 on ranks 1, 3 and broadcast of 8 f32 on "
			    "rank 0; the last that all ranks that answer completed is allreduce #416 (bucket 2)");
	/* Some ranks are further by more than one: the message does not name the operation that the slowest lacks. */
	ranks[0] = (group_progress){.known = true};
	message[0] = '\0';
	dtrain__progress_compare(ranks, 4, message, sizeof(message));
	assert_string_equal(message, "; rank 0 has not begun collective #1");
	for (int rank = 0; rank < 4; rank++)
		ranks[rank].known = false;
	message[0] = '\0';
	dtrain__progress_compare(ranks, 4, message, sizeof(message));
	assert_string_equal(message, "");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_is_compared),
		cmocka_unit_test(operations_are_recorded),
		cmocka_unit_test(last_operations_are_kept),
		cmocka_unit_test(rank_that_is_behind_is_named),
		cmocka_unit_test(ranks_that_differ_are_named),
		cmocka_unit_test(lost_rank_leaves_what_the_others_know),
		cmocka_unit_test(failure_leaves_a_file_for_each_rank),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
