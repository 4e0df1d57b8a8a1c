/* SPDX-License-Identifier: Apache-2.0 */
#include "measured.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

static int read_json(const char *path, json_t **out, beton_error *err)
{
	json_error_t fault;
	FILE *file = fopen(path, "r");
	if (!file)
		return bt_fail_errno(err, errno, "%s", path);
	*out = json_loadf(file, 0, &fault);
	fclose(file);
	return *out ? BETON_OK
		    : bt_fail(err, BETON_FORMAT, "%s: line %d: %s; dtrain-bench prints JSON with --json", path,
			      fault.line, fault.text);
}

/* A number above 0. */
static int take(const char *path, const json_t *object, const char *name, double *out, beton_error *err)
{
	*out = json_number_value(json_object_get(object, name));
	return *out > 0 ? BETON_OK : bt_fail(err, BETON_FORMAT, "%s: has no \"%s\" above 0", path, name);
}

int plan_read_step(const char *path, plan_measured_step *out, beton_error *err)
{
	json_t *root = NULL;
	double ms, gflops, gb;
	int status = read_json(path, &root, err);
	const json_t *profile = json_object_get(root, "profile");
	if (status == BETON_OK && !json_is_object(profile))
		status = bt_fail(err, BETON_FORMAT, "%s: has no \"profile\"; dtrain-bench step needs --profile --json",
				 path);
	if (status == BETON_OK)
		status = take(path, root, "step_ms", &ms, err);
	if (status == BETON_OK)
		status = take(path, profile, "limit_gflops", &gflops, err);
	if (status == BETON_OK)
		status = take(path, profile, "limit_gb_per_s", &gb, err);
	if (status == BETON_OK)
		*out = (plan_measured_step){.flops = gflops * 1e9,
					    .bandwidth = gb * 1e9,
					    .seconds = ms * 1e-3,
					    .batch = json_integer_value(json_object_get(root, "batch_size")),
					    .context_length =
						    json_integer_value(json_object_get(root, "context_length"))};
	json_decref(root);
	return status == BETON_OK && out->batch < 1 ? bt_fail(err, BETON_FORMAT, "%s: has no \"batch_size\"", path)
						    : status;
}

/* The smallest and the largest all-reduce. */
static int find_ends(const char *path, const json_t *root, double bytes[2], double seconds[2], beton_error *err)
{
	const json_t *row;
	size_t i;
	int count = 0;
	json_array_foreach(json_object_get(root, "results"), i, row)
	{
		const char *op = json_string_value(json_object_get(row, "op"));
		double size = json_number_value(json_object_get(row, "bytes"));
		double time = json_number_value(json_object_get(row, "time_us")) * 1e-6;
		if (!op || strcmp(op, "allreduce") != 0 || size <= 0 || time <= 0)
			continue;
		for (int end = 0; end < 2; end++)
			if (count == 0 || (end == 0 ? size < bytes[0] : size > bytes[1])) {
				bytes[end] = size;
				seconds[end] = time;
			}
		count++;
	}
	return count > 1 && bytes[1] > bytes[0] && seconds[1] > seconds[0]
		       ? BETON_OK
		       : bt_fail(err, BETON_FORMAT,
				 "%s: needs a small and a large all-reduce that takes longer: dtrain-bench comm --op "
				 "allreduce --json",
				 path);
}

int plan_read_link(const char *path, plan_link *out, beton_error *err)
{
	json_t *root = NULL;
	double bytes[2] = {0}, seconds[2] = {0}, ranks = 0;
	int status = read_json(path, &root, err);
	if (status == BETON_OK)
		status = take(path, root, "world_size", &ranks, err);
	if (status == BETON_OK && ranks < 2)
		status = bt_fail(err, BETON_FORMAT, "%s: was measured with one rank", path);
	if (status == BETON_OK)
		status = find_ends(path, root, bytes, seconds, err);
	if (status == BETON_OK) {
		const double share = 2 * (ranks - 1) / ranks;
		out->rate = share * (bytes[1] - bytes[0]) / (seconds[1] - seconds[0]);
		double latencies = seconds[0] - share * bytes[0] / out->rate;
		out->latency = latencies > 0 ? latencies / 2 / ceil(log2(ranks)) : 0;
	}
	json_decref(root);
	return status;
}
