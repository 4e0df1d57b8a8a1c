/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { COUNT, INTERRUPTED, BAD, COUNTS };

/* Questions of the ranks to each other before each batch. */
enum { MORE, STOP, FAILED, FLAGS };

enum { SLOTS = 2 };

/* A batch that is being computed, and host memory for its results. */
struct slot {
	void *results[ENGINE_RESULTS];
	beton_batch *batch; /* NULL: the slot is free */
	dtrain_event *done;
};

/* On an asynchronous device, results of one batch are counted while the next is computed. */
struct evaluation {
	engine_rank *engine;
	struct slot slots[SLOTS];
	int next;
	int64_t batches; /* of this rank; 0: all */
	int64_t taken;
	dtrain_group *together; /* of ranks that must run the network equally often; NULL: each on its own */
	bool unsynchronized;    /* this rank failed where it can no longer tell the others */
	int64_t counts[COUNTS];
	double sums[ENGINE_SUMS];
	engine_class_count *classes; /* NULL: not wanted */
};

static size_t row_bytes(const engine_network *network, int index)
{
	const dtrain_shape *shape = dtrain_program_shape(network->program, network->results[index]);
	return (size_t)(dtrain_shape_count(shape) / shape->dim[0]) *
	       dtrain_dtype_size(dtrain_program_dtype(network->program, network->results[index]));
}

static int open_evaluation(struct evaluation *evaluation, beton_error *err)
{
	engine_rank *engine = evaluation->engine;
	const engine_network *network = engine_results_network(engine);
	int status = BETON_OK;
	for (int i = 0; i < SLOTS && status == BETON_OK; i++) {
		struct slot *slot = &evaluation->slots[i];
		for (int k = 0; k < network->num_results && status == BETON_OK; k++)
			status = engine->api->host_alloc(engine->device,
							 (size_t)engine->job.batch_size * row_bytes(network, k),
							 &slot->results[k], err);
		if (status == BETON_OK)
			status = engine->api->event_create(engine->device, &slot->done, err);
	}
	return status;
}

static void close_evaluation(struct evaluation *evaluation)
{
	engine_rank *engine = evaluation->engine;
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &evaluation->slots[i];
		/* The device may still be writing after an error. */
		if (slot->batch)
			engine_synchronize(engine, "evaluation", NULL);
		beton_batch_release(&slot->batch);
		for (int k = 0; k < ENGINE_RESULTS; k++)
			engine->api->host_free(engine->device, slot->results[k]);
		if (slot->done)
			engine->api->event_destroy(slot->done);
	}
}

/* Waits for the slot's batch, if there is one, and counts its results. */
static int settle(struct evaluation *evaluation, struct slot *slot, beton_error *err)
{
	engine_rank *engine = evaluation->engine;
	if (!slot->batch)
		return BETON_OK;
	engine_arm(engine, "evaluation", false);
	int status = engine->staged ? engine->api->event_synchronize(slot->done, err)
				    : engine->api->stream_synchronize(engine->stream, err);
	engine_disarm(engine);
	if (status == BETON_OK && engine->has_results)
		status = engine->job.task->add_batch(engine, slot->batch, slot->results, evaluation->sums,
						     evaluation->classes, err);
	evaluation->counts[COUNT] += slot->batch->count;
	beton_batch_release(&slot->batch);
	return status;
}

static int run_once(const engine_network *network, dtrain_stream *stream, beton_error *err)
{
	return network->pipeline ? dtrain_pipeline_run(network->pipeline, stream, 0, err)
				 : dtrain_program_run(network->program, stream, 0, 1, err);
}

static int run_without_ops(const engine_network *network, dtrain_stream *stream)
{
	return network->pipeline ? dtrain_pipeline_run_messages(network->pipeline, stream, 0, NULL)
				 : dtrain_program_run_collectives(network->program, stream, NULL);
}

/* Runs the program as often as a batch needs it. batch NULL: there is none, and the others run it as often. Where
 * programs gather parameters a rank that fails gathers on, or the others would wait for it. */
