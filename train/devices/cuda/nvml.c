/* SPDX-License-Identifier: Apache-2.0
 *
 * The library comes with the driver and is loaded when it is first needed, so that the module starts without it. Types
 * and values are from NVIDIA's documentation of NVML (docs.nvidia.com/deploy/nvml-api), because toolkits may have
 * no nvml.h.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <pthread.h>

#include "common/error.h"

enum { SUCCESS = 0 };                    /* nvmlReturn_t */
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 }; /* nvmlClockType_t */
enum { TEMPERATURE_GPU = 0 };            /* nvmlTemperatureSensors_t */
enum {                                   /* nvmlClocksThrottleReasons */
       APPLICATION_CLOCKS = 0x2,
       SOFTWARE_POWER_CAP = 0x4,
       HARDWARE_SLOWDOWN = 0x8, /* of one of the reasons of the hardware below, which old GPUs do not tell */
       SYNC_BOOST = 0x10,
       SOFTWARE_THERMAL = 0x20,
       HARDWARE_THERMAL = 0x40,
       HARDWARE_POWER_BRAKE = 0x80,
};

typedef struct nvml_gpu nvml_gpu; /* nvmlDevice_t points to it */

typedef struct nvml_utilization { /* nvmlUtilization_t: percent */
	unsigned gpu, memory;
} nvml_utilization;

typedef struct nvml_memory { /* nvmlMemory_t: bytes */
	unsigned long long total, free, used;
} nvml_memory;

/* Functions that an old library lacks are NULL. */
static struct library {
	int (*init)(void);
	int (*find)(const char *bus_id, nvml_gpu **out);
	int (*utilization)(nvml_gpu *gpu, nvml_utilization *out);
	int (*memory)(nvml_gpu *gpu, nvml_memory *out);
	int (*power)(nvml_gpu *gpu, unsigned *milliwatts);
	int (*power_limit)(nvml_gpu *gpu, unsigned *milliwatts);
	int (*clock)(nvml_gpu *gpu, int type, unsigned *megahertz);
	int (*highest_clock)(nvml_gpu *gpu, int type, unsigned *megahertz);
	int (*temperature)(nvml_gpu *gpu, int sensor, unsigned *degrees);
	int (*throttled)(nvml_gpu *gpu, unsigned long long *reasons);
} library;

static const struct symbol {
	const char *name;
	void **function;
} symbols[] = {
	{"nvmlInit_v2", (void **)&library.init},
	{"nvmlDeviceGetHandleByPciBusId_v2", (void **)&library.find},
	{"nvmlDeviceGetUtilizationRates", (void **)&library.utilization},
	{"nvmlDeviceGetMemoryInfo", (void **)&library.memory},
	{"nvmlDeviceGetPowerUsage", (void **)&library.power},
	{"nvmlDeviceGetEnforcedPowerLimit", (void **)&library.power_limit},
	{"nvmlDeviceGetClockInfo", (void **)&library.clock},
	{"nvmlDeviceGetMaxClockInfo", (void **)&library.highest_clock},
	{"nvmlDeviceGetTemperature", (void **)&library.temperature},
	{"nvmlDeviceGetCurrentClocksThrottleReasons", (void **)&library.throttled},
};

static beton_error missing; /* why the library cannot be used; code 0: it can */

/* The library stays loaded and initialized: other users in the process may share it. */
static void load(void)
{
	void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		bt_fail(&missing, BETON_UNSUPPORTED, "NVML: %s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		*symbols[i].function = dlsym(handle, symbols[i].name);
	int answer = library.init && library.find ? library.init() : -1;
	if (answer < 0)
		bt_fail(&missing, BETON_UNSUPPORTED, "NVML: libnvidia-ml.so.1 is too old");
	else if (answer != SUCCESS)
		bt_fail(&missing, BETON_UNSUPPORTED, "NVML: nvmlInit_v2 fails with error %d", answer);
	else
		return;
	dlclose(handle);
}

static int throttled(unsigned long long reasons)
{
	static const struct {
		unsigned long long reason;
		dtrain_throttle bit;
	} all[] = {{APPLICATION_CLOCKS, DTRAIN_THROTTLE_CLOCK_LIMIT},
		   {SOFTWARE_POWER_CAP, DTRAIN_THROTTLE_POWER_CAP},
		   {SYNC_BOOST, DTRAIN_THROTTLE_SYNC_BOOST},
		   {SOFTWARE_THERMAL | HARDWARE_THERMAL, DTRAIN_THROTTLE_HEAT},
		   {HARDWARE_POWER_BRAKE, DTRAIN_THROTTLE_POWER_BRAKE}};
	int bits = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		bits |= reasons & all[i].reason ? (int)all[i].bit : 0;
	bool told = reasons & (HARDWARE_THERMAL | HARDWARE_POWER_BRAKE);
	return reasons & HARDWARE_SLOWDOWN && !told ? bits | DTRAIN_THROTTLE_HARDWARE : bits;
}

static void read_power_and_clocks(nvml_gpu *gpu, dtrain_device_activity *out)
{
	unsigned number;
	if (library.power && library.power(gpu, &number) == SUCCESS)
		out->power = number * 1e-3;
	if (library.power_limit && library.power_limit(gpu, &number) == SUCCESS)
		out->power_limit = number * 1e-3;
	if (library.clock && library.clock(gpu, CLOCK_SM, &number) == SUCCESS)
		out->clock = number;
	if (library.highest_clock && library.highest_clock(gpu, CLOCK_SM, &number) == SUCCESS)
		out->highest_clock = number;
	if (library.clock && library.clock(gpu, CLOCK_MEMORY, &number) == SUCCESS)
		out->memory_clock = number;
	if (library.temperature && library.temperature(gpu, TEMPERATURE_GPU, &number) == SUCCESS)
		out->temperature = number;
}

int cuda_nvml_read(const char *bus_id, dtrain_device_activity *out, beton_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	nvml_gpu *gpu = NULL;
	nvml_utilization utilization;
	nvml_memory memory;
	unsigned long long reasons;
	*out = (dtrain_device_activity){.busy = -1,
					.memory_used = -1,
					.memory_total = -1,
					.power = -1,
					.power_limit = -1,
					.clock = -1,
					.highest_clock = -1,
					.memory_clock = -1,
					.temperature = -1,
					.throttled = -1};
	pthread_once(&once, load);
	if (missing.code)
		return bt_fail(err, missing.code, "%s", missing.message);
	int answer = library.find(bus_id, &gpu);
	if (answer != SUCCESS)
		return bt_fail(err, BETON_UNSUPPORTED, "NVML: no GPU %s: error %d", bus_id, answer);
	if (library.utilization && library.utilization(gpu, &utilization) == SUCCESS)
		out->busy = utilization.gpu * 1e-2;
	if (library.memory && library.memory(gpu, &memory) == SUCCESS) {
		out->memory_used = (int64_t)memory.used;
		out->memory_total = (int64_t)memory.total;
	}
	if (library.throttled && library.throttled(gpu, &reasons) == SUCCESS)
		out->throttled = throttled(reasons);
	read_power_and_clocks(gpu, out);
	return BETON_OK;
}
