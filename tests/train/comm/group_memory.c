/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a group on the device "far", which ends the process if a window is still open when its communicator is
 * closed or its memory freed; and of groups that have no windows.
 */
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

#include "tests/train/support/far_place.h"

static beton_error err;

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static int make(dtrain_group *group, size_t bytes, dtrain_group_memory **out)
{
	int status = dtrain_group_memory_create(group, bytes, DTRAIN_REGISTER_WITHIN_MACHINE, out, &err);

	REQUIRE((status == BETON_OK) == (*out != NULL));
	if (status == BETON_OK)
		status = dtrain_group_memory_register(*out, group, &err);
	if (status != BETON_OK)
		dtrain_group_memory_destroy(out);
	return status;
}

/* It is zero at first, and an operation on it works. */
static void use(dtrain_group *group, const struct place *place, dtrain_group_memory *memory)
{
	float values[COUNT];
	float *data = dtrain_group_memory_data(memory);
	dtrain_work *work = NULL;
	int rank = dtrain_group_rank(group), size = dtrain_group_size(group);

	download(place, values, data, BYTES);
	for (int i = 0; i < COUNT; i++)
		REQUIRE(values[i] == 0);
	for (int i = 0; i < COUNT; i++)
		values[i] = (float)(i + rank);
	upload(place, data, values, BYTES);
	MUST(dtrain_allreduce(group, data, COUNT, DTRAIN_F32, DTRAIN_SUM, after(place), &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	download(place, values, data, BYTES);
	for (int i = 0; i < COUNT; i++)
		REQUIRE(values[i] == (float)(i * size + size * (size - 1) / 2));
}

/* Memory of the whole group, of a part, and of both; destroyed before the groups and after them. */
static void rank_has_memory(struct rank *r, bool registered)
{
	struct place place;
	dtrain_group_split_options options;
	dtrain_group *part = NULL;
	dtrain_group_memory *memories[3];

	open_place(r, &place);
	dtrain_group_split_options_init(&options);
	options.copy_engines = registered;
	MUST(dtrain_group_split(r->group, 0, -r->rank, &options, &part, &err));
	for (int i = 0; i < 3; i++)
		MUST(make(i < 2 ? r->group : part, BYTES, &memories[i]));
	for (int i = 0; i < 3; i++) {
		REQUIRE(dtrain_group_memory_is_registered(memories[i], i < 2 ? r->group : part) == registered);
		REQUIRE(!dtrain_group_memory_is_registered(memories[i], i < 2 ? part : r->group));
		use(i < 2 ? r->group : part, &place, memories[i]);
	}
	for (int i = 0; i < 2; i++)
		MUST(dtrain_group_memory_register(memories[1], part, &err));
	REQUIRE(dtrain_group_memory_is_registered(memories[1], part) == registered);
	dtrain_group_memory_destroy(&memories[0]);
	REQUIRE(!memories[0]);
	dtrain_group_memory_destroy(&memories[0]);
	dtrain_group_destroy(&part);
	REQUIRE(dtrain_group_memory_is_registered(memories[1], r->group) == registered);
	dtrain_group_destroy(&r->group);
	for (int i = 1; i < 3; i++)
		dtrain_group_memory_destroy(&memories[i]);
	close_place(r, &place);
}

/* A refused call leaves the group as it is. */
static void rank_misuses(struct rank *r)
{
	struct place place;
	dtrain_group_memory *memory = NULL;
	dtrain_work *work = NULL;

	open_place(r, &place);
	REQUIRE(make(r->group, r->rank == 2 ? BYTES + 4 : BYTES, &memory) == BETON_MISMATCH);
	REQUIRE(strstr(err.message, "group \"world\": rank 2 registers 4004 bytes of memory, and rank 0 4000"));
	MUST(dtrain_group_begin(r->group, &err));
	REQUIRE(make(r->group, BYTES, &memory) == BETON_STATE && strstr(err.message, "within a batch"));
	MUST(dtrain_group_end(r->group, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(dtrain_group_memory_create(r->group, BYTES, (dtrain_registration)3, &memory, &err) ==
		BETON_INVALID_ARGUMENT);
	setenv("DTRAIN_FAR_MEMORY", "100000", 1);
	REQUIRE(make(r->group, 1 << 20, &memory) == BETON_NO_MEMORY);
	REQUIRE(strstr(err.message, "cannot allocate 1048576 bytes"));
	unsetenv("DTRAIN_FAR_MEMORY");
	MUST(make(r->group, BYTES, &memory));
	use(r->group, &place, memory);
	dtrain_group_memory_destroy(&memory);
	close_place(r, &place);
}

/* Rank 1 dies, the operation of the others is aborted, and what they have is destroyed in either order. */
static int rank_loses_another(struct rank *r)
{
	struct place place;
	dtrain_group_memory *memory = NULL;
	dtrain_work *work = NULL;

	open_place(r, &place);
	MUST(make(r->group, BYTES, &memory));
	REQUIRE(dtrain_group_memory_is_registered(memory, r->group));
	use(r->group, &place, memory);
	mark(r);
	while (r->rank == 1)
		pause();
	int status = dtrain_allreduce(r->group, dtrain_group_memory_data(memory), COUNT, DTRAIN_F32, DTRAIN_SUM, NULL,
				      &work, &err);
	if (status == BETON_OK)
		status = dtrain_work_wait(&work, &err);
	fprintf(stderr, "%s\n", err.message);
	if (r->rank == 0)
		dtrain_group_destroy(&r->group);
	dtrain_group_memory_destroy(&memory);
	close_place(r, &place);
	return -status;
}

/* Gloo's groups have memory of the device; those without a device have none. */
static void rank_has_gloo(struct rank *r)
{
	dtrain_group_options options;
	dtrain_group_memory *memory = NULL;
	dtrain_device *device = NULL;
	dtrain_group *group = NULL, *other = NULL;

	dtrain_group_options_init(&options);
	MUST(dtrain_group_create(r->store, r->rank, r->size, &options, &other, &err));
	REQUIRE(make(other, BYTES, &memory) == BETON_INVALID_ARGUMENT && strstr(err.message, "without a device"));
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	options.name = "with a device";
	options.device = device;
	MUST(dtrain_group_create(r->store, r->rank, r->size, &options, &group, &err));
	MUST(dtrain_group_memory_create(group, BYTES, DTRAIN_REGISTER_ALWAYS, &memory, &err));
	MUST(dtrain_group_memory_register(memory, group, &err));
	REQUIRE(!dtrain_group_memory_is_registered(memory, group));
	REQUIRE(dtrain_group_memory_register(memory, other, &err) == BETON_INVALID_ARGUMENT &&
		strstr(err.message, "of another device"));
	dtrain_group_destroy(&other);
	REQUIRE(((float *)dtrain_group_memory_data(memory))[COUNT - 1] == 0);
	dtrain_group_destroy(&group);
	dtrain_group_memory_destroy(&memory);
	dtrain_device_close(&device);
}

static int rank_main(struct rank *r)
{
	const char *mode = r->mode + strlen("no-group-");

	if (strcmp(mode, "other") == 0 && r->rank == 1)
		setenv("DTRAIN_FAR_OTHER_MEMORY", "1", 1);
	if (strcmp(mode, "has") == 0)
		rank_has_memory(r, r->size > 1);
	else if (strcmp(mode, "other") == 0 || strcmp(mode, "apart") == 0)
		rank_has_memory(r, false);
	else if (strcmp(mode, "misuses") == 0)
		rank_misuses(r);
	else if (strcmp(mode, "loses") == 0)
		return rank_loses_another(r);
	else
		rank_has_gloo(r);
	return 0;
}

/* opened: of each of the two groups. */
static void expect_calls(const char *mode, int size, int opened, int freed)
{
	int calls[CALLS];

	count_calls(mode, size, calls);
	assert_int_equal(calls['w'], opened);
	assert_int_equal(calls['W'], opened);
	assert_int_equal(calls['u'], 2 * opened);
	assert_int_equal(calls['f'], freed);
	assert_int_equal(calls['c'], opened ? size : 0);
}

static void windows_are_closed_first(void **state)
{
	(void)state;
	expect_calls("no-group-has", 3, 6, 9);
	expect_calls("no-group-has", 1, 0, 0);
}

static void memory_works_without_windows(void **state)
{
	(void)state;
	/* A rank has no such memory; the others keep theirs. */
	expect_calls("no-group-other", 3, 0, 6);
	setenv("DTRAIN_FAR_APART", "1", 1);
	expect_calls("no-group-apart", 2, 0, 6);
	unsetenv("DTRAIN_FAR_APART");
	run_ranks("no-group-gloo", 2);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("no-group-misuses", 3);
}

static void memory_outlives_a_lost_rank(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "no-group-loses", 0, 3, 60000);
	wait_for_marks(&ranks, 3);
	kill(ranks.pids[1], SIGKILL);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	expect_all(&ranks, 1, BETON_PEER_LOST, "rank 1 is lost");
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_are_closed_first),
		cmocka_unit_test(memory_works_without_windows),
		cmocka_unit_test(misuse_is_named),
		cmocka_unit_test(memory_outlives_a_lost_rank),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
