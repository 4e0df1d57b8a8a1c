/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "class_names.h"
#include "common/suggest.h"
#include "common/system.h"
#include "shards/shards.h"
#include "vision_parts.h"

static const char *list_pictures(const beton_reader *reader, char *text, size_t size)
{
	*text = 0;
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++)
		if (beton_reader_field(reader, i)->type == BETON_FIELD_IMAGE)
			bt_append(text, size, "%s%s", *text ? ", " : "", beton_reader_field(reader, i)->name);
	return *text ? text : "none";
}

int vision_find_image(const beton_reader *reader, const vision_options *options, char out[BETON_NAME_MAX + 1],
		      beton_error *err)
{
	const char *given = options->image_field;
	char others[256];
	bt_suggestion like;
	int index = beton_reader_find_field(reader, given ? given : "image");
	bool fits = index >= 0 && beton_reader_field(reader, (uint32_t)index)->type == BETON_FIELD_IMAGE;
	if (!fits && given) {
		bt_suggest_begin(&like, given);
		for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++)
			if (beton_reader_field(reader, i)->type == BETON_FIELD_IMAGE)
				bt_suggest_try(&like, beton_reader_field(reader, i)->name);
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--image-field '%s': %s has no picture field of that name; its picture fields: %s%s",
			       given, beton_reader_path(reader), list_pictures(reader, others, sizeof(others)),
			       bt_suggest_text(&like));
	}
	if (!fits)
		index = beton_reader_find_type(reader, BETON_FIELD_IMAGE);
	if (index < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: has no picture field", beton_reader_path(reader));
	strcpy(out, beton_reader_field(reader, (uint32_t)index)->name);
	return BETON_OK;
}

/* Labels of the files so far; needed only for the checks. */
struct labels {
	int files;
	int64_t limit;   /* valid labels are 0 .. limit - 1 */
	bool known;      /* that is the model's number of classes */
	int64_t ignored; /* a label that is not a class; 0: none */
	int64_t highest;
	bool *used; /* [limit]; NULL: not recorded */
	json_t *names;
	vision_kind kind;
	int64_t elements; /* of another kind than CLASSES: numbers for a picture */
};

static int refuse_label(const char *path, uint64_t sample, int64_t label, const struct labels *labels, beton_error *err)
{
	if (labels->known)
		return bt_fail_sample(err, BETON_MISMATCH, (int64_t)sample,
				      "%s: sample %" PRIu64 " has label %" PRId64
				      ", outside the model's classes 0 .. %" PRId64,
				      path, sample, label, labels->limit - 1);
	return bt_fail_sample(err, BETON_MISMATCH, (int64_t)sample,
			      "%s: sample %" PRIu64 " has label %" PRId64 ", and classes are numbered from 0 on%s",
			      path, sample, label, label < 0 ? "" : ", at most 1000000 of them");
}

static int read_labels(const beton_reader *reader, uint32_t field, struct labels *labels, beton_error *err)
{
	const char *path = beton_reader_path(reader);
	uint64_t samples = beton_reader_info(reader)->num_samples;
	labels->highest = -1;
	for (uint64_t sample = 0; sample < samples; sample++) {
		beton_value value;
		int status = beton_reader_value(reader, sample, field, &value, err);
		if (status != BETON_OK) {
			bt_prefix(err, "%s", path);
			return status;
		}
		if (value.integer < 0 && value.integer == labels->ignored)
			continue;
		if (value.integer < 0 || value.integer >= labels->limit)
			return refuse_label(path, sample, value.integer, labels, err);
		if (value.integer > labels->highest)
			labels->highest = value.integer;
		if (labels->used)
			labels->used[value.integer] = true;
	}
	return BETON_OK;
}

static const engine_outputs *find_outputs(const char *key)
{
	for (int i = 0; i < VISION_KINDS; i++)
		if (strcmp(vision_outputs[i].key, key) == 0)
			return &vision_outputs[i];
	return NULL;
}

/* Checks, for an evaluation of weights, that the labels are of the kind that the weights were trained with. A model of
 * classes is measured in the same way by their probabilities. */
static int check_outputs(const vision_options *options, const beton_reader *reader, const vision_labels *labels,
			 beton_error *err)
{
	const engine_outputs *trained = options->outputs ? find_outputs(options->outputs) : NULL;
	const engine_outputs *found = &vision_outputs[labels->kind];
	const engine_outputs *classes = &vision_outputs[VISION_CLASSES];
	const engine_outputs *probabilities = &vision_outputs[VISION_PROBABILITIES];
	if (!trained || trained == found ||
	    ((trained == classes || trained == probabilities) && (found == classes || found == probabilities)))
		return BETON_OK;
	return bt_fail(err, BETON_MISMATCH, "--val: the labels '%s' of %s are %s, and %s was trained for %s",
		       options->label_field ? options->label_field : labels->names[0], beton_reader_path(reader),
		       found->names[1], options->weights, trained->names[1]);
}

