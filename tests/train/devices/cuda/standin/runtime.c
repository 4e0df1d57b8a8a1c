/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in's devices, memory and errors.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

#define ALIGNMENT 256
#define FRESH_BYTE 0xa5 /* the content of new memory: it must not be taken for zeros */

typedef struct allocation {
	struct allocation *next;
	char *base;
	size_t bytes;
	bool device;
	int owner; /* the device */
} allocation;

struct standin standin;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all of the counts, and: */
static allocation *allocations;
static size_t used;
static unsigned reached[32]; /* bit i of a device's: it has access to device i */
static _Thread_local int current = -1;
static _Thread_local cudaError_t last;

void standin_reset(void)
{
	pthread_mutex_lock(&mutex);
	standin = (struct standin){
		.devices = 1, .driver_version = CUDART_VERSION, .capability = 90, .memory = (size_t)64 << 20};
	memset(reached, 0, sizeof(reached));
	pthread_mutex_unlock(&mutex);
}

cudaError_t standin_return(cudaError_t status)
{
	if (status != cudaSuccess)
		last = status;
	return status;
}

cudaError_t standin_enter(bool needs_device)
{
	pthread_mutex_lock(&mutex);
	standin.strays += needs_device && current < 0;
	bool fails = ++standin.calls == standin.fail_at;
	pthread_mutex_unlock(&mutex);
	return standin_return(fails ? standin.failure : cudaSuccess);
}

void standin_count(long change)
{
	pthread_mutex_lock(&mutex);
	standin.live += change;
	pthread_mutex_unlock(&mutex);
}

void standin_note(long *count)
{
	pthread_mutex_lock(&mutex);
	++*count;
	pthread_mutex_unlock(&mutex);
}

long long standin_now_ns(void)
{
	struct timespec now;
	if (standin.has_clock)
		return standin.clock_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
	cudaError_t was = last;
	last = cudaSuccess;
	return was;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
	cudaError_t status = standin_enter(false);
	*version = standin.driver_version;
	return status;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t status = standin_enter(false);
	*count = standin.devices;
	return status == cudaSuccess && standin.devices == 0 ? standin_return(cudaErrorNoDevice) : status;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	cudaError_t status = standin_enter(false);
	if (status != cudaSuccess || device >= standin.devices)
		return status == cudaSuccess ? standin_return(cudaErrorInvalidDevice) : status;
	*properties = (struct cudaDeviceProp){.major = standin.capability / 10,
					      .minor = standin.capability % 10,
					      .totalGlobalMem = standin.memory,
					      .pciBusID = 0x1b + device,
					      .multiProcessorCount = 132,
					      .memoryBusWidth = 6144,
					      .warpSize = 32,
					      .maxThreadsPerBlock = 1024};
	snprintf(properties->name, sizeof(properties->name), "stand-in %d", device);
	return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
	(void)device_flags;
	(void)flags;
	cudaError_t status = standin_enter(false);
	return status == cudaSuccess && device >= standin.devices ? standin_return(cudaErrorInvalidDevice) : status;
}

cudaError_t cudaSetDevice(int device)
{
	cudaError_t status = standin_enter(false);
	if (status == cudaSuccess && device >= standin.devices)
		status = standin_return(cudaErrorInvalidDevice);
	if (status == cudaSuccess)
		current = device;
	return status;
}

cudaError_t cudaGetDevice(int *device)
{
	cudaError_t status = standin_enter(true);
	*device = current > 0 ? current : 0;
	return status;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	cudaError_t status = standin_enter(false);
	if (status == cudaSuccess && device >= standin.devices)
		status = standin_return(cudaErrorInvalidDevice);
	*value = attribute == cudaDevAttrMultiProcessorCount            ? 132
		 : attribute == cudaDevAttrMemoryClockRate              ? 3201000
		 : attribute == cudaDevAttrClockRate                    ? 1980000
		 : attribute == cudaDevAttrComputeCapabilityMajor       ? standin.capability / 10
		 : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448
									: 0;
	return status;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	(void)function;
	(void)attribute;
	(void)value;
	return standin_enter(false);
}

