/* SPDX-License-Identifier: Apache-2.0 */
#include "axes.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/list.h"
#include "common/suggest.h"
#include "common/system.h"
#include "options_table.h"

static const char *const names[DTRAIN_AXES] = {[DTRAIN_AXIS_PIPELINE] = "pipeline",
					       [DTRAIN_AXIS_REPLICATE] = "replicate",
					       [DTRAIN_AXIS_SHARD] = "shard",
					       [DTRAIN_AXIS_CONTEXT] = "context",
					       [DTRAIN_AXIS_TENSOR] = "tensor"};

static int refuse_axis(const char *text, bool known, beton_error *err)
{
	bt_suggestion like;
	bt_suggest_begin(&like, text);
	for (int i = 0; i < DTRAIN_AXES && !known; i++)
		bt_suggest_try(&like, names[i]);
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--mesh: '%s' is not one of pipeline=N, replicate=N, shard=N, context=N and tensor=N%s", text,
		       bt_suggest_text(&like));
}

static int read_axis(char *text, run_axes *out, beton_error *err)
{
	char *value = strchr(text, '=');
	int axis = 0;
	if (value)
		*value++ = 0;
	while (axis < DTRAIN_AXES && !(names[axis] && strcmp(names[axis], text) == 0))
		axis++;
	if (axis == DTRAIN_AXES || !value)
		return refuse_axis(text, axis < DTRAIN_AXES, err);
	if (out->size[axis])
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--mesh: '%s' is given twice", text);
	uint64_t size;
	int status = bt_parse_u64("--mesh", value, 1, DTRAIN_MAX_RANKS, &size, err);
	out->size[axis] = status == BETON_OK ? (int64_t)size : 0;
	return status;
}

int run_axes_parse(const char *mesh, run_axes *out, beton_error *err)
{
	int status = BETON_OK;
	*out = (run_axes){{0}};
	for (const char *at = mesh; at && status == BETON_OK;) {
		char text[64];
		status = bt_list_next("--mesh", &at, text, sizeof(text), err);
		if (status == BETON_OK)
			status = read_axis(text, out, err);
	}
	return status;
}

int run_axes_read(const run_options *options, run_axes *out, beton_error *err)
{
	/* As other options are turned off. */
	const bool off = options->mesh && strcmp(options->mesh, "no") == 0;
	return run_axes_parse(off ? NULL : options->mesh, out, err);
}

const char *run_axes_name(dtrain_axis axis)
{
	return names[axis];
}

/* Neighbouring ranks divide the layers, and then the sequences, since they wait for each other in every layer; then
 * come the ranks that share a copy, because gathers move more than sums. Stages exchange least. */
static const dtrain_axis usual_order[] = {DTRAIN_AXIS_PIPELINE, DTRAIN_AXIS_REPLICATE, DTRAIN_AXIS_SHARD,
					  DTRAIN_AXIS_CONTEXT, DTRAIN_AXIS_TENSOR};
enum { USUAL = sizeof(usual_order) / sizeof(usual_order[0]) };

static void list_usual(char *out, size_t size)
{
	*out = 0;
	for (int i = 0; i < USUAL; i++)
		bt_append(out, size, "%s%s", i ? "," : "", names[usual_order[i]]);
}

static int find_axis(const char *name)
{
	int found = 0;
	while (found < USUAL && strcmp(names[usual_order[found]], name) != 0)
		found++;
	return found;
}

/* places[i]: of usual_order[i] in --rank-order, from 1 on; 0: left out. */
static int read_order(const run_options *options, int places[USUAL], beton_error *err)
{
	int status = BETON_OK, count = 0;
	memset(places, 0, USUAL * sizeof(*places));
	for (const char *at = options->rank_order; at && status == BETON_OK;) {
		char text[64], usual[128];
		status = bt_list_next("--rank-order", &at, text, sizeof(text), err);
		if (status != BETON_OK)
			break;
		const int found = find_axis(text);
		list_usual(usual, sizeof(usual));
		if (found == USUAL)
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "--rank-order: '%s' is not an axis; there are %s",
					 text, usual);
		else if (places[found])
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "--rank-order: '%s' is given twice", text);
		else
			places[found] = ++count;
	}
	return status;
}

int run_axes_order(const run_options *options, dtrain_axis out[DTRAIN_AXES], int *left_out)
{
	int places[USUAL];
	*left_out = 0;
	read_order(options, places, NULL);
	for (int i = 0; i < USUAL; i++)
		*left_out += places[i] == 0 && options->rank_order;
	for (int i = 0, first = 0; i < USUAL; i++)
		out[places[i] ? *left_out + places[i] - 1 : first++] = usual_order[i];
	return USUAL;
}

int64_t run_axes_size(const run_options *options, const char *name)
{
	run_axes axes;
	if (run_axes_read(options, &axes, NULL) != BETON_OK)
		return 0;
	for (int i = 0; i < DTRAIN_AXES; i++)
		if (names[i] && strcmp(names[i], name) == 0)
			return axes.size[i];
	return 0;
}

int64_t run_axes_ranks(const run_options *options, dtrain_axis axis)
{
	int64_t size = run_axes_size(options, names[axis]);
	return size ? size : 1;
}

int64_t run_axes_model_ranks(const run_options *options)
{
	return run_axes_ranks(options, DTRAIN_AXIS_PIPELINE) * run_axes_ranks(options, DTRAIN_AXIS_CONTEXT) *
	       run_axes_ranks(options, DTRAIN_AXIS_TENSOR);
}

