/* SPDX-License-Identifier: Apache-2.0 */
#include "tuning.h"

#include <stdio.h>

#include "common/error.h"
#include "common/system.h"

/* The share of the time that the search may take; below the least time the pause of the device costs more than what is
 * measured in it. */
static const double SHARE = 0.02, LEAST_MS = 4;
/* The device is idle until the next step is launched. */
static const double PAUSE_MS = 0.5;
/* Other algorithms may give other layouts, for which others are the fastest. */
enum { MOST_EXCHANGES = 3 };

static int synchronize(const engine_rank *engine, beton_error *err)
{
	return engine_synchronize(engine, "the search for algorithms", err);
}

static int recompile(engine_network *network, beton_error *err)
{
	return network->program ? dtrain_program_recompile(network->program, err) : BETON_OK;
}

static void keep(engine_tuning *tuning, const char *reason)
{
	tuning->state = ENGINE_TUNING_KEPT;
	snprintf(tuning->reason, sizeof(tuning->reason), "%.95s", reason);
}

static int exchange(engine_tuning *tuning, engine_rank *engine, bool *exchanged, beton_error *err)
{
	beton_error refusal = {0};
	if (engine->train.pipeline) {
		keep(tuning, "stages of a pipeline exchange memory");
		return BETON_OK;
	}
	int status = synchronize(engine, err);
	if (status != BETON_OK)
		return status;
	*exchanged = true;
	status = recompile(&engine->train, &refusal);
	if (status == BETON_OK)
		status = recompile(&engine->val, &refusal);
	if (status == BETON_OK) {
		tuning->exchanges++;
		return BETON_OK;
	}
	keep(tuning, refusal.message);
	/* Without its memory a program has nowhere to run. */
	bool lost = (engine->train.program && !engine_network_data(&engine->train, engine->train.inputs[0].tensor)) ||
		    (engine->val.program && !engine_network_data(&engine->val, engine->val.inputs[0].tensor));
	if (!lost)
		return BETON_OK;
	*err = refusal;
	bt_prefix(err, "other algorithms");
	return status;
}

static int lend(engine_tuning *tuning, const engine_rank *engine, double ms, beton_error *err)
{
	dtrain_tuning found;
	int status = synchronize(engine, err);
	if (status != BETON_OK)
		return status;
	engine->api->tune(engine->device, ms, &found);
	tuning->lent_ms += found.ms + PAUSE_MS;
	return BETON_OK;
}

int engine_tuning_step(engine_tuning *tuning, engine_rank *engine, bool *exchanged, beton_error *err)
{
	*exchanged = false;
	if (!engine->api->tune || tuning->state > ENGINE_TUNING_SEARCHES)
		return BETON_OK;
	dtrain_tuning found;
	engine->api->tune(engine->device, 0, &found);
	if (tuning->state == ENGINE_TUNING_NEW) {
		tuning->began_ns = bt_now_ns();
		tuning->state = found.ops ? ENGINE_TUNING_SEARCHES : ENGINE_TUNING_OFF;
	}
	tuning->ops = found.ops;
	if (tuning->state == ENGINE_TUNING_OFF)
		return BETON_OK;
	if (found.left > 0) {
		double earned = SHARE * (double)(bt_now_ns() - tuning->began_ns) / 1e6 - tuning->lent_ms;
		return found.waits && earned >= LEAST_MS ? lend(tuning, engine, earned, err) : BETON_OK;
	}
	tuning->ended_ns = bt_now_ns();
	if (found.found == tuning->known || tuning->exchanges == MOST_EXCHANGES) {
		tuning->state = ENGINE_TUNING_SETTLED;
		return BETON_OK;
	}
	tuning->known = found.found;
	return exchange(tuning, engine, exchanged, err);
}
