/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that a thread writes: they have what the memory held when they began, and are the files that a save that
 * waits makes. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "common/error.h"
#include "cuts.h"
#include "world.h"

static int start(void **state)
{
	(void)state;
	temporary_remove("c");
	temporary_remove("waits");
	return 0;
}

/* A rank whose saver's thread waits, before it says anything to the others, until the test lets it go. */
struct member {
	const dtrain_checkpoint_ranks *ranks;
	dtrain_device *device;
	dtrain_checkpoint_saver *saver;
	struct cut cut;
	pthread_t self;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool open;
};

static int all_gather(void *context, const void *mine, size_t bytes, void *all, beton_error *err)
{
	struct member *member = context;
	if (!pthread_equal(pthread_self(), member->self)) {
		pthread_mutex_lock(&member->mutex);
		while (!member->open)
			pthread_cond_wait(&member->changed, &member->mutex);
		pthread_mutex_unlock(&member->mutex);
	}
	return member->ranks->all_gather(member->ranks->context, mine, bytes, all, err);
}

static void let(struct member *member, bool go)
{
	pthread_mutex_lock(&member->mutex);
	member->open = go;
	pthread_cond_broadcast(&member->changed);
	pthread_mutex_unlock(&member->mutex);
}

static int open_member(struct member *member, enum cut_kind kind, const dtrain_checkpoint_ranks *ranks,
		       beton_error *err)
{
	*member = (struct member){.ranks = ranks,
				  .self = pthread_self(),
				  .mutex = PTHREAD_MUTEX_INITIALIZER,
				  .changed = PTHREAD_COND_INITIALIZER};
	cut_make(&member->cut, kind, ranks->rank, ranks->size);
	cut_fill(&member->cut, 1);
	int status = dtrain_device_open("ref", NULL, &member->device, err);
	return status == BETON_OK ? dtrain_checkpoint_saver_create(member->device, &member->saver, err) : status;
}

static void close_member(struct member *member)
{
	dtrain_checkpoint_saver_destroy(&member->saver);
	dtrain_device_close(&member->device);
}

static dtrain_checkpoint_content content_of(const struct cut *cut, int64_t step, const char *state)
{
	return (dtrain_checkpoint_content){.struct_size = sizeof(dtrain_checkpoint_content),
					   .step = step,
					   .sets = {cut->lists[0], cut->lists[1]},
					   .state = state};
}

/* Everything that was given for it is changed as soon as it has begun. */
static int begin(struct member *member, int64_t step, int keep, const char *link, beton_error *err)
{
	static struct {
		char dir[8], link[8], state[64], names[DTRAIN_CHECKPOINT_SETS][CUT_VIEWS_MAX][32];
		struct cut cut;
		dtrain_checkpoint_ranks ranks;
		dtrain_checkpoint_content content;
	} given;
	strcpy(given.dir, "c");
	strcpy(given.link, link ? link : "");
	strcpy(given.state, "{\"metadata\": {\"of\": \"a test\"}}");
	given.cut = member->cut;
	given.ranks = (dtrain_checkpoint_ranks){member->ranks->rank, member->ranks->size, member, all_gather};
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		given.cut.lists[set].views = given.cut.views[set];
		for (size_t i = 0; i < given.cut.lists[set].count; i++) {
			snprintf(given.names[set][i], sizeof(given.names[set][i]), "%s", given.cut.views[set][i].name);
			given.cut.views[set][i].name = given.names[set][i];
		}
	}
	given.content = content_of(&given.cut, step, given.state);
	given.content.link = link ? given.link : NULL;
	int status = dtrain_checkpoint_saver_begin(member->saver, given.dir, keep, &given.content, &given.ranks, err);
	memset(&given, 'x', sizeof(given));
	return status;
}

/* The same files, of a save that waits. */
static int save_at_once(const struct member *member, int64_t step, beton_error *err)
{
	const dtrain_checkpoint_content content =
		content_of(&member->cut, step, "{\"metadata\": {\"of\": \"a test\"}}");
	return dtrain_checkpoint_save("waits", 0, &content, member->ranks, err);
}

/* ---- what is saved ---- */

static int save_and_go_on(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	int status = open_member(&member, *(enum cut_kind *)context, ranks, err);
	if (status == BETON_OK)
		status = save_at_once(&member, 120, err);
	if (status == BETON_OK)
		status = begin(&member, 120, 0, NULL, err);
	cut_fill(&member.cut, 2);
	if (dtrain_checkpoint_saver_has_failed(member.saver))
		status = BETON_STATE;
	let(&member, true);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(member.saver, err);
	if (status == BETON_OK && dtrain_checkpoint_saver_busy_ns(member.saver) == 0)
		status = bt_fail(err, BETON_STATE, "no time was taken");
	close_member(&member);
	return status;
}

