/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "common/error.h"
#include "cuda.h"

/* Advice for users, where CUDA's own text has none; otherwise "". */
static const char *advice(cudaError_t status)
{
	switch (status) {
	case cudaErrorInitializationError:
		return "; after fork() a process cannot use CUDA if its parent did";
	case cudaErrorDevicesUnavailable:
		return "; another process has it alone: see the compute mode in nvidia-smi -q -d COMPUTE";
	case cudaErrorSystemNotReady:
		return "; the system's services for GPUs do not run yet: see systemctl status nvidia-fabricmanager";
	case cudaErrorSystemDriverMismatch:
		return "; the driver's library and its kernel module are of two versions: reboot, or reload the module";
	case cudaErrorNoKernelImageForDevice:
		return "; the module holds no code for this GPU: build it with its compute capability in "
		       "-Dnvidia_archs";
	case cudaErrorStreamCaptureUnsupported:
		return "; the stream is being captured";
	case cudaErrorStreamCaptureUnjoined:
		return "; the capture's first stream did not wait for a stream that joined the capture";
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchFailure:
	case cudaErrorMisalignedAddress:
	case cudaErrorECCUncorrectable:
		return "; this process cannot use the device any more";
	default:
		return "";
	}
}

int cuda_check(cudaError_t status, beton_error *err, const char *format, ...)
{
	if (status == cudaSuccess)
		return BETON_OK;
	char what[BETON_ERROR_MESSAGE_SIZE];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	(void)cudaGetLastError();
	return bt_fail(err, status == cudaErrorMemoryAllocation ? BETON_NO_MEMORY : BETON_DEVICE, "%s: %s (%s)%s", what,
		       cudaGetErrorString(status), cudaGetErrorName(status), advice(status));
}

int cuda_enter(const dtrain_device *device, beton_error *err)
{
	return cuda_check(cudaSetDevice(device->index), err, "device 'cuda' %d", device->index);
}
