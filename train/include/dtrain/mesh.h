/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job as a grid with named axes. Ranks that differ along one axis alone form the group of that axis.
 * Parallel training asks the mesh, and nothing else, which ranks belong together.
 *
 * The axes "replicate" and "shard" are the data axes: ranks that differ along them train the same model on different
 * samples, and add up their gradients. All other axes are model axes: ranks that differ along them compute parts of one
 * model for the same samples. Along "context" they have all parameters and different tokens of each sample, so they add
 * up their gradients, too. For example, {replicate 2, context 2, tensor 2} has 8 ranks, 2 data ranks, and 4 ranks that
 * add up their gradients.
 */
#ifndef DTRAIN_MESH_H
#define DTRAIN_MESH_H

#include <dtrain/comm.h>
#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Axes of a mesh. */
#define DTRAIN_MESH_MAX_AXES 6

typedef struct dtrain_mesh dtrain_mesh;

/* An axis of a mesh. */
typedef struct dtrain_mesh_axis {
	const char *name; /* "pipeline", "replicate", "shard", "context" or "tensor" */
	int size;         /* >= 1 */
} dtrain_mesh_axis;

/* Collective over world. count: 1 to DTRAIN_MESH_MAX_AXES axes, the same on all ranks; the product of their sizes is
 * the world size. Neighbouring ranks differ along the last axis, so the axis with most traffic comes last. The mesh
 * splits world, which must outlive it; an axis with all ranks uses world itself as its group. Errors: INVALID_ARGUMENT,
 * and errors of dtrain_group_split. */
BETON_API int dtrain_mesh_create(dtrain_group *world, const dtrain_mesh_axis *axes, int count, dtrain_mesh **out,
				 beton_error *err);
BETON_API void dtrain_mesh_destroy(dtrain_mesh **mesh); /* NULL allowed */

/* The group of this rank's line along the axis: its rank in the group is its coordinate. Owned by the mesh. NULL: no
 * such axis. */
BETON_API dtrain_group *dtrain_mesh_group(const dtrain_mesh *mesh, const char *axis);

/* The ranks that differ along data axes alone, in the order of the world. A rank's number in this group is its data
 * rank; the size is the number of data ranks. A mesh without a data axis has one data rank. Owned by the mesh. */
BETON_API dtrain_group *dtrain_mesh_data_group(const dtrain_mesh *mesh);

/* The ranks that differ along model axes alone, in the order of the world: together they compute one model. Its size is
 * 1 if the mesh has no model axis. Owned by the mesh. */
BETON_API dtrain_group *dtrain_mesh_model_group(const dtrain_mesh *mesh);

/* The ranks that differ along data axes and "context" alone, in the order of the world: they have the same parts of the
 * model, and add up their gradients. Owned by the mesh. */
BETON_API dtrain_group *dtrain_mesh_gradient_group(const dtrain_mesh *mesh);

/* The placement of a parameter whose dimension dim is divided among the ranks of the axis. Without such an axis each
 * rank has the whole parameter, so a model needs no case for a mesh that does not divide it. axis is borrowed. */
BETON_API dtrain_placement dtrain_mesh_placement(const dtrain_mesh *mesh, const char *axis, int dim);

#ifdef __cplusplus
}
#endif

#endif
