/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint's tensors as one file, or as several with an index, whatever files the checkpoint has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "common/sized.h"
#include "common/system.h"
#include "common/tensor_names.h"
#include "safetensors.h"
#include "state.h"
#include "weight_map.h"

#define SUFFIX ".safetensors"
#define FILES_MAX 99999 /* names have five digits */

/* A source of an exported tensor. */
typedef struct export_part {
	const index_tensor *tensor;
	int64_t first; /* of its elements */
} export_part;

typedef struct export_job {
	const dtrain_checkpoint *checkpoint;
	dtrain_checkpoint_export_options options;
	int set;
	int giver; /* bt_name_giver; -1: the tensors keep their names */
	export_part *parts;
	safetensors_entry *entries; /* for them; they own the names */
	size_t count;
	size_t first; /* of the tensors in the file that is written */
} export_job;

void dtrain_checkpoint_export_options_init_sized(dtrain_checkpoint_export_options *options, size_t size)
{
	const dtrain_checkpoint_export_options defaults = {.struct_size = sizeof(defaults),
							   .set = DTRAIN_CHECKPOINT_MODEL};
	bt_sized_init(options, size, &defaults);
}

char *dtrain_checkpoint_export_path(const char *file, int index, int count)
{
	if (!file)
		return NULL;
	size_t stem = strlen(file) - (bt_ends_with(file, SUFFIX) ? strlen(SUFFIX) : 0);
	if (count == 1)
		return strdup(file);
	return index == count ? bt_format("%s" WEIGHT_MAP_SUFFIX, file)
			      : bt_format("%.*s-%05d-of-%05d%s", (int)stem, file, index + 1, count, file + stem);
}

static int fetch(void *context, size_t index, uint64_t at, void *destination, size_t bytes, beton_error *err)
{
	const export_job *job = context;
	const export_part *part = &job->parts[job->first + index];
	const index_tensor *tensor = part->tensor;
	dtrain_dtype dtype = (dtrain_dtype)tensor->dtype;
	dtrain_checkpoint_view view =
		dtrain_checkpoint_view_whole(tensor->name, dtype, &tensor->shape, destination, NULL);
	view.first = part->first + (int64_t)(at / dtrain_dtype_size(dtype));
	view.count = (int64_t)(bytes / dtrain_dtype_size(dtype));
	int status = job->options.check ? job->options.check(err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	return dtrain__checkpoint_read_views(job->checkpoint, job->set, &(dtrain_checkpoint_list){&view, 1}, NULL, err);
}

/* The length of a tensor's name in the export; 0: it is not exported. */
static size_t name_length(const export_job *job, const char *name)
{
	const char *state = job->options.state;
	size_t length = strlen(name), end = state ? strlen(state) + 1 : 0;
	if (!state)
		return length;
	return length > end && name[length - end] == '.' && strcmp(name + length - end + 1, state) == 0 ? length - end
													: 0;
}

static int add_entry(export_job *job, const index_tensor *tensor, const char *name, const dtrain_shape *shape,
		     int64_t first, beton_error *err)
{
	char *copy = strdup(name);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	job->entries[job->count] =
		(safetensors_entry){.name = copy, .dtype = (dtrain_dtype)tensor->dtype, .shape = *shape};
	job->parts[job->count++] = (export_part){tensor, first};
	return BETON_OK;
}

/* Adds a tensor under the other program's name, or its parts under theirs. */
static int add_renamed(export_job *job, const index_tensor *tensor, const char *name, beton_error *err)
{
	char theirs[BT_TENSOR_NAME_SIZE], part[BT_TENSOR_NAME_SIZE];
	dtrain_shape shape = tensor->shape;
	int status = BETON_OK;
	if (!bt_tensor_name(name, (bt_name_giver)job->giver, theirs))
		return bt_fail(err, BETON_UNSUPPORTED, "%s: %s has no name for the tensor '%s'", job->checkpoint->path,
			       bt_name_givers[job->giver], name);
	if (!strchr(theirs, '+'))
		return add_entry(job, tensor, theirs, &shape, 0, err);
	if (shape.ndim < 1 || shape.dim[0] % BT_TENSOR_PARTS != 0)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "%s: the tensor '%s' cannot be divided into query, key and value", job->checkpoint->path,
			       name);
	shape.dim[0] /= BT_TENSOR_PARTS;
	for (int i = 0; i < BT_TENSOR_PARTS && status == BETON_OK; i++) {
		bt_tensor_part(theirs, i, part);
		status = add_entry(job, tensor, part, &shape, i * dtrain_shape_count(&shape), err);
	}
	return status;
}

