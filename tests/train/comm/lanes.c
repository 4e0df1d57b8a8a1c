/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that run at the same time: with Gloo and on the device "far".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "seat.h"

static beton_error err;

static int64_t value_of(const struct seat *seat, const int64_t *from)
{
	int64_t value;

	seat_get(seat, &value, from, sizeof(value));
	return value;
}

/* Rank 1 calls the first group's operation only when the second's is over, which rank 0 has called after it. */
static void rank_has_lanes(struct rank *r, const struct seat *seat)
{
	dtrain_group_split_options options;
	dtrain_group *groups[2] = {NULL};
	dtrain_work *held = NULL, *work = NULL;
	int64_t *data = seat_memory(seat, 16);

	dtrain_group_split_options_init(&options);
	options.own_lane = true;
	for (int i = 0; i < 2; i++) {
		MUST(dtrain_group_split(r->group, 0, r->rank, &options, &groups[i], &err));
		seat_put(seat, data + i, &(int64_t){1 + r->rank}, sizeof(*data));
	}
	if (r->rank == 0)
		MUST(dtrain_allreduce(groups[0], data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &held, &err));
	MUST(dtrain_allreduce(groups[1], data + 1, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(value_of(seat, data + 1) == 3);
	REQUIRE(!held || !dtrain_work_done(held));
	MUST(dtrain_barrier(r->group, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	if (r->rank == 1)
		MUST(dtrain_allreduce(groups[0], data, 1, DTRAIN_I64, DTRAIN_SUM, NULL, &held, &err));
	MUST(dtrain_work_wait(&held, &err));
	REQUIRE(value_of(seat, data) == 3);
	/* The parent may go first. */
	dtrain_group_destroy(&r->group);
	dtrain_group_destroy(&groups[1]);
	dtrain_group_destroy(&groups[0]);
	seat_free(seat, data);
}

static int rank_main(struct rank *r)
{
	struct seat seat = {0};

	take_seat(r, &seat);
	rank_has_lanes(r, &seat);
	leave_seat(r, &seat);
	return 0;
}

static void groups_run_at_the_same_time(void **state)
{
	(void)state;
	run_ranks("lanes", 2);
	run_ranks("no-group-far-lanes", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_run_at_the_same_time),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
