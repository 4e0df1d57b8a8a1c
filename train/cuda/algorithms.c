/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/error.h"
#include "common/system.h"

#define FORMAT 1

/* A file of ours has some 100 bytes for each algorithm; nothing as large as this is one. */
#define MAX_FILE_BYTES (16 << 20)

struct cuda_algorithms {
	char *key, *path;   /* path NULL: no file */
	bool unwritable;    /* or locked by who does not go on */
	json_t *algorithms; /* signature -> numbers */
};

/* ---- where the file is ---- */

/* NULL: nowhere, or no memory. */
static char *folder_of_user(void)
{
	const char *own = getenv("DTRAIN_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (own)
		return *own ? strdup(own) : NULL;
	/* The XDG specification has relative paths ignored. */
	if (cache && *cache == '/')
		return bt_format("%s/dtrain", cache);
	return home && *home == '/' ? bt_format("%s/.cache/dtrain", home) : NULL;
}

/* Letters, digits and what else is harmless in the name of a file. */
static void make_harmless(char *name)
{
	static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
	for (; *name; name++)
		if (!strchr(harmless, *name))
			*name = '_';
}

static char *path_of(const char *key)
{
	char *folder = folder_of_user(), *name = strdup(key), *path = NULL;
	if (folder && name) {
		make_harmless(name);
		path = bt_format("%s/algorithms-%s.json", folder, name);
	}
	free(folder);
	free(name);
	return path;
}

/* The folder of a file, and those above it. */
static int make_folders(const char *path, beton_error *err)
{
	char *copy = strdup(path);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", path);
	int status = BETON_OK;
	for (char *slash = strchr(copy + 1, '/'); slash && status == BETON_OK; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(copy, 0777) != 0 && errno != EEXIST)
			status = bt_fail_errno(err, errno, "cannot make the folder '%s'", copy);
		*slash = '/';
	}
	free(copy);
	return status;
}

/* ---- reading ---- */

