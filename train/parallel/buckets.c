/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "ddp.h"

struct place {
	int64_t offset;
	int param;
};

static int by_offset(const void *a, const void *b)
{
	const struct place *left = a, *right = b;

	return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Whole parameters in flat order; a bucket ends behind the parameter that fills it, and takes the padding that follows
 * along, so that buckets cover the space without a gap. */
static int cut(const dtrain_params *params, const struct place *places, int n, const size_t limits[2],
	       dtrain_bucket *plan, int *bucket_of)
{
	size_t each = dtrain_dtype_size(dtrain_params_dtype(params));
	int64_t start = -DTRAIN_GRAD_EXTRA;
	int count = 0;

	for (int i = 0; i < n; i++) {
		int64_t end = i + 1 < n ? places[i + 1].offset : dtrain_params_flat_count(params);

		bucket_of[places[i].param] = count;
		if (i + 1 < n && (size_t)(end - start) * each < limits[count > 0])
			continue;
		plan[count++] = (dtrain_bucket){start, end - start};
		start = end;
	}
	return count;
}

int dtrain__plan_buckets(const dtrain_params *params, size_t first_bytes, size_t bytes, dtrain_bucket **plan,
			 int *count, int **bucket_of, beton_error *err)
{
	const size_t limits[2] = {first_bytes, bytes};
	int n = dtrain_params_count(params);
	struct place *places;

	if (n == 0 || !dtrain_params_grads(params))
		return bt_fail(err, BETON_STATE, "ddp: the model has no parameters yet");
	places = calloc((size_t)n, sizeof(*places));
	*plan = calloc((size_t)n, sizeof(**plan));
	*bucket_of = calloc((size_t)n, sizeof(**bucket_of));
	if (!places || !*plan || !*bucket_of) {
		free(places);
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	}
	for (int i = 0; i < n; i++)
		places[i] = (struct place){dtrain_params_at(params, i)->offset, i};
	qsort(places, (size_t)n, sizeof(*places), by_offset);
	*count = cut(params, places, n, limits, *plan, *bucket_of);
	free(places);
	return BETON_OK;
}
