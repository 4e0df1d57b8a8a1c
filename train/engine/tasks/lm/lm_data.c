/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include <beton/tokens.h>

#include "common/error.h"
#include "common/system.h"
#include "lm_parts.h"
#include "shards/shards.h"

static uint64_t stride_of(const engine_job *job, bool training)
{
	int64_t stride = training ? lm_options_of(job)->window_stride : 0;
	return (uint64_t)(stride ? stride : lm_context_length(job));
}

/* Input of the hash besides the file. */
struct identity {
	uint64_t before, file, window, stride;
};

/* Adds the windows of a file. */
static int add_file(const engine_job *job, const bt_shard_input *input, bool training, engine_dataset *out,
		    beton_error *err)
{
	const char *path = input->path;
	beton_tokens *tokens = NULL;
	beton_tokens_options options;
	struct identity identity = {.before = out->fingerprint,
				    .window = (uint64_t)lm_context_length(job),
				    .stride = stride_of(job, training)};
	beton_tokens_options_init(&options);
	options.field = lm_options_of(job)->token_field;
	options.format = input->set ? BETON_TOKENS_BETON : BETON_TOKENS_AUTO;
	int status = beton_tokens_open(&tokens, path, &options, err);
	/* The library's message is about the format, for which the trainer has no option. */
	if (status == BETON_INVALID_ARGUMENT && !input->set && !bt_ends_with(path, ".bin") &&
	    !bt_ends_with(path, ".beton"))
		return bt_fail(err, status,
			       "%s: is neither a .bin nor a .beton file; beton-write --tokenizer makes a file of "
			       "tokens of a text",
			       path);
	if (status == BETON_OK && input->set)
		status = beton_set_check(input->set, input->shard, beton_tokens_reader(tokens), err);
	if (status != BETON_OK) {
		beton_tokens_close(&tokens);
		return status;
	}
	uint64_t count = beton_tokens_get_info(tokens)->num_tokens;
	if (count <= identity.window)
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: has %" PRIu64 " token%s, fewer than a window of --context-length %" PRIu64
				 " and the token after it",
				 path, count, bt_plural(count), identity.window);
	else
		out->samples += (count - 1 - identity.window) / identity.stride + 1;
	if (status == BETON_OK)
		status = beton_tokens_fingerprint(tokens, &identity.file, err);
	out->fingerprint = XXH3_64bits(&identity, sizeof(identity));
	beton_tokens_close(&tokens);
	return status;
}

/* Adds the windows of the file at path, or of the shards of the set at path. */
static int add_dataset(const engine_job *job, const char *path, bool training, engine_dataset *out, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	int status = bt_shard_inputs_add(&inputs, path, err);
	for (size_t i = 0; i < inputs.count && status == BETON_OK; i++)
		status = add_file(job, &inputs.list[i], training, out, err);
	bt_shard_inputs_free(&inputs);
	return status;
}

static bool is_special(const lm_options *options, int64_t token)
{
	for (int i = 0; i < options->special.count; i++)
		if (options->special.list[i] == token)
			return true;
	return false;
}

static int check_special(const lm_options *options, int64_t vocabulary, beton_error *err)
{
	int64_t others = 0;
	for (int i = 0; i < options->special.count; i++)
		if (options->special.list[i] >= vocabulary)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--special-tokens %" PRIu32 ": is not below the vocabulary of %" PRId64,
				       options->special.list[i], vocabulary);
	/* One token more than the list can have. */
	for (int64_t token = 0; token < vocabulary && token <= LM_TOKENS_MAX; token++)
		others += !is_special(options, token);
	return others ? BETON_OK
		      : bt_fail(err, BETON_INVALID_ARGUMENT,
				"--special-tokens: are all %" PRId64
				" tokens of the vocabulary, and nothing is left to mask",
				vocabulary);
}

static int check_mask(const engine_job *job, beton_error *err)
{
	const lm_options *options = lm_options_of(job);
	bool masks = lm_masks(job);
	int64_t vocabulary = job->transformer->vocabulary;
	const char *given = options->mask_token >= 0         ? "mask-token"
			    : options->mask_probability >= 0 ? "mask-probability"
			    : options->special.count         ? "special-tokens"
							     : NULL;
	if (!masks && given)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--%s needs a BERT, which %s is not", given, job->model);
	if (masks && options->mask_token < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a BERT predicts masked tokens, and needs --mask-token",
			       job->model);
	if (options->mask_token >= vocabulary)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--mask-token %" PRId64 ": is not below the vocabulary of %" PRId64, options->mask_token,
			       vocabulary);
	return masks ? check_special(options, vocabulary, err) : BETON_OK;
}

static const engine_outputs tokens_of_vocabulary = {
	.names = {"token in the vocabulary", "tokens in the vocabulary"},
	.metrics = {{.key = "loss", .name = "loss"}, {.key = "perplexity", .name = "perplexity", .exponential = true}},
	.num_metrics = 2,
};

/* Tokens are compared with the vocabulary when they are loaded: a stream may be far larger than what a run reads. */
int lm_read_data(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
		 beton_error *err)
{
	int status = check_mask(job, err);
	*out = (engine_data){.classes = job->transformer->vocabulary, .outputs = &tokens_of_vocabulary};
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = add_dataset(job, paths[i], true, &out->train, err);
	return status == BETON_OK && val ? add_dataset(job, val, false, &out->val, err) : status;
}

void lm_explain(const engine_job *job, beton_error *err)
{
	static const char option[] = " (option tokens.vocabulary)";
	char *at = strstr(err->message, option);
	if (at && !at[sizeof(option) - 1])
		snprintf(at, sizeof(err->message) - (size_t)(at - err->message), ", the vocab_size of %s", job->model);
}

void lm_set_samples(const engine_job *job, const engine_data *data, bool training, beton_loader_options *options)
{
	const lm_options *lm = lm_options_of(job);
	options->tokens.window = (uint64_t)lm_context_length(job);
	options->tokens.stride = stride_of(job, training);
	options->tokens.field = lm->token_field;
	options->tokens.vocabulary = (uint64_t)data->classes;
	options->tokens.end_of_text = lm->end_of_text;
	/* An evaluation masks the same tokens in each run, also when weights of another run are evaluated. */
	options->seed = training ? options->seed : 0;
	if (lm_masks(job)) {
		options->tokens.mask_probability = lm->mask_probability < 0 ? 0.15 : lm->mask_probability;
		options->tokens.mask_token = (uint64_t)lm->mask_token;
		options->tokens.special = lm->special.list;
		options->tokens.num_special = (uint64_t)lm->special.count;
	}
	options->tokens.segment = options->tokens.position = lm->end_of_text >= 0;
}