cudaError_t cudaDeviceCanAccessPeer(int *possible, int device, int peer)
{
	cudaError_t status = standin_enter(false);
	if (status == cudaSuccess && (device >= standin.devices || peer >= standin.devices))
		status = standin_return(cudaErrorInvalidDevice);
	*possible = status == cudaSuccess && device != peer && !standin.apart;
	return status;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	(void)flags;
	cudaError_t status = standin_enter(true);
	int device = current > 0 ? current : 0;
	if (status == cudaSuccess && (peer >= standin.devices || peer == device || standin.apart))
		status = standin_return(cudaErrorPeerAccessUnsupported);
	if (status == cudaSuccess && standin_reaches(device, peer))
		status = standin_return(cudaErrorPeerAccessAlreadyEnabled);
	standin.peers++;
	if (status == cudaSuccess)
		reached[device] |= 1u << peer;
	return status;
}

bool standin_reaches(int device, int peer)
{
	return device == peer || reached[device] >> peer & 1;
}

/* ---- memory ---- */

cudaError_t standin_allocate(void **out, size_t bytes, bool device)
{
	allocation *fresh = malloc(sizeof(*fresh));
	void *base = NULL;
	if (bytes > standin.memory || posix_memalign(&base, ALIGNMENT, bytes) != 0)
		base = NULL;
	pthread_mutex_lock(&mutex);
	bool fits = fresh && base && (!device || bytes <= standin.memory - used);
	if (fits) {
		*fresh = (allocation){.next = allocations,
				      .base = base,
				      .bytes = bytes,
				      .device = device,
				      .owner = current > 0 ? current : 0};
		allocations = fresh;
		used += device ? bytes : 0;
		standin.live++;
	}
	pthread_mutex_unlock(&mutex);
	if (!fits) {
		free(base);
		free(fresh);
		return standin_return(cudaErrorMemoryAllocation);
	}
	memset(base, FRESH_BYTE, bytes);
	*out = base;
	return cudaSuccess;
}

static cudaError_t release(const void *memory, bool device)
{
	pthread_mutex_lock(&mutex);
	allocation **link = &allocations;
	while (*link && ((*link)->base != memory || (*link)->device != device))
		link = &(*link)->next;
	allocation *found = *link;
	if (found) {
		*link = found->next;
		used -= device ? found->bytes : 0;
		standin.live--;
	}
	pthread_mutex_unlock(&mutex);
	if (!found)
		return standin_return(memory ? cudaErrorInvalidValue : cudaSuccess);
	free(found->base);
	free(found);
	return cudaSuccess;
}

bool standin_is_inside(const void *memory, size_t bytes)
{
	const char *first = memory;
	bool inside = false;
	pthread_mutex_lock(&mutex);
	for (const allocation *a = allocations; a && !inside; a = a->next)
		inside = a->device && first >= a->base && first < a->base + a->bytes &&
			 bytes <= (size_t)(a->base + a->bytes - first);
	pthread_mutex_unlock(&mutex);
	return inside;
}

int standin_owner(const void *memory)
{
	const char *first = memory;
	int owner = -1;
	pthread_mutex_lock(&mutex);
	for (const allocation *a = allocations; a && owner < 0; a = a->next)
		owner = a->device && first >= a->base && first < a->base + a->bytes ? a->owner : -1;
	pthread_mutex_unlock(&mutex);
	return owner;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	cudaError_t status = standin_enter(true);
	int owner = standin_owner(memory);
	*attributes = (struct cudaPointerAttributes){
		.type = owner < 0 ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, .device = owner};
	return status;
}

cudaError_t cudaFree(void *memory)
{
	return release(memory, true);
}

cudaError_t cudaFreeHost(void *memory)
{
	return release(memory, false);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	*available = standin.memory - used;
	*total = standin.memory;
	return cudaSuccess;
}
