/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device: opening, capabilities, memory.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms.h"
#include "cache.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "cuda.h"
#include "nvml.h"
#include "tuner.h"
#include "devices/cuda/cudnn/dnn_store.h"

/* Alignment of cudaMalloc, as the CUDA programming guide promises. */
#define ALIGNMENT 256

/* The oldest capability with code in the module; it introduced bf16 and TF32. */
#define LEAST_CAPABILITY 8

static int check_driver(beton_error *err)
{
	int version = 0;
	cudaError_t answer = cudaDriverGetVersion(&version);
	if (answer == cudaSuccess && version == 0)
		return bt_fail(
			err, BETON_DEVICE,
			"device 'cuda': no NVIDIA driver: libcuda.so.1 is not found; install the driver, or start "
			"the container with the GPUs (docker: --gpus all)");
	int status = cuda_check(answer, err, "device 'cuda': the driver");
	if (status != BETON_OK)
		return status;
	/* A driver runs programs of all minor versions of its major version. */
	if (version / 1000 < CUDART_VERSION / 1000)
		return bt_fail(
			err, BETON_UNSUPPORTED,
			"device 'cuda': the NVIDIA driver is for CUDA %d.%d and this module needs %d.0: install a "
			"newer driver, or NVIDIA's package cuda-compat-%d-%d",
			version / 1000, version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION / 1000,
			CUDART_VERSION % 1000 / 10);
	return BETON_OK;
}

static int check_index(int index, beton_error *err)
{
	int count = 0;
	cudaError_t answer = cudaGetDeviceCount(&count);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	if (answer == cudaErrorNoDevice || (answer == cudaSuccess && count == 0)) {
		(void)cudaGetLastError();
		return bt_fail(err, BETON_DEVICE, "device 'cuda': no GPU: see nvidia-smi -L%s%s",
			       visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
	}
	int status = cuda_check(answer, err, "device 'cuda'");
	if (status == BETON_OK && index >= count)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "device 'cuda': index %d of %d (they count from 0)%s%s",
				 index, count, visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
	return status;
}

static int check_properties(dtrain_device *device, beton_error *err)
{
	struct cudaDeviceProp *properties = &device->properties;
	int status =
		cuda_check(cudaGetDeviceProperties(properties, device->index), err, "device 'cuda' %d", device->index);
	if (status == BETON_OK && properties->major < LEAST_CAPABILITY)
		status = bt_fail(err, BETON_UNSUPPORTED,
				 "device 'cuda' %d: %s has compute capability %d.%d; this module needs %d.0 or newer",
				 device->index, properties->name, properties->major, properties->minor,
				 LEAST_CAPABILITY);
	return status;
}

static int open_libraries(dtrain_device *device, beton_error *err)
{
	cudnnStatus_t dnn = cudnnCreate(&device->dnn);
	if (dnn != CUDNN_STATUS_SUCCESS) {
		char detail[256] = "";
		cudnnGetLastErrorString(detail, sizeof(detail));
		device->dnn = NULL;
		return bt_fail(err, BETON_DEVICE, "device 'cuda' %d: cuDNN does not start: %s %s", device->index,
			       cudnnGetErrorString(dnn), detail);
	}
	cublasStatus_t blas = cublasLtCreate(&device->blas);
	if (blas != CUBLAS_STATUS_SUCCESS) {
		device->blas = NULL;
		return bt_fail(err, BETON_DEVICE, "device 'cuda' %d: cuBLASLt does not start: %s", device->index,
			       cublasLtGetStatusString(blas));
	}
	return BETON_OK;
}

/* Path of the module's file, which the caller frees; NULL: unknown. */
static char *module_path(void)
{
	static const char inside;
	Dl_info info;
	return dladdr(&inside, &info) && info.dli_fname ? strdup(info.dli_fname) : NULL;
}

/* Folder of the module's file, which the caller frees; NULL: unknown. */
static char *module_folder(void)
{
	char *path = module_path(), *slash = path ? strrchr(path, '/') : NULL;
	if (slash) {
		*slash = 0;
		return path;
	}
	free(path);
	return NULL;
}

/* A hash of the module's file, which contains the kernels; 0: it cannot be read. */
static uint64_t build_of_module(void)
{
	static const size_t most = (size_t)256 << 20;
	size_t length = 0;
	char *path = module_path(), *bytes = path ? cuda_cache_read(path, most, &length) : NULL;
	uint64_t build = bytes ? XXH3_64bits(bytes, length) : 0;
	free(bytes);
	free(path);
	return build;
}

/* Opens the stores of algorithms and plans, with a key of everything that these depend on. */
static int open_algorithms(dtrain_device *device, beton_error *err)
{
	char key[384];
	int status = cuda_check(cudaDriverGetVersion(&device->driver), err, "device 'cuda' %d: driver", device->index);
	if (status != BETON_OK)
		return status;
	snprintf(key, sizeof(key), "%s sm%d%d driver%d cudnn%zu cublaslt%zu", device->properties.name,
		 device->properties.major, device->properties.minor, device->driver, cudnnGetVersion(),
		 cublasLtGetVersion());
	device->build = build_of_module();
	return cuda_algorithms_open(key, &device->algorithms, err);
}

static int open_plans(dtrain_device *device, beton_error *err)
{
	const struct cudaDeviceProp *gpu = &device->properties;
	char *name = dnn_store_name(10 * gpu->major + gpu->minor, gpu->multiProcessorCount, cudnnGetVersion());
	char *cache = cuda_cache_folder(), *module = module_folder();
	char *own = name && cache ? bt_format("%s/%s", cache, name) : NULL;
	char *shipped = name && module ? bt_format("%s/%s", module, name) : NULL;
	int status = dnn_store_open(own, shipped, &device->dnn_store, err);
	free(shipped);
	free(own);
	free(module);
	free(cache);
	free(name);
	return status;
}

/* first, second: names of the two ways. */
static int read_preference(const char *variable, const char *first, const char *second, cuda_preference *out,
			   beton_error *err)
{
	const char *const names[] = {[CUDA_FASTEST] = "fastest", [CUDA_CUDNN] = first, [CUDA_KERNELS] = second};
	const char *text = getenv(variable);
	for (int i = 0; i < 3 && text && *text; i++)
		if (strcmp(text, names[i]) == 0) {
			*out = (cuda_preference)i;
			return BETON_OK;
		}
	if (!text || !*text)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "device 'cuda': %s is '%s'; it may be 'fastest', '%s' or '%s'",
		       variable, text, first, second);
}

