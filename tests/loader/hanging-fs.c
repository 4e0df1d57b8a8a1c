/* SPDX-License-Identifier: Apache-2.0
 *
 * hanging-fs FILE CONTROL -f FOLDER: a file system with one file, the content of FILE, which hangs while CONTROL says
 * so.
 */
#define FUSE_USE_VERSION 31
#include <fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hanging-fs.h"

static int source;
static hanging_control *control;

static void hold(void)
{
	atomic_fetch_add(&control->held, 1);
	while (atomic_load(&control->hangs))
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
	/* Not longer than the test. */
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
	argv[2] = argv[0];
	int result = fuse_main(argc - 2, argv + 2, &operations, NULL);
	/* Without a sanitizer's look at what libfuse leaks. */
	_exit(result);
}
