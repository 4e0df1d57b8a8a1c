/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores the fastest algorithms, which are found by timing on the GPU, on disk.
 *
 * A store is one file for each kind of GPU and version of the libraries, in the folder of cache.h. Ranks that start
 * together share it: a writer takes a lock, adds what others have written, and replaces the whole file. Each algorithm
 * is a line with a checksum, and the first line has their number. So the valid lines of a damaged file can be used, and
 * the number of lost ones is known. A file with another key counts as empty. Nothing fails because of the store, and an
 * algorithm from it may not work.
 */
#ifndef DTRAIN_CUDA_ALGORITHMS_H
#define DTRAIN_CUDA_ALGORITHMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct cuda_algorithms cuda_algorithms;

#define CUDA_ALGORITHM_NUMBERS 64

/* Only the code that puts and finds an algorithm knows its meaning. */
typedef struct cuda_algorithm {
	int count;
	int64_t numbers[CUDA_ALGORITHM_NUMBERS];
} cuda_algorithm;

/* key: names GPU and versions. Without a folder (see cache.h) the store has no file.
 * Errors: NO_MEMORY. */
int cuda_algorithms_open(const char *key, cuda_algorithms **out, beton_error *err);
void cuda_algorithms_close(cuda_algorithms *algorithms); /* NULL allowed */
/* Path of its file; NULL: none. */
const char *cuda_algorithms_path(const cuda_algorithms *algorithms);
/* The number of algorithms that were lost when a damaged file was last read, as far as it is known: at least 1; 0
 * without damage. The next put replaces the file by a valid one. Any thread. */
int cuda_algorithms_damaged(const cuda_algorithms *algorithms);

bool cuda_algorithms_find(const cuda_algorithms *algorithms, const char *signature, cuda_algorithm *out);
/* Stores an algorithm and writes the file. On an error, which may be ignored, the file could not be written, but this
 * process keeps the algorithm. The error is reported once; nothing is written afterwards. */
int cuda_algorithms_put(cuda_algorithms *algorithms, const char *signature, const cuda_algorithm *algorithm,
			beton_error *err);

/* Gives `to` all algorithms of `from`; writes no file. Returns how many of them are new to `to`, or replace
 * others. No other thread uses the two. */
int32_t cuda_algorithms_add(cuda_algorithms *to, const cuda_algorithms *from);
/* From now on nothing is written. Any thread. */
void cuda_algorithms_seal(cuda_algorithms *algorithms);

/* Call around a choice. Of the processes that share the store one chooses; the others wait, for at most two minutes,
 * and then find its choice. held: the mutex under which all threads of this process use the store, released during the
 * wait. May be nested. The store may be NULL. */
void cuda_algorithms_begin(cuda_algorithms *algorithms, pthread_mutex_t *held);
void cuda_algorithms_end(cuda_algorithms *algorithms);

/* Runs candidate `index` and sets the milliseconds of one run. A result other than BETON_OK: the candidate does not
 * work. */
typedef int cuda_timer(void *context, int index, double *ms, beton_error *err);

/* The fastest candidate, or -1 if none works. Each is called once to warm up, then up to five times; the median counts,
 * so one or two disturbed runs do not matter. Much slower candidates are dropped early. The first candidate within 2%
 * of the fastest is taken, so that noise does not decide. Candidate 0 is timed again at the end. */
int cuda_fastest(int count, cuda_timer *timer, void *context);

/* Runs candidate `index` so many times and sets the milliseconds of one run; before its first timing, runs it once. A
 * result other than BETON_OK: the candidate does not work. */
typedef int cuda_runs_timer(void *context, int index, int runs, double *ms);

/* The same for many candidates, in the order of what is expected of them. A warm-up comes first. Then each is timed
 * once, as far as a tenth of a second reaches. The eight fastest are timed in turn, so that the GPU's clock is the same
 * for all; the first candidate whose median is within 0.5% of the least is taken. hurries: the first part ends after a
 * quarter of a second on the clock, too, and all of it takes about 0.3 seconds. */
int cuda_fastest_of_many(int count, bool hurries, cuda_runs_timer *timer, void *context);

#endif
