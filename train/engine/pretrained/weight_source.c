/* SPDX-License-Identifier: Apache-2.0 */
#include "weight_source.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/system.h"

#define AVERAGE_SUFFIX ".ema"

/* malloc'ed; NULL: out of memory. Hugging Face renames the norms of files that have TensorFlow's names for them, such
 * as bert-base-uncased. */
static char *copy_name(const char *name)
{
	static const char *const endings[][2] = {{"LayerNorm.gamma", "LayerNorm.weight"},
						 {"LayerNorm.beta", "LayerNorm.bias"}};
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (bt_ends_with(name, endings[i][0]))
			return bt_format("%.*s%s", (int)(strlen(name) - strlen(endings[i][0])), name, endings[i][1]);
	return strdup(name);
}

/* Adds a tensor without values. */
static int add_tensor(run_source *source, const char *name, const dtrain_shape *shape, beton_error *err)
{
	run_source_tensor *tensor = &source->tensors[source->count];
	*tensor = (run_source_tensor){.name = copy_name(name), .shape = *shape};
	if (!tensor->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
	source->count++;
	return BETON_OK;
}

static int add_values(run_source *source, run_source_tensor *tensor, beton_error *err)
{
	tensor->values = malloc(((size_t)dtrain_shape_count(&tensor->shape) + 1) * sizeof(float));
	return tensor->values
		       ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", source->path, tensor->name);
}

static int reserve(run_source *source, size_t count, beton_error *err)
{
	source->tensors = calloc(count + 1, sizeof(*source->tensors));
	return source->tensors ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
}

/* ---- a file ---- */

static const char *const fact_names[] = {
	"task",           "model",       "description", "classes",          "class_names",    "image_size",
	"loss",           "mean",        "std",         "val_ratio",        "label_field",    "outputs",
	"context_length", "end_of_text", "mask_token",  "mask_probability", "special_tokens", "ignore_label"};

enum { FACTS = sizeof(fact_names) / sizeof(fact_names[0]) };

static bool is_floating(const char *type)
{
	return strcmp(type, "F32") == 0 || strcmp(type, "F64") == 0 || strcmp(type, "F16") == 0 ||
	       strcmp(type, "BF16") == 0;
}

static int read_file(run_source *source, bool values, beton_error *err)
{
	const dtrain_checkpoint_tensor *tensor;
	dtrain_tensor_file *file = NULL;
	size_t count = 0;
	int status = dtrain_tensor_file_open(source->path, &file, err);
	if (status != BETON_OK)
		return status;
	while (dtrain_tensor_file_at(file, count))
		count++;
	status = reserve(source, count, err);
	for (size_t i = 0; status == BETON_OK && (tensor = dtrain_tensor_file_at(file, i)); i++) {
		status = add_tensor(source, tensor->name, &tensor->shape, err);
		if (status != BETON_OK || !values || !is_floating(tensor->dtype))
			continue;
		status = add_values(source, &source->tensors[i], err);
		if (status == BETON_OK)
			status = dtrain_tensor_file_read(file, i, source->tensors[i].values, err);
	}
	for (int i = 0; i < FACTS; i++)
		if (dtrain_tensor_file_metadata(file, fact_names[i]))
			json_object_set_new(source->info, fact_names[i],
					    json_string(dtrain_tensor_file_metadata(file, fact_names[i])));
	const char *absent = dtrain_tensor_file_absent(file, &source->incomplete);
	source->absent = absent ? strdup(absent) : NULL;
	if (status == BETON_OK && absent && !source->absent)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
	dtrain_tensor_file_close(&file);
	return status;
}

/* ---- a checkpoint ---- */

/* A checkpoint of an older release has only its options. */
static void take_options(json_t *info, const json_t *state)
{
	const json_t *options = json_object_get(state, "options");
	static const char *const names[][2] = {{"model", "model"},
					       {"image_size", "image-size"},
					       {"mean", "mean"},
					       {"std", "std"},
					       {"val_ratio", "val-ratio"}};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!json_object_get(info, names[i][0]) && json_is_string(json_object_get(options, names[i][1])))
			json_object_set(info, names[i][0], json_object_get(options, names[i][1]));
}

