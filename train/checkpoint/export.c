/* SPDX-License-Identifier: Apache-2.0
 *
 * One file of a checkpoint's many. */
#include <stdlib.h>

#include "checkpoint.h"
#include "common/system.h"
#include "safetensors.h"
#include "state.h"

typedef struct export_job {
	const dtrain_checkpoint *checkpoint;
	int set;
	int (*check)(beton_error *err);
} export_job;

static int fetch(void *context, size_t index, uint64_t at, void *destination, size_t bytes, beton_error *err)
{
	const export_job *job = context;
	const index_tensor *tensor = &job->checkpoint->index.sets[job->set].tensors[index];
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

/* Checks every chunk of the set. views: set to views of all tensors; their memory is not written. */
static int list_and_check(const dtrain_checkpoint *checkpoint, int set, safetensors_entry *entries,
			  dtrain_checkpoint_view *views, beton_error *err)
{
	const struct index_set *known = &checkpoint->index.sets[set];
	for (size_t i = 0; i < known->count; i++) {
		const index_tensor *tensor = &known->tensors[i];
		if (tensor->dtype < 0)
			return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' is %s, which dtrain has not",
				       checkpoint->path, tensor->name, tensor->type);
		dtrain_dtype dtype = (dtrain_dtype)tensor->dtype;
		views[i] = dtrain_checkpoint_view_whole(tensor->name, dtype, &tensor->shape, NULL, NULL);
		entries[i] = (safetensors_entry){.name = tensor->name, .dtype = dtype, .shape = tensor->shape};
	}
	return dtrain__checkpoint_check_views(checkpoint, set, &(dtrain_checkpoint_list){views, known->count}, err);
}

static int write_export(export_job *job, safetensors_entry *entries, const char *path, beton_error *err)
{
	bt_atomic_file file = {0};
	checkpoint_digest digest = {0};
	int status = bt_atomic_open(&file, path, err);
	if (status != BETON_OK)
		return status;
	json_t *metadata =
		job->set == DTRAIN_CHECKPOINT_MODEL ? json_object_get(job->checkpoint->state, "metadata") : NULL;
	status = dtrain__state_check_metadata(job->checkpoint->path, job->checkpoint->state, err);
	if (status == BETON_OK)
		status = dtrain__digest_begin(&digest, UINT64_MAX, err);
	if (status == BETON_OK)
		status = dtrain__safetensors_write(file.fd, file.temporary, entries,
						   job->checkpoint->index.sets[job->set].count, metadata, fetch, job,
						   &digest, err);
	if (status == BETON_OK)
		status = bt_atomic_commit(&file, err);
	else
		bt_atomic_abandon(&file);
	dtrain__digest_free(&digest);
	return status;
}

int dtrain_checkpoint_export(dtrain_checkpoint *checkpoint, enum dtrain_checkpoint_set set, const char *file,
			     int (*check)(beton_error *err), beton_error *err)
{
	bool wanted[DTRAIN_CHECKPOINT_SETS] = {false};
	beton_error own = {0};
	export_job job = {checkpoint, (int)set, check};
	if (!err)
		err = &own;
	wanted[set] = true;
	int status = dtrain__checkpoint_know(checkpoint, wanted, err);
	if (status != BETON_OK)
		return status;
	size_t count = checkpoint->index.sets[set].count;
	safetensors_entry *entries = calloc(count + 1, sizeof(*entries));
	dtrain_checkpoint_view *views = calloc(count + 1, sizeof(*views));
	status = entries && views ? list_and_check(checkpoint, (int)set, entries, views, err)
				  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", checkpoint->path);
	if (status == BETON_OK)
		status = write_export(&job, entries, file, err);
	free(entries);
	free(views);
	return status;
}