static int run_program(struct evaluation *evaluation, const beton_batch *batch, beton_error *err)
{
	engine_rank *engine = evaluation->engine;
	const engine_task *task = engine->job.task;
	int runs = task->count_runs ? task->count_runs(&engine->job) : 1, status = BETON_OK;
	for (int i = 0; i < runs && !evaluation->unsynchronized; i++) {
		if (status == BETON_OK && batch)
			status = task->feed_run(engine, batch, i, err);
		if (status == BETON_OK)
			status = run_once(&engine->val, engine->stream, err);
		if (status != BETON_OK && evaluation->together)
			evaluation->unsynchronized = run_without_ops(&engine->val, engine->stream) != BETON_OK;
	}
	return status;
}

/* Takes ownership of the batch. */
static int launch(struct evaluation *evaluation, struct slot *slot, beton_batch *batch, beton_error *err)
{
	engine_rank *engine = evaluation->engine;
	const engine_network *network = engine_results_network(engine);
	slot->batch = batch;
	int status = run_program(evaluation, batch, err);
	for (int i = 0; i < network->num_results && status == BETON_OK; i++)
		status = engine->api->copy(engine->stream, slot->results[i],
					   dtrain_program_data(network->program, network->results[i]),
					   batch->count * row_bytes(network, i), DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? engine->api->event_record(slot->done, engine->stream, err) : status;
}

static int run_batch(struct evaluation *evaluation, beton_batch *batch, beton_error *err)
{
	struct slot *slot = &evaluation->slots[evaluation->next];
	evaluation->next = (evaluation->next + 1) % SLOTS;
	int status = launch(evaluation, slot, batch, err);
	/* An asynchronous device has computed the previous batch meanwhile; a synchronous one has computed this
	 * batch. */
	struct slot *due = evaluation->engine->staged ? &evaluation->slots[evaluation->next] : slot;
	return status == BETON_OK ? settle(evaluation, due, err) : status;
}

static uint64_t count_bad(const beton_loader *loader)
{
	beton_loader_stats stats = {.struct_size = sizeof(stats)};
	beton_loader_get_stats(loader, &stats);
	return stats.bad_samples;
}

/* A loader that skips bad samples loses a batch that has no good one. */
static bool is_skipped(const beton_loader *loader, int status)
{
	return beton_loader_get_options(loader)->on_error == BETON_ON_ERROR_SKIP &&
	       (status == BETON_SAMPLE_CORRUPT || status == BETON_IO);
}

static int add_array(dtrain_group *group, void *array, size_t count, dtrain_dtype dtype, dtrain_reduce_op op,
		     beton_error *err)
{
	dtrain_work *work = NULL;
	int status = dtrain_allreduce(group, array, count, dtype, op, NULL, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

/* Asks the other ranks, where programs gather parameters, and returns this one's status, or an error of the group.
 * batch: this rank's next one, which is released unless it is run. *more: there is a program to run, the same on all
 * ranks. */
static int agree(struct evaluation *evaluation, int status, beton_batch **batch, bool *more, beton_error *err)
{
	int64_t flags[FLAGS] = {
		[MORE] = *batch != NULL, [STOP] = evaluation->counts[INTERRUPTED], [FAILED] = status != BETON_OK};
	if (evaluation->together) {
		beton_error late;
		int asked = add_array(evaluation->together, flags, FLAGS, DTRAIN_I64, DTRAIN_MAX, &late);
		evaluation->unsynchronized = asked != BETON_OK;
		if (status == BETON_OK && asked != BETON_OK) {
			*err = late;
			status = asked;
		}
	}
	*more = status == BETON_OK && flags[MORE] && !flags[STOP] && !flags[FAILED];
	evaluation->counts[INTERRUPTED] = flags[STOP];
	if (!*more)
		beton_batch_release(batch);
	return status;
}

/* The next batch that is not skipped; NULL: there are no more, or this rank was asked to stop. */
static int next_batch(struct evaluation *evaluation, beton_loader *loader, beton_iterator *iterator,
		      beton_batch **batch, beton_error *err)
{
	engine_rank *engine = evaluation->engine;
	const engine_task *task = engine->job.task;
	int status = BETON_OK;
	if (engine_stop_requested(engine)) {
		evaluation->counts[INTERRUPTED] = 1;
		return BETON_OK;
	}
	while (!*batch && (!evaluation->batches || evaluation->taken < evaluation->batches)) {
		status = engine_next_batch(engine, iterator, batch, err);
		if (status != BETON_OK && !is_skipped(loader, status))
			break;
		evaluation->taken++;
	}
	if (status != BETON_OK && status != BETON_END && !is_skipped(loader, status))
		return status;
	return *batch && task->check_batch ? task->check_batch(engine, false, *batch, err) : BETON_OK;
}

/* status: what this rank has come to so far, which it says to the others where they have to know. */
static int run_shard(struct evaluation *evaluation, beton_loader *loader, int status, beton_error *err)
{
	beton_iterator *iterator = NULL;
	uint64_t bad = count_bad(loader);
	bool more = !evaluation->unsynchronized;
	if (status == BETON_OK)
		status = beton_iterator_open(&iterator, loader, 0, 0, err);
	while (more) {
		beton_batch *batch = NULL;
		if (status == BETON_OK)
			status = next_batch(evaluation, loader, iterator, &batch, err);
		status = agree(evaluation, status, &batch, &more, err);
		if (more)
			status = batch ? run_batch(evaluation, batch, err) : run_program(evaluation, NULL, err);
		more = more && !evaluation->unsynchronized;
	}
	for (int i = 0; i < SLOTS && status == BETON_OK; i++)
		status = settle(evaluation, &evaluation->slots[(evaluation->next + i) % SLOTS], err);
	beton_iterator_close(&iterator);
	evaluation->counts[BAD] = (int64_t)(count_bad(loader) - bad);
	return status == BETON_OK ? engine_synchronize(evaluation->engine, "evaluation", err) : status;
}

/* The ranks of one model have the same samples, and the same results or parts of them, which are counted once. Each may
 * have been interrupted. */
static void count_model_once(struct evaluation *evaluation)
{
	int64_t interrupted = evaluation->counts[INTERRUPTED];
	if (!evaluation->engine->counts_samples)
		memset(evaluation->counts, 0, sizeof(evaluation->counts));
	evaluation->counts[INTERRUPTED] = interrupted;
	if (evaluation->engine->has_results)
		return;
	memset(evaluation->sums, 0, sizeof(evaluation->sums));
	if (evaluation->classes)
		memset(evaluation->classes, 0,
		       (size_t)evaluation->engine->data->classes * sizeof(*evaluation->classes));
}

/* Tells the ranks that have not failed of the lowest that has, in its own words. */
static int share_failure(dtrain_group *group, int status, bool *agreed, beton_error *err)
{
	const int rank = dtrain_group_rank(group), size = dtrain_group_size(group);
	int64_t failed = status == BETON_OK ? size : rank;
	char text[sizeof(err->message)] = "";
	beton_error why;
	dtrain_work *work = NULL;
	if (status != BETON_OK)
		memcpy(text, err->message, sizeof(text));
	int asked = add_array(group, &failed, 1, DTRAIN_I64, DTRAIN_MIN, &why);
	if (asked == BETON_OK && failed < size)
		asked = dtrain_broadcast(group, text, sizeof(text), DTRAIN_U8, (int)failed, NULL, &work, &why);
	if (asked == BETON_OK && failed < size)
		asked = dtrain_work_wait(&work, &why);
	*agreed = asked == BETON_OK;
	if (status != BETON_OK)
		return status;
	if (asked != BETON_OK)
		return bt_fail(err, asked, "evaluation: %s", why.message);
	return failed < size ? bt_fail(err, BETON_PEER_LOST, "rank %d failed: %s", (int)failed, text) : BETON_OK;
}

static int add_ranks(struct evaluation *evaluation, dtrain_group *group, beton_error *err)
{
	size_t classes = (size_t)evaluation->engine->data->classes;
	count_model_once(evaluation);
	int status = add_array(group, evaluation->counts, COUNTS, DTRAIN_I64, DTRAIN_SUM, err);
	if (status == BETON_OK)
		status = add_array(group, evaluation->sums, ENGINE_SUMS, DTRAIN_F64, DTRAIN_SUM, err);
	if (status == BETON_OK && evaluation->classes)
		status = add_array(group, evaluation->classes, classes * sizeof(*evaluation->classes) / sizeof(int64_t),
				   DTRAIN_I64, DTRAIN_SUM, err);
	return status;
}

static int find_means(const struct evaluation *evaluation, engine_evaluation *out, beton_error *err)
{
	const engine_outputs *outputs = evaluation->engine->data->outputs;
	uint64_t samples = evaluation->engine->data->val.samples;
	out->count = evaluation->counts[COUNT];
	out->bad = evaluation->counts[BAD];
	if ((uint64_t)(out->count + out->bad) != samples && !evaluation->batches)
		return bt_fail(err, BETON_STATE, "evaluation: %ld of %ld samples were counted", (long)out->count,
			       (long)samples);
	if (out->count == 0)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "evaluation: all %ld samples are bad", (long)out->bad);
	out->outputs = outputs;
	if (evaluation->sums[ENGINE_WEIGHT] == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "evaluation: nothing of %ld samples is to be predicted",
			       (long)out->count);
	for (int i = 0; i < outputs->num_metrics; i++) {
		double mean = evaluation->sums[i] / evaluation->sums[ENGINE_WEIGHT];
		out->metrics[i] = outputs->metrics[i].exponential ? exp(mean) : mean;
		if (!isfinite(out->metrics[i]))
			return bt_fail(err, BETON_DIVERGED, "evaluation: the validation %s is not finite",
				       outputs->metrics[i].name);
	}
	return BETON_OK;
}

void engine_evaluation_clear(engine_evaluation *evaluation)
{
	free(evaluation->classes);
	*evaluation = (engine_evaluation){0};
}

/* Memory for the results. */
static int prepare(struct evaluation *evaluation, engine_evaluation *out, beton_error *err)
{
	const engine_rank *engine = evaluation->engine;
	if (engine->job.per_class) {
		out->classes = evaluation->classes = calloc((size_t)engine->data->classes, sizeof(*out->classes));
		if (!out->classes)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for the results of %ld classes",
				       (long)engine->data->classes);
	}
	return open_evaluation(evaluation, err);
}

int engine_evaluate(engine_rank *engine, beton_loader *loader, int64_t batches, dtrain_group *group,
		    engine_evaluation *out, bool *interrupted, beton_error *err)
{
	struct evaluation evaluation = {.engine = engine, .batches = batches};
	beton_error late;
	out->classes = NULL;
	bool together = dtrain_sync_gathers_always(engine->sync) || engine->model_ranks > 1;
	evaluation.together = together ? group : NULL;
	int status = prepare(&evaluation, out, err);
	int gathered = dtrain_sync_gather(engine->sync, engine->stream, status == BETON_OK ? err : &late);
	evaluation.unsynchronized = gathered != BETON_OK;
	status = run_shard(&evaluation, loader, status == BETON_OK ? gathered : status, err);
	close_evaluation(&evaluation);
	if (status != BETON_OK)
		bt_prefix(err, "evaluation");
	if (group && !evaluation.unsynchronized)
		status = share_failure(group, status, &out->agreed, err);
	if (status == BETON_OK && group) {
		status = add_ranks(&evaluation, group, err);
		out->agreed = status == BETON_OK;
		if (status != BETON_OK)
			bt_prefix(err, "evaluation");
	}
	if (status != BETON_OK)
		return status;
	*interrupted = evaluation.counts[INTERRUPTED] > 0;
	return *interrupted ? BETON_OK : find_means(&evaluation, out, err);
}
