/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/list.h"
#include "common/system.h"
#include "engine/evaluate.h"
#include "engine/model_choice.h"
#include "engine/pretrained/pretrained.h"

/* The job's options are first: tasks get a pointer to them. */
struct prediction {
	vision_options vision;
	const predict_options *options;
	rank_team *team;
	predict_share *share;
	predict_rows *rows;
	engine_task task; /* the task vision, whose results go to the rows */
	engine_model model;
	const char *model_name;
	engine_data data;
	engine_rank engine;
	beton_loader *loader;
};

/* ---- what is known of the model ---- */

/* The command line's, else the metadata's, else the usual one (NULL: there is none). */
static int find_text(const char *given, const run_source *weights, const char *fact, const char *usual,
		     const char **out, beton_error *err)
{
	*out = given ? given : run_source_info(weights, fact) ? run_source_info(weights, fact) : usual;
	return *out ? BETON_OK
		    : bt_fail(err, BETON_INVALID_ARGUMENT, "--%s is missing: the metadata of '%s' do not have it", fact,
			      weights->path);
}

static int find_number(const char *given, const run_source *weights, const char *fact, const char *option,
		       const char *usual, uint64_t most, int64_t *out, beton_error *err)
{
	const char *text;
	uint64_t number = 0;
	int status = find_text(given, weights, fact, usual, &text, err);
	if (status == BETON_OK)
		status = bt_parse_u64(option, text, 1, most, &number, err);
	*out = (int64_t)number;
	return status;
}

/* count numbers with commas between them. */
static int find_reals(const char *given, const run_source *weights, const char *fact, const char *usual, double least,
		      double most, int count, double *out, beton_error *err)
{
	char option[32], part[64];
	const char *at;
	int found = 0, status = find_text(given, weights, fact, usual, &at, err);
	snprintf(option, sizeof(option), "--%s", strcmp(fact, "val_ratio") == 0 ? "val-ratio" : fact);
	const char *whole = at;
	for (; at && found < count && status == BETON_OK; found++) {
		status = bt_list_next(option, &at, part, sizeof(part), err);
		if (status == BETON_OK)
			status = bt_parse_double(option, part, least, most, &out[found], err);
	}
	if (status == BETON_OK && (at || found < count))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not %d number%s", option, whole, count,
			       bt_plural((uint64_t)count));
	return status;
}

static int find_options(struct prediction *self, const run_source *weights, beton_error *err)
{
	const predict_options *options = self->options;
	vision_options *vision = &self->vision;
	char classes[24] = "", side[24] = "";
	vision->image_field = options->image_field;
	vision->tta = options->tta;
	snprintf(classes, sizeof(classes), "%" PRId64, run_source_classes(weights));
	snprintf(side, sizeof(side), "%" PRId64, engine_model_image_size(&self->model));
	int status = find_number(options->classes, weights, "classes", "--classes", *classes != '0' ? classes : NULL,
				 1000000, &vision->classes, err);
	if (status == BETON_OK)
		status = find_number(options->image_size, weights, "image_size", "--image-size", side, 4096,
				     &vision->image_size, err);
	if (status == BETON_OK)
		status = find_reals(options->val_ratio, weights, "val_ratio", "0.875", 1e-6, 1, 1, &vision->val_ratio,
				    err);
	if (status == BETON_OK)
		status = find_reals(options->mean, weights, "mean", "123.675,116.28,103.53", -1e6, 1e6, 3, vision->mean,
				    err);
	if (status == BETON_OK)
		status =
			find_reals(options->std, weights, "std", "58.395,57.12,57.375", 1e-6, 1e6, 3, vision->std, err);
	/* The weights have what they were trained with. */
	if (status == BETON_OK && (options->mean || options->std))
		status = vision_check_scale(vision->mean, vision->std, err);
	return status;
}

static int find_model(struct prediction *self, const run_source *weights, beton_error *err)
{
	const char *task = run_source_info(weights, "task");
	const char *text = self->options->model ? NULL : run_source_info(weights, "description");
	if (task && strcmp(task, "vision") != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "'%s' holds a model of --task %s; pictures need one of vision", weights->path, task);
	int status = find_text(self->options->model, weights, "model", NULL, &self->model_name, err);
	return status == BETON_OK ? engine_model_find(self->model_name, text, &self->model, err) : status;
}

