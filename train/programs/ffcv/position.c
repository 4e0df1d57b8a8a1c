/* SPDX-License-Identifier: Apache-2.0 */
#include "position.h"

#include <dtrain/checkpoint.h>
#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"

#define HEX_DIGITS 16

/* ---- to JSON ---- */

static json_t *hex(uint64_t value)
{
	char text[HEX_DIGITS + 1];
	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return json_string(text);
}

/* Takes ownership of value; false: no memory. */
static bool add_member(json_t *state, const char *name, json_t *value)
{
	return state && json_object_set_new(state, name, value) == 0;
}

/* Members that the checkpoint itself has, such as the step, are not repeated. */
static json_t *position_to_json(const run_position *position, const json_t *options, const json_t *metadata)
{
	char seed[24];
	snprintf(seed, sizeof(seed), "%" PRIu64, position->seed); /* JSON integers in this library end at 2^63 */
	json_t *state =
		json_pack("{s:n, s:I, s:I, s:I, s:s, s:i, s:i, s:s, s:I, s:I, s:n}", "version", "step",
			  (json_int_t)position->step, "epoch", (json_int_t)position->epoch, "position",
			  (json_int_t)position->position, "seed", seed, "world_size", (int)position->world_size,
			  "batch_size", (int)position->batch_size, "model", position->model, "classes",
			  (json_int_t)position->classes, "data_samples", (json_int_t)position->data_samples, "files");
	bool complete = state != NULL;
	if (complete && position->scaler[DTRAIN_SCALER_SCALE] > 0)
		complete = add_member(state, "loss_scaler",
				      json_pack("[f, f]", (double)position->scaler[DTRAIN_SCALER_SCALE],
						(double)position->scaler[DTRAIN_SCALER_GOOD_STEPS]));
	if (complete && position->data_fingerprint)
		complete = add_member(state, "data_fingerprint", hex(position->data_fingerprint));
	if (complete && position->data_class_names)
		complete = add_member(state, "data_class_names", hex(position->data_class_names));
	if (complete && position->best_step)
		complete = add_member(state, "best",
				      json_pack("{s:I, s:f}", "step", (json_int_t)position->best_step, "metric",
						position->best_metric));
	if (complete && position->evaluation_due)
		complete = add_member(state, "evaluation_due", json_true());
	if (complete && options)
		complete = add_member(state, "options", json_deep_copy(options));
	if (complete && metadata)
		complete = add_member(state, "metadata", json_deep_copy(metadata));
	if (complete)
		return state;
	json_decref(state);
	return NULL;
}

/* *out NULL: text is NULL. */
static int parse_object(const char *text, const char *what, json_t **out, beton_error *err)
{
	*out = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!text || json_is_object(*out))
		return BETON_OK;
	json_decref(*out);
	*out = NULL;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: the %s are not a JSON object: %.100s", what, text);
}

int run_position_to_state(const run_position *position, const char *options, const char *metadata, char **out,
			  beton_error *err)
{
	json_t *parsed = NULL, *described = NULL;
	*out = NULL;
	int status = parse_object(options, "options", &parsed, err);
	if (status == BETON_OK)
		status = parse_object(metadata, "metadata", &described, err);
	if (status == BETON_OK) {
		json_t *state = position_to_json(position, parsed, described);
		*out = state ? json_dumps(state, JSON_COMPACT) : NULL;
		json_decref(state);
		if (!*out)
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the position");
	}
	json_decref(parsed);
	json_decref(described);
	return status;
}

/* ---- from JSON ---- */

/* A missing member means 0: only newer programs save it. False: the member is invalid. */
static bool take_hex(const json_t *state, const char *name, uint64_t *out)
{
	const json_t *member = json_object_get(state, name);
	const char *text = json_string_value(member);
	if (text && strlen(text) == HEX_DIGITS && strspn(text, "0123456789abcdef") == HEX_DIGITS)
		*out = strtoull(text, NULL, 16);
	else
		*out = 0;
	return !member || *out;
}

