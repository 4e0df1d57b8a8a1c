/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <string.h>

#include "operations/batch_operations_check.h"
#include "common/error.h"
#include "common/jpeg.h"
#include "common/sized.h"
#include "common/system.h"
#include "options_image.h"

enum {
	THREADS_MAX = 1024,
	BATCHES_MAX = 64,
	PIXELS_MAX = 65535,
	READ_AHEAD_MAX = 1024,
	FILES_OPEN_MAX = 1 << 20,
	NICE_MAX = 19,
	CPU_MAX = 65535
};

void beton_loader_options_init_sized(beton_loader_options *options, size_t size)
{
	const beton_loader_options defaults = {
		.struct_size = sizeof(defaults),
		.batch_size = 256,
		.batches_ahead = 3,
		.batches_leased = 2,
		.order = BETON_ORDER_SEQUENTIAL,
		.log_level = BETON_LOG_INFO,
		.engine = BETON_ENGINE_AUTO,
		.world_size = 1,
		.part_stride = 1,
		.image = {.height = 224,
			  .width = 224,
			  .crop = BETON_CROP_NONE,
			  .crop_scale = {0.08, 1},
			  .crop_ratio = {3.0 / 4, 4.0 / 3},
			  .center_ratio = 224.0 / 256,
			  .dtype = BETON_UINT8,
			  .layout = BETON_NHWC,
			  .mean = {123.675f, 116.28f, 103.53f},
			  .std = {58.395f, 57.12f, 57.375f}},
		.verify = true,
		.window_pages = 64,
		.tokens = {.dtype = BETON_INT64, .end_of_text = -1},
	};
	bt_sized_init(options, size, &defaults);
}

static int check_count(const char *field, uint64_t value, uint64_t least, uint64_t most, beton_error *err)
{
	if (value >= least && value <= most)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s is %llu, not %llu to %llu", field,
		       (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* Checks the options about threads and the memory of batches. */
static int check_threads(const beton_loader_options *o, beton_error *err)
{
	if (o->thread_nice < 0 || o->thread_nice > NICE_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: thread_nice is %d, not 0 to %d",
			       o->thread_nice, NICE_MAX);
	if (!o->cpus != !o->num_cpus)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: cpus is %s, but num_cpus is %u",
			       o->cpus ? "given" : "NULL", o->num_cpus);
	for (uint32_t i = 0; i < o->num_cpus; i++)
		if (o->cpus[i] < 0 || o->cpus[i] > CPU_MAX)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: cpus[%u] is %d, not 0 to %d", i,
				       o->cpus[i], CPU_MAX);
	if (!o->allocator.allocate != !o->allocator.release)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: allocator has no %s",
			       o->allocator.allocate ? "release" : "allocate");
	if (!BT_RESERVED_IS_ZERO(&o->allocator))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: allocator.reserved is not 0");
	if (o->log_level < BETON_LOG_DEBUG || o->log_level > BETON_LOG_WARNING)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: log_level is %d, not %d to %d",
			       (int)o->log_level, BETON_LOG_DEBUG, BETON_LOG_WARNING);
	return BETON_OK;
}

static int check_parts(const beton_loader_options *o, beton_error *err)
{
	if (!o->parts)
		return BETON_OK;
	if (o->parts % o->world_size != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: parts is %u, no multiple of world_size %u",
			       o->parts, o->world_size);
	uint64_t last = o->first_part + (uint64_t)(o->parts / o->world_size - 1) * o->part_stride;
	if (o->part_stride == 0 || last >= o->parts)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: first_part is %u and part_stride %u, which leads out of %u parts",
			       o->first_part, o->part_stride, o->parts);
	if (o->last != BETON_LAST_DROP)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: parts is %u, but last is not BETON_LAST_DROP", o->parts);
	return BETON_OK;
}