static int find_labels(const beton_reader *reader, const vision_options *options, engine_dataset *out,
		       struct labels *labels, beton_error *err)
{
	vision_labels found;
	int status = vision_labels_find(reader, options, &found, err);
	labels->kind = found.kind;
	labels->elements = found.elements;
	if (status == BETON_OK)
		status = check_outputs(options, reader, &found, err);
	if (status == BETON_OK && found.kind != VISION_CLASSES && options->classes &&
	    options->classes != found.elements)
		status = bt_fail(err, BETON_MISMATCH, "--classes %" PRId64 ": %s has %" PRId64 " numbers for a picture",
				 options->classes, beton_reader_path(reader), found.elements);
	if (status == BETON_OK)
		strcpy(out->fields[VISION_LABEL], found.names[0]);
	if (status == BETON_OK && found.kind != VISION_CLASSES)
		status = vision_targets_read(reader, options, &found, err);
	vision_labels_free(&found);
	return status;
}

static int read_file(const vision_options *options, const bt_shard_input *input, engine_dataset *out,
		     struct labels *labels, beton_error *err)
{
	beton_reader *reader = NULL;
	int status = bt_shard_input_open(input, &reader, err);
	if (status != BETON_OK)
		return status;
	out->samples = beton_reader_info(reader)->num_samples;
	status = vision_find_image(reader, options, out->fields[VISION_IMAGE], err);
	if (status == BETON_OK)
		status = find_labels(reader, options, out, labels, err);
	if (status == BETON_OK && labels->kind == VISION_CLASSES)
		status = read_labels(reader, (uint32_t)beton_reader_find_field(reader, out->fields[VISION_LABEL]),
				     labels, err);
	if (status == BETON_OK)
		status = beton_reader_fingerprint(reader, &out->fingerprint, err);
	if (status == BETON_OK)
		status = vision_class_names_load(reader, &labels->names, err);
	if (status == BETON_OK)
		status = vision_class_names_hash(labels->names, &out->class_names, err);
	beton_reader_close(&reader);
	return status;
}

/* Adds a file of --data or --val. */
static int add_file(const vision_options *options, const char *option, const bt_shard_input *input, engine_dataset *out,
		    struct labels *labels, beton_error *err)
{
	struct labels found = {
		.limit = labels->limit, .known = labels->known, .ignored = labels->ignored, .used = labels->used};
	engine_dataset dataset = {0};
	bool first = labels->files++ == 0;
	int status = read_file(options, input, &dataset, &found, err);
	if (status == BETON_OK && !first && (found.kind != labels->kind || found.elements != labels->elements))
		status = bt_fail(err, BETON_MISMATCH, "%s: %s has other labels than the previous files", option,
				 input->path);
	if (status == BETON_OK && labels->names && found.names && !options->ignore_classes &&
	    dataset.class_names != out->class_names)
		status = bt_fail(err, BETON_MISMATCH,
				 "%s: %s has other class names than the previous files; beton-merge --remap-classes "
				 "joins them, --ignore-classes takes labels as they are",
				 option, input->path);
	if (status == BETON_OK && !labels->names) {
		labels->names = json_incref(found.names);
		out->class_names = dataset.class_names;
	}
	json_decref(found.names);
	if (status != BETON_OK)
		return status;
	if (first)
		memcpy(out->fields, dataset.fields, sizeof(out->fields));
	out->samples += dataset.samples;
	out->fingerprint =
		first ? dataset.fingerprint
		      : XXH3_64bits_withSeed(&dataset.fingerprint, sizeof(dataset.fingerprint), out->fingerprint);
	labels->highest = found.highest > labels->highest ? found.highest : labels->highest;
	labels->kind = found.kind;
	labels->elements = found.elements;
	return BETON_OK;
}

/* Adds the file at path, or the shards of the set at path. */
static int add_dataset(const vision_options *options, const char *option, const char *path, engine_dataset *out,
		       struct labels *labels, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	uint64_t before = out->samples;
	int status = bt_shard_inputs_add(&inputs, path, err);
	for (size_t i = 0; i < inputs.count && status == BETON_OK; i++)
		status = add_file(options, option, &inputs.list[i], out, labels, err);
	if (status == BETON_OK && out->samples == before)
		status = bt_fail(err, BETON_FORMAT, "%s: holds no samples", path);
	bt_shard_inputs_free(&inputs);
	return status;
}