static int take_state(run_source *source, const char *text, beton_error *err)
{
	json_t *state = json_loads(text, 0, NULL);
	if (!state)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
	json_t *metadata = json_object_get(state, "metadata");
	source->step = json_integer_value(json_object_get(state, "step"));
	for (int i = 0; i < FACTS; i++)
		if (json_is_string(json_object_get(metadata, fact_names[i])))
			json_object_set(source->info, fact_names[i], json_object_get(metadata, fact_names[i]));
	take_options(source->info, state);
	if (!json_object_get(source->info, "classes") && json_is_integer(json_object_get(state, "classes")))
		json_object_set_new(
			source->info, "classes",
			json_sprintf("%lld", (long long)json_integer_value(json_object_get(state, "classes"))));
	json_decref(state);
	return BETON_OK;
}

/* Views of a set's tensors: the source's tensors in its memory, the others empty. */
static int add_views(run_source *source, const dtrain_checkpoint_tensor *tensors, size_t count, bool averages,
		     bool values, dtrain_checkpoint_view *views, beton_error *err)
{
	int status = BETON_OK;
	for (size_t i = 0; i < count && status == BETON_OK; i++) {
		const dtrain_checkpoint_tensor *tensor = &tensors[i];
		bool real = strcmp(tensor->dtype, "F32") == 0;
		bool wanted = real && bt_ends_with(tensor->name, AVERAGE_SUFFIX) == averages;
		views[i] = dtrain_checkpoint_view_whole(tensor->name, real ? DTRAIN_F32 : DTRAIN_I64, &tensor->shape,
							NULL, NULL);
		views[i].count = wanted && values ? views[i].count : 0;
		if (!wanted)
			continue;
		run_source_tensor *own = &source->tensors[source->count];
		status = add_tensor(source, tensor->name, &tensor->shape, err);
		if (status == BETON_OK && averages)
			own->name[strlen(own->name) - strlen(AVERAGE_SUFFIX)] = 0;
		if (status == BETON_OK && values)
			status = add_values(source, own, err);
		views[i].memory = own->values;
	}
	return status;
}

static int read_set(run_source *source, dtrain_checkpoint *checkpoint, bool values, beton_error *err)
{
	const dtrain_checkpoint_tensor *tensors;
	size_t count;
	int status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_OPTIMIZER, &tensors, &count, err);
	for (size_t i = 0; status == BETON_OK && i < count; i++)
		source->average = source->average || bt_ends_with(tensors[i].name, AVERAGE_SUFFIX);
	if (status == BETON_OK && !source->average)
		status = dtrain_checkpoint_tensors(checkpoint, DTRAIN_CHECKPOINT_MODEL, &tensors, &count, err);
	if (status != BETON_OK)
		return status;
	dtrain_checkpoint_view *views = calloc(count + 1, sizeof(*views));
	status = views ? reserve(source, count, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", source->path);
	if (status == BETON_OK)
		status = add_views(source, tensors, count, source->average, values, views, err);
	const dtrain_checkpoint_list list = {views, count};
	const dtrain_checkpoint_list *const sets[] = {source->average ? NULL : &list, source->average ? &list : NULL};
	if (status == BETON_OK && values)
		status = dtrain_checkpoint_load(checkpoint, sets, NULL, err);
	free(views);
	return status;
}

static int read_checkpoint(run_source *source, bool values, beton_error *err)
{
	dtrain_checkpoint *checkpoint = NULL;
	int status = dtrain_checkpoint_open(source->path, NULL, &checkpoint, err);
	if (status == BETON_OK)
		status = take_state(source, dtrain_checkpoint_state(checkpoint), err);
	if (status == BETON_OK)
		status = read_set(source, checkpoint, values, err);
	dtrain_checkpoint_close(&checkpoint);
	return status;
}

/* ---- either ---- */

/* Strips the prefixes that other programs give to all names of a model. */
static void strip_prefixes(run_source *source)
{
	static const char *const prefixes[] = {"module.", "_orig_mod.", "model."};
	enum { PREFIXES = sizeof(prefixes) / sizeof(prefixes[0]) };
	for (int k = 0; k < PREFIXES; k++) {
		size_t length = strlen(prefixes[k]), with = 0;
		for (size_t i = 0; i < source->count; i++)
			with += strncmp(source->tensors[i].name, prefixes[k], length) == 0;
		if (with == 0 || with < source->count)
			continue;
		for (size_t i = 0; i < source->count; i++)
			memmove(source->tensors[i].name, source->tensors[i].name + length,
				strlen(source->tensors[i].name + length) + 1);
		k = -1; /* one may precede another */
	}
}

