/* SPDX-License-Identifier: Apache-2.0 */
#include "killed.h"

#include "tests/support/beton_files.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

bool killed_may_trace(void)
{
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(77);
		_exit(0);
	}
	int status;
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool killed_at(int (*function)(const void *context), const void *context, long k)
{
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(77);
		raise(SIGSTOP);
		_exit(function(context) == BETON_OK ? 0 : 1);
	}
	assert_true(child > 0);
	int status;
	for (long stop = 0;; stop++) {
		assert_int_equal(waitpid(child, &status, 0), child);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSTOPPED(status));
		if (stop == 0)
			ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL);
		if (stop == k) {
			kill(child, SIGKILL);
			assert_int_equal(waitpid(child, &status, 0), child);
			assert_true(WIFSIGNALED(status));
			return true;
		}
		assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}
