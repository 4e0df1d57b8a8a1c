/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a parameter that a placement gives to a rank.
 */
#include <inttypes.h>

#include "common/error.h"
#include "params.h"
#include "shape.h"

static const struct {
	const char *name;
	bool of_data; /* ranks that differ along it have different samples */
	bool adds_up; /* they have different tokens of the same parameters, and add up their gradients */
} axes[DTRAIN_AXES] = {[DTRAIN_AXIS_PIPELINE] = {"pipeline", false, false},
		       [DTRAIN_AXIS_REPLICATE] = {"replicate", true, true},
		       [DTRAIN_AXIS_SHARD] = {"shard", true, true},
		       [DTRAIN_AXIS_CONTEXT] = {"context", false, true},
		       [DTRAIN_AXIS_TENSOR] = {"tensor", false, false}};

const char *dtrain__axis_name(dtrain_axis axis)
{
	return axes[axis].name;
}

bool dtrain__axis_is_of_data(dtrain_axis axis)
{
	return axes[axis].of_data;
}

bool dtrain__axis_adds_up(dtrain_axis axis)
{
	return axes[axis].adds_up;
}

dtrain_axis dtrain__axis_find(const char *name)
{
	int axis = 0;
	while (axis < DTRAIN_AXES && (!name || strcmp(axes[axis].name, name) != 0))
		axis++;
	return (dtrain_axis)axis;
}

int64_t dtrain__placement_blocks(const dtrain_placement *placement)
{
	return placement->blocks ? placement->blocks : 1;
}

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
	int64_t blocks = dtrain__placement_blocks(placement), indices = blocks > 0 ? shape->dim[dim] / blocks : 0;
	if (blocks < 1 || indices * blocks != shape->dim[dim])
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameter '%s': %" PRId64 " blocks along dimension %d, which has %" PRId64 " indices",
			       name, blocks, dim, shape->dim[dim]);
	if (placement->parts > indices)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"parameter '%s': %d ranks of the mesh's axis \"%s\" cannot divide dimension %d, which has "
			"%" PRId64 " indices%s; at most %" PRId64 " can",
			name, placement->parts, placement->axis, dim, indices, blocks > 1 ? " a block" : "", indices);
	if (placement->parts < 1 || placement->part < 0 || placement->part >= placement->parts)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "parameter '%s': part %d of %d along dimension %d", name,
			       placement->part, placement->parts, dim);
	*first = indices * placement->part / placement->parts;
	part->dim[dim] = blocks * (indices * (placement->part + 1) / placement->parts - *first);
	return BETON_OK;
}

int64_t dtrain__placement_room(const dtrain_param *param)
{
	const dtrain_placement *placement = &param->placement;
	if (!placement->axis)
		return param->count;
	int64_t blocks = dtrain__placement_blocks(placement);
	int64_t indices = param->global_shape.dim[placement->dim] / blocks;
	int64_t most = blocks * ((indices + placement->parts - 1) / placement->parts);
	return param->count / param->shape.dim[placement->dim] * most;
}

bool dtrain__placement_equal(const dtrain_placement *a, const dtrain_placement *b)
{
	if (!a->axis || !b->axis)
		return !a->axis && !b->axis;
	return strcmp(a->axis, b->axis) == 0 && a->dim == b->dim && a->parts == b->parts && a->part == b->part &&
	       dtrain__placement_blocks(a) == dtrain__placement_blocks(b);
}