static int state_to_position(const char *place, json_t *state, run_position *out, beton_error *err)
{
	run_position position = {0};
	json_int_t step, epoch, consumed, classes, samples;
	const char *seed;
	const char *model;
	if (json_unpack(state, "{s:I, s:I, s:I, s:s, s:i, s:i, s:s, s:I, s:I}", "step", &step, "epoch", &epoch,
			"position", &consumed, "seed", &seed, "world_size", &position.world_size, "batch_size",
			&position.batch_size, "model", &model, "classes", &classes, "data_samples", &samples) != 0)
		return bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", place);
	json_t *scaler = json_object_get(state, "loss_scaler");
	double scale = 0, good_steps = 0;
	if (scaler && (json_unpack(scaler, "[F, F!]", &scale, &good_steps) != 0 ||
		       !(scale > 0 && scale <= (double)FLT_MAX) || !(good_steps >= 0 && good_steps < 2000)))
		return bt_fail(err, BETON_FORMAT, "%s: the loss scaler's state is out of range", place);
	json_t *best = json_object_get(state, "best");
	json_int_t best_step = 0;
	if (best && (json_unpack(best, "{s:I, s:F}", "step", &best_step, "metric", &position.best_metric) != 0 ||
		     best_step < 1 || best_step > step))
		return bt_fail(err, BETON_FORMAT, "%s: the best evaluation is out of range", place);
	position.best_step = best_step;
	position.evaluation_due = json_is_true(json_object_get(state, "evaluation_due"));
	position.scaler[DTRAIN_SCALER_SCALE] = (float)scale;
	position.scaler[DTRAIN_SCALER_GOOD_STEPS] = (float)good_steps;
	if (step < 0 || epoch < 0 || consumed < 0 || classes < 1 || samples < 0 || position.world_size < 1 ||
	    position.batch_size < 1 || strlen(model) >= sizeof(position.model) ||
	    !take_hex(state, "data_fingerprint", &position.data_fingerprint) ||
	    !take_hex(state, "data_class_names", &position.data_class_names))
		return bt_fail(err, BETON_FORMAT, "%s: a value is out of range", place);
	int status = bt_parse_u64("seed", seed, 0, UINT64_MAX, &position.seed, err);
	if (status != BETON_OK)
		return bt_fail(err, BETON_FORMAT, "%s: the seed is not a number", place);
	position.step = step;
	position.epoch = epoch;
	position.position = consumed;
	position.classes = classes;
	position.data_samples = (uint64_t)samples;
	memcpy(position.model, model, strlen(model));
	*out = position;
	return BETON_OK;
}

/* *out NULL: the checkpoint was saved without options. */
static int state_to_options(const char *place, const json_t *state, char **out, beton_error *err)
{
	const json_t *options = json_object_get(state, "options");
	*out = NULL;
	if (!options)
		return BETON_OK;
	if (!json_is_object(options))
		return bt_fail(err, BETON_FORMAT, "%s: the options are not a JSON object", place);
	*out = json_dumps(options, JSON_COMPACT);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", place);
}

int run_position_from_state(const char *place, const char *state, run_position *out, char **options, beton_error *err)
{
	json_t *parsed = json_loads(state, 0, NULL);
	int status = parsed ? state_to_position(place, parsed, out, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", place);
	if (status == BETON_OK && options)
		status = state_to_options(place, parsed, options, err);
	json_decref(parsed);
	return status;
}

int run_position_read(const char *path, run_position *out, char **options, beton_error *err)
{
	dtrain_checkpoint *checkpoint = NULL;
	char *place = bt_format("%s/state.json", path);
	int status = place ? dtrain_checkpoint_open(path, NULL, &checkpoint, err)
			   : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (status == BETON_OK)
		status = run_position_from_state(place, dtrain_checkpoint_state(checkpoint), out, options, err);
	dtrain_checkpoint_close(&checkpoint);
	free(place);
	return status;
}
