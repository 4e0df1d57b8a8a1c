/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of the flat space: where each parameter lies, and how the space is cut into units.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "common/system.h"
#include "params.h"
#include "shape.h"

void dtrain_unit_policy_init_sized(dtrain_unit_policy *policy, size_t size)
{
	const dtrain_unit_policy defaults = {
		.struct_size = sizeof(defaults), .first_bytes = SIZE_MAX, .bytes = SIZE_MAX, .shards = 1};
	bt_sized_init(policy, size, &defaults);
}

int dtrain_params_set_units(dtrain_params *params, const dtrain_unit_policy *given, beton_error *err)
{
	if (BT_MISSING(err, params))
		return BETON_INVALID_ARGUMENT;
	dtrain_unit_policy policy;
	dtrain_unit_policy_init(&policy);
	int status = bt_sized_take(&policy, given, "unit policy", err);
	if (status != BETON_OK)
		return status;
	if (policy.shards < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "unit policy: %d shards", policy.shards);
	if (params->allocated)
		return bt_fail(err, BETON_STATE, "units are cut after the parameters were allocated");
	char *pattern = policy.pattern ? strdup(policy.pattern) : NULL;
	if (policy.pattern && !pattern)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the pattern of units");
	free(params->unit_pattern);
	params->unit_pattern = pattern;
	params->policy = policy;
	params->policy.pattern = pattern;
	return BETON_OK;
}

/* The state while parameters are laid out, from the last declared to the first. */
typedef struct layout {
	dtrain_params *params;
	size_t offset;            /* of the next parameter */
	int trained;              /* the first declared parameter that is; those before it get units of their own */
	bool shared;              /* units of parameters that are not sharded */
	const dtrain_param *last; /* in the unit that is being filled; NULL: it is empty */
} layout;

static size_t room_of(const dtrain_param *param)
{
	return dtrain__round_up((size_t)dtrain__placement_room(param), DTRAIN_PARAM_ALIGN);
}

/* The largest parameter of the unit that has no shard yet; of equal ones the last declared. -1: all have one. */
static int find_largest(const dtrain_params *params, const int *shard_of)
{
	int found = -1;
	for (int i = params->count - 1; i >= 0; i--)
		if (params->params[i].unit == params->unit_count && shard_of[i] < 0 &&
		    (found < 0 || room_of(&params->params[i]) > room_of(&params->params[found])))
			found = i;
	return found;
}

static int find_emptiest(const size_t *used, int shards)
{
	int emptiest = 0;
	for (int i = 1; i < shards; i++)
		emptiest = used[i] < used[emptiest] ? i : emptiest;
	return emptiest;
}

/* Deals the unit's parameters to shards, the largest first, each to the emptiest shard. All shards get the size of the
 * fullest. */
static int deal(layout *l, beton_error *err)
{
	dtrain_params *params = l->params;
	int shards = params->policy.shards, index;
	size_t begin = (size_t)params->units[params->unit_count].offset, most = 0;
	size_t *used = calloc((size_t)shards, sizeof(*used));
	int *shard_of = malloc(((size_t)params->count + 1) * sizeof(*shard_of));
	if (!used || !shard_of) {
		free(used);
		free(shard_of);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the layout of a unit");
	}
	for (int i = 0; i < params->count; i++)
		shard_of[i] = -1;
	while ((index = find_largest(params, shard_of)) >= 0) {
		int shard = shard_of[index] = find_emptiest(used, shards);
		params->params[index].offset = (int64_t)used[shard];
		used[shard] += room_of(&params->params[index]);
		most = used[shard] > most ? used[shard] : most;
	}
	for (int i = 0; i < params->count; i++)
		if (shard_of[i] >= 0)
			params->params[i].offset += (int64_t)(begin + (size_t)shard_of[i] * most);
	free(used);
	free(shard_of);
	l->offset = begin + (size_t)shards * most;
	return BETON_OK;
}

static int close_unit(layout *l, beton_error *err)
{
	dtrain_params *params = l->params;
	dtrain_unit *unit = &params->units[params->unit_count];
	bool deals = params->policy.whole && params->policy.shards > 1 && !l->shared;
	int status = deals ? deal(l, err) : BETON_OK;
	size_t count = l->offset - (size_t)unit->offset;
	unit->count = (int64_t)dtrain__round_up(count, DTRAIN_PARAM_ALIGN * (size_t)params->policy.shards);
	unit->shared = l->shared;
	l->offset = (size_t)(unit->offset + unit->count);
	l->last = NULL;
	params->units[++params->unit_count].offset = (int64_t)l->offset;
	return status;
}

static bool is_full(const layout *l)
{
	const dtrain_params *params = l->params;
	size_t limit = params->unit_count ? params->policy.bytes : params->policy.first_bytes;
	size_t count = l->offset - (size_t)params->units[params->unit_count].offset;
	return count * dtrain_dtype_size(params->dtype) >= limit;
}