/* A variable with two values, the first by default; *out: whether it has the second. */
static int read_switch(const char *variable, const char *first, const char *second, bool *out, beton_error *err)
{
	const char *text = getenv(variable);
	*out = text && strcmp(text, second) == 0;
	if (!text || !*text || *out || strcmp(text, first) == 0)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "device 'cuda': %s is '%s'; it may be '%s' or '%s'", variable, text,
		       first, second);
}

static int read_preferences(dtrain_device *device, beton_error *err)
{
	const struct {
		const char *variable, *first, *second;
		cuda_preference *out;
	} all[] = {{"DTRAIN_CUDA_BATCH_NORM", "cudnn", "kernels", &device->batch_norm},
		   {"DTRAIN_CUDA_MAX_POOL", "cudnn", "kernels", &device->max_pool},
		   {"DTRAIN_CUDA_ATTENTION", "cudnn", "kernels", &device->attention},
		   {"DTRAIN_CUDA_CONV_1X1", "cudnn", "cublaslt", &device->conv_1x1},
		   {"DTRAIN_CUDA_CONV_STATISTICS", "separate", "fused", &device->conv_statistics},
		   {"DTRAIN_CUDA_GELU", "separate", "fused", &device->gelu}};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == BETON_OK; i++)
		status = read_preference(all[i].variable, all[i].first, all[i].second, all[i].out, err);
	if (status == BETON_OK)
		status = read_switch("DTRAIN_CUDA_NORM_PAIR", "fused", "separate", &device->separate_norms, err);
	if (status == BETON_OK)
		status = read_switch("DTRAIN_CUDA_STEM", "space-to-depth", "plain", &device->plain_pictures, err);
	return status == BETON_OK ? read_switch("DTRAIN_CUDA_LOGITS", "half", "f32", &device->f32_logits, err) : status;
}

