/* SPDX-License-Identifier: Apache-2.0 */
#include "compress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/sized.h"

static const dtrain_hook *const methods[] = {
	&dtrain__compress_f16,  &dtrain__compress_bf16,     &dtrain__compress_int8,
	&dtrain__compress_topk, &dtrain__compress_powersgd,
};

void dtrain_compression_init_sized(dtrain_compression *options, size_t size)
{
	const dtrain_compression defaults = {.struct_size = sizeof(defaults),
					     .method = "none",
					     .error_feedback = true,
					     .warm_start = true,
					     .ratio = 0.01,
					     .rank = 1,
					     .min_rate = 2,
					     .start = 1000};
	bt_sized_init(options, size, &defaults);
}

/* NULL: there is none of that name. */
static const dtrain_hook *find_method(const char *name)
{
	for (size_t i = 0; name && i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(name, methods[i]->name) == 0)
			return methods[i];
	return NULL;
}

bool dtrain_compression_is_for_shards(const char *method)
{
	dtrain_dtype type;
	const dtrain_hook *found = find_method(method);
	return found ? dtrain__compression_rounds(found, &type) : !method || strcmp(method, "none") == 0;
}

static int check(const dtrain_compression *c, beton_error *err)
{
	if (!(c->ratio > 0 && c->ratio <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "compression: a ratio of %g is not above 0 and at most 1",
			       c->ratio);
	if (c->rank < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "compression: rank %d", (int)c->rank);
	if (!(c->min_rate > 0) || isinf(c->min_rate))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "compression: min_rate %g", c->min_rate);
	if (c->start < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "compression: a start after %lld steps",
			       (long long)c->start);
	return BETON_OK;
}

int dtrain__compression_create(const dtrain_compression *given, dtrain_hook *out, beton_error *err)
{
	dtrain_compression options;
	*out = (dtrain_hook){.struct_size = sizeof(*out)};
	dtrain_compression_init(&options);
	int status = bt_sized_take(&options, given, "compression", err);
	if (status == BETON_OK)
		status = check(&options, err);
	if (status != BETON_OK || (options.method && strcmp(options.method, "none") == 0))
		return status;
	const dtrain_hook *method = find_method(options.method);
	if (!method)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "compression: unknown method '%s'",
			       options.method ? options.method : "");
	compression *context = calloc(1, sizeof(*context));
	if (!context)
		return bt_fail(err, BETON_NO_MEMORY, "compression: out of memory");
	context->options = options;
	context->options.method = method->name;
	*out = *method;
	out->context = context;
	return BETON_OK;
}

void dtrain__compression_destroy(dtrain_hook *hook)
{
	compression *context = hook->context;
	if (context && context->device)
		context->api->free(context->device, context->workspace);
	free(context);
	*hook = (dtrain_hook){0};
}

/* ---- ranges ---- */

dtrain_operand dtrain__compress_operand(dtrain_dtype dtype, int64_t a, int64_t b, int64_t c)
{
	const int64_t dims[] = {a, b, c};
	return (dtrain_operand){.dtype = dtype, .shape = dtrain_shape_of(1 + (b > 0) + (c > 0), dims)};
}

static int create_feedback(compress_range *range, beton_error *err)
{
	const dtrain_operand all = dtrain__compress_operand(DTRAIN_F32, range->range.count, 0, 0);
	const dtrain_op_desc desc = {
		.kind = DTRAIN_OP_ADD, .num_inputs = 2, .num_outputs = 1, .inputs = {all, all}, .outputs = {all}};
	range->feeds_back = true;
	int status = dtrain__compress_alloc(range, (size_t)range->range.count * sizeof(float), &range->error, err);
	return status == BETON_OK ? dtrain__compress_op(range, &desc, &range->add, err) : status;
}

int dtrain__compress_open(void *memory, const dtrain_hook_range *given, size_t size, bool feeds_back, void **out,
			  beton_error *err)
{
	compression *context = memory;
	*out = NULL;
	if (given->dtype != DTRAIN_F32)
		return bt_fail(err, BETON_UNSUPPORTED, "gradients in %s", dtrain_dtype_name(given->dtype));
	compress_range *range = calloc(1, size);
	if (!range)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %s", given->label);
	context->device = given->device;
	context->api = dtrain_device_get_api(given->device);
	range->context = context;
	range->range = *given;
	range->api = context->api;
	range->ranks = context->plan_ranks ? context->plan_ranks : dtrain_group_size(given->group);
	range->rank = context->plan_ranks ? 0 : dtrain_group_rank(given->group);
	int status = feeds_back && context->options.error_feedback ? create_feedback(range, err) : BETON_OK;
	if (status != BETON_OK) {
		dtrain__compress_close(range);
		return status;
	}
	*out = range;
	return BETON_OK;
}

