/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of checkpoints on file systems that cannot do everything, under writers that are killed at any point, and
 * with files in it that are none of ours. The system calls that change folders are this program's own. */
#include "small_model.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary.h"
#include "common/system.h"

static int refused_with; /* what exchanging two names fails with; 0: it does not */
static long calls;
static long kill_at = -1; /* this process dies before that call */

static void count_call(void)
{
	if (calls++ == kill_at)
		kill(getpid(), SIGKILL);
}

static int refuse(int error_number)
{
	errno = error_number;
	return -1;
}

/* A file that another NFS client has open stays until that closes it. */
static bool is_held(const char *path)
{
	const char *slash = strrchr(path, '/');
	return strncmp(slash ? slash + 1 : path, ".nfs", 4) == 0;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	count_call();
	if (flags && refused_with)
		return refuse(refused_with);
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
	return is_held(path) ? refuse(EBUSY) : (int)syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
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
	count_call();
	return (int)syscall(SYS_fsync, fd);
}

static int start(void **state)
{
	(void)state;
	refused_with = 0;
	temporary_remove("c");
	return 0;
}

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static int count_in(const char *prefix)
{
	char command[300];
	int count = -1;
	snprintf(command, sizeof(command), "ls -A c/d | grep -c '^%s'", prefix);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%d", &count), 1);
	pclose(pipe);
	return count;
}