static char *read_text(const char *path, size_t *length)
{
	/* Not waiting for the other end of what is no file at all. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	struct stat facts;
	char *text = NULL;
	if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0 && facts.st_size <= MAX_FILE_BYTES)
		text = malloc((size_t)facts.st_size);
	ssize_t got = text ? bt_pread_full(fd, text, (size_t)facts.st_size, 0) : -1;
	close(fd);
	if (got < 0) {
		free(text);
		return NULL;
	}
	*length = (size_t)got;
	return text;
}

static bool is_algorithm(const json_t *value)
{
	size_t count = json_array_size(value);
	if (!json_is_array(value) || count == 0 || count > CUDA_ALGORITHM_NUMBERS)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!json_is_integer(json_array_get(value, i)))
			return false;
	return true;
}

/* Adds what the file has and we do not. */
static void merge_file(cuda_algorithms *algorithms)
{
	size_t length = 0;
	char *text = read_text(algorithms->path, &length);
	json_t *root = text ? json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
	free(text);
	const char *key = json_string_value(json_object_get(root, "key"));
	bool ours = json_integer_value(json_object_get(root, "format")) == FORMAT && key &&
		    strcmp(key, algorithms->key) == 0;
	if (ours) {
		const char *signature;
		json_t *value;
		json_object_foreach(json_object_get(root, "algorithms"), signature, value)
		{
			if (is_algorithm(value) && !json_object_get(algorithms->algorithms, signature))
				json_object_set(algorithms->algorithms, signature, value);
		}
	}
	json_decref(root);
}

/* ---- writing ---- */

static int write_file(const cuda_algorithms *algorithms, beton_error *err)
{
	json_t *root = json_pack("{s:i, s:s, s:O}", "format", FORMAT, "key", algorithms->key, "algorithms",
				 algorithms->algorithms);
	char *text = root ? json_dumps(root, JSON_INDENT(0) | JSON_SORT_KEYS) : NULL;
	json_decref(root);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", algorithms->path);
	bt_atomic_file file = {0};
	int status = bt_atomic_open(&file, algorithms->path, err);
	if (status == BETON_OK && bt_write_full(file.fd, text, strlen(text)) != 0) {
		status = bt_fail_errno(err, errno, "cannot write '%s'", algorithms->path);
		bt_atomic_abandon(&file);
	} else if (status == BETON_OK) {
		status = bt_atomic_commit(&file, err);
	}
	free(text);
	return status;
}

enum { LOCK_TRIES = 2500, LOCK_PAUSE_US = 2000 };

/* The lock is on a file of its own, because the other one is replaced. Whoever holds it writes a few kilobytes; when
 * that takes long (the process is stopped, the disk is stuck), we go on without writing, for good. */
static int lock(const cuda_algorithms *algorithms, int *fd, beton_error *err)
{
	char *path = bt_format("%s.lock", algorithms->path);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", algorithms->path);
	int status = BETON_OK, result = -1;
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	for (int i = 0; i < LOCK_TRIES && *fd >= 0 && result != 0; i++) {
		result = flock(*fd, LOCK_EX | LOCK_NB);
		if (result != 0 && errno != EINTR && errno != EWOULDBLOCK)
			break;
		if (result != 0 && i + 1 < LOCK_TRIES)
			usleep(LOCK_PAUSE_US);
	}
	if (result != 0) {
		status = bt_fail_errno(err, errno, "cannot lock '%s'", path);
		if (*fd >= 0)
			close(*fd);
	}
	free(path);
	return status;
}

static int save(cuda_algorithms *algorithms, beton_error *err)
{
	int fd = -1, status = make_folders(algorithms->path, err);
	if (status == BETON_OK)
		status = lock(algorithms, &fd, err);
	if (status == BETON_OK) {
		merge_file(algorithms);
		status = write_file(algorithms, err);
		close(fd);
	}
	algorithms->unwritable = status != BETON_OK;
	return status;
}

/* ---- the store ---- */

int cuda_algorithms_open(const char *key, cuda_algorithms **out, beton_error *err)
{
	*out = NULL;
	cuda_algorithms *algorithms = calloc(1, sizeof(*algorithms));
	if (algorithms) {
		algorithms->key = strdup(key);
		algorithms->algorithms = json_object();
	}
	if (!algorithms || !algorithms->key || !algorithms->algorithms) {
		cuda_algorithms_close(algorithms);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the algorithms of '%s'", key);
	}
	algorithms->path = path_of(key);
	if (algorithms->path)
		merge_file(algorithms);
	*out = algorithms;
	return BETON_OK;
}

void cuda_algorithms_close(cuda_algorithms *algorithms)
{
	if (!algorithms)
		return;
	json_decref(algorithms->algorithms);
	free(algorithms->path);
	free(algorithms->key);
	free(algorithms);
}

const char *cuda_algorithms_path(const cuda_algorithms *algorithms)
{
	return algorithms->path;
}

bool cuda_algorithms_find(const cuda_algorithms *algorithms, const char *signature, cuda_algorithm *out)
{
	json_t *value = json_object_get(algorithms->algorithms, signature);
	if (!value)
		return false;
	out->count = (int)json_array_size(value);
	for (int i = 0; i < out->count; i++)
		out->numbers[i] = json_integer_value(json_array_get(value, (size_t)i));
	return true;
}

int cuda_algorithms_put(cuda_algorithms *algorithms, const char *signature, const cuda_algorithm *algorithm,
			beton_error *err)
{
	json_t *value = json_array();
	int failed = !value;
	for (int i = 0; i < algorithm->count && !failed; i++)
		failed = json_array_append_new(value, json_integer(algorithm->numbers[i]));
	if (!failed)
		failed = json_object_set(algorithms->algorithms, signature, value);
	json_decref(value);
	if (failed)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an algorithm");
	return algorithms->path && !algorithms->unwritable ? save(algorithms, err) : BETON_OK;
}

/* ---- timing ---- */

enum { RUNS = 5 };

/* So much slower than the fastest that no repetition can help. */
static const double FAR_BEHIND = 1.5;
/* What counts as equal. */
static const double NOISE = 1.02;

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The middle time of a candidate; negative: it does not work. */
static double time_of(int index, double fastest, cuda_timer *timer, void *context)
{
	double times[RUNS], first = 0;
	if (timer(context, index, &first, NULL) != BETON_OK)
		return -1;
	for (int i = 0; i < RUNS; i++) {
		if (timer(context, index, &times[i], NULL) != BETON_OK)
			return -1;
		if (i == 1 && fastest >= 0 && times[0] > FAR_BEHIND * fastest && times[1] > FAR_BEHIND * fastest)
			return times[1];
	}
	qsort(times, RUNS, sizeof(times[0]), compare);
	return times[RUNS / 2];
}

int cuda_fastest(int count, cuda_timer *timer, void *context)
{
	int best = -1;
	double fastest = -1;
	for (int i = 0; i < count; i++) {
		double ms = time_of(i, fastest, timer, context);
		if (ms >= 0 && (best < 0 || ms * NOISE < fastest)) {
			best = i;
			fastest = ms;
		}
	}
	/* A GPU that was idle is slow at first, which the first alone had to bear. */
	double again = best > 0 ? time_of(0, fastest, timer, context) : -1;
	return again >= 0 && again <= fastest * NOISE ? 0 : best;
}