/* ---- the network ---- */

/* As engine_task.add_batch. */
static int add_rows(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		    engine_class_count *classes, beton_error *err)
{
	const struct prediction *self = engine->job.options;
	float *room = malloc((size_t)engine->data->classes * sizeof(*room));
	int status = room ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the results");
	(void)classes;
	sums[ENGINE_WEIGHT] += batch->count;
	if (status == BETON_OK)
		status = predict_share_begin(self->share, batch->sample_ids[0], err);
	for (uint32_t i = 0; i < batch->count && status == BETON_OK; i++)
		status = predict_rows_add(self->rows, batch->sample_ids[i], vision_logits(engine, results, i, room),
					  err);
	free(room);
	return status == BETON_OK ? predict_share_end(self->share, batch->sample_ids[0], err) : status;
}

static int open_engine(struct prediction *self, const run_source *weights, beton_error *err)
{
	const predict_options *options = self->options;
	dtrain_device_options device_options = {.struct_size = sizeof(device_options),
						.threads = (int32_t)options->threads,
						.tf32 = options->precision == ENGINE_PRECISION_TF32};
	engine_job job = {.task = &self->task,
			  .options = self,
			  .model = self->model_name,
			  .transformer = self->model.is_transformer ? &self->model.transformer : NULL,
			  .batch_size = (int64_t)options->batch_size,
			  .micro_batches = 1,
			  .evaluates = true};
	dtrain_sync_options sync;
	dtrain_device *device = NULL;
	run_init init = {0};
	self->task = vision_task;
	self->task.add_batch = add_rows;
	dtrain_sync_options_init(&sync);
	int status = engine_check_model(&job, err);
	if (status == BETON_OK)
		status = run_open_device(&options->device, &self->team->env, options->share_device, &device_options,
					 &device, err);
	if (status == BETON_OK)
		status = engine_open(&self->engine, &job, &self->data, device, options->precision, NULL, &sync, err);
	if (rank_team_shares(self->team))
		self->engine.caller = (engine_caller){.context = self->team, .stop_requested = rank_team_is_asked};
	if (status == BETON_OK)
		status = run_init_apply(weights, self->engine.params, self->engine.params, self->engine.stream, true,
					&init, err);
	run_init_free(&init);
	return status;
}

/* ---- the pictures ---- */

static int open_file(const void *context, beton_loader_options *loader, beton_loader **out, beton_error *err)
{
	const predict_data *data = context;
	return beton_loader_open(out, data->path, loader, err);
}

static uint64_t sample_at(void *context, uint64_t epoch, uint64_t position)
{
	(void)epoch;
	return predict_share_sample(context, position);
}

static int open_loader(struct prediction *self, predict_data *data, beton_error *err)
{
	const engine_files files = {.open = open_file, .context = data};
	beton_loader_options loader;
	beton_loader_options_init(&loader);
	if (self->engine.staged)
		engine_feed_allocator(self->engine.device, &loader.allocator);
	loader.batch_size = (uint32_t)self->options->batch_size;
	loader.num_threads = (uint32_t)self->options->threads;
	loader.last = BETON_LAST_SHORT;
	if (rank_team_shares(self->team)) {
		loader.order = BETON_ORDER_CALLBACK;
		loader.order_callback = sample_at;
		loader.order_context = self->share;
		loader.num_draws = self->data.val.samples;
	}
	if (self->options->skip)
		loader.on_error = BETON_ON_ERROR_SKIP;
	return self->task.open_loader(&self->engine, false, &loader, &files, &self->loader, err);
}

static int open_all(struct prediction *self, const run_source *weights, predict_data *data, beton_error *err)
{
	int status = find_model(self, weights, err);
	if (status == BETON_OK)
		status = find_options(self, weights, err);
	if (status == BETON_OK)
		status = vision_find_image(data->reader, &self->vision, self->data.val.fields[VISION_IMAGE], err);
	self->data.classes = self->vision.classes;
	/* Whatever they are: nothing is measured, and the network has no labels. */
	self->data.outputs = &vision_outputs[VISION_CLASSES];
	self->data.val.samples = predict_share_samples(self->share, data->samples);
	if (status == BETON_OK && data->samples == 0)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: holds no samples", self->options->data);
	/* There may be fewer batches than ranks. */
	if (status == BETON_OK && self->data.val.samples)
		status = open_engine(self, weights, err);
	if (status == BETON_OK && self->data.val.samples)
		status = open_loader(self, data, err);
	return status == BETON_OK ? predict_data_release(data, self->team, err) : status;
}