static int check_geometry(const beton_loader_options *o, beton_error *err)
{
	if (o->num_geometry > BETON_GEOMETRY_MAX || (o->num_geometry && !o->geometry))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: num_geometry is %u, with a limit of %d, or geometry is NULL",
			       o->num_geometry, BETON_GEOMETRY_MAX);
	int result = BETON_OK;
	for (uint32_t i = 0; i < o->num_geometry && result == BETON_OK; i++) {
		const beton_geometry *g = &o->geometry[i];
		if (!g->field)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: geometry[%u].field is NULL", i);
		if ((result = check_count("geometry[].kind", g->kind, 0, BETON_POINTS, err)) ||
		    (result = check_count("geometry[].units", g->units, 0, BETON_UNITS_SHARES, err)) ||
		    (result = check_count("geometry[].view", g->view, 0, bt_num_views(o) - 1, err)))
			break;
		for (size_t k = 0; k < sizeof(g->reserved) / sizeof(*g->reserved) && result == BETON_OK; k++)
			result = check_count("geometry[].reserved", g->reserved[k], 0, 0, err);
	}
	return result;
}

static int check_names(const char *option, const char *const *names, uint32_t count, beton_error *err)
{
	if (count && !names)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: num_%s is %u, but %s is NULL", option,
			       count, option);
	for (uint32_t i = 0; i < count; i++)
		if (!names[i])
			return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: %s[%u] is NULL", option, i);
	return BETON_OK;
}

static int check_flow(const beton_loader_options *o, beton_error *err)
{
	int result;
	if ((result = check_count("batch_size", o->batch_size, 1, UINT32_MAX, err)) ||
	    (result = check_count("num_threads", o->num_threads, 0, THREADS_MAX, err)) ||
	    (result = check_count("batches_ahead", o->batches_ahead, 1, BATCHES_MAX, err)) ||
	    (result = check_count("batches_leased", o->batches_leased, 1, BATCHES_MAX, err)) ||
	    (result = check_count("files_open_max", o->files_open_max, 0, FILES_OPEN_MAX, err)) ||
	    (result = check_count("read_ahead", o->read_ahead, 0, READ_AHEAD_MAX, err)) ||
	    (result = check_count("on_error", o->on_error, 0, BETON_ON_ERROR_SUBSTITUTE, err)) ||
	    (result = check_threads(o, err)) ||
	    (result = check_count("order", o->order, 0, BETON_ORDER_UNIFORM, err)) ||
	    (result = check_count("engine", o->engine, 0, BETON_ENGINE_URING, err)) ||
	    (result = check_count("last", o->last, 0, BETON_LAST_PAD, err)) ||
	    (result = check_count("window_pages", o->window_pages, 1, UINT32_MAX, err)) ||
	    (result = check_count("max_bytes", o->max_bytes, 0, UINT32_MAX, err)) ||
	    (result = check_count("world_size", o->world_size, 1, UINT32_MAX, err)))
		return result;
	if (o->ragged && o->max_bytes == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: ragged is true, but max_bytes is 0");
	if (o->direct && o->engine == BETON_ENGINE_MMAP)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"loader options: direct is true, but engine is BETON_ENGINE_MMAP, which is the page cache");
	if (o->num_joined > BETON_JOINED_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: num_joined is %u, and %d is the most",
			       o->num_joined, BETON_JOINED_MAX);
	if ((result = check_names("fields", o->fields, o->num_fields, err)) ||
	    (result = check_names("joined", o->joined, o->num_joined, err)) || (result = check_parts(o, err)))
		return result;
	return check_count("rank", o->rank, 0, o->world_size - 1, err);
}

/* Windows have no fields. */
static int check_no_fields(const beton_loader_options *o, beton_error *err)
{
	const char *option = o->fields                    ? "fields"
			     : o->num_joined              ? "joined"
			     : o->num_geometry            ? "geometry"
			     : o->num_replacements        ? "replacements"
			     : o->max_bytes               ? "max_bytes"
			     : o->custom                  ? "custom"
			     : o->num_views               ? "views"
			     : o->drawn                   ? "drawn"
			     : bt_batch_operations_mix(o) ? "batch_operations"
							  : NULL;
	return option ? bt_fail(err, BETON_INVALID_ARGUMENT,
				"loader options: %s is given, but windows of tokens (tokens.window) have no fields",
				option)
		      : BETON_OK;
}

