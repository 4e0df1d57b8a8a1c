/* SPDX-License-Identifier: Apache-2.0 */
#include "failing_calls.h"

#include <errno.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>

failing_calls fault = {.first = -1};

void fail_call(failing_call kind, int error_number, long k)
{
	fault.kind = kind;
	fault.error_number = error_number;
	fault.seen = fault.hits = 0;
	fault.first = k;
}

static bool hit_memory(failing_call kind, size_t size)
{
	bool fails = fault.before && fault.before(kind, size);
	if (fault.first >= 0 && kind == fault.kind) {
		long number = fault.seen++;
		fails |= number == fault.first || (fault.for_ever && number > fault.first);
	}
	if (!fails)
		return false;
	fault.hits++;
	errno = fault.error_number;
	return true;
}

static bool hit(failing_call kind)
{
	return hit_memory(kind, 0);
}

/* glibc has a second name for each call with an offset; the compiler chooses the name. */
#define FOR_BOTH_NAMES(X) X() X(64)
#define PASTE(name, suffix) name##suffix
#define NAME(name, suffix) PASTE(name, suffix)

#define WRAP_OFFSETS(suffix)                                                                      \
	ssize_t NAME(__real_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset); \
	ssize_t NAME(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset); \
	ssize_t NAME(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset)  \
	{                                                                                         \
		if (hit(CALL_WRITE)) {                                                            \
			if (!fault.cut)                                                           \
				return -1;                                                        \
			size -= size / 2;                                                         \
		}                                                                                 \
		return NAME(__real_pwrite, suffix)(fd, data, size, offset);                       \
	}                                                                                         \
	int NAME(__real_open, suffix)(const char *path, int flags, ...);                          \
	int NAME(__wrap_open, suffix)(const char *path, int flags, mode_t mode);                  \
	int NAME(__wrap_open, suffix)(const char *path, int flags, mode_t mode)                   \
	{                                                                                         \
		return hit(CALL_OPEN) ? -1 : NAME(__real_open, suffix)(path, flags, mode);        \
	}                                                                                         \
	int NAME(__real_ftruncate, suffix)(int fd, off_t size);                                   \
	int NAME(__wrap_ftruncate, suffix)(int fd, off_t size);                                   \
	int NAME(__wrap_ftruncate, suffix)(int fd, off_t size)                                    \
	{                                                                                         \
		return hit(CALL_TRUNCATE) ? -1 : NAME(__real_ftruncate, suffix)(fd, size);        \
	}
FOR_BOTH_NAMES(WRAP_OFFSETS)

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

int __wrap_fsync(int fd)
{
	return hit(CALL_SYNC) ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
	return hit(CALL_SYNC) ? -1 : __real_fdatasync(fd);
}

int __wrap_close(int fd)
{
	int result = __real_close(fd);
	return hit(CALL_CLOSE) ? -1 : result;
}

int __wrap_rename(const char *from, const char *to)
{
	return hit(CALL_RENAME) ? -1 : __real_rename(from, to);
}

int __wrap_flock(int fd, int operation)
{
	return operation != LOCK_UN && hit(CALL_LOCK) ? -1 : __real_flock(fd, operation);
}

int __wrap_fchmod(int fd, mode_t mode)
{
	return hit(CALL_MODE) ? -1 : __real_fchmod(fd, mode);
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	hit(CALL_WAIT);
	int result = __real_pthread_cond_wait(condition, mutex);
	hit(CALL_WOKEN);
	return result;
}

void *__wrap_malloc(size_t size)
{
	return hit_memory(CALL_ALLOCATE, size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return hit_memory(CALL_ALLOCATE, count * size) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return hit_memory(CALL_ALLOCATE, size) ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text)
{
	return hit(CALL_ALLOCATE) ? NULL : __real_strdup(text);
}