void dtrain__compress_close(compress_range *range)
{
	dtrain__compress_destroy_op(range, range->add);
	for (int i = 0; i < range->num_memories; i++)
		range->api->free(range->range.device, range->memories[i]);
	for (int i = 0; i < range->num_names; i++)
		free(range->names[i]);
	free(range->names);
	free(range);
}

uint64_t dtrain__compress_bytes(const void *state)
{
	return ((const compress_range *)state)->bytes;
}

static int allocate(const compression *context, size_t bytes, void **out, beton_error *err)
{
	*out = NULL;
	return context->plan_ranks ? BETON_OK : context->api->alloc(context->device, bytes, out, err);
}

int dtrain__compress_alloc(compress_range *range, size_t bytes, void *out, beton_error *err)
{
	void *memory;
	int status = allocate(range->context, bytes, &memory, err);
	if (status != BETON_OK)
		return status;
	range->memories[range->num_memories++] = memory;
	range->bytes += bytes;
	memcpy(out, &memory, sizeof(memory));
	return BETON_OK;
}

/* The workspace grows while ranges are created; nothing runs then. */
static int reserve_workspace(compression *context, size_t bytes, beton_error *err)
{
	if (bytes <= context->workspace_bytes)
		return BETON_OK;
	context->api->free(context->device, context->workspace);
	context->workspace = NULL;
	context->workspace_bytes = 0;
	int status = allocate(context, bytes, &context->workspace, err);
	if (status == BETON_OK)
		context->workspace_bytes = bytes;
	return status;
}

static void set_bytes(dtrain_operand *operands, int count)
{
	for (int i = 0; i < count; i++)
		operands[i].bytes =
			(size_t)dtrain_shape_count(&operands[i].shape) * dtrain_dtype_size(operands[i].dtype);
}

int dtrain__compress_op(compress_range *range, const dtrain_op_desc *given, dtrain_op **out, beton_error *err)
{
	dtrain_op_desc desc = *given;
	set_bytes(desc.inputs, desc.num_inputs);
	for (int i = 0; i < desc.num_outputs; i++)
		desc.plain_output[i] = true;
	int status = range->api->op_create(range->range.device, &desc, out, err);
	return status == BETON_OK ? reserve_workspace(range->context, desc.workspace_bytes, err) : status;
}

void dtrain__compress_destroy_op(compress_range *range, dtrain_op *op)
{
	if (op)
		range->api->op_destroy(op);
}

int dtrain__compress_run(compress_range *range, dtrain_op *op, dtrain_stream *stream, void *const *operands,
			 beton_error *err)
{
	return range->api->op_run(op, stream, operands, range->context->workspace, err);
}

int dtrain__compress_take(compress_range *range, dtrain_stream *stream, float **out, beton_error *err)
{
	*out = range->error ? range->error : range->range.memory;
	return range->error ? dtrain__compress_run(range, range->add, stream,
						   (void *[]){range->error, range->range.memory, range->error}, err)
			    : BETON_OK;
}

/* ---- tensors ---- */

const char *dtrain__compress_name(compress_range *range, const char *name, const char *suffix)
{
	size_t size = strlen(name) + strlen(suffix) + 2;
	for (int i = 0; i < range->num_names; i++)
		if (strlen(range->names[i]) == size - 1 && memcmp(range->names[i], name, strlen(name)) == 0 &&
		    strcmp(range->names[i] + strlen(name) + 1, suffix) == 0)
			return range->names[i];
	char **names = realloc(range->names, (size_t)(range->num_names + 1) * sizeof(*names)), *text = malloc(size);
	range->names = names ? names : range->names;
	if (!names || !text) {
		free(text);
		return NULL;
	}
	snprintf(text, size, "%s.%s", name, suffix);
	names[range->num_names++] = text;
	return text;
}

/* A tensor for each parameter, with a row for each rank. */
int dtrain__compress_error_tensors(void *state, dtrain_hook_tensor *out, int capacity)
{
	compress_range *range = state;
	for (int i = 0; range->error && i < range->range.num_parts && i < capacity; i++) {
		const dtrain_hook_part *part = &range->range.parts[i];
		const int64_t dims[] = {range->ranks, part->param->count};
		out[i] = (dtrain_hook_tensor){.name = dtrain__compress_name(range, part->param->name, "compress_error"),
					      .dtype = DTRAIN_F32,
					      .shape = dtrain_shape_of(2, dims),
					      .offset = {range->rank},
					      .extent = {1, part->param->count},
					      .first = part->begin,
					      .count = part->count,
					      .memory = range->error + part->offset,
					      .device = range->range.device};
	}
	return range->error ? range->range.num_parts : 0;
}
