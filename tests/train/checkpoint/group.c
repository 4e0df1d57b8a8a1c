/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of ranks that talk by a process group.
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

#include "cuts.h"
#include "tests/support/temporary.h"
#include "tests/train/support/ranks.h"

#define STEP "c/step-000000000120"

static beton_error err;
static int calls_left = -1; /* before this rank is killed */

static int gather(void *group, const void *mine, size_t bytes, void *all, beton_error *error)
{
	dtrain_work *work = NULL;
	int status;

	if (calls_left-- == 0)
		kill(getpid(), SIGKILL);
	status = dtrain_all_gather(group, all, mine, (int64_t)bytes, DTRAIN_U8, NULL, &work, error);
	return status ? status : dtrain_work_wait(&work, error);
}

static dtrain_checkpoint_ranks ranks_of(const struct rank *r)
{
	return (dtrain_checkpoint_ranks){r->rank, r->size, r->group, gather};
}

static int save(struct rank *r, enum cut_kind kind, int seed)
{
	const dtrain_checkpoint_ranks ranks = ranks_of(r);
	struct cut cut;

	cut_make(&cut, kind, r->rank, r->size);
	cut_fill(&cut, seed);
	const dtrain_checkpoint_content content = {
		.struct_size = sizeof(content), .step = 120, .sets = {cut.lists[0], cut.lists[1]}};
	return dtrain_checkpoint_save("c", 0, &content, &ranks, &err);
}

static void load(const dtrain_checkpoint_ranks *ranks, enum cut_kind kind, int seed)
{
	dtrain_checkpoint *checkpoint;
	struct cut cut;

	cut_make(&cut, kind, ranks ? ranks->rank : 0, ranks ? ranks->size : 1);
	const dtrain_checkpoint_list *const sets[] = {&cut.lists[0], &cut.lists[1]};
	MUST(dtrain_checkpoint_open(STEP, ranks, &checkpoint, &err));
	MUST(dtrain_checkpoint_load(checkpoint, sets, NULL, &err));
	dtrain_checkpoint_close(&checkpoint);
	REQUIRE(cut_is_filled(&cut, seed, &err));
}

static int rank_main(struct rank *r)
{
	static const enum cut_kind kinds[] = {CUT_WHOLE, CUT_FLAT, CUT_OPTIMIZER};
	const dtrain_checkpoint_ranks ranks = ranks_of(r);
	int status;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		MUST(save(r, kinds[i], 1));
		load(&ranks, CUT_COLUMNS, 1);
	}
	if (strcmp(r->mode, "killed") != 0)
		return 0;
	/* Rank 1 has written what it has of the next one, and is not heard of any more. */
	if (r->rank == 1)
		calls_left = 12;
	status = save(r, CUT_FLAT, 2);
	if (status)
		fprintf(stderr, "%s\n", err.message);
	return -status;
}

static void any_form(void **state)
{
	(void)state;
	temporary_remove("c");
	run_ranks("save", 3);
}

static void a_rank_is_killed(void **state)
{
	struct ranks ranks;

	(void)state;
	temporary_remove("c");
	start_ranks(&ranks, "killed", 0, 3, 20000);
	assert_int_equal(end_rank(&ranks, 1), 1000 + SIGKILL);
	for (int rank = 0; rank < 3; rank += 2)
		assert_int_equal(end_rank(&ranks, rank), -BETON_PEER_LOST);
	end_store(&ranks);
	load(NULL, CUT_WHOLE, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_form),
		cmocka_unit_test(a_rank_is_killed),
	};
	char folder[256];
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	if (temporary_enter(folder) != 0)
		return 1;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return status;
}