static int check_mask(const beton_token_options *o, beton_error *err)
{
	if (!(o->mask_probability >= 0 && o->mask_probability <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: tokens.mask_probability is %g, not 0 to 1",
			       o->mask_probability);
	if (o->mask_probability == 0)
		return o->mask_token || o->num_special
			       ? bt_fail(err, BETON_INVALID_ARGUMENT,
					 "loader options: tokens.mask_probability is 0, but tokens.%s is given",
					 o->mask_token ? "mask_token" : "special")
			       : BETON_OK;
	if (o->num_special > BETON_SPECIAL_TOKENS_MAX || (o->num_special && !o->special))
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"loader options: tokens.num_special is %llu, with a limit of %d, or tokens.special is NULL",
			(unsigned long long)o->num_special, BETON_SPECIAL_TOKENS_MAX);
	if (o->mask_token >= o->vocabulary)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.mask_token is %llu, not below tokens.vocabulary, which is %llu",
			       (unsigned long long)o->mask_token, (unsigned long long)o->vocabulary);
	return BETON_OK;
}

static int check_tokens(const beton_token_options *o, beton_error *err)
{
	static const beton_token_options none = {.dtype = BETON_INT64, .end_of_text = -1};
	int result;
	if (!BT_RESERVED_IS_ZERO(o))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: tokens.reserved is not 0");
	if (o->window == 0 && (o->stride || o->format || o->field || o->vocabulary || o->segment || o->position ||
			       o->mask_probability != 0 || o->mask_token || o->num_special || o->dtype != none.dtype ||
			       o->end_of_text != none.end_of_text))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.window is 0, but other options of tokens are given");
	if (o->window == 0)
		return BETON_OK;
	if ((result = check_count("tokens.window", o->window, 1, INT32_MAX - 1, err)) ||
	    (result = check_count("tokens.stride", o->stride, 0, o->window, err)) ||
	    (result = check_count("tokens.format", o->format, 0, BETON_TOKENS_BETON, err)) ||
	    (result = check_count("tokens.vocabulary", o->vocabulary, 0, UINT64_C(1) << 32, err)))
		return result;
	if (o->dtype != BETON_INT64 && o->dtype != BETON_INT32)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.dtype is %d, not BETON_INT64 or BETON_INT32", (int)o->dtype);
	if (o->end_of_text < -1 || o->end_of_text > UINT32_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.end_of_text is %lld, not -1 to 4294967295",
			       (long long)o->end_of_text);
	if ((o->segment || o->position) && o->end_of_text < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: tokens.%s needs tokens.end_of_text, which is -1",
			       o->segment ? "segment" : "position");
	return check_mask(o, err);
}

int bt_options_resolve(beton_loader_options *out, const beton_loader_options *in, beton_error *err)
{
	beton_loader_options_init(out);
	int result = in ? bt_sized_take(out, in, "loader options", err) : BETON_OK;
	if (result == BETON_OK)
		result = check_flow(out, err);
	if (result == BETON_OK)
		result = bt_options_check_images(out, err);
	if (result == BETON_OK)
		result = check_geometry(out, err);
	if (result == BETON_OK)
		result = bt_batch_operations_check(out, err);
	if (result == BETON_OK)
		result = check_tokens(&out->tokens, err);
	if (result == BETON_OK && out->tokens.window > 0)
		result = check_no_fields(out, err);
	if (result)
		return result;
	bt_options_resolve_image(&out->image);
	if (out->tokens.stride == 0)
		out->tokens.stride = out->tokens.window;
	if (out->max_pixels == 0)
		out->max_pixels = BT_MAX_PIXELS_DEFAULT;
	if (out->num_threads == 0) {
		int cores = bt_available_cores();
		out->num_threads = cores < THREADS_MAX ? (uint32_t)cores : THREADS_MAX;
	}
	return BETON_OK;
}