static void it_is_what_the_memory_held(void **state)
{
	(void)state;
	static const struct {
		enum cut_kind kind;
		int size;
	} all[] = {{CUT_WHOLE, 1}, {CUT_WHOLE, 3},     {CUT_FLAT, 1},      {CUT_FLAT, 3},  {CUT_EMPTY, 3},
		   {CUT_TWICE, 4}, {CUT_GRID_FLAT, 4}, {CUT_OPTIMIZER, 2}, {CUT_STAGES, 3}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		enum cut_kind kind = all[i].kind;
		start(NULL);
		world_must(all[i].size, save_and_go_on, &kind);
		assert_int_equal(system("diff -r c waits"), 0);
	}
}

static int save_three(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	int status = open_member(&member, *(enum cut_kind *)context, ranks, err);
	let(&member, true);
	for (int step = 1; step <= 3 && status == BETON_OK; step++) {
		cut_fill(&member.cut, step);
		status = save_at_once(&member, step, err);
	}
	for (int step = 1; step <= 3 && status == BETON_OK; step++) {
		cut_fill(&member.cut, step);
		status = begin(&member, step, 2, step == 1 ? "best" : NULL, err);
	}
	/* The last one is written although no rank waits for it. */
	close_member(&member);
	return status;
}

static void each_waits_for_the_one_before(void **state)
{
	(void)state;
	char link[64] = "";
	static const enum cut_kind kinds[] = {CUT_WHOLE, CUT_FLAT};
	for (int i = 0; i < 2; i++) {
		enum cut_kind kind = kinds[i];
		start(NULL);
		world_must(2, save_three, &kind);
		temporary_remove("waits/step-000000000001");
		assert_int_equal(readlink("c/best", link, sizeof(link) - 1), 17);
		assert_string_equal(link, "step-000000000001");
		assert_int_equal(unlink("c/best"), 0);
		assert_int_equal(system("diff -r c waits"), 0);
	}
}

/* ---- what fails ---- */

static int set_limit(rlim_t bytes)
{
	struct rlimit limit;
	signal(SIGXFSZ, SIG_IGN);
	return getrlimit(RLIMIT_FSIZE, &limit) == 0 ? (limit.rlim_cur = bytes, setrlimit(RLIMIT_FSIZE, &limit)) : -1;
}

