/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in's cuDNN and cuBLASLt: their handles, which need a GPU, and cuDNN's backend for a GPU that is only
 * described. cuDNN itself plans, where the program is linked with it; its plans do nothing.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>
#include <cudnn.h>

#include "standin.h"

typedef cudnnStatus_t set_attribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
				    int64_t, const void *);

/* Their failures are not on the record of the runtime. */
static void *handle(void)
{
	void *made = standin_enter(true) == cudaSuccess ? calloc(1, 16) : NULL;
	(void)cudaGetLastError();
	standin_count(made ? 1 : 0);
	return made;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
	*out = handle();
	return *out ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t made)
{
	free(made);
	standin_count(-1);
	return CUDNN_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
	*out = handle();
	return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t made)
{
	free(made);
	standin_count(-1);
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuDNN's backend ---- */

cudnnStatus_t cudnnSetStream(cudnnHandle_t made, cudaStream_t stream)
{
	(void)stream;
	return made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static set_attribute *next(void)
{
	static set_attribute *found;
	void *symbol = found ? NULL : dlsym(RTLD_NEXT, "cudnnBackendSetAttribute");
	if (!found && symbol)
		memcpy(&found, &symbol, sizeof(found));
	return found;
}

/* Where the module names the handle, cuDNN is told of the GPU that the test describes. */
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
	cudnnBackendAttributeName_t instead = CUDNN_ATTR_DEVICEPROP_HANDLE;
	set_attribute *set = next();
	if (!set || !standin.gpu)
		return CUDNN_STATUS_NOT_INITIALIZED;
	if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
		return CUDNN_STATUS_SUCCESS;
	standin.plans += name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
	if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
		return set(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
			   &standin.gpu);
	if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
		instead = CUDNN_ATTR_ENGINEHEUR_DEVICEPROP;
	else if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
		instead = CUDNN_ATTR_ENGINE_DEVICEPROP;
	cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
	if (instead != CUDNN_ATTR_DEVICEPROP_HANDLE)
		status = set(descriptor, instead, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &standin.gpu);
	return status == CUDNN_STATUS_SUCCESS ? set(descriptor, name, type, count, elements) : status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t made, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	if (!made || !plan || !pack)
		return CUDNN_STATUS_BAD_PARAM;
	if (standin_enter(true) != cudaSuccess)
		return CUDNN_STATUS_EXECUTION_FAILED;
	if (standin.broken_plans > 0) {
		standin.broken_plans--;
		return CUDNN_STATUS_NOT_SUPPORTED;
	}
	standin.launches++;
	return CUDNN_STATUS_SUCCESS;
}
