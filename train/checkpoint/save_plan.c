/* SPDX-License-Identifier: Apache-2.0 */
#include "save_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "core/shape.h"
#include "index.h"
#include "ranks.h"

/* ---- views ---- */

dtrain_checkpoint_view dtrain_checkpoint_view_whole(const char *name, dtrain_dtype dtype, const dtrain_shape *shape,
						    void *memory, dtrain_device *device)
{
	if (!name || !shape)
		return (dtrain_checkpoint_view){0};
	dtrain_checkpoint_view view = {.name = name,
				       .dtype = dtype,
				       .shape = *shape,
				       .count = dtrain_shape_count(shape),
				       .memory = memory,
				       .device = device};
	memcpy(view.extent, shape->dim, sizeof(view.extent));
	return view;
}

static checkpoint_box box_of(const dtrain_checkpoint_view *view)
{
	checkpoint_box box;
	memcpy(box.offset, view->offset, sizeof(box.offset));
	memcpy(box.extent, view->extent, sizeof(box.extent));
	return box;
}

int dtrain__view_check(const dtrain_checkpoint_view *view, const dtrain_stream *stream, beton_error *err)
{
	checkpoint_box box = box_of(view);
	if (!view->name || !*view->name || strcmp(view->name, "__metadata__") == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: a view has no name that a tensor may have");
	if (!dtrain__shape_valid(&view->shape) || dtrain_dtype_size(view->dtype) == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: tensor '%s' has no valid shape or dtype",
			       view->name);
	for (int i = 0; i < view->shape.ndim; i++)
		if (box.offset[i] < 0 || box.extent[i] < 1 || box.extent[i] > view->shape.dim[i] ||
		    box.offset[i] > view->shape.dim[i] - box.extent[i])
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "checkpoint: tensor '%s': dimension %d has %" PRId64 " indices, not %" PRId64
				       " from %" PRId64 " on",
				       view->name, i, view->shape.dim[i], box.extent[i], box.offset[i]);
	int64_t room = dtrain__box_count(view->shape.ndim, &box);
	if (view->first < 0 || view->count < 0 || view->first > room || view->count > room - view->first)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "checkpoint: tensor '%s': the box has %" PRId64 " elements, not %" PRId64
			       " from %" PRId64 " on",
			       view->name, room, view->count, view->first);
	if (view->count && !view->memory)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: tensor '%s' has no memory", view->name);
	if (view->device && !stream)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "checkpoint: tensor '%s' is in a device's memory, which needs a stream", view->name);
	return BETON_OK;
}

int dtrain__view_split(const dtrain_checkpoint_view *view, checkpoint_box boxes[CHECKPOINT_BOXES_MAX])
{
	checkpoint_box box = box_of(view);
	return dtrain__box_split(view->shape.ndim, &box, view->first, view->count, boxes);
}

static bool is_whole(const dtrain_checkpoint_view *view)
{
	return view->count == dtrain_shape_count(&view->shape);
}

/* ---- pieces ---- */

size_t dtrain__piece_bytes(const checkpoint_piece *piece)
{
	return (size_t)dtrain__box_count(piece->shape.ndim, &piece->box) * dtrain_dtype_size(piece->dtype);
}

static int list_pieces(const dtrain_checkpoint_content *content, int rank, checkpoint_piece **pieces, size_t *count,
		       bool *whole, beton_error *err)
{
	const dtrain_checkpoint_list *sets = content->sets;
	size_t views = 0;
	*count = 0;
	*whole = true;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		views += sets[set].count;
	*pieces = calloc(views * CHECKPOINT_BOXES_MAX + 1, sizeof(**pieces));
	if (!*pieces)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu views", views);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		for (size_t i = 0; i < sets[set].count; i++) {
			const dtrain_checkpoint_view *view = &sets[set].views[i];
			checkpoint_box boxes[CHECKPOINT_BOXES_MAX];
			int status = dtrain__view_check(view, content->stream, err);
			if (status != BETON_OK)
				return status;
			*whole = *whole && is_whole(view);
			int made = dtrain__view_split(view, boxes);
			const char *memory = view->memory;
			for (int k = 0; k < made; k++) {
				(*pieces)[(*count)++] = (checkpoint_piece){.set = set,
									   .name = view->name,
									   .dtype = view->dtype,
									   .shape = view->shape,
									   .box = boxes[k],
									   .rank = rank,
									   .memory = memory,
									   .device = view->device};
				memory += dtrain__piece_bytes(&(*pieces)[*count - 1]);
			}
		}
	}
	return BETON_OK;
}

