/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: memory of NCCL's, and symmetric windows of it. NCCL 2.19 to 2.26 has no windows; there the
 * memory is registered, which each rank does for itself.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "nccl_comm.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
/* The installed library may be older than the headers, and lack these. */
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#else
typedef void *ncclWindow_t;
#endif

/* One of the two. NCCL writes the window when the registration ends, or when it is aborted. */
typedef struct cuda_window {
	ncclWindow_t window;
	void *registration;
} cuda_window;

static bool has_windows(void)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	return ncclCommWindowRegister && ncclCommWindowDeregister;
#else
	return false;
#endif
}

static bool has_registrations(void)
{
	return ncclCommRegister && ncclCommDeregister;
}

int cuda_nccl_memory_alloc(dtrain_device *device, size_t bytes, void **memory, beton_error *err)
{
	*memory = NULL;
	if (!ncclMemAlloc || !ncclMemFree || !(has_windows() || has_registrations()))
		return bt_fail(err, BETON_UNSUPPORTED, "NCCL: memory of a group needs version 2.19.1 or newer");
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

static int open_window(cuda_comm *comm, void *memory, size_t bytes, uint64_t deadline, ncclWindow_t *out,
		       beton_error *err)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	ncclResult_t result = ncclCommWindowRegister(comm->comm, memory, bytes, out, NCCL_WIN_COLL_SYMMETRIC);
	return cuda_nccl_settle(comm, result, deadline, "ncclCommWindowRegister", err);
#else
	(void)comm, (void)memory, (void)bytes, (void)deadline, (void)out, (void)err;
	return BETON_OK;
#endif
}

static int register_memory(cuda_comm *comm, void *memory, size_t bytes, void **out, beton_error *err)
{
	ncclResult_t result = ncclCommRegister(comm->comm, memory, bytes, out);
	return result == ncclSuccess ? BETON_OK : cuda_nccl_fail(result, err, "ncclCommRegister of %zu bytes", bytes);
}

static int make_known(cuda_comm *comm, void *memory, size_t bytes, int timeout_ms, cuda_window *out, beton_error *err)
{
	uint64_t deadline = bt_now_ns() + (uint64_t)timeout_ms * 1000000;
	pthread_mutex_lock(&comm->mutex);
	int status = BETON_OK;
	if (comm->aborted)
		status = bt_fail(err, BETON_CANCELLED, "NCCL: the communicator was aborted");
	else if (has_windows())
		status = open_window(comm, memory, bytes, deadline, &out->window, err);
	else
		status = register_memory(comm, memory, bytes, &out->registration, err);
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
		status = window ? make_known(comm, memory, bytes, timeout_ms, window, err)
				: bt_fail(err, BETON_NO_MEMORY, "NCCL: out of memory");
	}
	if (status == BETON_OK && (window->window || window->registration)) {
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
	/* Aborting the communicator frees its windows and registrations. */
	if (!comm->aborted && cuda_enter(comm->device, NULL) == BETON_OK) {
		if (window->registration)
			(void)ncclCommDeregister(comm->comm, window->registration);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
		else
			(void)ncclCommWindowDeregister(comm->comm, window->window);
#endif
	}
	pthread_mutex_unlock(&comm->mutex);
	free(window);
}
#endif
