/* SPDX-License-Identifier: Apache-2.0
 *
 * One file of a checkpoint's many. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "common/system.h"
#include "safetensors.h"
#include "state.h"

typedef struct export_job {
	const dtrain_checkpoint *checkpoint;
	int set;
	const char
		*state; /* of the optimizer, whose tensors get the names of the model's; NULL: all tensors of the set */
	int (*check)(beton_error *err);
	const index_tensor **tensors; /* that are exported */
	safetensors_entry *entries;   /* for them; they own the names */
	size_t count;
} export_job;

static int fetch(void *context, size_t index, uint64_t at, void *destination, size_t bytes, beton_error *err)
{
	const export_job *job = context;
	const index_tensor *tensor = job->tensors[index];
	dtrain_dtype dtype = (dtrain_dtype)tensor->dtype;
	dtrain_checkpoint_view view =
		dtrain_checkpoint_view_whole(tensor->name, dtype, &tensor->shape, destination, NULL);
	view.first = (int64_t)(at / dtrain_dtype_size(dtype));
	view.count = (int64_t)(bytes / dtrain_dtype_size(dtype));
	int status = job->check ? job->check(err) : BETON_OK;
	if (status != BETON_OK)
		return status;
	return dtrain__checkpoint_read_views(job->checkpoint, job->set, &(dtrain_checkpoint_list){&view, 1}, NULL, err);
}

/* The length of a tensor's name in the export; 0: it is not exported. */
static size_t name_length(const export_job *job, const char *name)
{
	size_t length = strlen(name), end = job->state ? strlen(job->state) + 1 : 0;
	if (!job->state)
		return length;
	return length > end && name[length - end] == '.' && strcmp(name + length - end + 1, job->state) == 0
		       ? length - end
		       : 0;
}

static int list_tensors(export_job *job, beton_error *err)
{
	const struct index_set *known = &job->checkpoint->index.sets[job->set];
	job->entries = calloc(known->count + 1, sizeof(*job->entries));
	job->tensors = calloc(known->count + 1, sizeof(const index_tensor *));
	if (!job->entries || !job->tensors)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	for (size_t i = 0; i < known->count; i++) {
		const index_tensor *tensor = &known->tensors[i];
		size_t length = name_length(job, tensor->name);
		if (!length)
			continue;
		if (tensor->dtype < 0)
			return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, which dtrain has not",
				       job->checkpoint->path, tensor->name, tensor->type);
		char *name = strndup(tensor->name, length);
		if (!name)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
		job->entries[job->count] =
			(safetensors_entry){.name = name, .dtype = (dtrain_dtype)tensor->dtype, .shape = tensor->shape};
		job->tensors[job->count++] = tensor;
	}
	if (job->state && !job->count)
		return bt_fail(err, BETON_NOT_FOUND, "%s: has no tensors of the state '%s'", job->checkpoint->path,
			       job->state);
	return BETON_OK;
}

/* Checks every chunk that is needed. */
static int check_tensors(const export_job *job, beton_error *err)
{
	dtrain_checkpoint_view *views = calloc(job->count + 1, sizeof(*views));
	if (!views)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->checkpoint->path);
	for (size_t i = 0; i < job->count; i++)
		views[i] = dtrain_checkpoint_view_whole(job->tensors[i]->name, job->entries[i].dtype,
							&job->tensors[i]->shape, NULL, NULL);
	int status = dtrain__checkpoint_check_views(job->checkpoint, job->set,
						    &(dtrain_checkpoint_list){views, job->count}, err);
	free(views);
	return status;
}

static int write_export(export_job *job, const char *path, beton_error *err)
{
	bt_atomic_file file = {0};
	checkpoint_digest digest = {0};
	int status = bt_atomic_open(&file, path, err);
	if (status != BETON_OK)
		return status;
	bool model = job->set == DTRAIN_CHECKPOINT_MODEL || job->state;
	json_t *metadata = model ? json_object_get(job->checkpoint->state, "metadata") : NULL;
	status = dtrain__state_check_metadata(job->checkpoint->path, job->checkpoint->state, err);
	if (status == BETON_OK)
		status = dtrain__digest_begin(&digest, UINT64_MAX, err);
	if (status == BETON_OK)
		status = dtrain__safetensors_write(file.fd, file.temporary, job->entries, job->count, metadata, fetch,
						   job, &digest, err);
	if (status == BETON_OK)
		status = bt_atomic_commit(&file, err);
	else
		bt_atomic_abandon(&file);
	dtrain__digest_free(&digest);
	return status;
}

static int export_set(export_job *job, dtrain_checkpoint *checkpoint, const char *file, beton_error *err)
{
	bool wanted[DTRAIN_CHECKPOINT_SETS] = {false};
	beton_error own = {0};
	if (!err)
		err = &own;
	wanted[job->set] = true;
	int status = dtrain__checkpoint_know(checkpoint, wanted, err);
	if (status == BETON_OK)
		status = list_tensors(job, err);
	if (status == BETON_OK)
		status = check_tensors(job, err);
	if (status == BETON_OK)
		status = write_export(job, file, err);
	for (size_t i = 0; i < job->count; i++)
		free((char *)job->entries[i].name);
	free(job->entries);
	free(job->tensors);
	return status;
}

int dtrain_checkpoint_export(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set, const char *file,
			     int (*check)(beton_error *err), beton_error *err)
{
	export_job job = {.checkpoint = checkpoint, .set = (int)set, .check = check};
	return export_set(&job, checkpoint, file, err);
}

int dtrain_checkpoint_export_state(dtrain_checkpoint *checkpoint, const char *state, const char *file,
				   int (*check)(beton_error *err), beton_error *err)
{
	export_job job = {.checkpoint = checkpoint, .set = DTRAIN_CHECKPOINT_OPTIMIZER, .state = state, .check = check};
	return export_set(&job, checkpoint, file, err);
}
