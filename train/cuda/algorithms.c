/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cache.h"
#include "common/error.h"
#include "common/system.h"

#define FORMAT 1

/* A file of ours has some 100 bytes for each algorithm; nothing as large as this is one. */
#define MAX_FILE_BYTES (16 << 20)

struct cuda_algorithms {
	char *key, *path;   /* path NULL: no file */
	bool unwritable;    /* or locked by who does not go on */
	json_t *algorithms; /* signature -> numbers */
	int choosing;       /* how often cuda_algorithms_begin was called and not ended */
	int chooser;        /* the lock of the one who chooses; -1: not held */
	bool impatient;     /* another process held it for too long */
};

/* ---- where the file is ---- */

static char *path_of(const char *key)
{
	char *folder = cuda_cache_folder(), *name = strdup(key), *path = NULL;
	if (folder && name) {
		cuda_cache_make_harmless(name);
		path = bt_format("%s/algorithms-%s.json", folder, name);
	}
	free(folder);
	free(name);
	return path;
}

/* ---- reading ---- */

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
	char *text = cuda_cache_read(algorithms->path, MAX_FILE_BYTES, &length);
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
	int status = cuda_cache_write(algorithms->path, text, strlen(text), err);
	free(text);
	return status;
}

/* Each on a file of its own, because the store's is replaced. */
static int lock(const cuda_algorithms *algorithms, const char *suffix, int patience_ms, int *fd, beton_error *err)
{
	char *path = bt_format("%s.%s", algorithms->path, suffix);
	int status = path ? cuda_cache_lock(path, patience_ms, fd, err)
			  : bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", algorithms->path);
	free(path);
	return status;
}

/* Whoever holds the lock writes a few kilobytes; when that takes long (the process is stopped, the disk is stuck), we
 * go on without writing, for good. */
enum { SAVE_PATIENCE_MS = 5000 };

static int save(cuda_algorithms *algorithms, beton_error *err)
{
	int fd = -1, status = lock(algorithms, "lock", SAVE_PATIENCE_MS, &fd, err);
	if (status == BETON_OK) {
		merge_file(algorithms);
		status = write_file(algorithms, err);
		close(fd);
	}
	algorithms->unwritable = status != BETON_OK;
	return status;
}

/* ---- one process that chooses, and others that wait for it ---- */

/* Compiling and timing the candidates of one op takes seconds. */
enum { CHOOSER_PATIENCE_MS = 120000 };

void cuda_algorithms_begin(cuda_algorithms *algorithms)
{
	if (!algorithms || algorithms->choosing++ > 0 || !algorithms->path || algorithms->impatient)
		return;
	if (lock(algorithms, "choosing", CHOOSER_PATIENCE_MS, &algorithms->chooser, NULL) == BETON_OK) {
		merge_file(algorithms);
		return;
	}
	algorithms->chooser = -1;
	algorithms->impatient = true;
}

void cuda_algorithms_end(cuda_algorithms *algorithms)
{
	if (!algorithms || --algorithms->choosing > 0 || algorithms->chooser < 0)
		return;
	close(algorithms->chooser);
	algorithms->chooser = -1;
}

/* ---- the store ---- */

int cuda_algorithms_open(const char *key, cuda_algorithms **out, beton_error *err)
{
	*out = NULL;
	cuda_algorithms *algorithms = calloc(1, sizeof(*algorithms));
	if (algorithms) {
		algorithms->key = strdup(key);
		algorithms->algorithms = json_object();
		algorithms->chooser = -1;
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
