/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of a mesh, for train/parallel.
 */
#ifndef DTRAIN_PARALLEL_MESH_H
#define DTRAIN_PARALLEL_MESH_H

#include <dtrain/mesh.h>

#include "core/params.h"

/* The group of the ranks that differ along these axes alone (bits 1 << dtrain_axis): one axis, the data axes, the model
 * axes, or the axes of the next function. NULL: another set. */
dtrain_group *dtrain__mesh_line(const dtrain_mesh *mesh, uint32_t axes);
/* The ranks that have the same shards: they differ along the other axes of the gradient group. */
dtrain_group *dtrain__mesh_replicas(const dtrain_mesh *mesh);
dtrain__lines dtrain__mesh_lines(const dtrain_mesh *mesh);

/* Groups of the axis "pipeline" for messages, each with a lane of its own: gradients do not wait for activations. */
typedef enum dtrain__mesh_lane { DTRAIN__LANE_FORWARD, DTRAIN__LANE_BACKWARD, DTRAIN__MESH_LANES } dtrain__mesh_lane;

/* Collective along the axis, which the mesh must have, the first time; all pipelines of the mesh use the same. Owned by
 * the mesh. */
int dtrain__mesh_open_lane(dtrain_mesh *mesh, dtrain__mesh_lane lane, dtrain_device *device, beton_error *err);
/* NULL: it is not open. */
dtrain_group *dtrain__mesh_get_lane(const dtrain_mesh *mesh, dtrain__mesh_lane lane);
/* Messages in flight end. */
void dtrain__mesh_close_lanes(dtrain_mesh *mesh);

#endif
