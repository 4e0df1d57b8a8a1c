/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cache.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"

#define FORMAT "dtrain-algorithms-2"

/* An algorithm takes about 100 bytes, so a file this large is not a store. */
#define MAX_FILE_BYTES (16 << 20)

struct cuda_algorithms {
	char *key, *path;   /* path NULL: no file */
	bool unwritable;    /* or locked by a process that does not release it, or sealed; atomic */
	json_t *algorithms; /* signature -> numbers */
	int choosing;       /* calls of cuda_algorithms_begin without their end */
	int chooser;        /* descriptor of the chooser's lock; -1: not held */
	bool impatient;     /* another process held that lock for too long */
	int damaged;        /* for cuda_algorithms_damaged; atomic */
};

/* ---- where the file is ---- */

static char *path_of(const char *key)
{
	char *folder = cuda_cache_folder(), *name = strdup(key), *path = NULL;
	if (folder && name) {
		cuda_cache_make_harmless(name);
		path = bt_format("%s/algorithms-%s", folder, name);
	}
	free(folder);
	free(name);
	return path;
}

/* ---- lines: "CHECKSUM JSON", with the checksum of the key and the JSON ---- */

enum { CHECKSUM = 16 };

static uint64_t checksum_of(const char *key, const char *json, size_t length)
{
	XXH64_hash_t seed = XXH3_64bits(key, strlen(key));
	return XXH3_64bits_withSeed(json, length, seed);
}

/* Frees the value. */
static int write_line(FILE *out, const char *key, json_t *value)
{
	char *json = value ? json_dumps(value, JSON_COMPACT) : NULL;
	int failed = !json || fprintf(out, "%016" PRIx64 " %s\n", checksum_of(key, json, strlen(json)), json) < 0;
	free(json);
	json_decref(value);
	return failed;
}

/* NULL: the line is damaged, or has another key. */
static json_t *read_line(const char *key, const char *line, size_t length)
{
	char right[CHECKSUM + 2];
	if (length <= CHECKSUM + 1)
		return NULL;
	const char *json = line + CHECKSUM + 1;
	length -= CHECKSUM + 1;
	snprintf(right, sizeof(right), "%016" PRIx64 " ", checksum_of(key, json, length));
	return memcmp(line, right, CHECKSUM + 1) == 0 ? json_loadb(json, length, 0, NULL) : NULL;
}

/* ---- reading ---- */

/* The number of algorithms in the first line, [FORMAT, key, number]; -1: it is not such a line. */
static int read_head(const json_t *line)
{
	const char *format = json_string_value(json_array_get(line, 0));
	const json_t *count = json_array_get(line, 2);
	return format && strcmp(format, FORMAT) == 0 && json_is_integer(count) ? (int)json_integer_value(count) : -1;
}

/* Takes ownership of the line, [signature, number...], and keeps its numbers. */
static bool add_line(cuda_algorithms *algorithms, json_t *line)
{
	json_t *first = json_incref(json_array_get(line, 0));
	const char *signature = json_string_value(first);
	size_t count = json_array_size(line);
	bool sound = signature && count > 1 && count <= 1 + CUDA_ALGORITHM_NUMBERS;
	for (size_t i = 1; i < count && sound; i++)
		sound = json_is_integer(json_array_get(line, i));
	if (sound && !json_object_get(algorithms->algorithms, signature))
		sound = json_array_remove(line, 0) == 0 &&
			json_object_set(algorithms->algorithms, signature, line) == 0;
	json_decref(first);
	json_decref(line);
	return sound;
}

/* Adds the file's algorithms that are not known yet, and counts damaged ones. Only the first line says what the format
 * is, so without it the numbers of the other lines mean nothing. */
static void merge_file(cuda_algorithms *algorithms)
{
	size_t length = 0;
	char *text = cuda_cache_read(algorithms->path, MAX_FILE_BYTES, &length);
	if (!text) {
		/* The file exists, but cannot be read, or is empty. */
		if (access(algorithms->path, F_OK) == 0)
			__atomic_store_n(&algorithms->damaged, 1, __ATOMIC_RELAXED);
		return;
	}
	int announced = -1, sound = 0, lines = 0;
	const char *line = text, *end = text + length;
	for (const char *next; line < end; line = next + 1, lines++) {
		next = memchr(line, '\n', (size_t)(end - line));
		if (!next)
			next = end;
		json_t *value = read_line(algorithms->key, line, (size_t)(next - line));
		if (lines > 0 && announced >= 0) {
			sound += value && add_line(algorithms, value);
			continue;
		}
		if (lines == 0)
			announced = read_head(value);
		json_decref(value);
	}
	free(text);
	/* Each line of a file without its head counts, and the head itself. */
	int damaged = announced < 0 ? lines : announced - sound;
	if (damaged > 0)
		__atomic_store_n(&algorithms->damaged, damaged, __ATOMIC_RELAXED);
}

