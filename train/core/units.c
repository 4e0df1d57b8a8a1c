/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of the flat space: where each parameter lies, and how the space is cut into units.
 */
#include <stdlib.h>

#include "common/sized.h"
#include "params.h"
#include "shape.h"

void dtrain_unit_policy_init(dtrain_unit_policy *policy)
{
	*policy = (dtrain_unit_policy){
		.struct_size = sizeof(*policy), .first_bytes = SIZE_MAX, .bytes = SIZE_MAX, .shards = 1};
}

int dtrain_params_set_units(dtrain_params *params, const dtrain_unit_policy *given, beton_error *err)
{
	dtrain_unit_policy policy;
	dtrain_unit_policy_init(&policy);
	int status = bt_sized_take(&policy, given, "unit policy", err);
	if (status != BETON_OK)
		return status;
	if (policy.shards < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "unit policy: %d shards", policy.shards);
	if (params->allocated)
		return bt_fail(err, BETON_STATE, "units are cut after the parameters were allocated");
	params->policy = policy;
	return BETON_OK;
}

/* Offsets are in reverse order of declaration: the last parameter comes first. */
int dtrain__units_lay_out(dtrain_params *params, beton_error *err)
{
	const dtrain_unit_policy *policy = &params->policy;
	size_t element = dtrain_dtype_size(params->dtype), offset = 0;
	int trained = 0; /* the first declared parameter that is; those before it get units of their own */
	params->units = calloc((size_t)params->count + 1, sizeof(*params->units));
	if (!params->units)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the units of %d parameters", params->count);
	params->unit_count = 0;
	while (trained < params->count && params->params[trained].frozen)
		trained++;
	for (int i = params->count - 1; i >= 0; i--) {
		dtrain_param *param = &params->params[i];
		dtrain_unit *unit = &params->units[params->unit_count];
		param->unit = params->unit_count;
		param->offset = (int64_t)offset;
		offset += dtrain__round_up((size_t)param->count, DTRAIN_PARAM_ALIGN);
		size_t limit = params->unit_count ? policy->bytes : policy->first_bytes;
		unit->frozen = i < trained;
		if (i == 0 || i == trained || (offset - (size_t)unit->offset) * element >= limit) {
			size_t count = offset - (size_t)unit->offset;
			unit->count = (int64_t)dtrain__round_up(count, DTRAIN_PARAM_ALIGN * (size_t)policy->shards);
			offset = (size_t)(unit->offset + unit->count);
			params->units[++params->unit_count].offset = (int64_t)offset;
		}
		if (offset > (size_t)DTRAIN__MAX_ELEMENTS)
			return bt_fail(err, BETON_NO_MEMORY, "the model has more than 2^40 parameter elements");
	}
	params->flat_count = (int64_t)offset;
	return BETON_OK;
}