/* Rank 1's disk is full for the second save, which is reported once, by wait or by the next begin. */
static int save_on_a_full_disk(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	beton_error told = {0};
	bool waits = *(bool *)context;
	int status = open_member(&member, CUT_FLAT, ranks, err);
	let(&member, true);
	if (status == BETON_OK)
		status = begin(&member, 120, 0, NULL, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(member.saver, err);
	cut_fill(&member.cut, 2);
	if (ranks->rank == 1 && set_limit(1) != 0)
		return BETON_SYSTEM;
	if (status == BETON_OK)
		status = begin(&member, 120, 0, NULL, err);
	while (status == BETON_OK && !dtrain_checkpoint_saver_has_failed(member.saver))
		usleep(1000);
	if (ranks->rank == 1 && set_limit(RLIM_INFINITY) != 0)
		return BETON_SYSTEM;
	if (status == BETON_OK) {
		int failure =
			waits ? dtrain_checkpoint_saver_wait(member.saver, &told) : begin(&member, 121, 0, NULL, &told);
		if (failure != BETON_NO_SPACE || told.code != failure || !strstr(told.message, "shard-00002-model-") ||
		    (strncmp(told.message, "rank 1: c/.tmp-step-120.", 24) == 0) != (ranks->rank != 1))
			status = bt_fail(err, BETON_STATE, "%d: %s", failure, told.message);
	}
	if (status == BETON_OK && dtrain_checkpoint_saver_has_failed(member.saver))
		status = bt_fail(err, BETON_STATE, "it is reported twice");
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(member.saver, err);
	/* The saver is as good as new. */
	if (status == BETON_OK)
		status = begin(&member, 122, 0, NULL, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(member.saver, err);
	cut_fill(&member.cut, 1);
	if (status == BETON_OK)
		status = save_at_once(&member, 120, err);
	cut_fill(&member.cut, 2);
	if (status == BETON_OK)
		status = save_at_once(&member, 122, err);
	close_member(&member);
	return status;
}

static void a_failure_is_told_once(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		bool waits = i;
		start(NULL);
		world_must(2, save_on_a_full_disk, &waits);
		assert_int_equal(system("diff -r c waits"), 0);
	}
}

/* Begin reports faults of the content, on all ranks, and begins no save. */
static int begin_wrongly(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	beton_error told = {0};
	(void)context;
	int status = open_member(&member, CUT_FLAT, ranks, err);
	let(&member, true);
	if (status != BETON_OK)
		return status;
	int failure = begin(&member, ranks->rank ? 121 : 120, 0, NULL, &told);
	if (failure != BETON_MISMATCH || !strstr(told.message, "the step"))
		status = bt_fail(err, BETON_STATE, "%d: %s", failure, told.message);
	if (ranks->rank)
		member.cut.views[0][0].dtype = DTRAIN_U8;
	failure = begin(&member, 120, 0, NULL, &told);
	if (failure != BETON_MISMATCH || !strstr(told.message, " on rank 0, and "))
		status = bt_fail(err, BETON_STATE, "%d: %s", failure, told.message);
	if (dtrain_checkpoint_saver_has_failed(member.saver) ||
	    dtrain_checkpoint_saver_wait(member.saver, &told) != BETON_OK || access("c", F_OK) == 0)
		status = bt_fail(err, BETON_STATE, "something was begun");
	close_member(&member);
	return status;
}

static void wrong_content_begins_nothing(void **state)
{
	(void)state;
	world_must(2, begin_wrongly, NULL);
}

/* The link cannot be made where a folder is. The checkpoint stays. */
static int save_with_link(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	beton_error told = {0};
	(void)context;
	int status = open_member(&member, CUT_WHOLE, ranks, err);
	let(&member, true);
	if (status == BETON_OK)
		status = begin(&member, 120, 0, "best", err);
	int failure = dtrain_checkpoint_saver_wait(member.saver, &told);
	if (status == BETON_OK && (failure == BETON_OK || !strstr(told.message, "c/best: cannot make the link")))
		status = bt_fail(err, BETON_STATE, "%d: %s", failure, told.message);
	close_member(&member);
	return status;
}

static void a_link_fails(void **state)
{
	(void)state;
	assert_int_equal(mkdir("c", 0777), 0);
	assert_int_equal(mkdir("c/best", 0777), 0);
	world_must(2, save_with_link, NULL);
	assert_int_equal(access("c/step-000000000120/state.json", F_OK), 0);
}

/* ---- memory ---- */

static int reserve(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct member member;
	beton_error told = {0};
	size_t bytes = 1, all = 0;
	enum cut_kind kind = *(enum cut_kind *)context;
	int status = open_member(&member, kind, ranks, err);
	dtrain_checkpoint_content content = content_of(&member.cut, 0, NULL);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t i = 0; i < content.sets[set].count; i++)
			all += (size_t)content.sets[set].views[i].count *
			       dtrain_dtype_size(content.sets[set].views[i].dtype);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_reserve(member.saver, &content, ranks, &bytes, err);
	if (status == BETON_OK && bytes != (kind == CUT_WHOLE && ranks->rank ? 0 : all))
		status = bt_fail(err, BETON_STATE, "%zu bytes, not %zu", bytes, all);
	/* 8 TB: its elements are not read. */
	const dtrain_checkpoint_view large = dtrain_checkpoint_view_whole(
		"large", DTRAIN_I64, &(dtrain_shape){1, {(int64_t)1 << 40}}, member.cut.memory, NULL);
	content.sets[0] = (dtrain_checkpoint_list){&large, 1};
	int failure = dtrain_checkpoint_saver_reserve(member.saver, &content, ranks, &bytes, &told);
	if (status == BETON_OK &&
	    (failure != BETON_NO_MEMORY || !strstr(told.message, "bytes of host memory for the copy of a checkpoint")))
		status = bt_fail(err, BETON_STATE, "%d: %s", failure, told.message);
	let(&member, true);
	if (status == BETON_OK)
		status = begin(&member, 120, 0, NULL, err);
	close_member(&member);
	return status;
}

static void memory_is_known_before(void **state)
{
	(void)state;
	enum cut_kind whole = CUT_WHOLE, flat = CUT_FLAT;
	world_must(2, reserve, &whole);
	world_must(3, reserve, &flat);
}

static void nothing_to_wait_for(void **state)
{
	(void)state;
	dtrain_checkpoint_saver *saver = NULL;
	assert_int_equal(dtrain_checkpoint_saver_wait(NULL, NULL), BETON_OK);
	assert_false(dtrain_checkpoint_saver_has_failed(NULL));
	assert_int_equal(dtrain_checkpoint_saver_busy_ns(NULL), 0);
	dtrain_checkpoint_saver_destroy(&saver);
}

int main(void)
{
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(it_is_what_the_memory_held, start),
		cmocka_unit_test_setup(each_waits_for_the_one_before, start),
		cmocka_unit_test_setup(a_failure_is_told_once, start),
		cmocka_unit_test_setup(wrong_content_begins_nothing, start),
		cmocka_unit_test_setup(a_link_fails, start),
		cmocka_unit_test_setup(memory_is_known_before, start),
		cmocka_unit_test(nothing_to_wait_for),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
