/* SPDX-License-Identifier: Apache-2.0
 *
 * hanging-fs FILE CONTROL -f FOLDER: a file system with one file, the content of FILE, which hangs while CONTROL says
 * so and the process that started it lives.
 */
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hanging_fs.h"

static int source;
static hanging_control *control;

/* A process that dies closes its files before its children hear of it. */
static bool test_is_dying(void)
{
	enum { EXITING = 4 }; /* Linux's PF_EXITING */
	char path[32], text[512];
	unsigned flags = 0;
	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)control->test);
	FILE *facts = fopen(path, "r");
	if (!facts)
		return true;
	size_t size = fread(text, 1, sizeof(text) - 1, facts);
	fclose(facts);
	text[size] = 0;
	const char *behind_name = strrchr(text, ')');
	return !behind_name || sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || flags & EXITING;
}

/* Until the test says so, or is dying: its threads, which wait for this, keep it from being gone. */
static void hold(void)
{
	struct fuse_session *session = fuse_get_session(fuse_get_context()->fuse);
	atomic_fetch_add(&control->held, 1);
	while (atomic_load(&control->hangs) && !fuse_session_exited(session) && !test_is_dying())
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	atomic_fetch_sub(&control->held, 1);
}

/* No page is there before it is asked for. */
static void *begin(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)config;
	connection->max_readahead = 0;
	return NULL;
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *file)
{
	(void)file;
	if (strcmp(path, "/" HANGING_NAME) == 0)
		return fstat(source, out) == 0 ? 0 : -errno;
	if (strcmp(path, "/") != 0)
		return -ENOENT;
	*out = (struct stat){.st_mode = S_IFDIR | 0755, .st_nlink = 2};
	return 0;
}

static int open_file(const char *path, struct fuse_file_info *file)
{
	(void)path;
	return (file->flags & O_ACCMODE) == O_RDONLY ? 0 : -EROFS;
}

static int read_file(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *file)
{
	(void)path, (void)file;
	hold();
	ssize_t got = pread(source, buffer, size, offset);
	return got < 0 ? -errno : (int)got;
}

static int close_file(const char *path, struct fuse_file_info *file)
{
	(void)path, (void)file;
	hold();
	return 0;
}

int main(int argc, char **argv)
{
	const struct fuse_operations operations = {
		.init = begin, .getattr = get_attributes, .open = open_file, .read = read_file, .flush = close_file};
	/* As long as the test, and long enough to unmount: what kills the test's process group leaves it alone. */
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (argc < 3)
		return 2;
	source = open(argv[1], O_RDONLY | O_CLOEXEC);
	int shared = open(argv[2], O_RDWR | O_CLOEXEC);
	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	if (source < 0 || control == MAP_FAILED) {
		perror("hanging-fs");
		return 2;
	}
	if (getppid() != control->test)
		return 2;
	argv[2] = argv[0];
	int result = fuse_main(argc - 2, argv + 2, &operations, NULL);
	/* Without a sanitizer's look at what libfuse leaks. */
	_exit(result);
}