static int add_tensor(export_job *job, const index_tensor *tensor, size_t length, beton_error *err)
{
	if (tensor->dtype < 0)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, which dtrain has not",
			       job->checkpoint->path, tensor->name, tensor->type);
	char *name = strndup(tensor->name, length);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	int status = job->giver < 0 ? add_entry(job, tensor, name, &tensor->shape, 0, err)
				    : add_renamed(job, tensor, name, err);
	free(name);
	return status;
}

static int list_tensors(export_job *job, beton_error *err)
{
	const struct index_set *known = &job->checkpoint->index.sets[job->set];
	int status = BETON_OK;
	job->entries = calloc(BT_TENSOR_PARTS * known->count + 1, sizeof(*job->entries));
	job->parts = calloc(BT_TENSOR_PARTS * known->count + 1, sizeof(*job->parts));
	if (!job->entries || !job->parts)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	for (size_t i = 0; i < known->count && status == BETON_OK; i++) {
		size_t length = name_length(job, known->tensors[i].name);
		if (length)
			status = add_tensor(job, &known->tensors[i], length, err);
	}
	if (status != BETON_OK)
		return status;
	if (job->options.state && !job->count)
		return bt_fail(err, BETON_NOT_FOUND, "%s: has no tensors of the state '%s'", job->checkpoint->path,
			       job->options.state);
	return BETON_OK;
}

/* Checks every chunk that is needed. */
static int check_tensors(const export_job *job, beton_error *err)
{
	dtrain_checkpoint_view *views = calloc(job->count + 1, sizeof(*views));
	if (!views)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	for (size_t i = 0; i < job->count; i++) {
		const export_part *part = &job->parts[i];
		views[i] = dtrain_checkpoint_view_whole(part->tensor->name, job->entries[i].dtype, &part->tensor->shape,
							NULL, NULL);
		views[i].first = part->first;
		views[i].count = dtrain_shape_count(&job->entries[i].shape);
	}
	int status = dtrain__checkpoint_check_views(job->checkpoint, job->set,
						    &(dtrain_checkpoint_list){views, job->count}, err);
	free(views);
	return status;
}

/* Writes `count` tensors from job->first on. */
static int write_file(export_job *job, const char *path, size_t count, beton_error *err)
{
	bt_atomic_file file = {0};
	checkpoint_digest digest = {0};
	int status = bt_atomic_open(&file, path, err);
	if (status != BETON_OK)
		return status;
	bool model = job->set == DTRAIN_CHECKPOINT_MODEL || job->options.state;
	json_t *metadata = model ? json_object_get(job->checkpoint->state, "metadata") : NULL;
	status = dtrain__state_check_metadata(job->checkpoint->path, job->checkpoint->state, err);
	if (status == BETON_OK)
		status = dtrain__digest_begin(&digest, UINT64_MAX, err);
	if (status == BETON_OK)
		status = dtrain__safetensors_write(file.fd, path, job->entries + job->first, count, metadata, fetch,
						   job, &digest, err);
	if (status == BETON_OK)
		status = bt_atomic_commit(&file, err);
	else
		bt_atomic_abandon(&file);
	dtrain__digest_free(&digest);
	return status;
}

/* The first tensor that is not in the same file as tensor `first`. A tensor that is too large has one to itself. */
static size_t file_end(const export_job *job, size_t first)
{
	uint64_t most = job->options.max_file_bytes ? job->options.max_file_bytes : UINT64_MAX;
	size_t end = first;
	for (uint64_t sum = 0; end < job->count; end++) {
		uint64_t bytes = dtrain__safetensors_bytes(&job->entries[end]);
		if (end > first && (bytes > most || sum > most - bytes))
			break;
		sum += bytes;
	}
	return end;
}

