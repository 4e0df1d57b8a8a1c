/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: device functions besides the table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "nccl_comm.h"

/* The first version that lets ranks share a GPU. */
#define SHARING_VERSION 23003

/* High priority: its kernels are few blocks, which wait for the network and should not also wait for free
 * multiprocessors. */
int cuda_nccl_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	int least = 0, greatest = 0;
	int status = cuda_enter(device, err);
	*out = NULL;
	if (status == BETON_OK)
		status = cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), err,
				    "device 'cuda' %d: priorities of streams", device->index);
	if (status != BETON_OK)
		return status;
	dtrain_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stream");
	stream->device = device;
	status = cuda_check(cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, greatest), err,
			    "device 'cuda' %d: cannot make a stream for communication", device->index);
	if (status != BETON_OK) {
		free(stream);
		return status;
	}
	*out = stream;
	return BETON_OK;
}

int cuda_nccl_stream_capturing(dtrain_stream *stream, bool *capturing, beton_error *err)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamIsCapturing(stream->stream, &capture), err,
				    "device 'cuda' %d: cannot ask a stream", stream->device->index);
	*capturing = capture != cudaStreamCaptureStatusNone;
	return status;
}

/* Relaxed: the query is allowed during any capture of any thread, and does not invalidate it. */
int cuda_nccl_event_query(dtrain_event *event, bool *complete, beton_error *err)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	*complete = false;
	/* The thread that watches a group makes no other calls. Without this one it would get a context on the first
	 * GPU: half a GiB of another rank's memory. */
	int status = cuda_enter(event->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaThreadExchangeStreamCaptureMode(&mode), err,
				    "device 'cuda' %d: cannot ask an event", event->device->index);
	if (status != BETON_OK)
		return status;
	cudaError_t answer = cudaEventQuery(event->event);
	if (answer == cudaErrorNotReady)
		(void)cudaGetLastError();
	else
		status = cuda_check(answer, err, "device 'cuda' %d: the work before an event failed",
				    event->device->index);
	*complete = answer == cudaSuccess;
	/* Restores the mode in any case. */
	if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess)
		(void)cudaGetLastError();
	return status;
}

int cuda_nccl_identify(dtrain_device *device, dtrain_device_identity *out, beton_error *err)
{
	const struct cudaDeviceProp *properties = &device->properties;
	const unsigned char *uuid = (const unsigned char *)properties->uuid.bytes;
	size_t used = (size_t)snprintf(out->id, sizeof(out->id), "GPU-");
	(void)err;
	for (size_t i = 0; i < sizeof(properties->uuid.bytes); i++)
		used += (size_t)snprintf(out->id + used, sizeof(out->id) - used,
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
	snprintf(out->pci, sizeof(out->pci), "%04x:%02x:%02x.0", (unsigned)properties->pciDomainID,
		 (unsigned)properties->pciBusID, (unsigned)properties->pciDeviceID);
	snprintf(out->name, sizeof(out->name), "%.40s at %.*s", properties->name, (int)strcspn(out->pci, "."),
		 out->pci);
	return BETON_OK;
}

int cuda_nccl_can_reach(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err)
{
	int there = 0, back = 0;
	int status = cuda_check(cudaDeviceCanAccessPeer(&there, a->index, b->index), err,
				"device 'cuda' %d: access to GPU %d", a->index, b->index);
	if (status == BETON_OK)
		status = cuda_check(cudaDeviceCanAccessPeer(&back, b->index, a->index), err,
				    "device 'cuda' %d: access to GPU %d", b->index, a->index);
	*out = status == BETON_OK && there && back;
	return status;
}

int cuda_nccl_check_sharing(beton_error *err)
{
	const char *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	int version = 0;
	ncclResult_t result = ncclGetVersion(&version);
	if (result != ncclSuccess)
		return cuda_nccl_fail(result, err, "ncclGetVersion");
	if (version < SHARING_VERSION)
		return bt_fail(
			err, BETON_UNSUPPORTED,
			"several ranks on one GPU (--share-device) need NCCL 2.30.3 or newer and "
			"NCCL_MULTI_RANK_GPU_ENABLE=1; this is %d.%d.%d: give each rank a GPU of its own, or put "
			"a newer libnccl.so.2 in front (LD_LIBRARY_PATH)",
			version / 10000, version % 10000 / 100, version % 100);
	if (!enabled || strcmp(enabled, "1") != 0)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "several ranks on one GPU (--share-device): NCCL wants NCCL_MULTI_RANK_GPU_ENABLE=1 in "
			       "the environment of every rank (experimental: about 2 ranks a GPU; too many hang, and a "
			       "lower NCCL_MAX_CTAS helps)");
	return BETON_OK;
}