/* Initialisation that needs the GPU. Threads that wait for it sleep, because the loader has work for the cores. */
static int start(dtrain_device *device, beton_error *err)
{
	int status = check_properties(device, err);
	if (status == BETON_OK)
		status = cuda_read_limits(device->index, &device->properties, device->tf32, &device->limits, err);
	if (status == BETON_OK)
		status = cuda_check(
			cudaInitDevice(device->index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid), err,
			"device 'cuda' %d", device->index);
	if (status == BETON_OK)
		status = cuda_enter(device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaHostAlloc((void **)&device->fault, sizeof(*device->fault),
						  cudaHostAllocMapped | cudaHostAllocPortable),
				    err, "device 'cuda' %d: pinned memory", device->index);
	if (status != BETON_OK)
		return status;
	*device->fault = 0;
	status = open_libraries(device, err);
	if (status == BETON_OK)
		status = open_algorithms(device, err);
	return status == BETON_OK ? open_plans(device, err) : status;
}

void cuda_close(dtrain_device *device)
{
	if (!device)
		return;
	cuda_tuner_destroy(device->tuner);
	if (device->fault) {
		(void)cuda_enter(device, NULL);
		if (device->blas)
			cublasLtDestroy(device->blas);
		if (device->dnn)
			cudnnDestroy(device->dnn);
		cudaFreeHost(device->fault);
	}
	cuda_algorithms_close(device->algorithms);
	dnn_store_close(device->dnn_store);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

static int cuda_open(const dtrain_device_options *options, dtrain_device **out, beton_error *err)
{
	*out = NULL;
	int status = check_driver(err);
	if (status == BETON_OK)
		status = check_index(options->index, err);
	if (status != BETON_OK)
		return status;
	dtrain_device *device = calloc(1, sizeof(*device));
	if (!device)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device 'cuda'");
	*device = (dtrain_device){.api = &cuda_device_api,
				  .index = options->index,
				  .tf32 = options->tf32,
				  .deterministic = options->deterministic,
				  .lock = PTHREAD_MUTEX_INITIALIZER};
	status = read_preferences(device, err);
	if (status == BETON_OK)
		status = start(device, err);
	if (status == BETON_OK && options->tune_later && !options->deterministic)
		status = cuda_tuner_create(device, &device->tuner, err);
	if (status != BETON_OK) {
		cuda_close(device);
		return status;
	}
	*out = device;
	return BETON_OK;
}

int cuda_open_beside(const dtrain_device *like, struct cuda_gate *gate, dtrain_device **out, beton_error *err)
{
	const dtrain_device_options options = {.index = like->index, .tf32 = like->tf32};
	int status = cuda_open(&options, out, err);
	if (status == BETON_OK)
		(*out)->gate = gate;
	return status;
}

static void cuda_tune(dtrain_device *device, double milliseconds, dtrain_tuning *out)
{
	*out = (dtrain_tuning){.ops = 0};
	if (device->tuner)
		cuda_tuner_lend(device->tuner, milliseconds, out);
}

static void cuda_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	*out = (dtrain_device_caps){.asynchronous = true,
				    .graph_capture = true,
				    .batch_norm_add = true,
				    .batch_norm_pair = !device->separate_norms,
				    .conv_bwd_add = true,
				    .gelu_bwd_fused = true,
				    .weight_copies = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I32 | 1u << DTRAIN_I64 | 1u << DTRAIN_U8,
				    .alignment = ALIGNMENT,
				    .threads = 1};
	const struct cudaDeviceProp *gpu = &device->properties;
	size_t dnn = cudnnGetVersion();
	out->bandwidth = device->limits.bandwidth;
	memcpy(out->flops, device->limits.flops, sizeof(out->flops));
	snprintf(out->description, sizeof(out->description), "%.63s (%d.%d), %.1f GiB, CUDA %d.%d, cuDNN %zu.%zu.%zu",
		 gpu->name, gpu->major, gpu->minor, (double)gpu->totalGlobalMem * 0x1p-30, CUDART_VERSION / 1000,
		 CUDART_VERSION % 1000 / 10, dnn / 10000, dnn / 100 % 100, dnn % 100);
	int refused = __atomic_load_n(&device->refused_plans, __ATOMIC_RELAXED);
	if (refused > 0)
		bt_append(out->description, sizeof(out->description), ", %d stored plans refused", refused);
	int damaged = cuda_algorithms_damaged(device->algorithms);
	if (damaged > 0)
		bt_append(out->description, sizeof(out->description), ", %d stored algorithms damaged", damaged);
	beton_error err;
	if (dnn_store_failure(device->dnn_store, &err) != BETON_OK)
		bt_append(out->description, sizeof(out->description), ", plans cannot be stored: %s", err.message);
}

