/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "launcher_cores.h"
#include "status_line.h"

extern char **environ;

enum { OWN_VARIABLES = 9 };

static void free_environment(char **environment)
{
	for (int i = 0; environment && i < OWN_VARIABLES; i++)
		free(environment[i]);
	free(environment);
}

static bool is_replaced(const char *entry, char *const *own)
{
	for (int i = 0; i < OWN_VARIABLES; i++) {
		size_t name = (size_t)(strchr(own[i], '=') - own[i]) + 1;

		if (strncmp(entry, own[i], name) == 0)
			return true;
	}
	return false;
}

/* Our variables first, then the others of the caller. NULL: no memory. */
static char **make_environment(const struct spawn_job *job, int rank)
{
	size_t count = 0;
	char **all;
	while (environ[count])
		count++;
	all = calloc(OWN_VARIABLES + count + 1, sizeof(*all));
	if (!all)
		return NULL;
	all[0] = bt_format("RANK=%d", rank);
	all[1] = bt_format("LOCAL_RANK=%d", rank);
	all[2] = bt_format("WORLD_SIZE=%d", job->world_size);
	all[3] = bt_format("LOCAL_WORLD_SIZE=%d", job->world_size);
	all[4] = bt_format("MASTER_ADDR=%s", bt_loopback_host());
	all[5] = bt_format("MASTER_PORT=%u", job->port);
	all[6] = bt_format("DTRAIN_STORE_HOSTED=1");
	all[7] = bt_format("DTRAIN_STORE_TOKEN=%s", job->store_token);
	all[8] = bt_format(STATUS_LINE_VARIABLE "=%d", job->shows_status && rank == 0);
	for (int i = 0; i < OWN_VARIABLES; i++) {
		if (!all[i]) {
			free_environment(all);
			return NULL;
		}
	}
	for (size_t i = 0, used = OWN_VARIABLES; i < count; i++) {
		if (!is_replaced(environ[i], all))
			all[used++] = environ[i];
	}
	return all;
}

struct child_plan {
	pid_t parent;
	char **environment;
	bool bind;
	cpu_set_t cores;
	int out_fd, err_fd, report_fd;
};

/* Runs in the child of a process with threads: only system calls are allowed. */
static void child_main(const struct spawn_job *job, const struct child_plan *plan)
{
	int failure;
	setpgid(0, 0);
	/* A rank must not outlive the launcher, however the launcher ends; if it has ended already, no signal will
	 * come. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != plan->parent)
		_exit(127);
	if (plan->bind)
		sched_setaffinity(0, sizeof(plan->cores), &plan->cores); /* optional: a rank also runs without */
	if (dup2(job->null_fd, STDIN_FILENO) >= 0 && dup2(plan->out_fd, STDOUT_FILENO) >= 0 &&
	    dup2(plan->err_fd, STDERR_FILENO) >= 0 && sigprocmask(SIG_SETMASK, job->signal_mask, NULL) == 0)
		execve("/proc/self/exe", job->argv, plan->environment);
	failure = errno;
	if (write(plan->report_fd, &failure, sizeof(failure)) != sizeof(failure))
		_exit(126);
	_exit(127);
}

static void close_pair(int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* exec closes the report pipe on success. */
static int read_report(int fd)
{
	int failure = 0;
	ssize_t got;
	do
		got = read(fd, &failure, sizeof(failure));
	while (got < 0 && errno == EINTR);
	return got == sizeof(failure) ? failure : 0;
}

static int start(const struct spawn_job *job, struct child_plan *plan, int report_fd, pid_t *pid, int rank,
		 beton_error *err)
{
	*pid = fork();
	if (*pid == 0)
		child_main(job, plan);
	if (*pid < 0)
		return bt_fail_errno(err, errno, "cannot start rank %d", rank);
	setpgid(*pid, *pid); /* the child does the same, because either may run first */
	close(plan->report_fd);
	plan->report_fd = -1;
	errno = read_report(report_fd);
	return errno ? bt_fail_errno(err, errno, "cannot start rank %d: /proc/self/exe", rank) : BETON_OK;
}

int dtrain__spawn_rank(const struct spawn_job *job, int rank, pid_t *pid, int *out_fd, int *err_fd, beton_error *err)
{
	int out[2] = {-1, -1}, error[2] = {-1, -1}, report[2] = {-1, -1}, status;
	struct child_plan plan = {.parent = getpid()};
	*pid = -1;
	plan.environment = make_environment(job, rank);
	if (!plan.environment)
		return bt_fail(err, BETON_NO_MEMORY, "cannot start rank %d: out of memory", rank);
	if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0 ||
	    fcntl(out[0], F_SETFL, O_NONBLOCK) != 0 || fcntl(error[0], F_SETFL, O_NONBLOCK) != 0) {
		status = bt_fail_errno(err, errno, "cannot start rank %d: pipe", rank);
	} else {
		plan.bind = job->cores && dtrain__rank_cores(job->cores, rank, job->world_size, &plan.cores);
		plan.out_fd = out[1];
		plan.err_fd = error[1];
		plan.report_fd = report[1];
		status = start(job, &plan, report[0], pid, rank, err);
		report[1] = plan.report_fd;
	}
	free_environment(plan.environment);
	close_pair(report);
	if (status == BETON_OK) {
		*out_fd = out[0];
		*err_fd = error[0];
		out[0] = error[0] = -1;
	}
	close_pair(out);
	close_pair(error);
	return status;
}
