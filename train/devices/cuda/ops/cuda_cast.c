/* SPDX-License-Identifier: Apache-2.0
 *
 * The op CAST: compute copies of parameters; convolutions' weights become channels-last (KRSC).
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

typedef struct cast {
	dtrain_dtype to;
	int num_parts;
	cuda_cast_part parts[];
} cast;

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	const cast *self = op->state;
	(void)workspace;
	return cuda_check(
		cuda_kernel_cast_parts(stream, operands[0], operands[1], self->to, self->parts, self->num_parts), err,
		"device 'cuda' %d: op %s", op->device->index, dtrain__op_name(op->desc.kind));
}

/* A filter that the kernel cannot hold stays plain, and the convolutions turn it. */
static bool is_channels_last(const dtrain_segment *segment)
{
	const int64_t *dim = segment->shape.dim;
	return segment->shape.ndim == 4 && dim[2] * dim[3] <= CUDA_CAST_LARGEST_AREA && dim[0] * dim[1] <= INT32_MAX;
}

/* Neighbours whose elements keep their order are one part, with what lies between them. */
static void add_segment(cast *self, const dtrain_segment *segment)
{
	const int64_t *dim = segment->shape.dim;
	bool turned = segment->layout && dim[1] > 1 && dim[2] * dim[3] > 1;
	int64_t end = segment->offset + dtrain_shape_count(&segment->shape);
	cuda_cast_part *last = self->num_parts ? &self->parts[self->num_parts - 1] : NULL;
	if (!turned && last && last->area == 1) {
		last->count = end - last->first;
		return;
	}
	self->parts[self->num_parts++] = (cuda_cast_part){.first = segment->offset,
							  .count = end - segment->offset,
							  .channels = turned ? dim[1] : 1,
							  .area = turned ? dim[2] * dim[3] : 1};
}

int cuda_build_cast(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	const dtrain_cast_attrs *a = &desc->attrs.cast;
	cast *self = calloc(1, sizeof(*self) + (size_t)a->num_segments * sizeof(self->parts[0]));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	self->to = desc->outputs[0].dtype;
	for (int32_t i = 0; i < a->num_segments; i++) {
		dtrain_segment *segment = &a->segments[i];
		bool turns = !desc->plain_output[0] && is_channels_last(segment);
		segment->layout = turns ? cuda_nhwc : NULL;
		add_segment(self, segment);
	}
	op->run = run;
	op->destroy = free;
	op->state = self;
	return BETON_OK;
}
