/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_cores.h"

#include <stdlib.h>
#include <string.h>

#include "common/system.h"

#define THREADS_MAX 4096

/* The variable is a list for nested teams; the first number counts. */
static int read_omp_threads(int64_t *out, beton_error *err)
{
	const char *text = getenv("OMP_NUM_THREADS");
	uint64_t threads = 0;
	char first[16] = "";
	if (!text || !text[strspn(text, " \t")])
		return BETON_OK;
	text += strspn(text, " \t");
	size_t length = strcspn(text, ", \t");
	if (length < sizeof(first))
		memcpy(first, text, length);
	int status = bt_parse_u64("OMP_NUM_THREADS", first, 1, THREADS_MAX, &threads, err);
	if (status != BETON_OK)
		return bt_fail(err, status, "environment: OMP_NUM_THREADS: '%s' is not a number of threads", text);
	*out = (int64_t)threads;
	return BETON_OK;
}

int run_cores_count_threads(run_options *options, const run_cores *cores, beton_error *err)
{
	options->compute_threads = options->threads;
	options->loader_threads = options->workers ? options->workers : cores->rank;
	if (options->threads)
		return BETON_OK;
	int status = read_omp_threads(&options->compute_threads, err);
	options->threads_from_environment = options->compute_threads > 0;
	/* Products add up in an order that depends on the threads, so these do not depend on the number of ranks. */
	int64_t parts = options->reproducible;
	if (!options->compute_threads)
		options->compute_threads = !parts ? cores->rank : cores->machine > parts ? cores->machine / parts : 1;
	return status;
}
