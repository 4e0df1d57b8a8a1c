/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libnvidia-ml.so.1, with one GPU, at bus 1b. STANDIN_NVML_FAIL names a function that fails;
 * STANDIN_NVML_REASONS are the reasons of throttling, a number in hexadecimal. It has no function for utilization, as
 * if it were too old.
 */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out);
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long out[3]);
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out);
int nvmlDeviceGetClockInfo(void *gpu, int type, unsigned *out);
int nvmlDeviceGetMaxClockInfo(void *gpu, int type, unsigned *out);
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *out);

static char the_gpu;

static int answer(const char *function, const void *gpu)
{
	const char *failing = getenv("STANDIN_NVML_FAIL");
	if (gpu != &the_gpu)
		return INVALID_ARGUMENT;
	return failing && strcmp(failing, function) == 0 ? NOT_SUPPORTED : SUCCESS;
}

static int give(const char *function, const void *gpu, unsigned value, unsigned *out)
{
	int status = answer(function, gpu);
	if (status == SUCCESS)
		*out = value;
	return status;
}

int nvmlInit_v2(void)
{
	return answer("init", &the_gpu);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out)
{
	if (strcmp(bus_id, "0000:1b:00.0") != 0)
		return NOT_FOUND;
	*out = &the_gpu;
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long out[3])
{
	int status = answer("memory", gpu);
	if (status != SUCCESS)
		return status;
	out[0] = 80000000000;
	out[1] = 78500000000;
	out[2] = 1500000000;
	return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out)
{
	return give("power", gpu, 651250, out);
}

int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out)
{
	return give("power_limit", gpu, 700000, out);
}

int nvmlDeviceGetClockInfo(void *gpu, int type, unsigned *out)
{
	return give("clock", gpu, type == 1 ? 1755 : type == 2 ? 2619 : 0, out);
}

int nvmlDeviceGetMaxClockInfo(void *gpu, int type, unsigned *out)
{
	return give("highest_clock", gpu, type == 1 ? 1980 : 0, out);
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *out)
{
	return give("temperature", gpu, sensor == 0 ? 64 : 0, out);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *out)
{
	const char *reasons = getenv("STANDIN_NVML_REASONS");
	int status = answer("reasons", gpu);
	if (status == SUCCESS)
		*out = reasons ? strtoull(reasons, NULL, 16) : 0;
	return status;
}