/* A piece as sent to other ranks; the tensor's name follows, with its NUL. */
typedef struct sent_piece {
	int32_t set, dtype;
	dtrain_shape shape;
	checkpoint_box box;
	uint64_t name_bytes;
} sent_piece;

static int tell(const checkpoint_piece *pieces, size_t count, char **out, size_t *bytes, beton_error *err)
{
	*bytes = 0;
	for (size_t i = 0; i < count; i++)
		*bytes += sizeof(sent_piece) + strlen(pieces[i].name) + 1;
	char *at = *out = malloc(*bytes + 1);
	if (!at)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for what this rank has of the tensors");
	for (size_t i = 0; i < count; i++) {
		sent_piece sent;
		memset(&sent, 0, sizeof(sent));
		sent.set = pieces[i].set;
		sent.dtype = (int32_t)pieces[i].dtype;
		sent.shape.ndim = pieces[i].shape.ndim;
		for (int k = 0; k < sent.shape.ndim; k++) {
			sent.shape.dim[k] = pieces[i].shape.dim[k];
			sent.box.offset[k] = pieces[i].box.offset[k];
			sent.box.extent[k] = pieces[i].box.extent[k];
		}
		sent.name_bytes = strlen(pieces[i].name) + 1;
		memcpy(at, &sent, sizeof(sent));
		memcpy(at + sizeof(sent), pieces[i].name, sent.name_bytes);
		at += sizeof(sent) + sent.name_bytes;
	}
	return BETON_OK;
}

static size_t count_sent(const char *text, size_t bytes)
{
	size_t count = 0;
	for (size_t at = 0; at < bytes; count++) {
		sent_piece sent;
		memcpy(&sent, text + at, sizeof(sent));
		at += sizeof(sent) + sent.name_bytes;
	}
	return count;
}

/* Adds the pieces received from another rank; their names point into the text. */
static int hear(const char *text, size_t bytes, int rank, checkpoint_piece **pieces, size_t *count, beton_error *err)
{
	checkpoint_piece *grown = realloc(*pieces, (*count + count_sent(text, bytes) + 1) * sizeof(*grown));
	if (!grown)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for what rank %d has of the tensors", rank);
	*pieces = grown;
	for (size_t at = 0; at < bytes;) {
		sent_piece sent;
		memcpy(&sent, text + at, sizeof(sent));
		grown[(*count)++] = (checkpoint_piece){.set = sent.set,
						       .name = text + at + sizeof(sent),
						       .dtype = (dtrain_dtype)sent.dtype,
						       .shape = sent.shape,
						       .box = sent.box,
						       .rank = rank};
		at += sizeof(sent) + sent.name_bytes;
	}
	return BETON_OK;
}

static int compare_tensors(const checkpoint_piece *a, const checkpoint_piece *b)
{
	return a->set != b->set ? a->set - b->set : strcmp(a->name, b->name);
}

static int compare_boxes(const checkpoint_piece *a, const checkpoint_piece *b)
{
	int order = compare_tensors(a, b);
	if (!order && a->shape.ndim != b->shape.ndim)
		order = a->shape.ndim - b->shape.ndim;
	return order ? order : dtrain__box_compare(a->shape.ndim, &a->box, &b->box);
}