/* ---- writing ---- */

static int write_lines(const cuda_algorithms *algorithms, FILE *out)
{
	const char *signature;
	json_t *numbers;
	int failed = write_line(
		out, algorithms->key,
		json_pack("[s, s, i]", FORMAT, algorithms->key, (int)json_object_size(algorithms->algorithms)));
	json_object_foreach(algorithms->algorithms, signature, numbers)
	{
		json_t *line = json_copy(numbers);
		if (!line || json_array_insert_new(line, 0, json_string(signature)) != 0)
			failed = 1;
		failed |= write_line(out, algorithms->key, line);
	}
	return failed;
}

static int write_file(const cuda_algorithms *algorithms, beton_error *err)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	int failed = !out || write_lines(algorithms, out);
	if (out && fclose(out) != 0)
		failed = 1;
	int status = failed ? bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", algorithms->path)
			    : cuda_cache_write(algorithms->path, text, length, err);
	free(text);
	return status;
}

/* Locks a separate file, because the store's file is replaced. */
static int lock(const cuda_algorithms *algorithms, const char *suffix, int patience_ms, int *fd, beton_error *err)
{
	char *path = bt_format("%s.%s", algorithms->path, suffix);
	int status = path ? cuda_cache_lock(path, patience_ms, fd, err)
			  : bt_fail(err, BETON_NO_MEMORY, "out of memory for '%s'", algorithms->path);
	free(path);
	return status;
}

/* Writing takes a few kilobytes. If the holder of the lock takes longer than this (stopped, or its disk is stuck), this
 * process never writes again. */
enum { SAVE_PATIENCE_MS = 5000 };

static int save(cuda_algorithms *algorithms, beton_error *err)
{
	int fd = -1, status = lock(algorithms, "lock", SAVE_PATIENCE_MS, &fd, err);
	if (status == BETON_OK) {
		merge_file(algorithms);
		status = write_file(algorithms, err);
		close(fd);
	}
	if (status != BETON_OK)
		cuda_algorithms_seal(algorithms);
	return status;
}

/* ---- one process that chooses, and others that wait for it ---- */

/* Compiling and timing the candidates of one op takes seconds. */
enum { CHOOSER_PATIENCE_MS = 120000 };

void cuda_algorithms_begin(cuda_algorithms *algorithms, pthread_mutex_t *held)
{
	if (!algorithms || algorithms->choosing++ > 0 || !algorithms->path || algorithms->impatient)
		return;
	/* Processes that come during the wait do not wait, so do not change their state. */
	int chooser = -1;
	pthread_mutex_unlock(held);
	int status = lock(algorithms, "choosing", CHOOSER_PATIENCE_MS, &chooser, NULL);
	pthread_mutex_lock(held);
	algorithms->impatient = status != BETON_OK;
	algorithms->chooser = status == BETON_OK ? chooser : -1;
	if (status == BETON_OK)
		merge_file(algorithms);
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

int cuda_algorithms_damaged(const cuda_algorithms *algorithms)
{
	return __atomic_load_n(&algorithms->damaged, __ATOMIC_RELAXED);
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
	bool writes = algorithms->path && !__atomic_load_n(&algorithms->unwritable, __ATOMIC_ACQUIRE);
	return writes ? save(algorithms, err) : BETON_OK;
}

int32_t cuda_algorithms_add(cuda_algorithms *to, const cuda_algorithms *from)
{
	const char *signature;
	json_t *algorithm;
	int32_t added = 0;
	json_object_foreach(from->algorithms, signature, algorithm)
	{
		bool known = json_equal(json_object_get(to->algorithms, signature), algorithm);
		/* Without memory the op keeps its algorithm. */
		added += !known && json_object_set(to->algorithms, signature, algorithm) == 0;
	}
	return added;
}

void cuda_algorithms_seal(cuda_algorithms *algorithms)
{
	__atomic_store_n(&algorithms->unwritable, true, __ATOMIC_RELEASE);
}

/* ---- timing ---- */

enum { RUNS = 5 };

/* A candidate this much slower than the fastest is not repeated. */
static const double FAR_BEHIND = 1.5;
/* Times within this factor count as equal. */
static const double NOISE = 1.02;

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median time of a candidate; negative: it does not work. */
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
	/* An idle GPU is slow at first, which only the first candidate suffered from. */
	double again = best > 0 ? time_of(0, fastest, timer, context) : -1;
	return again >= 0 && again <= fastest * NOISE ? 0 : best;
}

