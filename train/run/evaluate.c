/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "common/half.h"
#include "common/system.h"
#include "loading.h"
#include "engine/vision/topk.h"

enum { TOP1, TOP5, COUNT, INTERRUPTED, COUNTS };

struct sums {
	int64_t counts[COUNTS];
	double loss;
};

enum { SLOTS = 2 };

/* One batch on its way, and the host's copies of its results. */
struct slot {
	void *logits; /* of the network's type */
	float *losses;
	uint32_t count; /* 0: nothing is on its way */
	beton_batch *batch;
	const int64_t *labels; /* the batch's */
	dtrain_event *done;
};

/* An asynchronous device computes a batch while the results of the one before are counted. */
struct evaluation {
	run_session *session;
	struct slot slots[SLOTS];
	int next;
	float *row; /* one sample's logits */
	struct sums sums;
};

static int open_evaluation(struct evaluation *evaluation, beton_error *err)
{
	run_session *session = evaluation->session;
	size_t rows = (size_t)session->options->batch_size, classes = (size_t)session->facts->classes;
	int result = BETON_OK;
	evaluation->row = malloc(classes * sizeof(float));
	if (!evaluation->row)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	for (int i = 0; i < SLOTS && result == BETON_OK; i++) {
		struct slot *slot = &evaluation->slots[i];
		size_t bytes = rows * classes * dtrain_dtype_size(session->dtype);
		result = session->api->host_alloc(session->device, bytes, &slot->logits, err);
		if (result == BETON_OK)
			result = session->api->host_alloc(session->device, rows * sizeof(float), (void **)&slot->losses,
							  err);
		if (result == BETON_OK)
			result = session->api->event_create(session->device, &slot->done, err);
	}
	return result;
}

static void close_evaluation(struct evaluation *evaluation)
{
	run_session *session = evaluation->session;
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &evaluation->slots[i];
		/* After an error the device may still write. */
		if (slot->count)
			run_session_synchronize(session, "evaluation", NULL);
		beton_batch_release(&slot->batch);
		session->api->host_free(session->device, slot->logits);
		session->api->host_free(session->device, slot->losses);
		if (slot->done)
			session->api->event_destroy(slot->done);
	}
	free(evaluation->row);
}

static const float *row_of(const struct evaluation *evaluation, const struct slot *slot, uint32_t row)
{
	dtrain_dtype dtype = evaluation->session->dtype;
	int64_t classes = evaluation->session->facts->classes;
	if (dtype == DTRAIN_F32)
		return (const float *)slot->logits + row * classes;
	const uint16_t *half = (const uint16_t *)slot->logits + row * classes;
	for (int64_t i = 0; i < classes; i++)
		evaluation->row[i] = dtype == DTRAIN_F16 ? bt_widen_float16(half[i]) : bt_widen_bfloat16(half[i]);
	return evaluation->row;
}

/* Waits for a batch, if one is on its way, and counts its results. */
static int settle(struct evaluation *evaluation, struct slot *slot, beton_error *err)
{
	run_session *session = evaluation->session;
	struct sums *sums = &evaluation->sums;
	int64_t classes = session->facts->classes, k = classes < 5 ? classes : 5;
	if (!slot->count)
		return BETON_OK;
	run_watchdog_arm(session->watchdog, "evaluation", RUN_SLOW_TIMEOUT_MS);
	int result = session->staged ? session->api->event_synchronize(slot->done, err)
				     : session->api->stream_synchronize(session->stream, err);
	run_watchdog_disarm(session->watchdog);
	for (uint32_t i = 0; i < slot->count && result == BETON_OK; i++) {
		int64_t rank = vision_label_rank(row_of(evaluation, slot, i), classes, slot->labels[i]);
		sums->counts[TOP1] += rank < 1;
		sums->counts[TOP5] += rank < k;
		sums->loss += (double)slot->losses[i];
	}
	beton_batch_release(&slot->batch);
	sums->counts[COUNT] += slot->count;
	slot->count = 0;
	return result;
}

/* What the program adds to a view's logits: the sum so far, which with flip-shift is there twice when the views that
 * are moved begin. So the two that are not weigh as much as the four that are. */
static int add_views(run_session *session, int view, beton_error *err)
{
	const run_network *network = &session->val;
	const dtrain_device_api *api = session->api;
	const void *logits = dtrain_program_data(network->program, network->logits);
	void *added = dtrain_program_data(network->program, network->added);
	void *again = session->options->tta == RUN_TTA_FLIP_SHIFT
			      ? dtrain_program_data(network->program, network->again)
			      : NULL;
	size_t bytes = (size_t)session->options->batch_size * (size_t)session->facts->classes *
		       dtrain_dtype_size(session->dtype);
	int result = view ? api->copy(session->stream, added, logits, bytes, DTRAIN_DEVICE_TO_DEVICE, err)
			  : api->zero(session->stream, added, bytes, err);
	if (result != BETON_OK || !again)
		return result;
	return view == 2 ? api->copy(session->stream, again, logits, bytes, DTRAIN_DEVICE_TO_DEVICE, err)
			 : api->zero(session->stream, again, bytes, err);
}

