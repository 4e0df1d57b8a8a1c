/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/group.h"
#include "common/error.h"

typedef struct mesh_axis {
	dtrain_axis axis;
	int size;
	int stride; /* distance in the world between neighbours along the axis */
} mesh_axis;

/* The group of the ranks that differ along a set of axes alone. */
typedef struct mesh_line {
	uint32_t axes; /* bits 1 << dtrain_axis, without axes of size 1 */
	dtrain_group *group;
} mesh_line;

/* The sets of axes that have a group besides each axis alone. */
typedef bool axis_set(dtrain_axis axis);

static bool is_model(dtrain_axis axis)
{
	return !dtrain__axis_is_of_data(axis);
}

static bool has_replicas(dtrain_axis axis)
{
	return dtrain__axis_adds_up(axis) && axis != DTRAIN_AXIS_SHARD;
}

static axis_set *const sets[] = {dtrain__axis_is_of_data, is_model, dtrain__axis_adds_up, has_replicas};

enum { SETS = sizeof(sets) / sizeof(sets[0]), MESH_LINES = DTRAIN_MESH_MAX_AXES + SETS };

struct dtrain_mesh {
	dtrain_group *world;
	mesh_axis axes[DTRAIN_MESH_MAX_AXES];
	int count;
	mesh_line lines[MESH_LINES]; /* of different sets */
	int num_lines;
	dtrain_group *lanes[DTRAIN__MESH_LANES]; /* along "pipeline"; NULL: not opened */
};

static int check(const dtrain_group *world, const dtrain_mesh_axis *axes, int count, beton_error *err)
{
	int64_t ranks = 1;
	if (count < 1 || count > DTRAIN_MESH_MAX_AXES)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: %d axes, not 1 to %d", count, DTRAIN_MESH_MAX_AXES);
	for (int i = 0; i < count; i++) {
		const char *name = axes[i].name;
		if (dtrain__axis_find(name) == DTRAIN_AXES)
			return bt_fail(
				err, BETON_INVALID_ARGUMENT,
				"mesh: axis %d is '%s'; the axes are pipeline, replicate, shard, context, tensor", i,
				name ? name : "");
		if (axes[i].size < 1)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: axis '%s' of size %d", name, axes[i].size);
		for (int k = 0; k < i; k++)
			if (strcmp(axes[k].name, name) == 0)
				return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: two axes are called '%s'", name);
		ranks = ranks <= INT32_MAX ? ranks * axes[i].size : ranks;
	}
	if (ranks != dtrain_group_size(world))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: the axes have %lld ranks, and the world has %d",
			       (long long)ranks, dtrain_group_size(world));
	return BETON_OK;
}

static const mesh_line *find_line(const dtrain_mesh *mesh, uint32_t axes)
{
	for (int i = 0; i < mesh->num_lines; i++)
		if (mesh->lines[i].axes == axes)
			return &mesh->lines[i];
	return NULL;
}

static uint32_t bit_of(const mesh_axis *axis)
{
	return axis->size > 1 ? 1u << axis->axis : 0;
}

static uint32_t axes_of(const dtrain_mesh *mesh, axis_set *set)
{
	uint32_t axes = 0;
	for (int i = 0; i < mesh->count; i++)
		axes |= set(mesh->axes[i].axis) ? bit_of(&mesh->axes[i]) : 0;
	return axes;
}

static int open_line(dtrain_mesh *mesh, uint32_t axes, beton_error *err)
{
	if (find_line(mesh, axes))
		return BETON_OK;
	mesh_line *line = &mesh->lines[mesh->num_lines++];
	int rank = dtrain_group_rank(mesh->world), size = 1;
	/* The line's rank with coordinate 0 along all of its axes identifies it. */
	int color = rank;
	line->axes = axes;
	for (int i = 0; i < mesh->count; i++) {
		const mesh_axis *axis = &mesh->axes[i];
		if (!(axes & bit_of(axis)))
			continue;
		color -= rank / axis->stride % axis->size * axis->stride;
		size *= axis->size;
	}
	line->group = size == dtrain_group_size(mesh->world) ? mesh->world : NULL;
	/* Stages come to the sum of step metrics at different points of their schedules; until the last one has, the
	 * others go on, with operations along other axes. */
	dtrain_group_split_options options;
	dtrain_group_split_options_init(&options);
	options.own_lane = axes == 1u << DTRAIN_AXIS_PIPELINE;
	return line->group ? BETON_OK : dtrain_group_split(mesh->world, color, rank, &options, &line->group, err);
}

static int open_lines(dtrain_mesh *mesh, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < mesh->count && status == BETON_OK; i++)
		status = open_line(mesh, bit_of(&mesh->axes[i]), err);
	for (int i = 0; i < SETS && status == BETON_OK; i++)
		status = open_line(mesh, axes_of(mesh, sets[i]), err);
	return status;
}

