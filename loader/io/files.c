/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "io.h"

/* In `users`: the file is not open. */
#define SHUT (UINT32_C(1) << 31)

/* Most files that stay open if the caller names no number: more gain nothing. */
enum { OPEN_MOST = 4096 };

/* After so many openings, room that was given up is tried again. */
enum { RECOVER = 256 };

/* ---- the table ---- */

/* A quarter of the descriptors that the process may have: the loaders of training and validation leave half to others,
 * who would fail without. */
static uint32_t default_room(bool direct)
{
	struct rlimit limit = {.rlim_cur = 1024};
	getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail with a valid resource */
	uint64_t room = limit.rlim_cur / (direct ? 8 : 4);
	return room < 1 ? 1 : room < OPEN_MOST ? (uint32_t)room : OPEN_MOST;
}

int bt_files_open(bt_files **out, const bt_files_config *config, beton_error *err)
{
	bt_files *files = calloc(1, sizeof(*files));
	*out = files;
	if (files)
		files->list = calloc(config->count, sizeof(*files->list));
	if (!files || !files->list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u files", config->count);
	files->count = config->count;
	files->io = bt_io_or_system(config->io);
	files->direct = config->direct;
	files->log = config->log;
	files->log_context = config->log_context;
	files->folder = AT_FDCWD;
	files->most = config->open_max ? (uint32_t)config->open_max : default_room(config->direct);
	atomic_store(&files->room, files->most);
	for (uint32_t i = 0; i < files->count; i++) {
		files->list[i].files = files;
		files->list[i].descriptors.fd = files->list[i].descriptors.direct_fd = -1;
		atomic_store(&files->list[i].descriptors.users, SHUT);
	}
	/* With default attributes these calls cannot fail. */
	pthread_mutex_init(&files->lock, NULL);
	pthread_cond_init(&files->changed, NULL);
	return BETON_OK;
}

/* Errors are ignored: the files were opened for reading. */
static void shut(bt_lease descriptors)
{
	if (descriptors.fd >= 0)
		close(descriptors.fd);
	if (descriptors.direct_fd >= 0)
		close(descriptors.direct_fd);
}

void bt_files_close(bt_files **out)
{
	bt_files *files = *out;
	*out = NULL;
	if (!files)
		return;
	for (uint32_t i = 0; i < files->count; i++) {
		bt_file *file = &files->list[i];
		shut((bt_lease){file->descriptors.fd, file->descriptors.direct_fd});
		free(file->path);
		free(file->io);
	}
	if (files->list) {
		pthread_cond_destroy(&files->changed);
		pthread_mutex_destroy(&files->lock);
	}
	if (files->folder >= 0)
		close(files->folder);
	free(files->list);
	free(files);
}

int bt_files_name(bt_files *files, uint32_t number, const char *path, beton_error *err)
{
	bt_file *file = &files->list[number];
	file->path = strdup(path);
	if (!file->path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (file->io || *path == '/' || files->folder != AT_FDCWD)
		return BETON_OK;
	int folder = files->io->openat(AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return bt_fail_errno(err, errno, "%s: cannot open the working folder", path);
	files->folder = folder;
	return BETON_OK;
}

void bt_files_log(bt_files *files, const char *line)
{
	if (files->log && !atomic_exchange(&files->was_told, true))
		files->log(files->log_context, BETON_LOG_WARNING, line);
}

void bt_files_tell(bt_file *file, const char *format, ...)
{
	beton_error line;
	va_list arguments;
	va_start(arguments, format);
	char text[256];
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	bt_fail(&line, BETON_SYSTEM, "%s: %s", file->path, text);
	bt_files_log(file->files, line.message);
}

/* ---- opening one file ---- */

/* Whether the file has direct reads, at offsets and to memory that are multiples of BT_ARENA_ALIGNMENT. */
static bool has_direct_reads(const bt_io *io, int fd)
{
#ifdef STATX_DIOALIGN
	struct statx status;
	if (io->statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && status.stx_mask & STATX_DIOALIGN) {
		uint32_t place = status.stx_dio_offset_align, memory = status.stx_dio_mem_align;
		return place > 0 && BT_ARENA_ALIGNMENT % place == 0 && memory <= BT_ARENA_ALIGNMENT;
	}
#else
	(void)io, (void)fd;
#endif
	return true; /* Linux before 6.1 does not report it */
}

/* Opens the file again through its descriptor, because its name may mean another file by now. Returns -1 with errno. */
static int open_direct(const bt_io *io, int fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	errno = EOPNOTSUPP;
	return has_direct_reads(io, fd) ? io->openat(AT_FDCWD, path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
}

static bool is_short(int number)
{
	return number == EMFILE || number == ENFILE;
}

/* Compares the file with the first file opened at this path. */
static int compare(const bt_file *file, const struct stat *now, beton_error *err)
{
	const bt_descriptors *first = &file->descriptors;
	char text[256] = "";
	size_t used = 0;
	if (now->st_dev != first->device)
		used += (size_t)snprintf(text, sizeof(text), ", its device is %llu and was %llu",
					 (unsigned long long)now->st_dev, (unsigned long long)first->device);
	if (now->st_ino != first->inode)
		used += (size_t)snprintf(text + used, sizeof(text) - used, ", its inode is %llu and was %llu",
					 (unsigned long long)now->st_ino, (unsigned long long)first->inode);
	if ((uint64_t)now->st_size != first->bytes)
		used += (size_t)snprintf(text + used, sizeof(text) - used, ", it has %llu bytes and had %llu",
					 (unsigned long long)now->st_size, (unsigned long long)first->bytes);
	if (now->st_mtim.tv_sec != first->modified_s || now->st_mtim.tv_nsec != first->modified_ns)
		snprintf(text + used, sizeof(text) - used, ", it was modified at %lld.%09lld and before at %lld.%09lld",
			 (long long)now->st_mtim.tv_sec, (long long)now->st_mtim.tv_nsec, (long long)first->modified_s,
			 (long long)first->modified_ns);
	return text[0] ? bt_fail(err, BETON_FILE_CHANGED, "%s: changed since it was first opened: %s", file->path,
				 text + 2)
		       : BETON_OK;
}

/* Compares the open file with what is known of it, or notes that. */
static int recognize(bt_file *file, int fd, beton_error *err)
{
	bt_descriptors *d = &file->descriptors;
	struct stat now;
	if (fstat(fd, &now) != 0)
		return bt_fail_errno(err, errno, "%s: cannot read its status", file->path);
	if (d->known)
		return compare(file, &now, err);
	d->known = true;
	d->device = now.st_dev;
	d->inode = now.st_ino;
	d->bytes = (uint64_t)now.st_size;
	d->modified_s = now.st_mtim.tv_sec;
	d->modified_ns = now.st_mtim.tv_nsec;
	return BETON_OK;
}

/* Codes that mean something else to the consumer of batches become IO. */
static int code_of(int result, beton_error *err)
{
	if (result == BETON_TIMEOUT || result == BETON_PEER_LOST || result == BETON_INVALID_ARGUMENT) {
		result = BETON_IO;
		if (err)
			err->code = result;
	}
	return result;
}

/* Opens the descriptors of a file that no other thread opens. *full: the process, or the system, can have no more. */
static int open_file(bt_file *file, bt_lease *out, bool *full, beton_error *err)
{
	const bt_files *files = file->files;
	bool again = file->descriptors.known;
	*out = (bt_lease){-1, -1};
	out->fd = files->io->openat(files->folder, file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	*full = out->fd < 0 && is_short(errno);
	if (out->fd < 0)
		return code_of(bt_fail_errno(err, errno, "%s: cannot open%s", file->path, again ? " it again" : ""),
			       err);
	int result = recognize(file, out->fd, err);
	if (result == BETON_OK && files->direct && !atomic_load(&file->descriptors.direct_failed)) {
		out->direct_fd = open_direct(files->io, out->fd);
		*full = out->direct_fd < 0 && is_short(errno);
		char text[128];
		if (*full)
			result = bt_fail_errno(err, errno, "%s: cannot open it for direct reads", file->path);
		else if (out->direct_fd < 0 && !atomic_exchange(&file->descriptors.direct_failed, true))
			bt_files_tell(file, "no direct reads here (%s): reading through the page cache",
				      strerror_r(errno, text, sizeof(text)));
	}
	if (result != BETON_OK) {
		shut(*out);
		*out = (bt_lease){-1, -1};
	}
	return code_of(result, err);
}

/* ---- loans ---- */

/* Ends a loan, or one that was tried. */
static void leave(bt_file *file)
{
	bt_files *files = file->files;
	uint32_t before = atomic_fetch_sub(&file->descriptors.users, 1);
	/* A tried loan of a shut file wakes no waiter. Others may still have the file: the waiting thread may hold it
	 * itself, and must learn that it would wait in vain. */
	if (before & SHUT || atomic_load(&files->waiting) == 0)
		return;
	pthread_mutex_lock(&files->lock);
	pthread_cond_broadcast(&files->changed);
	pthread_mutex_unlock(&files->lock);
}

/* Borrows an open file. */
static bool enter(bt_file *file, bt_lease *out)
{
	bt_descriptors *d = &file->descriptors;
	if (atomic_fetch_add(&d->users, 1) & SHUT) {
		leave(file);
		return false;
	}
	uint32_t now = atomic_load_explicit(&file->files->clock, memory_order_relaxed);
	if (atomic_load_explicit(&d->used, memory_order_relaxed) != now)
		atomic_store_explicit(&d->used, now, memory_order_relaxed);
	*out = (bt_lease){d->fd, d->direct_fd};
	return true;
}

/* With the lock held. Puts a file at the end of the list, and takes it out. */
static void append(bt_files *files, bt_file *file)
{
	bt_descriptors *d = &file->descriptors;
	d->listed = atomic_load_explicit(&d->used, memory_order_relaxed);
	d->next = NULL;
	d->previous = files->last;
	*(files->last ? &files->last->descriptors.next : &files->first) = file;
	files->last = file;
}

static void take_out(bt_files *files, bt_file *file)
{
	bt_descriptors *d = &file->descriptors;
	*(d->previous ? &d->previous->descriptors.next : &files->first) = d->next;
	*(d->next ? &d->next->descriptors.previous : &files->last) = d->previous;
}

/* With the lock held. Closes an idle file, whose descriptors the caller shuts; false: it is on loan, or not open. */
static bool retire(bt_files *files, bt_file *file, bt_lease *out)
{
	bt_descriptors *d = &file->descriptors;
	uint32_t nobody = 0;
	if (!atomic_compare_exchange_strong(&d->users, &nobody, SHUT))
		return false;
	take_out(files, file);
	files->num_open--;
	*out = (bt_lease){d->fd, d->direct_fd};
	d->fd = d->direct_fd = -1;
	return true;
}

/* With the lock held. Retires the least recently used idle file; false: all are on loan. A file that was borrowed since
 * it came to its place moves to the end first, so the part of the list that was searched is in order. */
static bool evict(bt_files *files, bt_lease *out)
{
	bt_file *file = files->first;
	for (uint64_t steps = 2 * (uint64_t)files->num_open; file && steps > 0; steps--) {
		bt_descriptors *d = &file->descriptors;
		bt_file *next = d->next;
		if (atomic_load_explicit(&d->used, memory_order_relaxed) != d->listed) {
			take_out(files, file);
			append(files, file);
			next = next ? next : file;
		} else if (retire(files, file, out)) {
			return true;
		}
		file = next;
	}
	return false;
}

/* The next possible change of the open files. */
typedef enum outlook {
	OUTLOOK_IDLE, /* a file can be closed now, or in a moment */
	OUTLOOK_SOON, /* a file is on a short loan, or is being opened */
	OUTLOOK_HELD, /* all are on loan for long, or there are none */
} outlook;

/* With the lock held. */
static outlook look_out(const bt_files *files)
{
	uint64_t loans = 0;
	uint32_t listed = 0;
	for (const bt_file *file = files->first; file; file = file->descriptors.next, listed++) {
		uint32_t users = atomic_load(&file->descriptors.users) & ~SHUT;
		if (users == 0)
			return OUTLOOK_IDLE;
		loans += users;
	}
	uint32_t held = atomic_load(&files->held);
	if (loans > held || listed < files->num_open)
		return OUTLOOK_SOON;
	/* Loans for long leave room for one more, unless there was more room before: some have ended meanwhile. */
	return listed > 0 && held < atomic_load(&files->room) ? OUTLOOK_IDLE : OUTLOOK_HELD;
}

/* With the lock held, which it gives up meanwhile. Opens a file for which there is room. *full: see open_file. */
static int open_for_loan(bt_file *file, bt_lease *out, bool *full, beton_error *err)
{
	bt_files *files = file->files;
	bt_descriptors *d = &file->descriptors;
	d->opening = true;
	files->num_open++;
	pthread_mutex_unlock(&files->lock);
	int note = bt_metadata_begin(&files->metadata, file, 0);
	int result = open_file(file, out, full, err);
	bt_metadata_end(&files->metadata, note);
	pthread_mutex_lock(&files->lock);
	d->opening = false;
	if (result == BETON_OK) {
		uint32_t now = atomic_fetch_add(&files->clock, 1) + 1;
		if (now % RECOVER == 0 && atomic_load(&files->room) < files->most)
			atomic_fetch_add(&files->room, 1);
		d->fd = out->fd;
		d->direct_fd = out->direct_fd;
		atomic_store_explicit(&d->used, now, memory_order_relaxed);
		append(files, file);
		atomic_fetch_add(&d->users, 1);
		atomic_fetch_and(&d->users, ~SHUT);
	} else {
		files->num_open--;
		/* Another part of the program may need what is left, so take no more than there was. */
		if (*full)
			atomic_store(&files->room, files->num_open > 0 ? files->num_open : 1);
	}
	pthread_cond_broadcast(&files->changed);
	return result;
}

/* With the lock held, which it gives up meanwhile. Closes another file to make room for this one. */
static bool make_room(bt_files *files)
{
	bt_lease old;
	if (!evict(files, &old))
		return false;
	/* The room is taken while the lock is free. */
	files->num_open++;
	pthread_mutex_unlock(&files->lock);
	shut(old);
	pthread_mutex_lock(&files->lock);
	files->num_open--;
	return true;
}

/* With the lock held. may_wait: for others to give files back. Errors: bt_files_hold's. */
static int borrow_shut(bt_file *file, bool may_wait, bt_lease *out, beton_error *err)
{
	bt_files *files = file->files;
	bool beyond = false; /* all loans are long, but the system may still have a descriptor */
	while (!enter(file, out)) {
		bool full = files->num_open >= atomic_load(&files->room) && !beyond;
		int result = BETON_OK;
		if (!full && !file->descriptors.opening) {
			result = open_for_loan(file, out, &full, err);
			if (!full)
				return result;
		}
		if (full && make_room(files))
			continue;
		if (full && !may_wait)
			return BETON_TIMEOUT;
		outlook next = full ? look_out(files) : OUTLOOK_SOON;
		if (next == OUTLOOK_SOON)
			pthread_cond_wait(&files->changed, &files->lock);
		if (next == OUTLOOK_HELD && result != BETON_OK)
			return result;
		beyond = next == OUTLOOK_HELD;
	}
	return BETON_OK;
}

static int borrow(bt_file *file, bool may_wait, bt_lease *out, beton_error *err)
{
	bt_files *files = file->files;
	if (enter(file, out))
		return BETON_OK;
	pthread_mutex_lock(&files->lock);
	atomic_fetch_add(&files->waiting, 1);
	int result = borrow_shut(file, may_wait, out, err);
	atomic_fetch_sub(&files->waiting, 1);
	pthread_mutex_unlock(&files->lock);
	return result;
}

int bt_files_borrow(bt_file *file, bt_lease *out, beton_error *err)
{
	return borrow(file, true, out, err);
}

void bt_files_give_back(bt_file *file)
{
	leave(file);
}

int bt_files_hold(bt_file *file, bt_lease *out, beton_error *err)
{
	bt_files *files = file->files;
	uint32_t held = atomic_load(&files->held);
	do {
		uint32_t room = atomic_load_explicit(&files->room, memory_order_relaxed);
		if (room < files->count && held + 1 >= room)
			return BETON_TIMEOUT;
	} while (!atomic_compare_exchange_weak(&files->held, &held, held + 1));
	int result = borrow(file, false, out, err);
	if (result != BETON_OK)
		atomic_fetch_sub(&files->held, 1);
	return result;
}

void bt_files_end_hold(bt_file *file)
{
	atomic_fetch_sub(&file->files->held, 1);
	leave(file);
}

void bt_files_forget(bt_file *file)
{
	bt_files *files = file->files;
	bt_lease old = {-1, -1};
	pthread_mutex_lock(&files->lock);
	if (retire(files, file, &old))
		pthread_cond_broadcast(&files->changed);
	file->descriptors.known = false;
	pthread_mutex_unlock(&files->lock);
	shut(old);
}

int bt_files_lend(void *context, int *fd, beton_error *err)
{
	bt_lease lease = {-1, -1};
	int result = bt_files_borrow(context, &lease, err);
	*fd = lease.fd;
	return result;
}

void bt_files_end_loan(void *context, int fd)
{
	(void)fd;
	bt_files_give_back(context);
}
