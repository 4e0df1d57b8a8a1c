/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are killed, or whose disk is full, while a sharded checkpoint is written, by the caller or by a saver's
 * thread. The system calls that change files are this program's own. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "common/error.h"
#include "cuts.h"
#include "world.h"

#define STEP "c/step-000000000120"

static long calls;
static long kill_at = -1; /* this process dies before that call */

static void count_call(void)
{
	if (calls++ == kill_at)
		kill(getpid(), SIGKILL);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	count_call();
	return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int rename(const char *from, const char *to)
{
	count_call();
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
	count_call();
	return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdir(const char *path, mode_t mode)
{
	count_call();
	return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int fsync(int fd)
{
	(void)fd;
	count_call();
	return 0; /* no power fails here */
}

/* A fault of one of the ranks. */
struct fault {
	int rank;
	long call;    /* it is killed before that call; -1: not at all */
	rlim_t bytes; /* that a file of it may have */
	bool begins;  /* and a thread saves */
	int seed;
	enum cut_kind kind;
};

static const struct fault none = {.rank = -1, .call = -1, .seed = 1, .kind = CUT_FLAT};

static int start(void **state)
{
	(void)state;
	temporary_remove("c");
	return 0;
}

/* A rank may die before it talks to the others, too. */
static int all_gather(void *context, const void *mine, size_t bytes, void *all, beton_error *err)
{
	const dtrain_checkpoint_ranks *ranks = context;
	count_call();
	return ranks->all_gather(ranks->context, mine, bytes, all, err);
}

static int save_in_thread(const dtrain_checkpoint_content *content, const dtrain_checkpoint_ranks *ranks,
			  beton_error *err)
{
	dtrain_device *device;
	dtrain_checkpoint_saver *saver = NULL;
	int status = dtrain_device_open("ref", NULL, &device, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_create(device, &saver, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_begin(saver, "c", 0, content, ranks, err);
	if (status == BETON_OK)
		status = dtrain_checkpoint_saver_wait(saver, err);
	dtrain_checkpoint_saver_destroy(&saver);
	dtrain_device_close(&device);
	return status;
}

static int save(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	dtrain_checkpoint_ranks counted = {ranks->rank, ranks->size, (void *)ranks, all_gather};
	const struct fault *fault = context;
	struct cut cut;
	cut_make(&cut, fault->kind, ranks->rank, ranks->size);
	cut_fill(&cut, fault->seed);
	const dtrain_checkpoint_content content = {
		.struct_size = sizeof(content), .step = 120, .sets = {cut.lists[0], cut.lists[1]}};
	if (ranks->rank == fault->rank && fault->bytes) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = fault->bytes, .rlim_max = fault->bytes});
	}
	calls = 0;
	kill_at = ranks->rank == fault->rank ? fault->call : -1;
	return fault->begins ? save_in_thread(&content, &counted, err)
			     : dtrain_checkpoint_save("c", 0, &content, &counted, err);
}

static int count_in(const char *pattern)
{
	char command[300];
	int count = -1;
	snprintf(command, sizeof(command), "ls -A c | grep -cE '%s'", pattern);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%d", &count), 1);
	pclose(pipe);
	return count;
}

/* Which model is in the checkpoint; it must be whole. */
static int seed_of_saved(void)
{
	dtrain_checkpoint *checkpoint;
	beton_error err;
	struct cut cut;
	cut_make(&cut, CUT_WHOLE, 0, 1);
	if (dtrain_checkpoint_open(STEP, NULL, &checkpoint, &err) != BETON_OK ||
	    dtrain_checkpoint_load(checkpoint, (const dtrain_checkpoint_list *const[]){&cut.lists[0], &cut.lists[1]},
				   NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	dtrain_checkpoint_close(&checkpoint);
	for (int seed = 1; seed <= 2; seed++)
		if (cut_is_filled(&cut, seed, &err))
			return seed;
	fail_msg("%s", err.message);
	return 0;
}

/* Kills the rank at each of its calls in turn while it replaces an older checkpoint of the step: there is always one of
 * the two, whole, and the next save removes what was left. Returns after how many calls it was done. */
static long kill_at_each_call(int rank, bool begins, int *olds, int *news)
{
	struct fault older = none, newer = {.rank = rank, .begins = begins, .seed = 2, .kind = CUT_FLAT};
	world_result results[WORLD_MOST];
	int seed = 2;
	for (newer.call = 0;; newer.call++) {
		if (seed == 2)
			world_must(2, save, &older);
		world_run(3, save, &newer, results);
		bool killed = results[rank].signal == SIGKILL;
		for (int other = 0; other < 3; other++)
			if (other != rank && results[other].code != (killed ? BETON_PEER_LOST : BETON_OK))
				fail_msg("rank %d: %s: %s", other, beton_status_name(results[other].code),
					 results[other].err.message);
		assert_int_equal(dtrain_checkpoint_prepare("c", NULL), BETON_OK);
		assert_int_equal(count_in(""), 1);
		seed = seed_of_saved();
		*olds += seed == 1;
		*news += seed == 2;
		if (!killed) {
			assert_int_equal(seed, 2);
			return newer.call;
		}
	}
}

static void a_rank_is_killed(void **state)
{
	(void)state;
	for (int begins = 0; begins < 2; begins++) {
		int olds = 0, news = 0;
		/* Makes and syncs folder, files, manifest, state; exchanges, removes; agrees with the others in
		 * between. */
		long of_first = kill_at_each_call(0, begins, &olds, &news);
		assert_true(of_first > 25 && olds > 15 && news > 10);
		/* Only rank 0 gives the folder its name: with another rank gone there is none, unless that one had only
		 * to hear of it. */
		news = 0;
		assert_true(kill_at_each_call(1, begins, &olds, &news) > 10);
		assert_int_equal(news, 2);
	}
}

static void a_disk_is_full(void **state)
{
	(void)state;
	struct fault older = none;
	world_result results[WORLD_MOST];
	world_must(2, save, &older);
	for (int rank = 0; rank < 3; rank++) {
		/* No header has room; nor has what rank 0 writes at last. */
		for (rlim_t bytes = 1; bytes < 800; bytes += 500) {
			struct fault full = {.rank = rank, .call = -1, .bytes = bytes, .seed = 2, .kind = CUT_FLAT};
			char named[64] = "";
			if (bytes == 1)
				snprintf(named, sizeof(named), "shard-%05d-", rank + 1);
			world_run(3, save, &full, results);
			for (int other = 0; other < 3; other++) {
				assert_int_equal(results[other].code, BETON_NO_SPACE);
				assert_non_null(strstr(results[other].err.message, named));
				assert_non_null(strstr(results[other].err.message, ": cannot write"));
				char prefix[64];
				snprintf(prefix, sizeof(prefix), "rank %d: c/.tmp-step-120.", rank);
				assert_int_equal(strncmp(results[other].err.message, prefix, strlen(prefix)) == 0,
						 other != rank);
			}
			assert_int_equal(count_in(""), 1);
			assert_int_equal(seed_of_saved(), 1);
		}
	}
}

/* Files with names similar to shards', in a checkpoint's folder, are left alone. */
static void strangers_stay(void **state)
{
	(void)state;
	static const char *const names[] = {
		"shard-00001-model-00001-of-00001.safetensors.bak", "shard-1-model-00001-of-00001.safetensors",
		"shard-00000-model-00001-of-00001.safetensors", "shard-00001-ema-00001-of-00001.safetensors", "notes"};
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	struct fault older = none;
	char path[200];
	world_must(3, save, &older);
	for (int i = 0; i < NAMES; i++) {
		snprintf(path, sizeof(path), STEP "/%s", names[i]);
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
		assert_true(fd >= 0);
		close(fd);
	}
	world_must(2, save, &older);
	assert_int_equal(count_in("^left-step-000000000120$"), 1);
	for (int i = 0; i < NAMES; i++) {
		snprintf(path, sizeof(path), "c/left-step-000000000120/%s", names[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir("c/left-step-000000000120"), 0);
}

/* The folder of one rank is not that of the others. */
static int save_elsewhere(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	struct fault fault = none;
	(void)context;
	if (ranks->rank == 1 && chdir("elsewhere") != 0)
		return bt_fail_errno(err, errno, "elsewhere");
	return save(ranks, &fault, err);
}

static void another_folder_is_told(void **state)
{
	(void)state;
	world_result results[WORLD_MOST];
	assert_int_equal(mkdir("elsewhere", 0777), 0);
	world_run(2, save_elsewhere, NULL, results);
	for (int rank = 0; rank < 2; rank++) {
		assert_int_equal(results[rank].code, BETON_NOT_FOUND);
		assert_non_null(strstr(results[rank].err.message, "cannot create; the folder has to be the same one "));
	}
	assert_int_equal(count_in(""), 0);
	assert_int_equal(rmdir("elsewhere"), 0);
}

int main(void)
{
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_rank_is_killed, start),
		cmocka_unit_test_setup(a_disk_is_full, start),
		cmocka_unit_test_setup(strangers_stay, start),
		cmocka_unit_test_setup(another_folder_is_told, start),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
