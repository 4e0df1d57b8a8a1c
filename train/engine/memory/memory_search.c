/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_search.h"

#include "recompute_option.h"

enum { MOST_RANKS = 65536, MOST_SAMPLES = 65536 };

int engine_memory_fits(const engine_rank *engine, const engine_layout *layout, size_t limit, bool *out,
		       beton_error *err)
{
	engine_memory memory;
	int status = engine_memory_plan(engine, layout, &memory, err);
	*out = status == BETON_OK && engine_memory_total(&memory) <= limit;
	return status;
}

int engine_memory_best(const engine_rank *engine, const engine_layout *layouts, int count, size_t limit, int *out,
		       beton_error *err)
{
	engine_memory memory;
	uint64_t least = 0;
	int status = BETON_OK;
	*out = -1;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		status = engine_memory_plan(engine, &layouts[i], &memory, err);
		if (status != BETON_OK || engine_memory_total(&memory) > limit)
			continue;
		if (*out < 0 || engine_memory_traffic(&memory) < least) {
			least = engine_memory_traffic(&memory);
			*out = i;
		}
	}
	return status;
}

/* Memory grows with the batch. */
int engine_memory_batch(const engine_rank *engine, const engine_layout *layout, size_t limit, int64_t *out,
			beton_error *err)
{
	engine_rank smaller = *engine;
	int64_t fitting = 0, too_large = engine->job.batch_size;
	int status = BETON_OK;
	while (too_large - fitting > 1 && status == BETON_OK) {
		bool fits;
		smaller.job.batch_size = fitting + (too_large - fitting) / 2;
		status = engine_memory_fits(&smaller, layout, limit, &fits, err);
		if (fits)
			fitting = smaller.job.batch_size;
		else
			too_large = smaller.job.batch_size;
	}
	*out = fitting;
	return status;
}

int engine_memory_largest(const engine_rank *engine, const engine_layout *layout, size_t limit, int64_t *out,
			  beton_error *err)
{
	engine_rank larger = *engine;
	bool fits = true;
	int status = BETON_OK;
	larger.job.batch_size = 1;
	while (fits && larger.job.batch_size <= MOST_SAMPLES && status == BETON_OK) {
		status = engine_memory_fits(&larger, layout, limit, &fits, err);
		larger.job.batch_size *= fits ? 2 : 1;
	}
	*out = MOST_SAMPLES;
	return status == BETON_OK && !fits ? engine_memory_batch(&larger, layout, limit, out, err) : status;
}

int engine_memory_recompute(const engine_rank *engine, const engine_layout *layout, size_t limit, const char **out,
			    beton_error *err)
{
	engine_rank leaner = *engine;
	int status = BETON_OK;
	*out = NULL;
	for (int i = (int)engine->job.recompute.what + 1; engine_recompute_name(i) && !*out && status == BETON_OK;
	     i++) {
		bool fits = false;
		status = engine_recompute_parse("--recompute", engine_recompute_name(i), &leaner.job.recompute, err);
		if (status == BETON_OK)
			status = engine_memory_fits(&leaner, layout, limit, &fits, err);
		*out = fits ? engine_recompute_name(i) : NULL;
	}
	return status;
}

int engine_memory_ranks(const engine_rank *engine, const engine_layout *layout, size_t limit, int32_t *out,
			beton_error *err)
{
	engine_layout more = *layout;
	int status = BETON_OK;
	*out = 0;
	while (!*out && more.ranks <= MOST_RANKS / 2 && status == BETON_OK) {
		bool fits;
		more.ranks *= 2;
		status = engine_memory_fits(engine, &more, limit, &fits, err);
		*out = fits ? more.ranks : 0;
	}
	return status;
}
