/* SPDX-License-Identifier: Apache-2.0
 *
 * peak FILE PROGRAM ARGUMENT...: runs a program, and writes to the file the largest resident set, in bytes, of any
 * process that it has started and waited for, or of itself. Exits with its status. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;
	struct rusage usage;
	if (argc < 3)
		return 2;
	pid_t child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || getrusage(RUSAGE_CHILDREN, &usage) != 0)
		return 2;
	FILE *file = fopen(argv[1], "w");
	if (!file || fprintf(file, "%ld\n", usage.ru_maxrss * 1024) < 0 || fclose(file) != 0)
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
