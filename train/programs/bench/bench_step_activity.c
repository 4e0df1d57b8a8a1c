/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_step_activity.h"

#include <stdio.h>

static const struct {
	dtrain_throttle bit;
	const char *name;
} reasons[] = {{DTRAIN_THROTTLE_POWER_CAP, "power cap"},     {DTRAIN_THROTTLE_HEAT, "heat"},
	       {DTRAIN_THROTTLE_POWER_BRAKE, "power brake"}, {DTRAIN_THROTTLE_CLOCK_LIMIT, "clock limit"},
	       {DTRAIN_THROTTLE_SYNC_BOOST, "sync boost"},   {DTRAIN_THROTTLE_HARDWARE, "hardware"}};

enum { REASONS = sizeof(reasons) / sizeof(reasons[0]) };

static bool has(const dtrain_device_activity *activity, int reason)
{
	return activity->throttled > 0 && activity->throttled & (int32_t)reasons[reason].bit;
}

void bench_activity_print(const dtrain_device_activity *a)
{
	const struct {
		double value, most;
		const char *name, *unit;
	} values[] = {{a->clock, a->highest_clock, "", "MHz"},
		      {a->memory_clock, -1, "memory ", "MHz"},
		      {a->power, a->power_limit, "", "W"},
		      {a->temperature, -1, "", "degrees C"}};
	const char *before = "the device under load       ";
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (values[i].value < 0)
			continue;
		printf("%s%s%.0f", before, values[i].name, values[i].value);
		if (values[i].most >= 0)
			printf(" of %.0f", values[i].most);
		printf(" %s", values[i].unit);
		before = ", ";
	}
	before = before[0] == ',' ? "; throttled: " : "the device is throttled     ";
	for (int i = 0; i < REASONS; i++)
		if (has(a, i)) {
			printf("%s%s", before, reasons[i].name);
			before = ", ";
		}
	if (before[0] == ',' || before[0] == ';')
		putchar('\n');
}

int bench_activity_json(json_t *object, const dtrain_device_activity *a)
{
	const struct {
		const char *name;
		double value;
	} values[] = {{"gpu_clock_mhz", a->clock},
		      {"gpu_highest_clock_mhz", a->highest_clock},
		      {"gpu_memory_clock_mhz", a->memory_clock},
		      {"gpu_power_w", a->power},
		      {"gpu_power_limit_w", a->power_limit},
		      {"gpu_temperature_c", a->temperature}};
	int failed = 0;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (values[i].value >= 0)
			failed |= json_object_set_new(object, values[i].name, json_real(values[i].value));
	if (a->memory_used >= 0)
		failed |= json_object_set_new(object, "gpu_memory_bytes", json_integer(a->memory_used));
	if (a->throttled < 0)
		return failed;
	json_t *list = json_array();
	for (int i = 0; i < REASONS; i++)
		if (has(a, i))
			failed |= json_array_append_new(list, json_string(reasons[i].name));
	return json_object_set_new(object, "gpu_throttled", list) | failed;
}
