/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/mesh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "sync.h"

typedef struct mesh_axis {
	char name[32];
	dtrain_group *group;
} mesh_axis;

struct dtrain_mesh {
	dtrain_group *world;
	mesh_axis axes[DTRAIN_MESH_MAX_AXES];
	int count;
};

static int check(const dtrain_group *world, const dtrain_mesh_axis *axes, int count, beton_error *err)
{
	int64_t ranks = 1;
	if (count < 1 || count > DTRAIN_MESH_MAX_AXES)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: %d axes, not 1 to %d", count, DTRAIN_MESH_MAX_AXES);
	for (int i = 0; i < count; i++) {
		const char *name = axes[i].name;
		if (!name || !*name || strlen(name) >= sizeof(((mesh_axis *)NULL)->name) || axes[i].size < 1)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "mesh: axis %d, '%s', of size %d", i,
				       name ? name : "", axes[i].size);
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

/* inner: the product of the sizes of the axes after this one. */
static int open_axis(dtrain_mesh *mesh, const dtrain_mesh_axis *given, int inner, beton_error *err)
{
	mesh_axis *axis = &mesh->axes[mesh->count++];
	int rank = dtrain_group_rank(mesh->world);
	snprintf(axis->name, sizeof(axis->name), "%s", given->name);
	if (given->size == dtrain_group_size(mesh->world)) {
		axis->group = mesh->world;
		return BETON_OK;
	}
	/* A line is identified by its rank with coordinate 0 along the axis. */
	int coordinate = rank / inner % given->size;
	return dtrain_group_split(mesh->world, rank - coordinate * inner, coordinate, NULL, &axis->group, err);
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
	int inner = dtrain_group_size(world);
	for (int i = 0; i < count && status == BETON_OK; i++) {
		inner /= axes[i].size;
		status = open_axis(mesh, &axes[i], inner, err);
	}
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
	for (int i = 0; i < (*mesh)->count; i++)
		if ((*mesh)->axes[i].group != (*mesh)->world)
			dtrain_group_destroy(&(*mesh)->axes[i].group);
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

dtrain_group *dtrain__mesh_world(const dtrain_mesh *mesh)
{
	return mesh->world;
}

dtrain_group *dtrain_mesh_group(const dtrain_mesh *mesh, const char *axis)
{
	if (!mesh || !axis)
		return NULL;
	for (int i = 0; i < mesh->count && axis; i++)
		if (strcmp(mesh->axes[i].name, axis) == 0)
			return mesh->axes[i].group;
	return NULL;
}