/* The network on each view of the batch, whose logits are added up on the device. */
static int run_views(run_session *session, const beton_batch *batch, beton_error *err)
{
	const run_network *network = &session->val;
	const int views = run_loading_views(session->options);
	int result = BETON_OK;
	for (int view = 0; view < views && result == BETON_OK; view++) {
		result = run_session_feed(session, network, batch, &session->facts->val, view, err);
		if (result == BETON_OK && views > 1)
			result = add_views(session, view, err);
		if (result == BETON_OK)
			result = dtrain_program_run(network->program, session->stream, NULL, err);
	}
	return result;
}

/* Takes the batch over. */
static int launch(struct evaluation *evaluation, struct slot *slot, beton_batch *batch, beton_error *err)
{
	run_session *session = evaluation->session;
	const run_network *network = &session->val;
	const dtrain_device_api *api = session->api;
	size_t classes = (size_t)session->facts->classes;
	const beton_tensor *labels = run_find_tensor(batch, session->facts->val.label_field, BETON_INT64);
	slot->batch = batch;
	slot->labels = labels ? labels->data : NULL; /* without them the feed below fails */
	slot->count = batch->count;
	int result = run_views(session, batch, err);
	if (result == BETON_OK)
		result = api->copy(
			session->stream, slot->logits, dtrain_program_data(network->program, network->logits),
			batch->count * classes * dtrain_dtype_size(session->dtype), DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK)
		result =
			api->copy(session->stream, slot->losses, dtrain_program_data(network->program, network->losses),
				  batch->count * sizeof(float), DTRAIN_DEVICE_TO_HOST, err);
	return result == BETON_OK ? api->event_record(slot->done, session->stream, err) : result;
}

static int run_batch(struct evaluation *evaluation, beton_batch *batch, beton_error *err)
{
	struct slot *slot = &evaluation->slots[evaluation->next];
	evaluation->next = (evaluation->next + 1) % SLOTS;
	int result = launch(evaluation, slot, batch, err);
	/* The one before, which has been computed meanwhile; or at once, where all is done within the call. */
	return result == BETON_OK
		       ? settle(evaluation, evaluation->session->staged ? &evaluation->slots[evaluation->next] : slot,
				err)
		       : result;
}

static int run_shard(struct evaluation *evaluation, beton_error *err)
{
	beton_iterator *iterator;
	int result = beton_iterator_open(&iterator, evaluation->session->val_loader, 0, 0, err);
	while (result == BETON_OK) {
		beton_batch *batch = NULL;
		if (run_session_is_told(evaluation->session)) {
			evaluation->sums.counts[INTERRUPTED] = 1;
			result = BETON_END;
			break;
		}
		result = beton_iterator_next(iterator, &batch, -1, err);
		if (result == BETON_OK)
			result = run_batch(evaluation, batch, err);
	}
	if (result == BETON_END)
		result = BETON_OK;
	for (int i = 0; i < SLOTS && result == BETON_OK; i++)
		result = settle(evaluation, &evaluation->slots[(evaluation->next + i) % SLOTS], err);
	beton_iterator_close(&iterator);
	return result == BETON_OK ? run_session_synchronize(evaluation->session, "evaluation", err) : result;
}

static int add_ranks(run_session *session, struct sums *sums, beton_error *err)
{
	dtrain_work *work = NULL;
	int result =
		dtrain_allreduce(session->slow_group, sums->counts, COUNTS, DTRAIN_I64, DTRAIN_SUM, NULL, &work, err);
	if (result == BETON_OK)
		result = dtrain_work_wait(&work, err);
	if (result == BETON_OK)
		result =
			dtrain_allreduce(session->slow_group, &sums->loss, 1, DTRAIN_F64, DTRAIN_SUM, NULL, &work, err);
	return result == BETON_OK ? dtrain_work_wait(&work, err) : result;
}

int run_evaluate(run_session *session, run_evaluation *out, bool *interrupted, beton_error *err)
{
	struct evaluation evaluation = {.session = session};
	int result = open_evaluation(&evaluation, err);
	if (result == BETON_OK)
		result = run_session_sync_buffers(session, err);
	if (result == BETON_OK)
		result = run_shard(&evaluation, err);
	close_evaluation(&evaluation);
	struct sums sums = evaluation.sums;
	if (result == BETON_OK)
		result = add_ranks(session, &sums, err);
	if (result != BETON_OK) {
		bt_prefix(err, "evaluation");
		return result;
	}
	*interrupted = sums.counts[INTERRUPTED] > 0;
	if (*interrupted)
		return BETON_OK;
	if ((uint64_t)sums.counts[COUNT] != session->facts->val.samples)
		return bt_fail(err, BETON_STATE, "evaluation: %ld samples were counted of %ld",
			       (long)sums.counts[COUNT], (long)session->facts->val.samples);
	double count = (double)sums.counts[COUNT];
	out->top1 = (double)sums.counts[TOP1] / count;
	out->top5 = (double)sums.counts[TOP5] / count;
	out->loss = sums.loss / count;
	out->count = sums.counts[COUNT];
	if (!isfinite(out->loss))
		return bt_fail(err, BETON_DIVERGED, "evaluation: the validation loss is not finite");
	return BETON_OK;
}
