/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job as a grid with named axes, each with a group: ranks that differ along one axis alone are that
 * axis's group. Strategies of parallel training take their groups from it by name: "replicate" for ranks that have
 * copies of the same parameters.
 */
#ifndef DTRAIN_MESH_H
#define DTRAIN_MESH_H

#include <dtrain/comm.h>
#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DTRAIN_MESH_MAX_AXES 6

typedef struct dtrain_mesh dtrain_mesh;

typedef struct dtrain_mesh_axis {
	const char *name; /* 1 to 31 characters; copied */
	int size;         /* >= 1 */
} dtrain_mesh_axis;

/* Collective over world. count: 1 to DTRAIN_MESH_MAX_AXES axes, the same on all ranks; the product of their sizes is
 * the world size. Neighbouring ranks differ along the last axis, so the axis with most traffic comes last. The mesh
 * splits world, which must outlive it; an axis with all ranks uses world itself as its group. Errors: INVALID_ARGUMENT,
 * and those of dtrain_group_split. */
BETON_API int dtrain_mesh_create(dtrain_group *world, const dtrain_mesh_axis *axes, int count, dtrain_mesh **out,
				 beton_error *err);
BETON_API void dtrain_mesh_destroy(dtrain_mesh **mesh); /* NULL allowed */

/* The group of this rank's line along the axis: its rank in the group is its coordinate. Owned by the mesh. NULL: no
 * such axis. */
BETON_API dtrain_group *dtrain_mesh_group(const dtrain_mesh *mesh, const char *axis);

/* The placement of a parameter whose dimension dim is divided among the ranks of the axis. Without such an axis each
 * rank has the whole parameter, so a model needs no case for a mesh that does not divide it. axis is borrowed. */
BETON_API dtrain_placement dtrain_mesh_placement(const dtrain_mesh *mesh, const char *axis, int dim);

#ifdef __cplusplus
}
#endif

#endif
