/* SPDX-License-Identifier: Apache-2.0 */
#include "device_activity.h"

#include "common/system.h"

static const struct {
	dtrain_throttle bit;
	const char *name;
} reasons[] = {{DTRAIN_THROTTLE_POWER_CAP, "power cap"},     {DTRAIN_THROTTLE_HEAT, "heat"},
	       {DTRAIN_THROTTLE_POWER_BRAKE, "power brake"}, {DTRAIN_THROTTLE_CLOCK_LIMIT, "clock limit"},
	       {DTRAIN_THROTTLE_SYNC_BOOST, "sync boost"},   {DTRAIN_THROTTLE_HARDWARE, "hardware"}};

enum { REASONS = sizeof(reasons) / sizeof(reasons[0]) };

static bool has(int32_t bits, int reason)
{
	return bits > 0 && bits & (int32_t)reasons[reason].bit;
}

const char *run_activity_text(const dtrain_device_activity *a, char text[RUN_ACTIVITY_TEXT])
{
	const struct {
		double value, most;
		const char *name, *unit;
	} values[] = {{a->clock, a->highest_clock, "", "MHz"},
		      {a->memory_clock, -1, "memory ", "MHz"},
		      {a->power, a->power_limit, "", "W"},
		      {a->temperature, -1, "", "degrees C"}};
	*text = 0;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (values[i].value < 0)
			continue;
		bt_append(text, RUN_ACTIVITY_TEXT, "%s%s%.0f", *text ? ", " : "", values[i].name, values[i].value);
		if (values[i].most >= 0)
			bt_append(text, RUN_ACTIVITY_TEXT, " of %.0f", values[i].most);
		bt_append(text, RUN_ACTIVITY_TEXT, " %s", values[i].unit);
	}
	return text;
}

const char *run_activity_reasons(int32_t bits, char text[RUN_ACTIVITY_TEXT])
{
	*text = 0;
	for (int i = 0; i < REASONS; i++)
		if (has(bits, i))
			bt_append(text, RUN_ACTIVITY_TEXT, "%s%s", *text ? ", " : "", reasons[i].name);
	return text;
}

int run_activity_json(json_t *object, const dtrain_device_activity *a)
{
	const struct {
		const char *name;
		double value;
	} values[] = {{"gpu_busy", a->busy},
		      {"gpu_clock_mhz", a->clock},
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
		if (has(a->throttled, i))
			failed |= json_array_append_new(list, json_string(reasons[i].name));
	return json_object_set_new(object, "gpu_throttled", list) | failed;
}
