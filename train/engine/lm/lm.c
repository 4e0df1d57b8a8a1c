/* SPDX-License-Identifier: Apache-2.0 */
#include "lm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"
#include "parts.h"

static const char *find_problem(const engine_job *job, bool validates)
{
	const lm_options *options = lm_options_of(job);
	(void)validates;
	if (job->per_class)
		return "--val-per-class needs samples with classes, which --task lm does not have";
	if (options->context_length && options->window_stride > options->context_length)
		return "--window-stride is above --context-length";
	return NULL;
}

/* Only names of models of tokens. */
static const char *model_name(int index)
{
	dtrain_transformer model = {.struct_size = sizeof(model)};
	beton_error err;
	const char *name = NULL;
	for (int i = 0; (name = dtrain_transformer_name(i)); i++)
		if (dtrain_transformer_find(name, &model, &err) == BETON_OK && model.vocabulary && index-- == 0)
			return name;
	return NULL;
}

static int check_name(const engine_job *job, beton_error *err)
{
	dtrain_transformer model;
	return lm_find_model(job, &model, err);
}

/* The text of the file, for which a name in this place has no meaning elsewhere. */
static int describe(const engine_job *job, char **out, beton_error *err)
{
	enum { BYTES_MAX = 1 << 20 };
	dtrain_transformer model;
	*out = NULL;
	if (job->description) {
		*out = strdup(job->description);
		return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the model's description");
	}
	for (int i = 0; dtrain_transformer_name(i); i++)
		if (strcmp(dtrain_transformer_name(i), job->model) == 0)
			return BETON_OK;
	int fd = open(job->model, O_RDONLY | O_CLOEXEC);
	char *text = fd >= 0 ? calloc(1, BYTES_MAX + 1) : NULL;
	ssize_t size = text ? bt_pread_full(fd, text, BYTES_MAX, 0) : -1;
	int status = size < 0 ? bt_fail_errno(err, errno, "--model: cannot read '%s'", job->model) : BETON_OK;
	if (fd >= 0)
		close(fd);
	/* The file may have changed since it was checked. */
	if (status == BETON_OK)
		status = dtrain_transformer_parse(text, job->model, &model, err);
	if (status == BETON_OK)
		*out = text;
	else
		free(text);
	return status;
}

static int class_names(const engine_job *job, const char *const *paths, int count, char **out, beton_error *err)
{
	(void)job;
	(void)paths;
	(void)count;
	(void)err;
	*out = NULL;
	return BETON_OK;
}

static int64_t units(const engine_rank *engine)
{
	return lm_context_length(&engine->job);
}

static int open_loader(const engine_rank *engine, bool training, beton_loader_options *options,
		       const engine_files *files, beton_loader **out, beton_error *err)
{
	(void)engine;
	(void)training;
	return files->open(files->context, options, out, err);
}

static int prepare(engine_rank *engine, const engine_files *files, beton_error *err)
{
	(void)engine;
	(void)files;
	(void)err;
	return BETON_OK;
}

static const char *find_early(const engine_job *job, double *epochs)
{
	(void)job;
	(void)epochs;
	return NULL;
}

/* As in nanoGPT and GPT-3: parameters of one dimension, which are biases and norms, do not decay. */
static const engine_default defaults[] = {{"optimizer", "adamw"}, {"no-bias-decay", "yes"}, {0}};

const engine_task lm_task = {
	.name = "lm",
	.sample = "window",
	.unit = "tokens",
	.classes = {"token in the vocabulary", "tokens in the vocabulary"},
	.class_field = -1,
	.metrics = {{.key = "loss", .name = "loss"}, {.key = "perplexity", .name = "perplexity", .exponential = true}},
	.num_metrics = 2,
	.defaults = defaults,
	.model_name = model_name,
	.check_name = check_name,
	.describe = describe,
	.units = units,
	.flops = lm_flops,
	.find_problem = find_problem,
	.read_data = lm_read_data,
	.class_names = class_names,
	.check = lm_check,
	.set_samples = lm_set_samples,
	.open_loader = open_loader,
	.build = lm_build,
	.prepare = prepare,
	.find_early = find_early,
	.run_batch = lm_run_batch,
	.add_batch = lm_add_batch,
};
