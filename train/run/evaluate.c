/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate.h"

#include <math.h>
#include <string.h>
#include <stdlib.h>

#include "common/system.h"
#include "signals.h"
#include "topk.h"

enum { TOP1, TOP5, COUNT, INTERRUPTED, COUNTS };

struct sums {
	int64_t counts[COUNTS];
	double loss;
};

/* Host copies of one batch's results. */
struct results {
	float *logits;
	float *losses;
	int64_t classes;
};

static void add_batch(struct sums *sums, const struct results *results, const beton_batch *batch, const int64_t *labels)
{
	int64_t k = results->classes < 5 ? results->classes : 5;
	for (uint32_t i = 0; i < batch->count; i++) {
		int64_t rank = run_label_rank(results->logits + i * results->classes, results->classes, labels[i]);
		sums->counts[TOP1] += rank < 1;
		sums->counts[TOP5] += rank < k;
		sums->loss += (double)results->losses[i];
	}
	sums->counts[COUNT] += batch->count;
}

static const int64_t *labels_of(const beton_batch *batch, const char *field)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, field) == 0 && batch->tensors[i].dtype == BETON_INT64)
			return batch->tensors[i].data;
	return NULL;
}

static int run_batch(run_session *session, const beton_batch *batch, struct results *results, struct sums *sums,
		     beton_error *err)
{
	const run_network *network = &session->val;
	const dtrain_device_api *api = session->api;
	size_t logits_bytes = batch->count * (size_t)results->classes * sizeof(float);
	int result = run_session_feed(session, network, batch, &session->facts->val, err);
	if (result == BETON_OK)
		result = dtrain_program_run(network->program, session->stream, NULL, err);
	if (result == BETON_OK)
		result = api->copy(session->stream, results->logits,
				   dtrain_program_data(network->program, network->logits), logits_bytes,
				   DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK)
		result = api->copy(session->stream, results->losses,
				   dtrain_program_data(network->program, network->losses), batch->count * sizeof(float),
				   DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK)
		result = api->stream_synchronize(session->stream, err);
	if (result == BETON_OK)
		add_batch(sums, results, batch, labels_of(batch, session->facts->val.label_field));
	return result;
}

static int run_shard(run_session *session, struct results *results, struct sums *sums, beton_error *err)
{
	beton_iterator *iterator;
	int result = beton_iterator_open(&iterator, session->val_loader, 0, 0, err);
	while (result == BETON_OK) {
		beton_batch *batch = NULL;
		if (run_signals_caught()) {
			sums->counts[INTERRUPTED] = 1;
			result = BETON_END;
			break;
		}
		result = beton_iterator_next(iterator, &batch, -1, err);
		if (result == BETON_OK)
			result = run_batch(session, batch, results, sums, err);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	return result == BETON_END ? BETON_OK : result;
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
	struct sums sums = {0};
	size_t batch = (size_t)session->options->batch_size;
	struct results results = {.classes = session->facts->classes,
				  .logits = malloc(batch * (size_t)session->facts->classes * sizeof(float)),
				  .losses = malloc(batch * sizeof(float))};
	int result = BETON_OK;
	if (!results.logits || !results.losses)
		result = bt_fail(err, BETON_NO_MEMORY, "evaluation: out of memory");
	if (result == BETON_OK)
		result = dtrain_ddp_sync_buffers(session->ddp, session->stream, err);
	if (result == BETON_OK)
		result = run_shard(session, &results, &sums, err);
	if (result == BETON_OK)
		result = add_ranks(session, &sums, err);
	free(results.logits);
	free(results.losses);
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
