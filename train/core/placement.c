/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a parameter that a placement gives to a rank.
 */
#include <inttypes.h>

#include "common/error.h"
#include "params.h"
#include "shape.h"

int dtrain__placement_part(const char *name, const dtrain_shape *shape, const dtrain_placement *placement,
			   dtrain_shape *part, int64_t *first, beton_error *err)
{
	*part = *shape;
	*first = 0;
	if (!placement || !placement->axis)
		return BETON_OK;
	int dim = placement->dim;
	if (!*placement->axis || dim < 0 || dim >= shape->ndim)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameter '%s': axis '%s' divides dimension %d, and it has %d dimensions", name,
			       placement->axis, dim, shape->ndim);
	int64_t indices = shape->dim[dim];
	if (placement->parts < 1 || placement->part < 0 || placement->part >= placement->parts ||
	    placement->parts > indices)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameter '%s': part %d of %d along dimension %d, which has %" PRId64 " indices", name,
			       placement->part, placement->parts, dim, indices);
	*first = indices * placement->part / placement->parts;
	part->dim[dim] = indices * (placement->part + 1) / placement->parts - *first;
	return BETON_OK;
}

bool dtrain__placement_equal(const dtrain_placement *a, const dtrain_placement *b)
{
	if (!a->axis || !b->axis)
		return !a->axis && !b->axis;
	return strcmp(a->axis, b->axis) == 0 && a->dim == b->dim && a->parts == b->parts && a->part == b->part;
}