/* The names of the weights' classes, else the data's names if it has as many classes. */
static int find_names(const run_source *weights, const predict_data *data, int64_t classes, json_t **out,
		      beton_error *err)
{
	const char *text = run_source_info(weights, "class_names");
	*out = text ? json_loads(text, 0, NULL) : NULL;
	int status = *out ? BETON_OK : predict_data_names(data, out, err);
	if (!text && *out && (int64_t)json_array_size(*out) != classes) {
		json_decref(*out);
		*out = NULL;
	}
	return status;
}

/* Computes this rank's rows. All of its pictures may be bad, if others are not. */
static int compute(struct prediction *self, int64_t *count, int64_t *bad, beton_error *err)
{
	engine_evaluation evaluation = {0};
	bool interrupted = false;
	int status = BETON_OK;
	if (self->data.val.samples)
		status = engine_evaluate(&self->engine, self->loader, 0, NULL, &evaluation, &interrupted, err);
	*count = evaluation.count;
	*bad = evaluation.bad;
	engine_evaluation_clear(&evaluation);
	bool all_bad = status == BETON_SAMPLE_CORRUPT && *count == 0 && *bad > 0;
	beton_error none = *err;
	if (status == BETON_OK || (all_bad && rank_team_shares(self->team)))
		status = predict_share_finish(self->share, interrupted, count, bad, err);
	bool first = !rank_team_shares(self->team) || self->team->env.rank == 0;
	if (status == BETON_OK && all_bad && first && *count == 0) {
		*err = none;
		status = BETON_SAMPLE_CORRUPT;
	}
	return status;
}

int predict_run(const predict_options *options, const run_source *weights, predict_data *data, rank_team *team,
		predict_rows *rows, beton_error *err)
{
	predict_share share;
	struct prediction self = {.options = options, .team = team, .share = &share, .rows = rows};
	json_t *names = NULL;
	int64_t count = 0, bad = 0;
	bool first = !rank_team_shares(team) || team->env.rank == 0;
	int status = predict_share_open(&share, team, rows, options->batch_size, err);
	if (status == BETON_OK)
		status = open_all(&self, weights, data, err);
	if (status == BETON_OK)
		status = find_names(weights, data, self.data.classes, &names, err);
	rows->names = names;
	rows->classes = self.data.classes;
	rows->top = options->top && (int64_t)options->top < rows->classes ? (int64_t)options->top : rows->classes;
	const char *loss = run_source_info(weights, "loss");
	rows->kind = loss && strcmp(loss, "mse") == 0   ? PREDICT_NUMBERS
		     : loss && strcmp(loss, "bce") == 0 ? PREDICT_LOGISTIC
							: PREDICT_SOFTMAX;
	if (rows->kind == PREDICT_NUMBERS)
		rows->top = rows->classes;
	if (status == BETON_OK && rows->kind == PREDICT_NUMBERS && options->tta != VISION_TTA_NONE)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "--tta adds logits, and the model '%s' computes numbers",
				 weights->path);
	/* The network adds the logits of two views. */
	rows->scale = options->tta == VISION_TTA_FLIP ? 0.5 : 1;
	if (status == BETON_OK)
		status = predict_rows_begin(rows, err);
	if (status == BETON_OK)
		status = compute(&self, &count, &bad, err);
	if (status == BETON_OK && bad && first)
		fprintf(stderr, "dtrain-predict: left out %" PRId64 " bad picture%s of %s\n", bad,
			bt_plural((uint64_t)bad), options->data);
	if (status != BETON_OK) {
		rank_team_fail(team, err);
		rank_team_leave(team);
	}
	predict_share_close(&share);
	beton_loader_close(&self.loader);
	engine_close(&self.engine);
	engine_model_free(&self.model);
	rows->names = NULL;
	json_decref(names);
	return status;
}