/* ---- timing of many candidates ---- */

enum { FINALISTS = 8, SCREENING_RUNS = 2, FINAL_RUNS = 5, LEAST_ROUNDS = 5, MOST_ROUNDS = 40, WARM_UPS = 20 };

/* Sums of timed runs. An idle GPU raises its clock within milliseconds, and lowers it again under load. */
static const double WARM_UP_MS = 15, SCREENING_MS = 100, FINALS_MS = 60;
/* The screening may take no longer, because the first run of a kernel loads its code. */
static const uint64_t SCREENING_NS = 250000000;
/* A candidate this much slower than the fastest is dropped after its first timing. */
static const double BEHIND = 1.2;
/* Medians of candidates that take turns count as equal within this factor. */
static const double FINAL_NOISE = 1.005;

typedef struct finalist {
	int index; /* -1: it stopped working */
	double ms, times[MOST_ROUNDS];
} finalist;

/* Keeps the fastest, sorted. Returns how many they are. */
static int enter(finalist *list, int count, int index, double ms)
{
	int at = count;
	for (; at > 0 && ms < list[at - 1].ms; at--)
		if (at < FINALISTS)
			list[at] = list[at - 1];
	if (at < FINALISTS)
		list[at] = (finalist){.index = index, .ms = ms};
	return count < FINALISTS ? count + 1 : count;
}

/* Runs the first candidate that works. */
static void warm_up(int count, cuda_runs_timer *timer, void *context)
{
	double total = 0, ms = 0;
	for (int i = 0, index = 0; i < WARM_UPS && index < count && total < WARM_UP_MS; i++) {
		if (timer(context, index, FINAL_RUNS, &ms) == BETON_OK)
			total += ms * FINAL_RUNS;
		else
			index++;
	}
}

/* Times each candidate once; returns the number of finalists. */
static int screen(finalist *list, int count, bool hurries, cuda_runs_timer *timer, void *context)
{
	uint64_t end = hurries ? bt_now_ns() + SCREENING_NS : UINT64_MAX;
	double total = 0;
	int kept = 0;
	for (int i = 0; i < count && (kept == 0 || (total < SCREENING_MS && bt_now_ns() < end)); i++) {
		double ms = 0;
		if (timer(context, i, SCREENING_RUNS, &ms) != BETON_OK)
			continue;
		kept = enter(list, kept, i, ms);
		total += ms * (SCREENING_RUNS + 1);
	}
	while (kept > 1 && list[kept - 1].ms > BEHIND * list[0].ms)
		kept--;
	return kept;
}

/* Replaces the finalists' times by their medians. */
static void take_turns(finalist *list, int count, cuda_runs_timer *timer, void *context)
{
	int runs = list[0].ms * FINAL_RUNS * count < FINALS_MS / 2 ? FINAL_RUNS : 1, rounds = 0;
	double total = 0;
	for (; rounds < MOST_ROUNDS && (rounds < LEAST_ROUNDS || total < FINALS_MS); rounds++)
		for (int i = 0; i < count; i++) {
			finalist *f = &list[i];
			if (f->index >= 0 && timer(context, f->index, runs, &f->times[rounds]) != BETON_OK)
				f->index = -1;
			total += f->times[rounds] * runs;
		}
	for (int i = 0; i < count; i++) {
		qsort(list[i].times, (size_t)rounds, sizeof(double), compare);
		list[i].ms = list[i].times[rounds / 2];
	}
}

int cuda_fastest_of_many(int count, bool hurries, cuda_runs_timer *timer, void *context)
{
	finalist list[FINALISTS];
	warm_up(count, timer, context);
	int kept = screen(list, count, hurries, timer, context), best = -1;
	if (kept > 1)
		take_turns(list, kept, timer, context);
	double least = 0;
	for (int i = 0; i < kept; i++)
		if (list[i].index >= 0 && (least <= 0 || list[i].ms < least))
			least = list[i].ms;
	for (int i = 0; i < kept; i++)
		if (list[i].index >= 0 && list[i].ms <= FINAL_NOISE * least && (best < 0 || list[i].index < best))
			best = list[i].index;
	return best;
}