/* folder/name; NULL: there is none. */
static char *find_in(const char *folder, const char *name)
{
	char *path = bt_format("%s/%s", folder, name);
	if (path && access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

/* Whether shards are in the folder, even if their names are not right. */
static int find_shards(const char *folder, bool *found, beton_error *err)
{
	DIR *stream = opendir(folder);
	const struct dirent *item = NULL;
	*found = false;
	errno = 0;
	while (stream && !*found && (item = readdir(stream)))
		*found = strncmp(item->d_name, "shard-", strlen("shard-")) == 0 &&
			 bt_ends_with(item->d_name, ".safetensors");
	int error = !stream || !item ? errno : 0;
	if (stream)
		closedir(stream);
	return error ? bt_fail_errno(err, error, "%s: cannot list", folder) : BETON_OK;
}

/* Finds in a folder: its checkpoint; its newest one; or another program's model: as one file, as several, or as the
 * shards that they were made from. */
static int find_in_folder(const char *given, char **out, bool *checkpoint, beton_error *err)
{
	char *state = find_in(given, "state.json");
	*checkpoint = state != NULL;
	free(state);
	if (*checkpoint) {
		*out = strdup(given);
		return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", given);
	}
	int status = dtrain_checkpoint_latest(given, INT64_MAX, out, NULL, err);
	*checkpoint = status == BETON_OK;
	if (status != BETON_NOT_FOUND)
		return status;
	*out = find_in(given, "model.safetensors");
	if (!*out)
		*out = find_in(given, "model.safetensors.index.json");
	bool shards = false;
	status = *out ? BETON_OK : find_shards(given, &shards, err);
	if (status != BETON_OK)
		return status;
	if (shards)
		*out = strdup(given);
	return *out ? BETON_OK
		    : bt_fail(err, BETON_NOT_FOUND,
			      "%s: holds no checkpoint, no model.safetensors, no model.safetensors.index.json and no "
			      "shard-00001-model-00001-of-00001.safetensors",
			      given);
}

static int find_path(const char *given, char **out, bool *checkpoint, beton_error *err)
{
	struct stat info;
	*out = NULL;
	*checkpoint = false;
	if (stat(given, &info) == 0 && S_ISDIR(info.st_mode))
		return find_in_folder(given, out, checkpoint, err);
	*out = strdup(given);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", given);
}

static int open_source(const char *given, bool values, run_source *out, beton_error *err)
{
	bool checkpoint = false;
	*out = (run_source){.info = json_object()};
	int status = out->info ? find_path(given, &out->path, &checkpoint, err)
			       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", given);
	if (status == BETON_OK)
		status = checkpoint ? read_checkpoint(out, values, err) : read_file(out, values, err);
	if (status != BETON_OK)
		run_source_close(out);
	else
		strip_prefixes(out);
	return status;
}

int run_source_open(const char *given, run_source *out, beton_error *err)
{
	return open_source(given, true, out, err);
}

int run_source_open_info(const char *given, run_source *out, beton_error *err)
{
	return open_source(given, false, out, err);
}

void run_source_close(run_source *source)
{
	for (size_t i = 0; i < source->count; i++) {
		free(source->tensors[i].name);
		free(source->tensors[i].values);
	}
	free(source->tensors);
	json_decref(source->info);
	free(source->path);
	free(source->absent);
	*source = (run_source){0};
}

int64_t run_source_classes(const run_source *source)
{
	static const char *const heads[] = {"fc.weight", "head.weight", "heads.head.weight", "classifier.weight",
					    "classifier.1.weight"};
	const run_source_tensor *head = NULL;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]) && !head; i++)
		head = run_source_find(source, heads[i]);
	return head && head->shape.ndim == 2 ? head->shape.dim[0] : 0;
}

const run_source_tensor *run_source_find(const run_source *source, const char *name)
{
	for (size_t i = 0; i < source->count; i++)
		if (strcmp(source->tensors[i].name, name) == 0)
			return &source->tensors[i];
	return NULL;
}

const char *run_source_info(const run_source *source, const char *name)
{
	return json_string_value(json_object_get(source->info, name));
}
