/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/error.h"
#include "whiten_filters.h"

#ifdef HAVE_LAPACKE

#include <lapacke.h>

#define EPSILON 5e-4

int vision_whiten_check(beton_error *err)
{
	(void)err;
	return BETON_OK;
}

int vision_whiten_filters(const double *sums, int64_t count, float *filters, beton_error *err)
{
	double vectors[VISION_WHITEN_PATCH * VISION_WHITEN_PATCH], values[VISION_WHITEN_PATCH];
	const int n = VISION_WHITEN_PATCH;
	for (int i = 0; i < n * n; i++) {
		vectors[i] = sums[i] / (double)count;
		if (!isfinite(vectors[i]))
			return bt_fail(err, BETON_DIVERGED, "whitening: the pictures' pixels are not finite");
	}
	/* Eigenvalues are in ascending order; vector k is column k. */
	int status = (int)LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'V', 'U', n, vectors, n, values);
	if (status != 0)
		return bt_fail(err, BETON_DIVERGED, "whitening: LAPACK's dsyev returned %d", status);
	for (int k = 0; k < n; k++) {
		/* Rounding may make an eigenvalue of 0 slightly negative. */
		double scale = 1 / sqrt(fmax(values[n - 1 - k], 0) + EPSILON);
		for (int i = 0; i < n; i++) {
			filters[k * n + i] = (float)(vectors[i * n + n - 1 - k] * scale);
			filters[(n + k) * n + i] = -filters[k * n + i];
		}
	}
	return BETON_OK;
}

#else

int vision_whiten_check(beton_error *err)
{
	return bt_fail(err, BETON_UNSUPPORTED,
		       "--model airbench94: its first layer needs LAPACKE (Debian: liblapacke-dev), which this build "
		       "does not have");
}

int vision_whiten_filters(const double *sums, int64_t count, float *filters, beton_error *err)
{
	(void)sums;
	(void)count;
	(void)filters;
	return vision_whiten_check(err);
}

#endif