static int compare_pieces(const void *a, const void *b)
{
	const checkpoint_piece *x = a, *y = b;
	int order = compare_boxes(x, y);
	return order ? order : x->rank - y->rank;
}

/* ---- who writes what ---- */

/* A box, and the ranks that have it. */
typedef struct owners {
	const checkpoint_piece *first;
	size_t count;
	int64_t bytes;
} owners;

static int compare_owners(const void *a, const void *b)
{
	const owners *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Checks that the pieces of a tensor agree on the tensor and cover it. */
static int check_tensor(const checkpoint_piece *pieces, size_t count, beton_error *err)
{
	const checkpoint_piece *first = &pieces[0];
	index_tensor tensor = {.shape = first->shape, .parts = calloc(count, sizeof(*tensor.parts))};
	char text[2][DTRAIN__SHAPE_TEXT];
	size_t clash[2];
	int status = BETON_OK;
	if (!tensor.parts)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the parts of tensor '%s'", first->name);
	for (size_t i = 0; i < count && status == BETON_OK; i++) {
		const checkpoint_piece *piece = &pieces[i];
		if (piece->dtype != first->dtype || !dtrain__shape_equal(&piece->shape, &first->shape))
			status = bt_fail(err, BETON_MISMATCH, "tensor '%s' is %s %s on rank %d, and %s %s on rank %d",
					 first->name, dtrain_dtype_name(first->dtype),
					 dtrain__shape_text(&first->shape, text[0]), first->rank,
					 dtrain_dtype_name(piece->dtype), dtrain__shape_text(&piece->shape, text[1]),
					 piece->rank);
		else if (i == 0 || compare_boxes(piece, piece - 1) != 0)
			tensor.parts[tensor.part_count++] =
				(index_part){.file = (size_t)piece->rank, .box = piece->box};
	}
	int64_t all = dtrain_shape_count(&first->shape);
	int64_t covered = status == BETON_OK ? dtrain__index_cover(&tensor, clash) : all;
	if (covered < 0)
		status = bt_fail(err, BETON_MISMATCH,
				 "tensor '%s': what ranks %zu and %zu have of it overlaps, and is not the same",
				 first->name, tensor.parts[clash[0]].file, tensor.parts[clash[1]].file);
	else if (covered != all)
		status = bt_fail(err, BETON_MISMATCH,
				 "tensor '%s': %" PRId64 " of its %" PRId64 " elements are on no rank", first->name,
				 all - covered, all);
	free(tensor.parts);
	return status;
}

static int check_tensors(const checkpoint_piece *pieces, size_t count, beton_error *err)
{
	int status = BETON_OK;
	for (size_t i = 0, end; i < count && status == BETON_OK; i = end) {
		for (end = i + 1; end < count && compare_tensors(&pieces[i], &pieces[end]) == 0;)
			end++;
		status = check_tensor(&pieces[i], end - i, err);
	}
	return status;
}

/* Assigns each box, largest first, to the owner with the least to write. Keeps this rank's boxes. */
static void assign(owners *boxes, size_t count, int64_t *loads, int self, checkpoint_plan *plan)
{
	qsort(boxes, count, sizeof(*boxes), compare_owners);
	for (size_t i = 0; i < count; i++)
		if (boxes[i].count == 1)
			loads[boxes[i].first->rank] += boxes[i].bytes;
	for (size_t i = 0; i < count; i++) {
		const checkpoint_piece *chosen = boxes[i].first;
		for (size_t k = 1; k < boxes[i].count; k++)
			if (loads[boxes[i].first[k].rank] < loads[chosen->rank])
				chosen = &boxes[i].first[k];
		if (boxes[i].count > 1)
			loads[chosen->rank] += boxes[i].bytes;
		if (chosen->rank == self)
			plan->pieces[plan->count++] = *chosen;
	}
	qsort(plan->pieces, plan->count, sizeof(*plan->pieces), compare_pieces);
}

/* pieces: of all ranks, sorted. */
static int distribute(const checkpoint_piece *pieces, size_t count, int self, int size, checkpoint_plan *plan,
		      beton_error *err)
{
	owners *boxes = calloc(count + 1, sizeof(*boxes));
	int64_t *loads = calloc((size_t)size, sizeof(*loads));
	size_t made = 0;
	int status = BETON_OK;
	plan->pieces = calloc(count + 1, sizeof(*plan->pieces));
	if (!boxes || !loads || !plan->pieces)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for %zu parts of tensors", count);
	for (size_t i = 0; i < count && status == BETON_OK; i++) {
		const checkpoint_piece *piece = &pieces[i];
		if (i > 0 && compare_boxes(piece, piece - 1) == 0) {
			boxes[made - 1].count++;
			continue;
		}
		boxes[made++] = (owners){.first = piece, .count = 1, .bytes = (int64_t)dtrain__piece_bytes(piece)};
	}
	if (status == BETON_OK)
		assign(boxes, made, loads, self, plan);
	free(boxes);
	free(loads);
	return status;
}

/* Adds the other ranks' pieces to own, which may be reallocated. told: own pieces as sent to them. */
static int plan_sharded(checkpoint_piece **own, size_t count, const char *sent, size_t bytes,
			const dtrain_checkpoint_ranks *ranks, checkpoint_plan *plan, beton_error *err)
{
	int self = dtrain__ranks_self(ranks), size = dtrain__ranks_size(ranks);
	ranks_texts texts = {0};
	int status = dtrain__ranks_gather_texts(ranks, sent, bytes, &texts, err);
	if (status != BETON_OK)
		return status;
	for (int rank = 0; rank < size && status == BETON_OK; rank++)
		if (rank != self)
			status = hear((char *)texts.all + (size_t)rank * texts.stride, texts.lengths[rank], rank, own,
				      &count, err);
	if (status == BETON_OK) {
		qsort(*own, count, sizeof(**own), compare_pieces);
		status = check_tensors(*own, count, err);
	}
	if (status == BETON_OK)
		status = distribute(*own, count, self, size, plan, err);
	dtrain__ranks_texts_free(&texts);
	return dtrain__ranks_agree(ranks, 0, "", status, err);
}

int dtrain__plan_make(const dtrain_checkpoint_content *content, const dtrain_checkpoint_ranks *ranks,
		      checkpoint_plan *out, beton_error *err)
{
	struct info {
		uint64_t hash, whole;
	} mine, *all = NULL;
	checkpoint_piece *own = NULL;
	size_t count = 0, bytes = 0;
	char *sent = NULL;
	bool whole = false;
	*out = (checkpoint_plan){0};
	int status = list_pieces(content, dtrain__ranks_self(ranks), &own, &count, &whole, err);
	if (status == BETON_OK)
		status = tell(own, count, &sent, &bytes, err);
	mine = (struct info){.hash = sent ? XXH3_64bits(sent, bytes) : 0, .whole = whole};
	status = dtrain__ranks_agree(ranks, 0, "", status, err);
	if (status == BETON_OK)
		status = dtrain__ranks_gather(ranks, &mine, sizeof(mine), (void **)&all, err);
	out->whole = status == BETON_OK;
	for (int rank = 0; rank < dtrain__ranks_size(ranks) && out->whole; rank++)
		out->whole = all[rank].whole && all[rank].hash == mine.hash;
	if (status == BETON_OK && !out->whole) {
		status = plan_sharded(&own, count, sent, bytes, ranks, out, err);
	} else if (status == BETON_OK && dtrain__ranks_self(ranks) == 0) {
		out->pieces = own;
		out->count = count;
		own = NULL;
	}
	free(own);
	free(sent);
	free(all);
	if (status != BETON_OK)
		dtrain__plan_free(out);
	return status;
}

void dtrain__plan_free(checkpoint_plan *plan)
{
	free(plan->pieces);
	*plan = (checkpoint_plan){0};
}