int dtrain_mesh_create(dtrain_group *world, const dtrain_mesh_axis *axes, int count, dtrain_mesh **out,
		       beton_error *err)
{
	if (BT_MISSING(err, world, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	int status = check(world, axes, count, err);
	if (status != BETON_OK)
		return status;
	dtrain_mesh *mesh = calloc(1, sizeof(*mesh));
	if (!mesh)
		return bt_fail(err, BETON_NO_MEMORY, "mesh: out of memory");
	mesh->world = world;
	mesh->count = count;
	for (int i = 0, stride = dtrain_group_size(world); i < count; i++) {
		stride /= axes[i].size;
		mesh->axes[i].axis = dtrain__axis_find(axes[i].name);
		mesh->axes[i].size = axes[i].size;
		mesh->axes[i].stride = stride;
	}
	status = open_lines(mesh, err);
	if (status != BETON_OK)
		dtrain_mesh_destroy(&mesh);
	*out = mesh;
	return status;
}

void dtrain_mesh_destroy(dtrain_mesh **mesh)
{
	if (!mesh)
		return;
	if (!*mesh)
		return;
	dtrain__mesh_close_lanes(*mesh);
	for (int i = 0; i < (*mesh)->num_lines; i++)
		if ((*mesh)->lines[i].group != (*mesh)->world)
			dtrain_group_destroy(&(*mesh)->lines[i].group);
	free(*mesh);
	*mesh = NULL;
}

dtrain_placement dtrain_mesh_placement(const dtrain_mesh *mesh, const char *axis, int dim)
{
	if (!mesh || !axis)
		return (dtrain_placement){0};
	const dtrain_group *group = dtrain_mesh_group(mesh, axis);
	return group ? (dtrain_placement){.axis = axis,
					  .dim = dim,
					  .parts = dtrain_group_size(group),
					  .part = dtrain_group_rank(group)}
		     : (dtrain_placement){0};
}

dtrain_group *dtrain_mesh_group(const dtrain_mesh *mesh, const char *axis)
{
	if (!mesh || !axis)
		return NULL;
	for (int i = 0; i < mesh->count; i++)
		if (mesh->axes[i].axis == dtrain__axis_find(axis))
			return find_line(mesh, bit_of(&mesh->axes[i]))->group;
	return NULL;
}

dtrain_group *dtrain__mesh_line(const dtrain_mesh *mesh, uint32_t axes)
{
	const mesh_line *line = find_line(mesh, axes);
	return line ? line->group : NULL;
}

int dtrain__mesh_open_lane(dtrain_mesh *mesh, dtrain__mesh_lane lane, dtrain_device *device, beton_error *err)
{
	dtrain_group *line = dtrain_mesh_group(mesh, dtrain__axis_name(DTRAIN_AXIS_PIPELINE));
	dtrain_group_split_options options;
	dtrain_group_split_options_init(&options);
	options.own_lane = true;
	int status = mesh->lanes[lane]
			     ? BETON_OK
			     : dtrain_group_split(line, 0, dtrain_group_rank(line), &options, &mesh->lanes[lane], err);
	return status == BETON_OK ? dtrain__group_use_device(mesh->lanes[lane], device, err) : status;
}

dtrain_group *dtrain__mesh_get_lane(const dtrain_mesh *mesh, dtrain__mesh_lane lane)
{
	return mesh->lanes[lane];
}

void dtrain__mesh_close_lanes(dtrain_mesh *mesh)
{
	for (int i = 0; i < DTRAIN__MESH_LANES; i++)
		dtrain_group_destroy(&mesh->lanes[i]);
}

dtrain_group *dtrain_mesh_data_group(const dtrain_mesh *mesh)
{
	return mesh ? dtrain__mesh_line(mesh, axes_of(mesh, dtrain__axis_is_of_data)) : NULL;
}

dtrain_group *dtrain_mesh_model_group(const dtrain_mesh *mesh)
{
	return mesh ? dtrain__mesh_line(mesh, axes_of(mesh, is_model)) : NULL;
}

dtrain_group *dtrain_mesh_gradient_group(const dtrain_mesh *mesh)
{
	return mesh ? dtrain__mesh_line(mesh, axes_of(mesh, dtrain__axis_adds_up)) : NULL;
}

dtrain_group *dtrain__mesh_replicas(const dtrain_mesh *mesh)
{
	return dtrain__mesh_line(mesh, axes_of(mesh, has_replicas));
}

static dtrain__line line_of(const dtrain_mesh *mesh, uint32_t axes)
{
	const dtrain_group *group = dtrain__mesh_line(mesh, axes);
	return (dtrain__line){.size = dtrain_group_size(group), .rank = dtrain_group_rank(group)};
}

dtrain__lines dtrain__mesh_lines(const dtrain_mesh *mesh)
{
	dtrain__lines lines = {.data_axes = axes_of(mesh, dtrain__axis_is_of_data)};
	lines.data = line_of(mesh, lines.data_axes);
	lines.model = line_of(mesh, axes_of(mesh, is_model));
	for (int i = 0; i < mesh->count; i++)
		lines.along[mesh->axes[i].axis] = line_of(mesh, bit_of(&mesh->axes[i]));
	return lines;
}
