/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces NVIDIA's driver where there is none, so that cuDNN can plan for a described GPU: it reports no GPU, and
 * accepts every kernel. cuDNN finds it because it is loaded under the driver's name. Engines can be compiled and
 * serialized with it, but not run. It has the names and results of the driver's public interface that cuDNN 9.19 and
 * NVRTC 13.0 use.
 */
#include <stddef.h>

#define NAMED __attribute__((visibility("default")))
/* For functions whose only result is CUDA_SUCCESS. */
#define SUCCEEDS(name)        \
	NAMED int name(void); \
	int name(void)        \
	{                     \
		return 0;     \
	}

enum { DRIVER_VERSION = 13000, NOT_FOUND = 500 };

SUCCEEDS(cuInit)
SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetDevice)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuDeviceGet)
SUCCEEDS(cuKernelGetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryLoadFromFile)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
SUCCEEDS(cuStreamGetCtx)

/* The target of all handles of libraries and kernels. */
static char loaded;

NAMED int cuDriverGetVersion(int *version);
NAMED int cuDeviceGetCount(int *count);
NAMED int cuGetErrorName(int error, const char **text);
NAMED int cuGetErrorString(int error, const char **text);
NAMED int cuGetExportTable(const void **table, const void *id);
NAMED int cuLibraryLoadData(void **library, ...);
NAMED int cuLibraryGetKernel(void **kernel, void *library, const char *name);

int cuDriverGetVersion(int *version)
{
	*version = DRIVER_VERSION;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 0;
	return 0;
}

int cuGetErrorName(int error, const char **text)
{
	*text = error ? "an error" : "CUDA_SUCCESS";
	return 0;
}

int cuGetErrorString(int error, const char **text)
{
	return cuGetErrorName(error, text);
}

int cuGetExportTable(const void **table, const void *id)
{
	(void)id;
	*table = NULL;
	return NOT_FOUND;
}

int cuLibraryLoadData(void **library, ...)
{
	*library = &loaded;
	return 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
	(void)library;
	(void)name;
	*kernel = &loaded;
	return 0;
}
