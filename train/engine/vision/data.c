/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "class_names.h"
#include "common/error.h"
#include "parts.h"

#define CLASSES_MAX 1000000

/* The field called `name` if it has that type, else the first field of that type; -1: none. */
static int find_field(const beton_reader *reader, const char *name, beton_field_type type)
{
	int index = beton_reader_find_field(reader, name);
	if (index >= 0 && beton_reader_field(reader, (uint32_t)index)->type == type)
		return index;
	return beton_reader_find_type(reader, type);
}

/* Found in one file; needed only for the checks. */
struct labels {
	int64_t limit; /* valid labels are 0 .. limit - 1 */
	int64_t highest;
	bool *used; /* [limit]; NULL: not recorded */
	json_t *names;
};

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
		if (value.integer < 0 || value.integer >= labels->limit)
			return bt_fail_sample(err, BETON_MISMATCH, (int64_t)sample,
					      "%s: sample %" PRIu64 " has label %" PRId64
					      ", outside the model's classes 0 .. %" PRId64,
					      path, sample, value.integer, labels->limit - 1);
		if (value.integer > labels->highest)
			labels->highest = value.integer;
		if (labels->used)
			labels->used[value.integer] = true;
	}
	return BETON_OK;
}

static int read_dataset(const char *path, engine_dataset *out, struct labels *labels, beton_error *err)
{
	beton_reader *reader = NULL;
	int status = beton_reader_open(&reader, path, err);
	if (status != BETON_OK)
		return status;
	int image = find_field(reader, "image", BETON_FIELD_IMAGE);
	int label = find_field(reader, "label", BETON_FIELD_INT);
	out->samples = beton_reader_info(reader)->num_samples;
	if (image < 0 || label < 0) {
		status = bt_fail(err, BETON_NOT_FOUND, "%s: has no %s field", path,
				 image < 0 ? "picture" : "integer (label)");
	} else if (out->samples == 0) {
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: holds no samples", path);
	} else {
		memcpy(out->fields[VISION_IMAGE], beton_reader_field(reader, (uint32_t)image)->name,
		       sizeof(out->fields[0]));
		memcpy(out->fields[VISION_LABEL], beton_reader_field(reader, (uint32_t)label)->name,
		       sizeof(out->fields[0]));
		status = read_labels(reader, (uint32_t)label, labels, err);
	}
	if (status == BETON_OK)
		status = beton_reader_fingerprint(reader, &out->fingerprint, err);
	if (status == BETON_OK)
		status = vision_class_names_load(reader, &labels->names, err);
	if (status == BETON_OK)
		status = vision_class_names_hash(labels->names, &out->class_names, err);
	beton_reader_close(&reader);
	return status;
}

static int read_val(const char *data, const char *val, const json_t *names, engine_data *out, beton_error *err)
{
	struct labels labels = {.limit = out->classes, .used = calloc((size_t)out->classes, sizeof(bool))};
	int status = labels.used ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the labels of --val");
	if (status == BETON_OK)
		status = read_dataset(val, &out->val, &labels, err);
	if (status == BETON_OK)
		status = vision_class_names_compare(data, names, val, labels.names, labels.used, labels.limit, err);
	json_decref(labels.names);
	free(labels.used);
	return status;
}

static int add_dataset(const char *path, int index, engine_dataset *out, struct labels *labels, beton_error *err)
{
	struct labels found = {.limit = labels->limit};
	engine_dataset dataset = {0};
	int status = read_dataset(path, &dataset, &found, err);
	if (status == BETON_OK && labels->names && found.names && dataset.class_names != out->class_names)
		status = bt_fail(err, BETON_MISMATCH,
				 "--data: %s has other names for its classes than the files before it", path);
	if (status == BETON_OK && !labels->names) {
		labels->names = json_incref(found.names);
		out->class_names = dataset.class_names;
	}
	json_decref(found.names);
	if (status != BETON_OK)
		return status;
	if (index == 0)
		memcpy(out->fields, dataset.fields, sizeof(out->fields));
	out->samples += dataset.samples;
	out->fingerprint =
		index ? XXH3_64bits_withSeed(&dataset.fingerprint, sizeof(dataset.fingerprint), out->fingerprint)
		      : dataset.fingerprint;
	labels->highest = found.highest > labels->highest ? found.highest : labels->highest;
	return BETON_OK;
}

int vision_read_data(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
		     beton_error *err)
{
	struct labels labels = {.limit = job->classes ? job->classes : CLASSES_MAX, .highest = -1};
	int status = BETON_OK;
	*out = (engine_data){0};
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = add_dataset(paths[i], i, &out->train, &labels, err);
	out->classes = job->classes ? job->classes : labels.highest + 1;
	if (status == BETON_OK && val)
		status = read_val(paths[0], val, labels.names, out, err);
	json_decref(labels.names);
	return status;
}