/* By its bus, because CUDA_VISIBLE_DEVICES does not change how NVML counts. */
static int cuda_get_activity(dtrain_device *device, dtrain_device_activity *out, beton_error *err)
{
	const struct cudaDeviceProp *gpu = &device->properties;
	char bus_id[32];
	snprintf(bus_id, sizeof(bus_id), "%04x:%02x:%02x.0", (unsigned)gpu->pciDomainID, (unsigned)gpu->pciBusID,
		 (unsigned)gpu->pciDeviceID);
	return cuda_nvml_read(bus_id, out, err);
}

static uint64_t cuda_free_memory(dtrain_device *device)
{
	size_t available = 0, total = 0;
	bool known = cuda_enter(device, NULL) == BETON_OK && cudaMemGetInfo(&available, &total) == cudaSuccess;
	return known ? available : UINT64_MAX;
}

static int cuda_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	int status = cuda_enter(device, err);
	if (status != BETON_OK)
		return status;
	void *memory = NULL;
	cudaError_t answer = cudaMalloc(&memory, bytes ? bytes : 1);
	if (answer == cudaErrorMemoryAllocation) {
		size_t available = 0, total = 0;
		(void)cudaGetLastError();
		(void)cudaMemGetInfo(&available, &total);
		return bt_fail(err, BETON_NO_MEMORY,
			       "device 'cuda' %d: cannot allocate %.1f MiB: of %.1f MiB %.1f MiB are free",
			       device->index, (double)bytes * 0x1p-20, (double)total * 0x1p-20,
			       (double)available * 0x1p-20);
	}
	status = cuda_check(answer, err, "device 'cuda' %d: cannot allocate %zu bytes", device->index, bytes);
	if (status != BETON_OK)
		return status;
	/* The device's streams do not wait for the default stream, so wait until the memory is zeroed. */
	answer = cudaMemsetAsync(memory, 0, bytes ? bytes : 1, cudaStreamPerThread);
	if (answer == cudaSuccess)
		answer = cudaStreamSynchronize(cudaStreamPerThread);
	status = cuda_check(answer, err, "device 'cuda' %d: cannot clear %zu bytes", device->index, bytes);
	if (status == BETON_OK)
		*out = memory;
	else
		cudaFree(memory);
	return status;
}

static void cuda_free(dtrain_device *device, void *memory)
{
	if (!memory)
		return;
	(void)cuda_enter(device, NULL);
	cudaFree(memory);
}

static int cuda_host_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	int status = cuda_enter(device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable), err,
				    "device 'cuda' %d: cannot allocate %zu bytes of pinned memory", device->index,
				    bytes);
	if (status != BETON_OK)
		*out = NULL;
	return status;
}

static void cuda_host_free(dtrain_device *device, void *memory)
{
	if (!memory)
		return;
	(void)cuda_enter(device, NULL);
	cudaFreeHost(memory);
}

const dtrain_device_api cuda_device_api = {
	.api_version = DTRAIN_DEVICE_API_VERSION,
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.caps = cuda_caps,
	.free_memory = cuda_free_memory,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_synchronize = cuda_stream_synchronize,
	.stream_wait = cuda_stream_wait,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_synchronize = cuda_event_synchronize,
	.event_elapsed_ms = cuda_event_elapsed_ms,
	.event_mark = cuda_event_mark,
	.copy = cuda_copy,
	.zero = cuda_zero,
	.op_create = cuda_op_create,
	.op_destroy = cuda_op_destroy,
	.op_run = cuda_op_run,
	.capture_begin = cuda_capture_begin,
	.capture_end = cuda_capture_end,
	.capture_launch = cuda_capture_launch,
	.capture_destroy = cuda_capture_destroy,
	.call_host = cuda_call_host,
	.tune = cuda_tune,
	.get_activity = cuda_get_activity,
};
