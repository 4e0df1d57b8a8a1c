/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of labels that are numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "vision_parts.h"

/* Errors that float32 and mixing may add to a bound. */
#define ROUNDING 1e-6
#define SUM_ROUNDING 1e-3

/* Why the loss cannot use a number, a text that continues "is 2"; NULL: it can. */
static const char *find_problem(vision_kind kind, const vision_options *options, double number)
{
	bool bounded = kind == VISION_PROBABILITIES || (kind == VISION_LABELS && options->bce_threshold == 0);
	if (!isfinite(number))
		return "which is not finite";
	if (!bounded || (number >= -ROUNDING && number <= 1 + ROUNDING))
		return NULL;
	return kind == VISION_LABELS ? "and --loss bce needs 0 to 1, or --bce-threshold"
				     : "and --loss cross-entropy needs probabilities, 0 to 1";
}

static int refuse_sum(const char *path, uint64_t sample, const char *names, double sum, beton_error *err)
{
	return bt_fail_sample(err, BETON_MISMATCH, (int64_t)sample,
			      "%s: sample %" PRIu64 ": the probabilities '%s' have a sum of %g, not 1", path, sample,
			      names, sum);
}

/* Fields of integers and floats. */
typedef struct scalar_fields {
	uint32_t indices[BETON_JOINED_MAX];
	const char *names[BETON_JOINED_MAX];
	int count;
} scalar_fields;

static int check_sample(const beton_reader *reader, uint64_t sample, const vision_options *options, vision_kind kind,
			const scalar_fields *fields, double *sum, beton_error *err)
{
	*sum = 0;
	for (int i = 0; i < fields->count; i++) {
		beton_value value;
		int status = beton_reader_value(reader, sample, fields->indices[i], &value, err);
		if (status != BETON_OK) {
			bt_prefix(err, "%s", beton_reader_path(reader));
			return status;
		}
		bool whole = bt_form_of(value.type) == BT_FORM_INTEGER;
		double number = whole ? (double)value.integer : value.real;
		const char *problem = find_problem(kind, options, number);
		if (problem)
			return bt_fail_sample(err, isfinite(number) ? BETON_MISMATCH : BETON_SAMPLE_CORRUPT,
					      (int64_t)sample, "%s: sample %" PRIu64 ": '%s' is %g, %s",
					      beton_reader_path(reader), sample, fields->names[i], number, problem);
		*sum += number;
	}
	return BETON_OK;
}

int vision_targets_read(const beton_reader *reader, const vision_options *options, const vision_labels *labels,
			beton_error *err)
{
	scalar_fields fields = {.count = 0};
	for (int i = 0; i < labels->count; i++) {
		uint32_t index = (uint32_t)beton_reader_find_field(reader, labels->names[i]);
		if (!bt_type_is_number(beton_reader_field(reader, index)->type))
			continue;
		fields.indices[fields.count] = index;
		fields.names[fields.count++] = labels->names[i];
	}
	bool sums = labels->kind == VISION_PROBABILITIES && fields.count == labels->count;
	if (fields.count == 0)
		return BETON_OK;
	for (uint64_t sample = 0; sample < beton_reader_info(reader)->num_samples; sample++) {
		double sum;
		int status = check_sample(reader, sample, options, labels->kind, &fields, &sum, err);
		if (status == BETON_OK && sums && fabs(sum - 1) > SUM_ROUNDING)
			status = refuse_sum(beton_reader_path(reader), sample,
					    options->label_field ? options->label_field : labels->names[0], sum, err);
		if (status != BETON_OK)
			return status;
	}
	return BETON_OK;
}

int vision_check_batch(const engine_rank *engine, bool training, const beton_batch *batch, beton_error *err)
{
	const vision_options *options = vision_options_of(&engine->job);
	const engine_dataset *dataset = training ? &engine->data->train : &engine->data->val;
	const char *field = dataset->fields[VISION_LABEL];
	const char *names = options->label_field ? options->label_field : field;
	const vision_kind kind = vision_kind_of(engine->data);
	const int64_t count = engine->data->classes;
	char name[sizeof(engine->val.inputs[0].name)];
	if (kind == VISION_CLASSES || !*field)
		return BETON_OK;
	snprintf(name, sizeof(name), "%s.joined", field);
	const beton_tensor *joined = engine_find_tensor(batch, name, BETON_FLOAT32);
	for (uint32_t row = 0; joined && row < batch->count; row++) {
		const float *numbers = (const float *)joined->data + row * count;
		double sum = 0;
		for (int64_t i = 0; i < count; i++) {
			const char *problem = find_problem(kind, options, (double)numbers[i]);
			if (problem)
				return bt_fail_sample(err, BETON_MISMATCH, (int64_t)batch->sample_ids[row],
						      "%s: sample %" PRIu64 ": number %" PRId64 " of '%s' is %g, %s",
						      dataset->path, batch->sample_ids[row], i, names,
						      (double)numbers[i], problem);
			sum += (double)numbers[i];
		}
		if (kind == VISION_PROBABILITIES && fabs(sum - 1) > SUM_ROUNDING)
			return refuse_sum(dataset->path, batch->sample_ids[row], names, sum, err);
	}
	return BETON_OK;
}
