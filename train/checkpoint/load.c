/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "common/system.h"
#include "core/shape.h"
#include "folder.h"
#include "ranks.h"
#include "save_plan.h"

/* The name of a set's location for messages. */
static void name_place(const dtrain_checkpoint *checkpoint, int set, char *text, size_t size)
{
	*text = 0;
	bt_append(text, size, "%s/%s", checkpoint->path,
		  checkpoint->sharded ? CHECKPOINT_MANIFEST_FILE : dtrain__set_files[set]);
}

/* wanted: for each tensor of the set, true if this rank has a view of it. */
static int check_view(const struct index_set *set, const char *place, const dtrain_checkpoint_view *view,
		      const dtrain_stream *stream, unsigned char *wanted, beton_error *err)
{
	char theirs[DTRAIN__SHAPE_TEXT], ours[DTRAIN__SHAPE_TEXT];
	int status = dtrain__view_check(view, stream, err);
	if (status != BETON_OK)
		return status;
	const index_tensor *found = dtrain__index_find(set, view->name);
	if (!found)
		return bt_fail(err, BETON_MISMATCH, "%s: has no tensor '%s', which the model needs", place, view->name);
	if (found->dtype != (int)view->dtype)
		return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' is not %s", place, view->name,
			       dtrain_dtype_name(view->dtype));
	if (!dtrain__shape_equal(&found->shape, &view->shape))
		return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' has shape %s, the model needs %s", place,
			       view->name, dtrain__shape_text(&found->shape, theirs),
			       dtrain__shape_text(&view->shape, ours));
	wanted[found - set->tensors] = 1;
	return BETON_OK;
}

/* Collective: each tensor in the set must be wanted by some rank. */
static int check_set(dtrain_checkpoint *checkpoint, int set, const dtrain_checkpoint_list *list,
		     const dtrain_stream *stream, beton_error *err)
{
	const struct index_set *known = &checkpoint->index.sets[set];
	unsigned char *wanted = calloc(known->count + 1, 1), *all = NULL;
	char place[BETON_ERROR_MESSAGE_SIZE];
	int size = dtrain__ranks_size(checkpoint->ranks);
	name_place(checkpoint, set, place, sizeof(place));
	int status = wanted ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", place);
	for (size_t i = 0; i < list->count && status == BETON_OK; i++)
		status = check_view(known, place, &list->views[i], stream, wanted, err);
	status = dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
	if (status == BETON_OK)
		status = dtrain__ranks_gather(checkpoint->ranks, wanted, known->count + 1, (void **)&all, err);
	for (size_t i = 0; i < known->count && status == BETON_OK; i++) {
		bool found = false;
		for (int rank = 0; rank < size && !found; rank++)
			found = all[(size_t)rank * (known->count + 1) + i];
		if (!found)
			status = bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' is not one of the model's", place,
					 known->tensors[i].name);
	}
	free(wanted);
	free(all);
	return status;
}

int dtrain_checkpoint_load(dtrain_checkpoint *checkpoint,
			   const dtrain_checkpoint_list *const sets[DTRAIN_CHECKPOINT_SETS], dtrain_stream *stream,
			   beton_error *err)
{
	if (BT_MISSING(err, checkpoint))
		return BETON_INVALID_ARGUMENT;
	bool wanted[DTRAIN_CHECKPOINT_SETS];
	beton_error own = {0};
	uint64_t token = 0;
	if (!err)
		err = &own;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		wanted[set] = sets[set] != NULL;
		token = token * 2 + wanted[set];
	}
	int status = dtrain__ranks_agree(checkpoint->ranks, token, "checkpoint: what is to be loaded", BETON_OK, err);
	if (status == BETON_OK)
		status = dtrain__checkpoint_know(checkpoint, wanted, err);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		if (wanted[set])
			status = check_set(checkpoint, set, sets[set], stream, err);
	if (status != BETON_OK)
		return status;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		if (wanted[set])
			status = dtrain__checkpoint_check_views(checkpoint, set, sets[set], err);
	status = dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
	if (status != BETON_OK)
		return status;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		if (wanted[set])
			status = dtrain__checkpoint_read_views(checkpoint, set, sets[set], stream, err);
	return dtrain__ranks_agree(checkpoint->ranks, 0, "", status, err);
}