static void must_save(const setup *made, int64_t step, int keep)
{
	beton_error err = {0};
	if (save(made, step, keep, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

static void must_load(const setup *to)
{
	beton_error err = {0};
	if (load(to, STEP, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

static bool is_equal(const setup *a, const setup *b)
{
	return memcmp(dtrain_params_values(a->params), dtrain_params_values(b->params),
		      (size_t)dtrain_params_flat_count(a->params) * sizeof(float)) == 0;
}

/* Saves in a child that dies before its k-th call; false when it was done before. */
static bool save_and_kill(const setup *made, long k)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		calls = 0;
		kill_at = k;
		_exit(save(made, 120, 0, NULL) == BETON_OK ? 0 : 1);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		return true;
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

/* Whatever is cut short, one of the two checkpoints of the step is there when the next writer has come, whole; it is
 * never neither, and the next save works. */
static void killed_while_replacing(int refusal)
{
	setup first = make(1, 5), second = make(2, 5), found = make(3, 5);
	long k = 0;
	int olds = 0, news = 0;
	bool killed = true;
	refused_with = refusal;
	for (; killed; k++) {
		temporary_remove("c");
		must_save(&first, 120, 0);
		killed = save_and_kill(&second, k);
		assert_int_equal(dtrain_checkpoint_prepare("c/d", NULL), BETON_OK);
		assert_int_equal(count_in(""), 1);
		must_load(&found);
		assert_true(is_equal(&found, &first) || is_equal(&found, &second));
		olds += is_equal(&found, &first);
		news += is_equal(&found, &second);
		must_save(&second, 120, 0);
		must_load(&found);
		assert_true(is_equal(&found, &second));
		assert_int_equal(count_in(""), 1);
	}
	assert_true(k > 8 && olds > 4 && news > 2);
	unmake(&first);
	unmake(&second);
	unmake(&found);
}

static void killed_where_names_can_be_exchanged(void **state)
{
	(void)state;
	killed_while_replacing(0);
}

static void killed_where_they_cannot(void **state)
{
	(void)state;
	killed_while_replacing(EINVAL);
}

static void all_refusals(void **state)
{
	static const int refusals[] = {EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
	setup first = make(1, 5), second = make(2, 5), found = make(3, 5);
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		refused_with = refusals[i];
		must_save(&first, 120, 0);
		must_save(&second, 120, 0);
		must_load(&found);
		assert_true(is_equal(&found, &second));
		assert_int_equal(count_in(""), 1);
	}
	/* Any other failure is one. */
	beton_error err = {0};
	refused_with = EIO;
	assert_int_equal(save(&first, 120, 0, &err), BETON_IO);
	must_load(&found);
	assert_true(is_equal(&found, &second));
	unmake(&first);
	unmake(&second);
	unmake(&found);
}

/* A folder that cannot be removed does not prevent a save. */
static void leftovers_that_stay(void **state)
{
	setup made = make(1, 5);
	(void)state;
	must_save(&made, 120, 0);
	assert_int_equal(mkdir("c/d/.tmp-step-130.1.2", 0777), 0);
	touch("c/d/.tmp-step-130.1.2/.nfs0000000000000001");
	touch("c/d/.tmp-step-130.1.2/model.safetensors");
	assert_int_equal(mkdir("c/d/.tmp-old-130.1.2", 0777), 0);
	assert_int_equal(mkdir("c/d/.tmp-old-130.1.2/folder", 0777), 0);
	touch("c/d/.tmp-old-130.1.2/state.json");
	for (int64_t step = 140; step < 143; step++)
		must_save(&made, step, 0);
	assert_false(exists("c/d/.tmp-step-130.1.2/model.safetensors"));
	assert_false(exists("c/d/.tmp-old-130.1.2"));
	assert_true(exists("c/d/left-step-000000000130/folder"));
	assert_false(exists("c/d/left-step-000000000130/state.json"));
	/* The other machine has closed it. */
	assert_int_equal(syscall(SYS_unlinkat, AT_FDCWD, "c/d/.tmp-step-130.1.2/.nfs0000000000000001", 0), 0);
	must_save(&made, 143, 0);
	assert_false(exists("c/d/.tmp-step-130.1.2"));
	unmake(&made);
}

/* Files and folders of names like ours, but not ours. */
static void strangers_are_left_alone(void **state)
{
	static const char *const files[] = {"c/d/notes",       "c/d/.tmp-notes",       "c/d/.tmp-step-1.2.3",
					    "c/d/.tmp-step-x", "c/d/.tmp-step-1.2.3g", "c/d/.replaced-step-12",
					    "c/d/step-12"};
	static const char *const folders[] = {"c/d/.tmp-mine", "c/d/.tmp-step-1", "c/d/old-step-000000000120"};
	setup made = make(1, 5);
	(void)state;
	must_save(&made, 120, 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		touch(files[i]);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		assert_int_equal(mkdir(folders[i], 0777), 0);
	touch("c/d/step-000000000120/accuracy.txt");
	must_save(&made, 120, 0); /* replaces it */
	assert_true(exists("c/d/left-step-000000000120/accuracy.txt"));
	assert_false(exists("c/d/left-step-000000000120/model.safetensors"));
	touch("c/d/step-000000000120/accuracy.txt");
	must_save(&made, 130, 1); /* removes it */
	assert_true(exists("c/d/left-step-000000000120.2/accuracy.txt"));
	assert_false(exists("c/d/left-step-000000000120.2/model.safetensors"));
	assert_false(exists(STEP));
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		assert_true(exists(files[i]));
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		assert_true(exists(folders[i]));
	unmake(&made);
}

/* Takes the lock in a child, which tells when it has it and keeps it until it is killed. */
static pid_t hold(int *told)
{
	int ends[2];
	char byte = 0;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		dtrain_checkpoint_lock *lock = NULL;
		if (dtrain_checkpoint_lock_take("c/d", &lock, NULL) == BETON_OK)
			byte = 1;
		dtrain_checkpoint_lock_describe(lock, 4);
		if (write(ends[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	*told = byte;
	close(ends[0]);
	return child;
}

static void one_job_at_a_time(void **state)
{
	dtrain_checkpoint_lock *lock = NULL;
	beton_error err = {0};
	char host[256] = "", process[64];
	int told = 0;
	(void)state;
	gethostname(host, sizeof(host) - 1);
	pid_t holder = hold(&told);
	assert_int_equal(told, 1);
	assert_int_equal(dtrain_checkpoint_lock_take("c/d", &lock, &err), BETON_EXISTS);
	assert_null(lock);
	snprintf(process, sizeof(process), "another job uses this folder: process %d on ", (int)holder);
	if (!strstr(err.message, process) || !strstr(err.message, host) || !strstr(err.message, ", started 2") ||
	    !strstr(err.message, " UTC, world size 4"))
		fail_msg("%s", err.message);
	/* However it ended. */
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	if (dtrain_checkpoint_lock_take("c/d", &lock, &err) != BETON_OK)
		fail_msg("%s", err.message);
	/* A second lock of one process is a second job's. */
	dtrain_checkpoint_lock *second = NULL;
	assert_int_equal(dtrain_checkpoint_lock_take("c/d", &second, &err), BETON_EXISTS);
	dtrain_checkpoint_lock_release(&lock);
	assert_null(lock);
	assert_int_equal(dtrain_checkpoint_lock_take("c/d", &second, &err), BETON_OK);
	dtrain_checkpoint_lock_release(&second);
	dtrain_checkpoint_lock_release(&second);
}

int main(void)
{
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(killed_where_names_can_be_exchanged, start),
		cmocka_unit_test_setup(killed_where_they_cannot, start),
		cmocka_unit_test_setup(all_refusals, start),
		cmocka_unit_test_setup(leftovers_that_stay, start),
		cmocka_unit_test_setup(strangers_are_left_alone, start),
		cmocka_unit_test_setup(one_job_at_a_time, start),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