void run_axes_default_world(run_options *options)
{
	run_axes axes;
	int64_t product = 1;
	if (run_axes_read(options, &axes, NULL) != BETON_OK || options->given[run_row_find("world-size")])
		return;
	for (int i = 0; i < DTRAIN_AXES; i++)
		product *= axes.size[i] ? axes.size[i] : 1;
	/* A new mesh of a resumed run divides the ranks that the run had, if it can and does not say how many copies
	 * and shards there are. */
	const bool copies = axes.size[DTRAIN_AXIS_REPLICATE] || axes.size[DTRAIN_AXIS_SHARD];
	const bool fits = options->world_size % run_axes_model_ranks(options) == 0;
	const bool keeps =
		options->saved ? !options->given[run_row_find("mesh")] || (fits && !copies) : options->world_size > 1;
	if (!keeps && product <= DTRAIN_MAX_RANKS)
		options->world_size = product;
}

/* "replicate=2 x tensor=2": the axes that --mesh names, or of these the model's. */
static const char *text_of(const run_axes *axes, bool all, char text[RUN_AXES_TEXT])
{
	*text = 0;
	for (int i = 0; i < DTRAIN_AXES; i++)
		if (axes->size[i] && (all || (i != DTRAIN_AXIS_REPLICATE && i != DTRAIN_AXIS_SHARD)))
			bt_append(text, RUN_AXES_TEXT, "%s%s=%" PRId64, *text ? " x " : "", names[i], axes->size[i]);
	return text;
}

const char *run_axes_describe(const run_options *options, int64_t shards, char out[RUN_AXES_TEXT])
{
	run_axes axes;
	*out = 0;
	if (run_axes_read(options, &axes, NULL) != BETON_OK)
		return out;
	axes.size[DTRAIN_AXIS_SHARD] = shards;
	axes.size[DTRAIN_AXIS_REPLICATE] = options->world_size / shards / run_axes_model_ranks(options);
	for (int i = 0; i < DTRAIN_AXES; i++)
		axes.size[i] = axes.size[i] > 1 ? axes.size[i] : 0;
	return text_of(&axes, true, out);
}

/* An axis with several ranks needs a place. */
static int check_order(const run_options *options, const int64_t sizes[DTRAIN_AXES], beton_error *err)
{
	int places[USUAL];
	char usual[128], lacks[128] = "";
	int status = read_order(options, places, err);
	list_usual(usual, sizeof(usual));
	for (int i = 0; i < USUAL && options->rank_order; i++)
		if (!places[i] && sizes[usual_order[i]] > 1)
			bt_append(lacks, sizeof(lacks), "%s%s", *lacks ? "," : "", names[usual_order[i]]);
	return status == BETON_OK && *lacks
		       ? bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--rank-order %s lacks %s, with several ranks; the usual order is %s",
				 options->rank_order, lacks, usual)
		       : status;
}

int run_axes_check_model(const run_options *options, beton_error *err)
{
	run_axes axes;
	char text[RUN_AXES_TEXT];
	const int64_t model = run_axes_model_ranks(options), ranks = options->world_size;
	int status = run_axes_read(options, &axes, err);
	if (status != BETON_OK || ranks % model == 0)
		return status;
	text_of(&axes, false, text);
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "--mesh: %s %s not divide --world-size %" PRId64 "; %" PRId64 " would do", text,
		       strstr(text, " x ") ? "do" : "does", ranks, (ranks / model + 1) * model);
}

static int check_sizes(const run_options *options, int64_t shard, beton_error *err)
{
	run_axes axes;
	int status = run_axes_check_model(options, err);
	if (status == BETON_OK)
		status = run_axes_read(options, &axes, err);
	if (status != BETON_OK)
		return status;
	int64_t ranks = options->world_size, model = run_axes_model_ranks(options);
	int64_t given_shard = axes.size[DTRAIN_AXIS_SHARD], given_copies = axes.size[DTRAIN_AXIS_REPLICATE];
	const bool divides = options->strategy >= RUN_STRATEGY_ZERO1 && options->strategy <= RUN_STRATEGY_HSDP;
	/* In an evaluation each data rank has whole parameters. */
	if (options->evaluate)
		return check_order(options, axes.size, err);
	if (given_shard && given_shard != shard && !divides)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: shard=%" PRId64 " needs a --strategy that divides parameters, such as zero3",
			       given_shard);
	if (given_shard && given_shard != shard)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: shard=%" PRId64 ", but --world-size %" PRId64
			       ", --strategy and --shard divide the parameters among %" PRId64 " rank%s",
			       given_shard, ranks, shard, bt_plural((uint64_t)shard));
	char text[RUN_AXES_TEXT];
	axes.size[DTRAIN_AXIS_SHARD] = shard;
	if (given_copies && given_copies * shard * model != ranks)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mesh: %s are not the %" PRId64 " ranks: replicate=%" PRId64 " would be",
			       text_of(&axes, true, text), ranks, ranks / model / shard);
	axes.size[DTRAIN_AXIS_REPLICATE] = ranks / model / shard;
	return check_order(options, axes.size, err);
}

int run_axes_check_world(const run_options *options, int64_t shard, beton_error *err)
{
	int status = check_sizes(options, shard, err);
	if (status != BETON_OK && options->saved && options->mesh && !options->given[run_row_find("mesh")])
		bt_prefix(err, "%s was trained with --mesh %s", options->saved->path, options->mesh);
	return status;
}
