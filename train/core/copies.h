/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute copies of parameters: all parameters once more, rounded to the 16-bit type that graphs compute in, at the
 * same elements of the flat space, each in the layout that the device's ops want of a weight. Ops read them in place of
 * the parameters. <dtrain/params.h> says when they exist, and who keeps them true.
 */
#ifndef DTRAIN_CORE_COPIES_H
#define DTRAIN_CORE_COPIES_H

#include <dtrain/params.h>

/* Makes the copies of a range of values. */
typedef struct dtrain__copies_op {
	dtrain_op *op;
	void *operands[2]; /* values, copies */
} dtrain__copies_op;

typedef struct dtrain__copies {
	dtrain_dtype dtype;                 /* the parameters' type: no copies */
	void *memory;                       /* of all units, in their order */
	struct dtrain__memory_owner *owner; /* of memory */
	size_t bytes;                       /* of memory */
	/* Each parameter, in flat order, with the layout of its copy. NULL: copies of shards, which are plain. */
	dtrain_segment *segments;
	dtrain__copies_op *ops; /* one for all; of shards, one for each unit */
	int count;
	void *workspace;
	size_t workspace_bytes;
} dtrain__copies;

/* A graph of that 16-bit type is begun: if the parameters are not allocated yet, and no graph of another such type was
 * begun before, they will have copies. For devices that ask for weight_copies. */
void dtrain__copies_want(dtrain_params *params, dtrain_dtype dtype);

/* Whether the parameters have copies in a type, or will have them when they are allocated. */
bool dtrain__copies_are_in(const dtrain_params *params, dtrain_dtype dtype);

/* Allocates the copies that are wanted. The ranges must be allocated. Call free even on failure. */
int dtrain__copies_allocate(dtrain_params *params, beton_error *err);
void dtrain__copies_free(dtrain_params *params);

/* The layout of a parameter's copy, by the parameter's index. */
const void *dtrain__copies_layout(const dtrain_params *params, int index);

/* Description of the op that makes all copies at once: from the values to the copies. They must be allocated, and not
 * be sharded. The
 * description points to a table that op_create writes, and that lives as long as the parameters. */
void dtrain__copies_describe(const dtrain_params *params, dtrain_op_desc *out);

/* Description of an op that makes plain copies of `count` values. Points to *segment, which it fills. */
void dtrain__copies_describe_range(const dtrain_params *params, int64_t count, dtrain_segment *segment,
				   dtrain_op_desc *out);

#endif