static size_t count_files(const export_job *job)
{
	size_t count = 0;
	for (size_t first = 0; first < job->count; first = file_end(job, first))
		count++;
	return count ? count : 1;
}

/* Writes the file that begins with tensor job->first, and goes on to the next one's. */
static int write_part(export_job *job, const char *path, struct weight *weights, beton_error *err)
{
	size_t end = file_end(job, job->first);
	const char *slash = strrchr(path, '/');
	int status = write_file(job, path, end - job->first, err);
	for (; job->first < end; job->first++)
		weights[job->first] = (struct weight){job->entries[job->first].name, slash ? slash + 1 : path};
	return status;
}

static int write_parts(export_job *job, const char *file, int count, beton_error *err)
{
	struct weight *weights = calloc(job->count, sizeof(*weights));
	char **paths = calloc((size_t)count + 1, sizeof(*paths));
	uint64_t bytes = 0;
	int status = weights && paths ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file);
	for (size_t i = 0; i < job->count; i++)
		bytes += dtrain__safetensors_bytes(&job->entries[i]);
	for (int i = 0; i <= count && status == BETON_OK; i++) {
		paths[i] = dtrain_checkpoint_export_path(file, i, count);
		if (!paths[i])
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file);
		else if (i < count)
			status = write_part(job, paths[i], weights, err);
		else
			status = dtrain__weight_map_write(paths[i], weights, job->count, bytes, err);
	}
	for (int i = 0; paths && i <= count; i++)
		free(paths[i]);
	free(paths);
	free(weights);
	return status;
}

static int write_export(export_job *job, const char *file, int *files, beton_error *err)
{
	size_t count = count_files(job);
	if (count > FILES_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: %zu files of at most %" PRIu64 " bytes are more than %d", file, count,
			       job->options.max_file_bytes, FILES_MAX);
	if (count > 1 && !bt_ends_with(file, SUFFIX))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the name of several files has to end with " SUFFIX,
			       file);
	int status = count > 1 ? write_parts(job, file, (int)count, err) : write_file(job, file, job->count, err);
	if (status == BETON_OK && files)
		*files = (int)count;
	return status;
}

static int find_giver(export_job *job, beton_error *err)
{
	const char *names = job->options.names;
	job->giver = -1;
	for (int i = 0; names && bt_name_givers[i]; i++)
		job->giver = strcmp(bt_name_givers[i], names) == 0 ? i : job->giver;
	if (names && job->giver < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "names of '%s' are not known", names);
	if (names && job->set != DTRAIN_CHECKPOINT_MODEL && !job->options.state)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s has no names for the states of an optimizer", names);
	return BETON_OK;
}

int dtrain_checkpoint_export(dtrain_checkpoint *checkpoint, const dtrain_checkpoint_export_options *options,
			     const char *file, int *files, beton_error *err)
{
	if (BT_MISSING(err, checkpoint))
		return BETON_INVALID_ARGUMENT;
	export_job job = {.checkpoint = checkpoint};
	bool wanted[DTRAIN_CHECKPOINT_SETS] = {false};
	beton_error own = {0};
	if (!err)
		err = &own;
	dtrain_checkpoint_export_options_init(&job.options);
	int status = options ? bt_sized_take(&job.options, options, "export options", err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	job.set = job.options.state ? DTRAIN_CHECKPOINT_OPTIMIZER : (int)job.options.set;
	status = find_giver(&job, err);
	if (status != BETON_OK)
		return status;
	wanted[job.set] = true;
	status = dtrain__checkpoint_know(checkpoint, wanted, err);
	if (status == BETON_OK)
		status = list_tensors(&job, err);
	if (status == BETON_OK)
		status = check_tensors(&job, err);
	if (status == BETON_OK)
		status = write_export(&job, file, files, err);
	for (size_t i = 0; i < job.count; i++)
		free((char *)job.entries[i].name);
	free(job.entries);
	free(job.parts);
	return status;
}
