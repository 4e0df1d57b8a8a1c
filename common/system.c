/* SPDX-License-Identifier: Apache-2.0 */
#include "system.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"

uint64_t bt_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bt_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

bool bt_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t nanoseconds)
{
	uint64_t until = bt_now_ns() + nanoseconds;
	struct timespec deadline = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
	return pthread_cond_timedwait(condition, mutex, &deadline) != ETIMEDOUT;
}

/* The address space that RLIMIT_AS leaves to this process. */
static uint64_t available_addresses(void)
{
	struct rlimit limit;
	unsigned long long pages = 0;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file && fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t bt_available_memory(void)
{
	char line[128];
	unsigned long long kib;
	uint64_t system = 0, groups = bt_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
	FILE *file = fopen("/proc/meminfo", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1 || sscanf(line, "SwapFree: %llu", &kib) == 1)
			system += (uint64_t)kib * 1024;
	if (file)
		fclose(file);
	if (!system)
		system = UINT64_MAX;
	uint64_t process = available_addresses(), least = system < groups ? system : groups;
	return process < least ? process : least;
}

void bt_block_signals(sigset_t *before)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
	sigset_t blocked;
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		sigdelset(&blocked, own[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, before);
}

uint64_t bt_raise_open_files(void)
{
	struct rlimit limit = {0};
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	struct rlimit raised = {limit.rlim_max, limit.rlim_max};
	if (limit.rlim_cur != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
		limit = raised;
	return limit.rlim_cur;
}

static int allowed_cores(void)
{
	/* A fixed cpu_set_t ends at 1024 cores. Larger machines need a larger mask; the kernel answers EINVAL until it
	 * is large enough. */
	for (int cores = 1024; cores <= 1 << 20; cores *= 4) {
		cpu_set_t *set = CPU_ALLOC((size_t)cores);
		if (!set)
			return 1;
		size_t size = CPU_ALLOC_SIZE((size_t)cores);
		int result = sched_getaffinity(0, size, set);
		int count = result == 0 ? CPU_COUNT_S(size, set) : 0;
		CPU_FREE(set);
		if (result == 0)
			return count > 0 ? count : 1;
		if (errno != EINVAL)
			return 1;
	}
	return 1;
}

int bt_available_cores(void)
{
	int allowed = allowed_cores();
	int granted = bt_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup");
	return granted < allowed ? granted : allowed;
}

ssize_t bt_read_full(bt_read_function *read, void *context, int fd, void *buffer, size_t size, uint64_t offset)
{
	size_t done = 0;
	while (done < size) {
		char *at = (char *)buffer + done;
		int64_t got = read ? read(context, fd, at, size - done, offset + done)
				   : pread(fd, at, size - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

ssize_t bt_pread_full(int fd, void *buffer, size_t size, uint64_t offset)
{
	return bt_read_full(NULL, NULL, fd, buffer, size, offset);
}

size_t bt_byte_order_mark(const char *text, size_t size)
{
	static const char mark[] = "\xef\xbb\xbf";
	return size >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
}

int bt_read_text(const char *path, size_t most, char **out, beton_error *err)
{
	struct stat facts;
	int status = BETON_OK;
	*out = NULL;
	char *text = malloc(most + 1);
	/* A pipe would block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t size = fd < 0 || !text ? -1 : bt_pread_full(fd, text, most + 1, 0);
	if (fd >= 0 && fstat(fd, &facts) == 0 && !S_ISREG(facts.st_mode))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' is not a file", path);
	else if (!text)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", path);
	else if (size < 0)
		status = bt_fail_errno(err, errno, "cannot read '%s'", path);
	else if ((size_t)size > most || memchr(text, 0, (size_t)size))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' is not text, or has more than %zu bytes", path,
				 most);
	if (status == BETON_OK) {
		size_t mark = bt_byte_order_mark(text, (size_t)size);
		memmove(text, text + mark, (size_t)size - mark);
		text[(size_t)size - mark] = 0;
	}
	if (fd >= 0)
		close(fd);
	if (status == BETON_OK)
		*out = text;
	else
		free(text);
	return status;
}

int bt_write_full(int fd, const void *buffer, size_t size)
{
	const char *at = buffer;
	while (size > 0) {
		ssize_t put = write(fd, at, size);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
		size -= (size_t)put;
	}
	return 0;
}

int bt_pwrite_full(int fd, const void *buffer, size_t size, uint64_t offset)
{
	const char *at = buffer;
	while (size > 0) {
		ssize_t put = pwrite(fd, at, size, (off_t)offset);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
		offset += (uint64_t)put;
		size -= (size_t)put;
	}
	return 0;
}

int bt_make_parents(const char *path, beton_error *err)
{
	char *copy = strdup(path);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int status = BETON_OK;
	for (char *slash = strchr(copy + 1, '/'); slash && status == BETON_OK; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(copy, 0777) != 0 && errno != EEXIST)
			status = bt_fail_errno(err, errno, "%s: cannot create the folder", copy);
		*slash = '/';
	}
	free(copy);
	return status;
}

int bt_sync_parent(const char *path, beton_error *err)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	if (!folder)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = BETON_OK;
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Some file systems cannot sync a folder and answer EINVAL; that cannot be helped. */
	if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
		result = bt_fail_errno(err, errno, "%s: cannot sync the folder", folder);
	if (fd >= 0)
		close(fd);
	free(folder);
	return result;
}

static void release(bt_atomic_file *file)
{
	free(file->path);
	free(file->temporary);
	*file = (bt_atomic_file){.fd = -1};
}

int bt_atomic_open(bt_atomic_file *file, const char *path, beton_error *err)
{
	*file = (bt_atomic_file){
		.fd = -1,
		.path = strdup(path),
		.temporary = bt_format("%s.tmp.%ld.%llx", path, (long)getpid(), (unsigned long long)bt_now_ns())};
	struct stat status;
	int result = BETON_OK;
	if (!file->path || !file->temporary)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	/* A device or a pipe (/dev/null) must not be replaced by a file. */
	else if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is %s", path,
				 S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
	else if ((file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
		result = bt_fail_errno(err, errno, "%s: cannot create", path);
	file->created = file->fd >= 0;
	if (result == BETON_OK)
		return BETON_OK;
	bt_atomic_abandon(file);
	return result;
}

int bt_atomic_commit(bt_atomic_file *file, beton_error *err)
{
	int result = BETON_OK;
	if (fsync(file->fd) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot sync", file->path);
	int fd = file->fd;
	file->fd = -1;
	if (close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close", file->path);
	if (result == BETON_OK && rename(file->temporary, file->path) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot rename to the final name", file->path);
	if (result != BETON_OK) {
		bt_atomic_abandon(file);
		return result;
	}
	result = bt_sync_parent(file->path, err);
	release(file);
	return result;
}

void bt_atomic_abandon(bt_atomic_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	if (file->created)
		unlink(file->temporary);
	release(file);
}

int bt_parse_u64(const char *what, const char *text, uint64_t least, uint64_t most, uint64_t *out, beton_error *err)
{
	char *end = NULL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	/* strtoull takes leading blanks and a minus sign; a digit must come first. */
	if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not a whole number from %llu to %llu", what,
			       text, (unsigned long long)least, (unsigned long long)most);
	*out = value;
	return BETON_OK;
}

int bt_parse_double(const char *what, const char *text, double least, double most, double *out, beton_error *err)
{
	char *end = NULL;
	double value = strtod(text, &end);
	if (end == text || *end || !isfinite(value) || value < least || value > most)
		/* A limit that is the last number below 1 is not 1. */
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not a number from %g to %s%g", what, text,
			       least, most < 1 && most > 1 - 1e-6 ? "below " : "", most);
	*out = value;
	return BETON_OK;
}

/* The factor of a unit of bytes: kB, MB, ... as they are printed, and K, KiB, M, MiB, ... 0: there is no such unit. */
static uint64_t unit_bytes(const char *unit)
{
	static const char letters[] = "KMGT";
	if (!*unit || strcmp(unit, "B") == 0)
		return 1;
	const char *letter = strchr(letters, toupper((unsigned char)*unit));
	if (!letter)
		return 0;
	bool decimal = strcmp(unit + 1, "B") == 0;
	if (!decimal && unit[1] && strcmp(unit + 1, "iB") != 0)
		return 0;
	uint64_t factor = 1;
	for (const char *at = letters; at <= letter; at++)
		factor *= decimal ? 1000 : 1024;
	return factor;
}

int bt_parse_size(const char *what, const char *text, uint64_t least, uint64_t *out, beton_error *err)
{
	char number[24] = "";
	size_t digits = strspn(text, "0123456789");
	size_t length = digits;
	if (digits && text[digits] == '.')
		length += 1 + strspn(text + digits + 1, "0123456789");
	uint64_t factor = unit_bytes(text + length + (text[length] == ' '));
	uint64_t whole = 0;
	double fraction = 0;
	if (digits < sizeof(number))
		memcpy(number, text, digits);
	bool good = factor && bt_parse_u64(what, number, 0, (uint64_t)INT64_MAX / factor, &whole, NULL) == BETON_OK;
	if (good && length > digits + 1 && length - digits < sizeof(number)) {
		memcpy(number, text + digits, length - digits);
		number[length - digits] = 0;
		good = factor > 1 && bt_parse_double(what, number, 0, 1, &fraction, NULL) == BETON_OK;
	} else if (length > digits) {
		good = false;
	}
	uint64_t size = whole * factor + (uint64_t)(fraction * (double)factor + 0.5);
	if (good && size < least)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is too small: the least is %" PRIu64 " B", what,
			       text, least);
	if (!good || size > INT64_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: '%s' is not a number of bytes, like 1000000, 30MB, 1.5GB, 8MiB, 512K or 2G", what,
			       text);
	*out = size;
	return BETON_OK;
}

bool bt_ends_with(const char *text, const char *ending)
{
	size_t length = strlen(text), tail = strlen(ending);
	return length > tail && strcmp(text + length - tail, ending) == 0;
}

char *bt_format(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char *text = NULL;
	int length = vasprintf(&text, format, arguments);
	va_end(arguments);
	return length < 0 ? NULL : text;
}

void bt_append(char *text, size_t size, const char *format, ...)
{
	size_t used = strnlen(text, size);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text + used, size - used, format, arguments);
	va_end(arguments);
}
