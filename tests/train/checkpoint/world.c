/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"

enum { MOST_BYTES = 1 << 18 };

/* A rank that has copied what all said in round g may write what it says in round g + 2 to the same place: the others
 * have come to round g + 1 by then. */
struct hub {
	atomic_int lost;              /* 1 + a rank that was killed */
	atomic_int round[WORLD_MOST]; /* that the rank has come to */
	world_result results[WORLD_MOST];
	char said[2][WORLD_MOST][MOST_BYTES];
};

struct member {
	struct hub *hub;
	int rank, size, round;
};

static bool all_are_there(const struct member *member)
{
	for (int rank = 0; rank < member->size; rank++)
		if (atomic_load(&member->hub->round[rank]) < member->round)
			return false;
	return true;
}

static int all_gather(void *context, const void *mine, size_t bytes, void *all, beton_error *err)
{
	struct member *member = context;
	struct hub *hub = member->hub;
	if (bytes == 0 || bytes > MOST_BYTES)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%zu bytes to gather", bytes);
	member->round++;
	memcpy(hub->said[member->round % 2][member->rank], mine, bytes);
	atomic_store(&hub->round[member->rank], member->round);
	while (!all_are_there(member)) {
		int lost = atomic_load(&hub->lost);
		if (lost && !all_are_there(member))
			return bt_fail(err, BETON_PEER_LOST, "rank %d is gone", lost - 1);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	for (int rank = 0; rank < member->size; rank++)
		memcpy((char *)all + (size_t)rank * bytes, hub->said[member->round % 2][rank], bytes);
	return BETON_OK;
}

static _Noreturn void be_rank(struct hub *hub, int rank, int size, world_body *body, void *context)
{
	struct member member = {.hub = hub, .rank = rank, .size = size};
	const dtrain_checkpoint_ranks ranks = {
		.rank = rank, .size = size, .context = &member, .all_gather = all_gather};
	world_result *result = &hub->results[rank];
	result->code = body(&ranks, context, &result->err);
	_exit(0);
}

void world_run(int size, world_body *body, void *context, world_result results[WORLD_MOST])
{
	struct hub *hub = mmap(NULL, sizeof(*hub), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[WORLD_MOST];
	assert_true(hub != MAP_FAILED && size <= WORLD_MOST);
	fflush(NULL);
	for (int rank = 0; rank < size; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0)
			be_rank(hub, rank, size, body, context);
		assert_true(pids[rank] > 0);
	}
	for (int left = size; left > 0; left--) {
		int status, rank = 0;
		pid_t ended = wait(&status);
		while (rank < size && pids[rank] != ended)
			rank++;
		assert_true(rank < size);
		hub->results[rank].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) /* a sanitizer ends it with another status */
			atomic_store(&hub->lost, rank + 1);
		if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			hub->results[rank].code = BETON_SYSTEM;
	}
	memcpy(results, hub->results, sizeof(hub->results));
	munmap(hub, sizeof(*hub));
}

void world_must(int size, world_body *body, void *context)
{
	world_result results[WORLD_MOST];
	world_run(size, body, context, results);
	for (int rank = 0; rank < size; rank++)
		if (results[rank].code != BETON_OK || results[rank].signal)
			fail_msg("rank %d of %d: signal %d, %s: %s", rank, size, results[rank].signal,
				 beton_status_name(results[rank].code), results[rank].err.message);
}
