/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline_csv FOLDER: schedules as text, also those in the folder, which PyTorch wrote.
 */
#include <dtrain/pipeline.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *folder;
static beton_error err;

static dtrain_pipeline_schedule *read_file(const char *name)
{
	char path[4096];
	dtrain_pipeline_schedule *schedule;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (dtrain_pipeline_schedule_read(path, &schedule, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return schedule;
}

static dtrain_pipeline_schedule *make(const char *name, int32_t ranks, int32_t chunks, int32_t micro_batches)
{
	dtrain_pipeline_options options;
	dtrain_pipeline_schedule *schedule;
	dtrain_pipeline_options_init(&options);
	options.schedule = name;
	options.ranks = ranks;
	options.chunks = chunks;
	options.micro_batches = micro_batches;
	if (dtrain_pipeline_schedule_create(&options, &schedule, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return schedule;
}

static char *text_of(const dtrain_pipeline_schedule *schedule)
{
	char *text;
	assert_int_equal(dtrain_pipeline_schedule_text(schedule, &text, &err), BETON_OK);
	return text;
}

static void expect_equal(dtrain_pipeline_schedule *a, dtrain_pipeline_schedule *b)
{
	char *text_a = text_of(a), *text_b = text_of(b);
	assert_string_equal(text_a, text_b);
	assert_int_equal(a->stages, b->stages);
	assert_int_equal(a->micro_batches, b->micro_batches);
	assert_memory_equal(a->rank_of_stage, b->rank_of_stage, (size_t)a->stages * sizeof(int32_t));
	free(text_a);
	free(text_b);
	dtrain_pipeline_schedule_destroy(&a);
	dtrain_pipeline_schedule_destroy(&b);
}

static void schedules_equal_pytorchs(void **state)
{
	(void)state;
	expect_equal(read_file("interleaved-4-2-8.csv"), make("interleaved", 4, 2, 8));
	expect_equal(read_file("zb1p-4-2-8.csv"), make("zb1p", 4, 2, 8));
	expect_equal(read_file("zbv-4-2-8.csv"), make("zbv", 4, 2, 8));
}

/* PyTorch runs the backwards of gpipe in the order of the last micro-batch to the first one. */
static void pytorchs_files_are_read(void **state)
{
	(void)state;
	dtrain_pipeline_schedule *s = read_file("looped-3-2-4.csv");
	assert_int_equal(s->ranks, 3);
	assert_int_equal(s->stages, 6);
	assert_int_equal(s->micro_batches, 4);
	dtrain_pipeline_schedule_destroy(&s);
	s = read_file("dual-3-2-6.csv");
	assert_int_equal(s->stages, 6);
	assert_int_equal(s->rank_of_stage[5], 0);
	/* ...,5F2,(0F5;5B2)OVERLAP_F_B,... */
	assert_memory_equal(&s->lists[0].actions[12], (&(dtrain_action){DTRAIN_ACTION_FORWARD, 0, 5}),
			    sizeof(dtrain_action));
	assert_memory_equal(&s->lists[0].actions[13], (&(dtrain_action){DTRAIN_ACTION_BACKWARD, 5, 2}),
			    sizeof(dtrain_action));
	assert_int_equal(dtrain_pipeline_schedule_lower(s, &err), BETON_OK);
	dtrain_pipeline_schedule_destroy(&s);
	static const char *const lowered[] = {"interleaved-4-2-8-comms.csv", "zbv-4-2-8-comms.csv",
					      "dual-3-2-6-comms.csv"};
	for (int i = 0; i < 3; i++) {
		s = read_file(lowered[i]);
		assert_int_equal(dtrain_pipeline_schedule_lower(s, &err), BETON_STATE);
		dtrain_pipeline_schedule_destroy(&s);
	}
}

static void texts_are_read_again(void **state)
{
	(void)state;
	static const char *const names[] = {"naive", "gpipe", "1f1b", "interleaved", "zb1p", "zbv"};
	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		dtrain_pipeline_schedule *schedule = make(names[i / 2], 3, 0, 6), *again;
		if (i % 2)
			assert_int_equal(dtrain_pipeline_schedule_lower(schedule, &err), BETON_OK);
		char *text = text_of(schedule);
		if (dtrain_pipeline_schedule_parse(text, "text", &again, &err) != BETON_OK)
			fail_msg("%s: %s", text, err.message);
		free(text);
		expect_equal(schedule, again);
	}
}

static void blanks_and_quotes_are_ignored(void **state)
{
	(void)state;
	dtrain_pipeline_schedule *s;
	assert_int_equal(dtrain_pipeline_schedule_parse(
				 " 0F0 ,,\"0F1\",,0B0,0REDUCE_GRAD,\t0B1\r\n,1F0,1B0,1F1,1B1,\n\n", "text", &s, &err),
			 BETON_OK);
	char *text = text_of(s);
	assert_string_equal(text, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
	free(text);
	dtrain_pipeline_schedule_destroy(&s);
}

static void bad_texts_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int code;
		const char *message;
	} rows[] = {
		{"", BETON_FORMAT, "line 1 has no actions"},
		{"0F0,0B0\n\n1F0,1B0", BETON_FORMAT, "line 2 has no actions"},
		{"0F0,0B0\n1F0,1X0", BETON_FORMAT,
		 "line 2, cell 2: '1X0' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,0B", BETON_FORMAT, "line 1, cell 2: '0B' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,B0", BETON_FORMAT, "line 1, cell 2: 'B0' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,0B0.", BETON_FORMAT, "line 1, cell 2: '0B0.' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,0F99999999999999999999", BETON_FORMAT,
		 "line 1, cell 2: '0F99999999999999999999' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,(0B0;1F0)", BETON_FORMAT,
		 "line 1, cell 2: '(0B0;1F0)' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,(0B0;1F0", BETON_FORMAT,
		 "line 1, cell 2: '(0B0;1F0' is not an action such as 0F1, 2B0 or 1SEND_F3"},
		{"0F0,9999999B0", BETON_FORMAT, "2 actions are too few for 10000000 stages"},
		{"0F0,0B9999999", BETON_INVALID_ARGUMENT,
		 "2 actions are too few for stages x micro-batches = 1 x 10000000"},
		{"0F0,0B0\n2F0,2B0", BETON_FORMAT, "stage 1 of 3 has no actions"},
		{"0F0,0B0\n1F0,1B0,0F1,0B1", BETON_INVALID_ARGUMENT,
		 "line 2 (rank 1), 0F1: the stage has actions on another rank too"},
		{"0F0,0B0\n1B0,1F0", BETON_INVALID_ARGUMENT, "line 2 (rank 1), 1B0: comes before F"},
		{"0F0,0B0,0F1,0B1\n1F0,1B0,1F1", BETON_INVALID_ARGUMENT, "line 2 (rank 1), 1B1: missing"},
		{"0F0,0B0,0F0\n1F0,1B0", BETON_INVALID_ARGUMENT, "line 1 (rank 0), 0F0: a second time"},
		{"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", BETON_INVALID_ARGUMENT,
		 "each rank waits for another one: line 1 (rank 0) in 0B0, line 2 (rank 1) in 1F1"},
		/* Sends in another order than receives; then in both directions at once. */
		{"0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
		 "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1",
		 BETON_INVALID_ARGUMENT,
		 "each rank waits for another one: line 1 (rank 0) in 0SEND_F1, line 2 (rank 1) in 1RECV_F0"},
		{"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
		 "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
		 BETON_INVALID_ARGUMENT,
		 "each rank waits for another one: line 1 (rank 0) in 0SEND_F1, line 2 (rank 1) in 1SEND_B0"},
		{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0", BETON_INVALID_ARGUMENT,
		 "line 2 (rank 1), 1SEND_B0: missing"},
		{"0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", BETON_INVALID_ARGUMENT,
		 "line 1 (rank 0), 0RECV_B0: missing"},
		{"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0", BETON_INVALID_ARGUMENT,
		 "line 2 (rank 1), 1RECV_F0: comes after F"},
		{"0F0,0SEND_B0,0B0", BETON_INVALID_ARGUMENT, "line 1 (rank 0), 0SEND_B0: comes before B or I"},
		{"0F0,0SEND_F0,1F0,1B0,0B0", BETON_INVALID_ARGUMENT,
		 "line 1 (rank 0), 0SEND_F0: both stages are on this rank"},
		{"0F0,0B0,0SEND_F0", BETON_INVALID_ARGUMENT, "line 1 (rank 0), 0SEND_F0: no stage comes after"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		dtrain_pipeline_schedule *s;
		char message[200];
		snprintf(message, sizeof(message), "my.csv: %s", rows[i].message);
		assert_int_equal(dtrain_pipeline_schedule_parse(rows[i].text, "my.csv", &s, &err), rows[i].code);
		assert_string_equal(err.message, message);
		assert_null(s);
	}
}

static void files_are_named(void **state)
{
	(void)state;
	char path[] = "/tmp/pipeline-csv-XXXXXX";
	dtrain_pipeline_schedule *s;
	assert_int_equal(dtrain_pipeline_schedule_read("/nowhere/my.csv", &s, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "/nowhere/my.csv"));
	int fd = mkstemp(path);
	assert_int_equal(write(fd, "0F0,0B1\n", 8), 8);
	close(fd);
	assert_int_equal(dtrain_pipeline_schedule_read(path, &s, &err), BETON_INVALID_ARGUMENT);
	unlink(path);
	assert_null(s);
	assert_non_null(strstr(err.message, path));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedules_equal_pytorchs), cmocka_unit_test(pytorchs_files_are_read),
		cmocka_unit_test(texts_are_read_again),     cmocka_unit_test(blanks_and_quotes_are_ignored),
		cmocka_unit_test(bad_texts_are_refused),    cmocka_unit_test(files_are_named),
	};
	folder = argc > 1 ? argv[1] : ".";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
