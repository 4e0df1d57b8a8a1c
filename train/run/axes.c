/* SPDX-License-Identifier: Apache-2.0 */
#include "axes.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/list.h"
#include "common/system.h"
#include "options_table.h"

static const char *const names[DTRAIN_AXES] = {
	[DTRAIN_AXIS_REPLICATE] = "replicate", [DTRAIN_AXIS_SHARD] = "shard", [DTRAIN_AXIS_TENSOR] = "tensor"};

static int read_axis(char *text, run_axes *out, beton_error *err)
{
	char *value = strchr(text, '=');
	int axis = 0;
	if (value)
		*value++ = 0;
	while (axis < DTRAIN_AXES && !(names[axis] && strcmp(names[axis], text) == 0))
		axis++;
	if (axis == DTRAIN_AXES || !value)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: '%s' is not one of replicate=N, shard=N and tensor=N", text);
	if (out->size[axis])
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--mesh: '%s' is given twice", text);
	uint64_t size;
	int status = bt_parse_u64("--mesh", value, 1, DTRAIN_MAX_RANKS, &size, err);
	out->size[axis] = status == BETON_OK ? (int64_t)size : 0;
	return status;
}

int run_axes_read(const run_options *options, run_axes *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (run_axes){{0}};
	for (const char *at = options->mesh; at && status == BETON_OK;) {
		char text[64];
		status = bt_list_next("--mesh", &at, text, sizeof(text), err);
		if (status == BETON_OK)
			status = read_axis(text, out, err);
	}
	return status;
}

int64_t run_axes_model_ranks(const run_options *options)
{
	run_axes axes;
	return run_axes_read(options, &axes, NULL) == BETON_OK && axes.size[DTRAIN_AXIS_TENSOR]
		       ? axes.size[DTRAIN_AXIS_TENSOR]
		       : 1;
}

/* Options that need whole parameters on every rank, or that know nothing of the collectives of a model. */
static const struct {
	const char *name;
	const char *why;
} excludes[] = {
	{"checkpoint", "a checkpoint has whole parameters"},
	{"init", "a file of weights has whole parameters"},
	{"reproducible", "sums have another order"},
	{"offload", "units in host memory are whole"},
	{"compress", "it is for whole gradients"},
	{"overlap", "it measures the transfers of units alone"},
	{"tune-units", "it measures the transfers of units alone"},
	{"plan", "it prices the transfers of units alone"},
};

int run_axes_check(const run_options *options, beton_error *err)
{
	run_axes axes;
	int status = run_axes_read(options, &axes, err);
	if (status != BETON_OK || axes.size[DTRAIN_AXIS_TENSOR] < 2)
		return status;
	for (size_t i = 0; i < sizeof(excludes) / sizeof(excludes[0]); i++)
		if (options->given[run_row_find(excludes[i].name)])
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--mesh tensor=%" PRId64 " excludes --%s: %s",
				       axes.size[DTRAIN_AXIS_TENSOR], excludes[i].name, excludes[i].why);
	if (options->strategy >= RUN_STRATEGY_LOCAL)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"--mesh tensor=%" PRId64
			" needs a strategy whose ranks take their steps together: ddp, zero1, zero2, zero3, fsdp or "
			"hsdp",
			axes.size[DTRAIN_AXIS_TENSOR]);
	return BETON_OK;
}

int run_axes_check_world(const run_options *options, int64_t shard, beton_error *err)
{
	run_axes axes;
	int status = run_axes_read(options, &axes, err);
	int64_t ranks = options->world_size, tensor = run_axes_model_ranks(options);
	int64_t given_shard = axes.size[DTRAIN_AXIS_SHARD], given_copies = axes.size[DTRAIN_AXIS_REPLICATE];
	if (status != BETON_OK)
		return status;
	if (ranks % tensor != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: tensor=%" PRId64 " does not divide %" PRId64 " ranks", tensor, ranks);
	if (given_shard && given_shard != shard)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: shard=%" PRId64 ", and %" PRId64
			       " rank%s share a copy of the parameters: --shard "
			       "and --strategy say how many",
			       given_shard, shard, shard == 1 ? "" : "s");
	if (given_copies && given_copies * shard * tensor != ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: replicate=%" PRId64 " x shard=%" PRId64 " x tensor=%" PRId64
			       " are not the %" PRId64 " ranks: replicate=%" PRId64 " would be",
			       given_copies, shard, tensor, ranks, ranks / tensor / shard);
	return BETON_OK;
}