static int read_val(const vision_options *options, const char *data, const char *val, const json_t *names,
		    engine_data *out, beton_error *err)
{
	struct labels labels = {.limit = out->classes,
				.known = true,
				.ignored = options->ignore_label,
				.highest = -1,
				.used = calloc((size_t)out->classes, sizeof(bool))};
	int status = labels.used ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the labels of --val");
	if (status == BETON_OK)
		status = add_dataset(options, "--val", val, &out->val, &labels, err);
	out->val.path = val;
	if (status == BETON_OK && out->outputs &&
	    (labels.kind != vision_kind_of(out) || (labels.kind != VISION_CLASSES && labels.elements != out->classes)))
		status = bt_fail(err, BETON_MISMATCH, "--val: %s has other labels than %s", val, data);
	out->outputs = &vision_outputs[labels.kind];
	out->classes = labels.kind == VISION_CLASSES ? out->classes : labels.elements;
	if (status == BETON_OK && !options->ignore_classes)
		status = vision_class_names_compare(data, names, val, labels.names, labels.used, labels.limit, err);
	json_decref(labels.names);
	free(labels.used);
	return status;
}

/* Options that need a class for each picture. */
static int check_kind(const engine_job *job, const engine_data *data, beton_error *err)
{
	vision_kind kind = vision_kind_of(data);
	const char *option = kind == VISION_CLASSES                                     ? NULL
			     : job->per_class                                           ? "--val-per-class"
			     : job->label_smoothing > 0 && kind != VISION_PROBABILITIES ? "--label-smoothing"
											: NULL;
	return option ? bt_fail(err, BETON_MISMATCH, "%s needs classes, and the labels '%s' are %s", option,
				data->val.samples ? data->val.fields[VISION_LABEL] : data->train.fields[VISION_LABEL],
				data->outputs->names[1])
		      : BETON_OK;
}

int vision_read_data(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
		     beton_error *err)
{
	const vision_options *options = vision_options_of(job);
	struct labels labels = {.limit = options->classes ? options->classes : VISION_OUTPUTS_MAX,
				.known = options->classes > 0,
				.ignored = options->ignore_label,
				.highest = -1};
	int status = BETON_OK;
	*out = (engine_data){0};
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = add_dataset(options, "--data", paths[i], &out->train, &labels, err);
	out->classes = options->classes ? options->classes : labels.highest + 1;
	out->train.path = count == 1 ? paths[0] : "--data";
	if (count) {
		out->outputs = &vision_outputs[labels.kind];
		out->classes = labels.kind == VISION_CLASSES ? out->classes : labels.elements;
	}
	if (status == BETON_OK && count && options->ignore_label && labels.kind != VISION_CLASSES)
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--ignore-label needs a label field with the number of a picture's class");
	if (status == BETON_OK && count && out->classes < 1)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: every sample has the label of --ignore-label",
				 out->train.path);
	if (count == 0 && options->class_names)
		labels.names = json_loads(options->class_names, 0, NULL);
	if (status == BETON_OK && val)
		status = read_val(options, count ? paths[0] : options->weights, val, labels.names, out, err);
	json_decref(labels.names);
	return status == BETON_OK ? check_kind(job, out, err) : status;
}

/* Files that have names have the same ones: see add_file. */
static int find_class_names(const char *path, json_t **names, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	int status = bt_shard_inputs_add(&inputs, path, err);
	for (size_t i = 0; i < inputs.count && status == BETON_OK && !*names; i++) {
		beton_reader *reader = NULL;
		status = bt_shard_input_open(&inputs.list[i], &reader, err);
		if (status == BETON_OK)
			status = vision_class_names_load(reader, names, err);
		beton_reader_close(&reader);
	}
	bt_shard_inputs_free(&inputs);
	return status;
}

int vision_class_names(const engine_job *job, const char *const *paths, int count, char **out, beton_error *err)
{
	json_t *names = NULL;
	int status = BETON_OK;
	(void)job;
	*out = NULL;
	for (int i = 0; i < count && status == BETON_OK && !names; i++)
		status = find_class_names(paths[i], &names, err);
	if (names) {
		*out = json_dumps(names, JSON_COMPACT);
		if (!*out)
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of classes");
	}
	json_decref(names);
	return status;
}