/* The length of the shortest part of the name that ends at a dot and matches the pattern; 0: there is none. */
static size_t module_length(const char *pattern, const char *name)
{
	char part[256];
	for (const char *dot = pattern ? strchr(name, '.') : NULL; dot && (size_t)(dot - name) < sizeof(part);
	     dot = strchr(dot + 1, '.')) {
		memcpy(part, name, (size_t)(dot - name));
		part[dot - name] = 0;
		if (fnmatch(pattern, part, 0) == 0)
			return (size_t)(dot - name);
	}
	return 0;
}

/* Appends the module of a parameter: its name up to the last dot. */
static void append_module(char *text, size_t size, const char *name)
{
	const char *dot = strrchr(name, '.');
	bt_append(text, size, "%s'%.*s'", *text ? ", " : "", dot ? (int)(dot - name) : 0, name);
}

static int check_pattern(const dtrain_params *params, beton_error *err)
{
	const char *pattern = params->unit_pattern;
	bool matches = !pattern || params->count == 0;
	char some[256] = "";
	for (int i = 0; i < params->count && !matches; i++)
		matches = module_length(pattern, params->params[i].name) > 0;
	if (matches)
		return BETON_OK;
	for (int i = 0; i < 3; i++)
		append_module(some, sizeof(some), params->params[i * (params->count - 1) / 2].name);
	return bt_fail(err, BETON_INVALID_ARGUMENT, "the unit-pattern '%s' matches no module; three of them are %s",
		       pattern, some);
}

static bool are_of_one_module(const char *pattern, const char *a, const char *b)
{
	size_t length = module_length(pattern, a);
	return length == module_length(pattern, b) && strncmp(a, b, length) == 0;
}

/* Whether one alone of two parameters of several stages is frozen. Stages have other parameters around them, and still
 * need the same units for these. */
static bool differs_in_stages(const dtrain_param *a, const dtrain_param *b)
{
	return (a->stages & (a->stages - 1)) != 0 && a->frozen != b->frozen;
}

/* Whether a unit must end before the parameter. */
static bool ends_unit(const layout *l, const dtrain_param *param, bool frozen)
{
	const dtrain_params *params = l->params;
	if (!l->last)
		return false;
	return params->units[params->unit_count].frozen != frozen ||
	       dtrain__axis_find(l->last->placement.axis) != dtrain__axis_find(param->placement.axis) ||
	       l->last->stages != param->stages || differs_in_stages(l->last, param) ||
	       l->last->partial_axes != param->partial_axes ||
	       (params->policy.by_block && l->last->block != param->block) ||
	       !are_of_one_module(params->unit_pattern, l->last->name, param->name);
}

static int place(layout *l, int index, beton_error *err)
{
	dtrain_params *params = l->params;
	dtrain_param *param = &params->params[index];
	bool frozen = index < l->trained;
	int status = ends_unit(l, param, frozen) ? close_unit(l, err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	dtrain_unit *unit = &params->units[params->unit_count];
	unit->frozen = frozen;
	unit->block = param->block;
	unit->axis = dtrain__axis_find(param->placement.axis);
	unit->stages = param->stages;
	unit->partial_axes = param->partial_axes;
	unit->repeated = param->repeated;
	param->unit = params->unit_count;
	param->offset = (int64_t)l->offset;
	l->offset += room_of(param);
	l->last = param;
	if (l->offset > (size_t)DTRAIN__MAX_ELEMENTS)
		return bt_fail(err, BETON_NO_MEMORY, "the model has more than 2^40 parameter elements");
	return is_full(l) ? close_unit(l, err) : BETON_OK;
}

/* Offsets are in reverse order of declaration: the last parameter comes first. If ops read 16-bit copies, the
 * parameters that they read uncopied (biases and norms: less than a hundredth of the elements) come after all others
 * and are not sharded, so that gathers move 2 bytes for each element. */
int dtrain__units_lay_out(dtrain_params *params, beton_error *err)
{
	layout l = {.params = params};
	bool divides = dtrain__params_divided(params) || params->sharding.alike;
	bool splits = divides && params->copies.dtype != params->dtype;
	int status = check_pattern(params, err);
	if (status != BETON_OK)
		return status;
	params->units = calloc((size_t)params->count + 1, sizeof(*params->units));
	if (!params->units)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the units of %d parameters", params->count);
	params->unit_count = 0;
	while (l.trained < params->count && params->params[l.trained].frozen)
		l.trained++;
	for (int i = 0; i < params->count; i++)
		params->params[i].unit = -1;
	for (int pass = 0; pass < 1 + splits; pass++) {
		l.shared = pass == 1;
		for (int i = params->count - 1; i >= 0 && status == BETON_OK; i--)
			if (!splits || params->params[i].copied == !l.shared)
				status = place(&l, i, err);
		if (l.last && status == BETON_OK)
			status = close_unit(&l, err);
	}
	params->flat_count = (int64_t)l.offset;
	return status;
}
