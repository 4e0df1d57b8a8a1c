/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: memory of NCCL's, and symmetric windows of it.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "nccl_comm.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
/* The installed library may be older than the headers, and lack these. */
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister

/* NCCL writes the window when the registration ends, or when it is aborted. */
typedef struct cuda_window {
	ncclWindow_t window;
} cuda_window;

static bool has_windows(void)
{
	return ncclMemAlloc && ncclMemFree && ncclCommWindowRegister && ncclCommWindowDeregister;
}

int cuda_nccl_memory_alloc(dtrain_device *device, size_t bytes, void **memory, beton_error *err)
{
	*memory = NULL;
	if (!has_windows())
		return bt_fail(err, BETON_UNSUPPORTED, "NCCL: windows need version 2.27 or newer");
	int status = cuda_enter(device, err);
	if (status != BETON_OK)
		return status;
	ncclResult_t result = ncclMemAlloc(memory, bytes);
	if (result != ncclSuccess)
		return cuda_nccl_fail(result, err, "ncclMemAlloc of %zu bytes", bytes);
	/* The device's streams do not wait for the default stream, so wait until the memory is zeroed. */
	cudaError_t answer = cudaMemsetAsync(*memory, 0, bytes, cudaStreamPerThread);
	if (answer == cudaSuccess)
		answer = cudaStreamSynchronize(cudaStreamPerThread);
	status = cuda_check(answer, err, "device 'cuda' %d: cannot clear %zu bytes", device->index, bytes);
	if (status != BETON_OK) {
		ncclMemFree(*memory);
		*memory = NULL;
	}
	return status;
}

/* NCCL unmaps the memory without waiting, unlike cudaFree. */
void cuda_nccl_memory_free(dtrain_device *device, void *memory)
{
	if (cuda_enter(device, NULL) != BETON_OK)
		return;
	cudaDeviceSynchronize();
	ncclMemFree(memory);
}

static int open_window(cuda_comm *comm, void *memory, size_t bytes, int timeout_ms, ncclWindow_t *out, beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)timeout_ms * 1000000;
	pthread_mutex_lock(&comm->mutex);
	int status;
	if (comm->aborted) {
		status = bt_fail(err, BETON_CANCELLED, "NCCL: the communicator was aborted");
	} else {
		ncclResult_t result = ncclCommWindowRegister(comm->comm, memory, bytes, out, NCCL_WIN_COLL_SYMMETRIC);
		status = cuda_nccl_settle(comm, result, deadline, "ncclCommWindowRegister", err);
	}
	pthread_mutex_unlock(&comm->mutex);
	return status;
}

int cuda_nccl_window_open(void *state, void *memory, size_t bytes, int timeout_ms, void **out, beton_error *err)
{
	cuda_comm *comm = state;
	cuda_window *window = NULL;
	int status = cuda_enter(comm->device, err);
	*out = NULL;
	if (status == BETON_OK) {
		window = calloc(1, sizeof(*window));
		status = window ? open_window(comm, memory, bytes, timeout_ms, &window->window, err)
				: bt_fail(err, BETON_NO_MEMORY, "NCCL: out of memory");
	}
	if (status == BETON_OK && window->window) {
		*out = window;
		return BETON_OK;
	}
	if (status == BETON_TIMEOUT)
		cuda_nccl_abort(&state, 1, NULL);
	if (!comm->abortion || cuda_nccl_abortion_ended(comm->abortion))
		free(window);
	return status;
}

void cuda_nccl_window_close(void *state, void *memory)
{
	cuda_comm *comm = state;
	cuda_window *window = memory;
	pthread_mutex_lock(&comm->mutex);
	/* Aborting the communicator frees its windows. */
	if (!comm->aborted && cuda_enter(comm->device, NULL) == BETON_OK)
		ncclCommWindowDeregister(comm->comm, window->window);
	pthread_mutex_unlock(&comm->mutex);
	free(window);
}
#endif
