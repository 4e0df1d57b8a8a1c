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
typedef cudnnStatus_t get_attribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
				    int64_t, int64_t *, void *);

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

/* cuDNN's own, where the program is linked with it. */
static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static set_attribute *next_set(void)
{
	void *symbol = next("cudnnBackendSetAttribute");
	set_attribute *found = NULL;
	if (symbol)
		memcpy(&found, &symbol, sizeof(found));
	return found;
}

static get_attribute *next_get(void)
{
	void *symbol = next("cudnnBackendGetAttribute");
	get_attribute *found = NULL;
	if (symbol)
		memcpy(&found, &symbol, sizeof(found));
	return found;
}

static cudnnStatus_t describe_handle(cudnnBackendDescriptor_t descriptor, set_attribute *set)
{
	char text[8192];
	int64_t length = 0;
	get_attribute *get = next_get();
	cudnnStatus_t status = !get ? CUDNN_STATUS_NOT_INITIALIZED
				    : get(standin.gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
					  sizeof(text), &length, text);
	if (status != CUDNN_STATUS_SUCCESS)
		return status;
	return set(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
		   (int64_t)strnlen(text, (size_t)length), text);
}

/* The plan loaded last; tests run one plan after the other. */
static _Atomic(cudnnBackendDescriptor_t) loaded;

static void note_plan(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name)
{
	bool from_text = name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
	if (!from_text && name != CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
		return;
	standin_note(from_text ? &standin.loaded : &standin.made);
	if (from_text)
		loaded = descriptor;
}

/* Where the module names the handle, cuDNN gets the GPU that the test describes. */
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
	cudnnBackendAttributeName_t instead = CUDNN_ATTR_DEVICEPROP_HANDLE;
	set_attribute *set = next_set();
	if (!set || !standin.gpu)
		return CUDNN_STATUS_NOT_INITIALIZED;
	note_plan(descriptor, name);
	if (name == CUDNN_ATTR_DEVICEPROP_HANDLE)
		return describe_handle(descriptor, set);
	if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
		return CUDNN_STATUS_SUCCESS;
	if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
		standin_note(&standin.plans);
		return set(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
			   &standin.gpu);
	}
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
	if (standin.refused > 0 && plan == loaded) {
		standin.refused--;
		return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
	}
	if (standin.uncapturable > 0 && standin_is_capturing()) {
		standin.uncapturable--;
		return CUDNN_STATUS_EXECUTION_FAILED;
	}
	standin.launches++;
	return CUDNN_STATUS_SUCCESS;
}
