/* SPDX-License-Identifier: Apache-2.0
 *
 * Which algorithm is the fastest for what: found by timing on the GPU, kept on disk.
 *
 * A store is one file for each kind of GPU and version of the libraries, in the folder of cache.h. Ranks that start
 * together share it: who writes takes a lock, adds what others wrote since, and replaces the file as a whole. Each
 * algorithm is a line with a checksum, and the first line says how many there are: of a file that was cut or damaged
 * the sound lines count, and the number of the others is known. A file of another key has none. It is an aid alone:
 * nothing fails because of it, and whoever takes an algorithm from it must be ready to find that it does not work.
 */
#ifndef DTRAIN_CUDA_ALGORITHMS_H
#define DTRAIN_CUDA_ALGORITHMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct cuda_algorithms cuda_algorithms;

#define CUDA_ALGORITHM_NUMBERS 64

/* What it means is known to who puts and finds it. */
typedef struct cuda_algorithm {
	int count;
	int64_t numbers[CUDA_ALGORITHM_NUMBERS];
} cuda_algorithm;

/* key: names GPU and versions. Without a folder that can be told, or an empty one, the store has no file.
 * Errors: NO_MEMORY. */
int cuda_algorithms_open(const char *key, cuda_algorithms **out, beton_error *err);
void cuda_algorithms_close(cuda_algorithms *algorithms); /* NULL allowed */
/* Of its file; NULL: none. */
const char *cuda_algorithms_path(const cuda_algorithms *algorithms);
/* How many algorithms of the file were lost when it was read last with a fault in it, as far as it still tells: at
 * least 1; without a fault 0. What is put next replaces the file by a sound one. Any thread. */
int cuda_algorithms_damaged(const cuda_algorithms *algorithms);

bool cuda_algorithms_find(const cuda_algorithms *algorithms, const char *signature, cuda_algorithm *out);
/* Remembers it, and writes the file. An error means that the file could not be written, and may be ignored: this
 * process knows the algorithm all the same. It is told once; after it nothing is written any more. */
int cuda_algorithms_put(cuda_algorithms *algorithms, const char *signature, const cuda_algorithm *algorithm,
			beton_error *err);

/* Around a choice: of the processes that share the store one chooses, and the others wait, for two minutes at most, and
 * then find what it chose. held: the mutex under which all threads of this process use the store; it is released while
 * this one waits. May be nested. NULL allowed as the store. */
void cuda_algorithms_begin(cuda_algorithms *algorithms, pthread_mutex_t *held);
void cuda_algorithms_end(cuda_algorithms *algorithms);

/* Runs candidate `index` and tells the milliseconds of one run; anything but BETON_OK: it does not work. */
typedef int cuda_timer(void *context, int index, double *ms, beton_error *err);

/* The fastest of the candidates, or -1 when none works. Each is called once for nothing, then up to five times, of
 * which the middle counts, so that a disturbed run or two do not; one that is far behind is given up early. Among those
 * that are within 2% of the fastest the first is taken, so that noise does not decide. Candidate 0 gets a second chance
 * at the end. */
int cuda_fastest(int count, cuda_timer *timer, void *context);

#endif
