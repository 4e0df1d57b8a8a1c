/* SPDX-License-Identifier: Apache-2.0 */
#include <dlpack/dlpack.h>
#include <stdlib.h>

#include <beton/loader.h>

#include "common/error.h"

/* An exported tensor, freed by its deleter. */
typedef struct exported {
	DLManagedTensor managed;
	beton_batch *batch;
	int64_t shape[5];
	int64_t strides[5];
} exported;

static DLDataType type_of(beton_dtype dtype)
{
	switch (dtype) {
	case BETON_FLOAT32:
		return (DLDataType){kDLFloat, 32, 1};
	case BETON_INT64:
		return (DLDataType){kDLInt, 64, 1};
	case BETON_FLOAT64:
		return (DLDataType){kDLFloat, 64, 1};
	case BETON_FLOAT16:
		return (DLDataType){kDLFloat, 16, 1};
	case BETON_BFLOAT16:
		return (DLDataType){kDLBfloat, 16, 1};
	case BETON_INT8:
		return (DLDataType){kDLInt, 8, 1};
	case BETON_INT16:
		return (DLDataType){kDLInt, 16, 1};
	case BETON_INT32:
		return (DLDataType){kDLInt, 32, 1};
	case BETON_UINT16:
		return (DLDataType){kDLUInt, 16, 1};
	case BETON_UINT32:
		return (DLDataType){kDLUInt, 32, 1};
	case BETON_UINT64:
		return (DLDataType){kDLUInt, 64, 1};
	case BETON_UINT8:
	case BETON_BOOL:
		break;
	}
	return (DLDataType){kDLUInt, 8, 1};
}

static void free_managed(DLManagedTensor *managed)
{
	exported *self = managed->manager_ctx;
	beton_batch_release(&self->batch);
	free(self);
}

int beton_batch_dlpack(beton_batch *batch, uint32_t index, DLManagedTensor **out, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, batch))
		return BETON_INVALID_ARGUMENT;
	if (index >= batch->num_tensors)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "beton_batch_dlpack: no tensor %u: the batch has %u", index,
			       batch->num_tensors);
	const beton_tensor *tensor = &batch->tensors[index];
	exported *self = malloc(sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "beton_batch_dlpack: out of memory");
	int64_t stride = 1;
	for (uint32_t i = tensor->ndim; i-- > 0; stride *= tensor->shape[i]) {
		self->shape[i] = tensor->shape[i];
		/* The protocol allows NULL for packed tensors, but some readers do not. */
		self->strides[i] = stride;
	}
	beton_batch_retain(batch);
	self->batch = batch;
	self->managed = (DLManagedTensor){.dl_tensor = {.data = tensor->data,
							.device = {.device_type = kDLCPU},
							.ndim = (int)tensor->ndim,
							.dtype = type_of(tensor->dtype),
							.shape = self->shape,
							.strides = self->strides},
					  .manager_ctx = self,
					  .deleter = free_managed};
	*out = &self->managed;
	return BETON_OK;
}
