/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks compare before they train together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/system.h"
#include "comm/work.h"
#include "ddp.h"

enum { PARAMETERS, ELEMENTS, BUFFERS, TYPE, MODEL, BUCKETS, PLAN, FACTS };

static const char *const fact_names[FACTS] = {
	[PARAMETERS] = "number of parameters", [ELEMENTS] = "elements",
	[BUFFERS] = "number of buffers",       [TYPE] = "type of element",
	[MODEL] = "names and shapes",          [BUCKETS] = "number of buckets",
	[PLAN] = "limits of the buckets",
};

static void hash_tensor(XXH3_state_t *state, const char *name, const dtrain_shape *shape)
{
	XXH3_64bits_update(state, name, strlen(name) + 1);
	XXH3_64bits_update(state, &shape->ndim, sizeof(shape->ndim));
	XXH3_64bits_update(state, shape->dim, sizeof(shape->dim[0]) * (size_t)shape->ndim);
}

static int collect_facts(const dtrain_ddp *ddp, int64_t facts[FACTS], beton_error *err)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state || XXH3_64bits_reset(state) != XXH_OK) {
		XXH3_freeState(state);
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	}
	facts[PARAMETERS] = dtrain_params_count(ddp->params);
	facts[ELEMENTS] = dtrain_params_flat_count(ddp->params);
	facts[BUFFERS] = dtrain_params_buffer_count(ddp->params);
	facts[TYPE] = dtrain_params_dtype(ddp->params);
	facts[BUCKETS] = ddp->count;
	for (int i = 0; i < facts[PARAMETERS]; i++) {
		const dtrain_param *param = dtrain_params_at(ddp->params, i);

		hash_tensor(state, param->name, &param->shape);
		XXH3_64bits_update(state, &param->offset, sizeof(param->offset));
	}
	for (int i = 0; i < facts[BUFFERS]; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(ddp->params, i);

		hash_tensor(state, buffer->name, &buffer->shape);
		XXH3_64bits_update(state, &buffer->fixed, sizeof(buffer->fixed));
	}
	facts[MODEL] = (int64_t)XXH3_64bits_digest(state);
	facts[PLAN] = (int64_t)XXH3_64bits(ddp->plan, sizeof(*ddp->plan) * (size_t)ddp->count);
	XXH3_freeState(state);
	return BETON_OK;
}

static int compare_facts(const int64_t *all, int size, beton_error *err)
{
	for (int rank = 1; rank < size; rank++) {
		const int64_t *facts = all + (ptrdiff_t)rank * FACTS;
		char text[300] = "";

		for (int i = 0; i < FACTS; i++) {
			if (facts[i] == all[i])
				continue;
			bt_append(text, sizeof(text), "%s%s", *text ? ", " : "", fact_names[i]);
			if (i != MODEL && i != PLAN && i != TYPE)
				bt_append(text, sizeof(text), " (%lld instead of %lld)", (long long)facts[i],
					  (long long)all[i]);
		}
		if (*text)
			return bt_fail(err, BETON_MISMATCH, "ddp: rank %d has another model than rank 0: %s", rank,
				       text);
	}
	return BETON_OK;
}

int dtrain__ddp_compare(const dtrain_ddp *ddp, beton_error *err)
{
	int size = dtrain_group_size(ddp->group), status;
	int64_t facts[FACTS] = {0}, *all = calloc((size_t)size, sizeof(facts));

	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "ddp: out of memory");
	status = collect_facts(ddp, facts, err);
	if (!status)
		status = dtrain__group_gather_host(ddp->group, facts, sizeof(facts), all, err);
	if (!status)
		status = compare_facts(all, size, err);
	free(all);
	return status;
}
