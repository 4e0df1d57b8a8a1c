/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-generate: continues a text with a trained language model. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/list.h"
#include "common/system.h"
#include "launch/busy.h"
#include "launch/launcher.h"
#include "launch/rank_team.h"
#include "launch/wait_policy.h"
#include "options/axes.h"
#include "options/device_choice.h"
#include "sample.h"
#include "text_model.h"
#ifdef HAVE_TOKENIZER
#include "tokenizer/tokenizer.h"
#endif

enum { TOKENS_MAX = 1 << 24 };

static const char *const usage_text =
	"Usage: dtrain-generate [OPTION]... WEIGHTS\n"
	"Continue a text with a language model. WEIGHTS is a safetensors file, an index of several, a folder of\n"
	"PyTorch's shards, a checkpoint of dtrain-ffcv --task lm, or a folder of checkpoints (the newest is\n"
	"used).\n"
	"\n"
	"  -m, --model=NAME|FILE    the model, or its config.json (default: as WEIGHTS describe it, or the\n"
	"                           config.json beside them)\n"
	"  -t, --tokenizer=VOCAB    vocabulary for text: as for beton-write; without it tokens are numbers\n"
	"  -p, --prompt=TEXT        text to continue (default: the end of text, if there is one)\n"
	"  -i, --tokens=N[,N...]    the same as tokens\n"
	"  -n, --count=N            tokens to generate; the end of text ends a text before (default 100)\n"
	"  -r, --texts=N            texts to generate, up to 16 of them together (default 1)\n"
	"  -T, --temperature=X      divide the logits by X; 0: always the most likely token (default 1)\n"
	"  -k, --top-k=N            draw from the N most likely tokens; 0: from all (default 0)\n"
	"  -P, --top-p=X            draw from the most likely tokens with a probability of X together (default 1)\n"
	"  -s, --seed=N             seed of the draws (default 0)\n"
	"  -d, --device=NAME        cuda, cpu, ref, or auto (default auto)\n"
	"  -M, --mesh=AXIS=N[,...]  start ranks that compute the model together: tensor=N divides each layer's heads,\n"
	"                           keys, values and MLP, and the vocabulary; pipeline=N divides the layers\n"
	"  -w, --world-size=N       ranks on this machine: as many as --mesh has, which is the default\n"
	"      --share-device       let several ranks use one GPU\n"
	"  -j, --threads=N          compute threads of a rank; 0: as many as the model gains from (default 0)\n"
	"  -v, --speed              print each rank's memory for weights, keys and values, and the speed of texts\n"
	"                           that are generated together in one, to standard error\n"
	"  -h, --help               show this text\n"
	"  -V, --version            show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

enum { SHARE_DEVICE = 256 };

static const struct option long_options[] = {
	{"model", required_argument, NULL, 'm'},
	{"tokenizer", required_argument, NULL, 't'},
	{"prompt", required_argument, NULL, 'p'},
	{"tokens", required_argument, NULL, 'i'},
	{"count", required_argument, NULL, 'n'},
	{"texts", required_argument, NULL, 'r'},
	{"seed", required_argument, NULL, 's'},
	{"temperature", required_argument, NULL, 'T'},
	{"top-k", required_argument, NULL, 'k'},
	{"top-p", required_argument, NULL, 'P'},
	{"device", required_argument, NULL, 'd'},
	{"threads", required_argument, NULL, 'j'},
	{"mesh", required_argument, NULL, 'M'},
	{"world-size", required_argument, NULL, 'w'},
	{"share-device", no_argument, NULL, SHARE_DEVICE},
	{"speed", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

struct options {
	const char *weights, *model, *vocabulary, *prompt, *tokens, *mesh;
	sample_options sample;
	uint64_t count, texts, seed, threads, world_size; /* world_size 0: not given */
	bool speed, share_device;
	run_device_choice device;
	int64_t stages, ranks; /* of --mesh: of the pipeline, and that divide layers */
};

/* A text so far, as tokens. */
struct text {
	int64_t *tokens;
	size_t count, prompt, room;
	size_t end; /* where it is over; 0: it goes on */
};

/* Texts that are computed together, all of them with as many tokens: one that is over goes on as another does. */
struct batch {
	struct text *texts;
	const int64_t **tokens; /* of each */
	float *logits;
	int64_t *drawn; /* the next token of each */
	int64_t count;
};

/* Ranks that compute one model. All of them know the texts; the first one writes them. */
struct ranks {
	rank_team *team;
	dtrain_mesh *mesh; /* NULL: one rank */
	int draws;         /* rank that draws the tokens: one of the last stage */
};

#ifndef HAVE_TOKENIZER
typedef struct tokenizer tokenizer;
#endif

static int add_token(struct text *text, int64_t token, beton_error *err)
{
	if (text->count == text->room) {
		size_t room = text->room ? 2 * text->room : 256;
		int64_t *larger = room <= 2 * TOKENS_MAX ? reallocarray(text->tokens, room, sizeof(*larger)) : NULL;
		if (!larger)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for the text");
		text->tokens = larger;
		text->room = room;
	}
	text->tokens[text->count++] = token;
	return BETON_OK;
}

/* ---- options ---- */

static int parse_value(int option, struct options *out, beton_error *err)
{
	uint64_t number = 0;
	int status = BETON_OK;
	switch (option) {
	case 'm':
		out->model = optarg;
		break;
	case 't':
		out->vocabulary = optarg;
		break;
	case 'p':
		out->prompt = optarg;
		break;
	case 'i':
		out->tokens = optarg;
		break;
	case 'n':
		return bt_parse_u64("--count", optarg, 1, TOKENS_MAX, &out->count, err);
	case 'r':
		return bt_parse_u64("--texts", optarg, 1, INT32_MAX, &out->texts, err);
	case 's':
		return bt_parse_u64("--seed", optarg, 0, UINT64_MAX, &out->seed, err);
	case 'T':
		return bt_parse_double("--temperature", optarg, 0, 1e6, &out->sample.temperature, err);
	case 'k':
		status = bt_parse_u64("--top-k", optarg, 0, INT32_MAX, &number, err);
		out->sample.top_k = (int64_t)number;
		return status;
	case 'P':
		return bt_parse_double("--top-p", optarg, 1e-9, 1, &out->sample.top_p, err);
	case 'd':
		return run_parse_device(optarg, &out->device, err);
	case 'j':
		return bt_parse_u64("--threads", optarg, 0, 4096, &out->threads, err);
	case 'M':
		out->mesh = optarg;
		break;
	case 'w':
		return bt_parse_u64("--world-size", optarg, 1, LAUNCH_MAX_RANKS, &out->world_size, err);
	case SHARE_DEVICE:
		out->share_device = true;
		break;
	default:
		out->speed = true;
	}
	return status;
}

/* There is one model, so no axis divides samples. */
static int read_mesh(struct options *options, beton_error *err)
{
	run_axes axes;
	int status = run_axes_parse(options->mesh, &axes, err);
	for (int i = 0; i < DTRAIN_AXES && status == BETON_OK; i++)
		if (axes.size[i] > 1 && i != DTRAIN_AXIS_PIPELINE && i != DTRAIN_AXIS_TENSOR)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--mesh: '%s': a text is computed by one model, which pipeline=N and tensor=N "
				       "divide",
				       options->mesh);
	options->stages = axes.size[DTRAIN_AXIS_PIPELINE] ? axes.size[DTRAIN_AXIS_PIPELINE] : 1;
	options->ranks = axes.size[DTRAIN_AXIS_TENSOR] ? axes.size[DTRAIN_AXIS_TENSOR] : 1;
	int64_t size = options->stages * options->ranks;
	if (status == BETON_OK && options->world_size && options->world_size != (uint64_t)size)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--world-size %llu: pipeline=%lld x tensor=%lld of --mesh are %lld rank%s",
			       (unsigned long long)options->world_size, (long long)options->stages,
			       (long long)options->ranks, (long long)size, bt_plural((uint64_t)size));
	if (status == BETON_OK && size > LAUNCH_MAX_RANKS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--mesh: %lld ranks are more than %d", (long long)size,
			       LAUNCH_MAX_RANKS);
	return status;
}

static const char *find_problem(const struct options *options)
{
	if (options->prompt && options->tokens)
		return "give either --prompt or --tokens";
	if (options->prompt && !options->vocabulary)
		return "--prompt needs --tokenizer";
	if (!options->tokens && !options->vocabulary)
		return "give --tokens, or --tokenizer and --prompt";
#ifndef HAVE_TOKENIZER
	if (options->vocabulary)
		return "--tokenizer: this build has no tokenizer; install PCRE2 (libpcre2-dev) and rebuild";
#endif
	return NULL;
}

/* ---- the prompt ---- */

static int read_tokens(const char *list, struct text *text, beton_error *err)
{
	int status = BETON_OK;
	for (const char *at = list; at && status == BETON_OK;) {
		char part[32];
		uint64_t token = 0;
		status = bt_list_next("--tokens", &at, part, sizeof(part), err);
		if (status == BETON_OK)
			status = bt_parse_u64("--tokens", part, 0, UINT32_MAX, &token, err);
		if (status == BETON_OK)
			status = add_token(text, (int64_t)token, err);
	}
	return status;
}

#ifdef HAVE_TOKENIZER
static int take(void *context, const uint32_t *tokens, size_t count, beton_error *err)
{
	int status = BETON_OK;
	for (size_t i = 0; i < count && status == BETON_OK; i++)
		status = add_token(context, tokens[i], err);
	return status;
}
#endif

/* The vocabulary's; -1: none. */
static int64_t end_in(const tokenizer *words)
{
#ifdef HAVE_TOKENIZER
	if (words)
		return tokenizer_end_of_text(words);
#endif
	(void)words;
	return -1;
}

static int read_prompt(const struct options *options, const generate_model *model, const tokenizer *words,
		       struct text *text, beton_error *err)
{
	int64_t vocabulary = model->description.vocabulary;
	int64_t end_of_text = model->end_of_text >= 0 ? model->end_of_text : end_in(words);
	int status = BETON_OK;
	if (options->tokens)
		status = read_tokens(options->tokens, text, err);
#ifdef HAVE_TOKENIZER
	else if (options->prompt)
		status = tokenizer_encode(words, options->prompt, strlen(options->prompt), "--prompt", take, text, err);
#endif
	else if (end_of_text >= 0)
		status = add_token(text, end_of_text, err);
	if (status != BETON_OK)
		return status;
	if (text->count == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "the prompt is empty, and neither model nor vocabulary has an end of text");
	for (size_t i = 0; i < text->count; i++)
		if (text->tokens[i] >= vocabulary)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "token %zu of the prompt is %lld, not below the model's vocabulary of %lld", i,
				       (long long)text->tokens[i], (long long)vocabulary);
	text->prompt = text->count;
	return BETON_OK;
}

/* ---- generating ---- */

static int put_token(const tokenizer *words, int64_t token, bool first, beton_error *err)
{
	int put = 0;
#ifdef HAVE_TOKENIZER
	size_t size = 0;
	const uint8_t *bytes = words ? tokenizer_bytes(words, (uint32_t)token, &size) : NULL;
	if (words)
		put = fwrite(bytes ? bytes : (const uint8_t *)"", 1, size, stdout) == size ? 0 : EOF;
	else
#endif
		put = printf("%s%lld", first ? "" : " ", (long long)token);
	(void)words;
	return put >= 0 && fflush(stdout) == 0 ? BETON_OK : bt_fail_errno(err, errno, "standard output");
}

/* 0 .. 1, other for each text and place. */
static double draw(uint64_t seed, uint64_t number, uint64_t place)
{
	const uint64_t key[] = {number, place};
	return (double)(XXH3_64bits_withSeed(key, sizeof(key), seed) >> 11) * 0x1p-53;
}

/* times: when the texts began, their first tokens were there, and the last one. The first token takes as long as the
 * prompt. tokens: of all texts. */
static void print_speed(const generate_model *model, const struct batch *batch, uint64_t tokens,
			const uint64_t times[3])
{
	dtrain_device_caps caps;
	dtrain_device_get_api(model->device)->caps(model->device, &caps);
	double prompt_s = (double)(times[1] - times[0]) * 1e-9, rest_s = (double)(times[2] - times[1]) * 1e-9;
	uint64_t more = tokens > (uint64_t)batch->count ? tokens - (uint64_t)batch->count : 0;
	fprintf(stderr, "prompt of %zu tokens: %.3f s", batch->texts[0].prompt, prompt_s);
	if (more)
		fprintf(stderr, "; %llu more tokens: %.3f s, %.1f tokens/s", (unsigned long long)more, rest_s,
			(double)more / rest_s);
	if (caps.host_memory)
		fprintf(stderr, "; %d thread%s", caps.threads, bt_plural((uint64_t)caps.threads));
	fputc('\n', stderr);
}

static int put_tokens(const tokenizer *words, const struct text *text, size_t first, size_t end, beton_error *err)
{
	int status = BETON_OK;
	for (size_t i = first; i < end && status == BETON_OK; i++)
		status = put_token(words, text->tokens[i], i == 0, err);
	return status;
}

static int put_end(beton_error *err)
{
	return putchar('\n') == EOF || fflush(stdout) != 0 ? bt_fail_errno(err, errno, "standard output") : BETON_OK;
}

/* One rank has the logits of all texts, and the others get its tokens. */
static int draw_each(const struct options *options, const generate_model *model, const struct ranks *ranks,
		     struct batch *batch, uint64_t number, uint64_t place, beton_error *err)
{
	int64_t vocabulary = model->description.vocabulary;
	int status = BETON_OK;
	for (int64_t k = 0; k < batch->count && status == BETON_OK && ranks->team->env.rank == ranks->draws; k++)
		if (!batch->texts[k].end)
			status = sample_token(&options->sample, batch->logits + k * vocabulary, vocabulary,
					      draw(options->seed, number + (uint64_t)k, place), &batch->drawn[k], err);
	return status == BETON_OK ? rank_team_broadcast(ranks->team, batch->drawn,
							(size_t)batch->count * sizeof(*batch->drawn), ranks->draws, err)
				  : status;
}

/* Draws the next token of each text. drawn: of all texts. *goes_on: whether a text is not over. number: of the first
 * text. */
static int draw_tokens(const struct options *options, const generate_model *model, const struct ranks *ranks,
		       const tokenizer *words, struct batch *batch, uint64_t number, uint64_t place, uint64_t *drawn,
		       bool *goes_on, beton_error *err)
{
	int64_t going = -1;
	int status = draw_each(options, model, ranks, batch, number, place, err);
	for (int64_t k = 0; k < batch->count && status == BETON_OK; k++) {
		struct text *text = &batch->texts[k];
		int64_t token = batch->drawn[k];
		if (text->end)
			continue;
		++*drawn;
		if (token == model->end_of_text || token == end_in(words))
			text->end = text->count;
		else
			status = add_token(text, token, err);
		going = text->end ? going : token;
	}
	*goes_on = going >= 0;
	for (int64_t k = 0; k < batch->count && *goes_on && status == BETON_OK; k++)
		if (batch->texts[k].end)
			status = add_token(&batch->texts[k], going, err);
	return status;
}

/* The first text is written as it comes, the others after it. wanted: number of texts to write; more may be
 * computed. */
static int generate(const struct options *options, generate_model *model, const struct ranks *ranks,
		    const tokenizer *words, struct batch *batch, uint64_t number, int64_t wanted, run_busy *busy,
		    beton_error *err)
{
	bool writes = ranks->team->env.rank == 0;
	struct text *first = batch->texts;
	uint64_t times[3] = {0}, drawn = 0;
	bool goes_on = true;
	char note[256];
	for (int64_t k = 0; k < batch->count; k++) {
		batch->texts[k].count = first->prompt;
		batch->texts[k].end = 0;
	}
	int status = writes ? put_tokens(words, first, 0, first->prompt, err) : BETON_OK;
	times[0] = bt_now_ns();
	for (uint64_t i = 0; i < options->count && goes_on && status == BETON_OK; i++) {
		size_t count = first->count;
		for (int64_t k = 0; k < batch->count; k++)
			batch->tokens[k] = batch->texts[k].tokens;
		status = generate_model_logits(model, batch->tokens, (int64_t)count, batch->logits, err);
		if (status == BETON_OK)
			status = draw_tokens(options, model, ranks, words, batch, number, i, &drawn, &goes_on, err);
		times[2] = bt_now_ns();
		times[1] = i ? times[1] : times[2];
		if (run_busy_tell(busy, note, sizeof(note)))
			fprintf(stderr, "dtrain-generate: %s\n", note);
		if (status == BETON_OK && writes && !first->end)
			status = put_tokens(words, first, count, first->count, err);
	}
	for (int64_t k = 0; k < wanted && writes && status == BETON_OK; k++) {
		const struct text *text = &batch->texts[k];
		status = k ? put_tokens(words, text, 0, text->end ? text->end : text->count, err) : BETON_OK;
		if (status == BETON_OK)
			status = put_end(err);
	}
	if (status == BETON_OK && writes && options->speed)
		print_speed(model, batch, drawn, times);
	return status;
}

/* Each with the prompt of the first. */
static int make_texts(const generate_model *model, const struct text *prompt, struct batch *out, beton_error *err)
{
	size_t count = (size_t)model->texts;
	int status = BETON_OK;
	out->texts = calloc(count, sizeof(*out->texts));
	out->tokens = calloc(count, sizeof(*out->tokens));
	out->logits = calloc(count * (size_t)model->description.vocabulary, sizeof(*out->logits));
	out->drawn = calloc(count, sizeof(*out->drawn));
	if (!out->texts || !out->tokens || !out->logits || !out->drawn)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the logits");
	out->count = model->texts;
	for (size_t k = 0; k < count; k++) {
		for (size_t i = 0; i < prompt->count && status == BETON_OK; i++)
			status = add_token(&out->texts[k], prompt->tokens[i], err);
		out->texts[k].prompt = prompt->count;
	}
	return status;
}

static void free_texts(struct batch *batch)
{
	for (int64_t k = 0; k < batch->count; k++)
		free(batch->texts[k].tokens);
	free(batch->texts);
	free(batch->tokens);
	free(batch->logits);
	free(batch->drawn);
}

static int open_vocabulary(const struct options *options, int64_t limit, tokenizer **out, beton_error *err)
{
	*out = NULL;
#ifdef HAVE_TOKENIZER
	if (!options->vocabulary)
		return BETON_OK;
	int status = tokenizer_open(out, options->vocabulary, err);
	if (status == BETON_OK && tokenizer_vocabulary(*out) > limit)
		status = bt_fail(err, BETON_MISMATCH, "%s: has %u tokens, more than the model's %lld",
				 options->vocabulary, tokenizer_vocabulary(*out), (long long)limit);
	if (status != BETON_OK)
		bt_prefix(err, "--tokenizer");
	return status;
#else
	(void)options;
	(void)limit;
	(void)err;
	return BETON_OK;
#endif
}

static void watch_cores(const generate_model *model, run_busy *busy)
{
	dtrain_device_caps caps;
	dtrain_device_get_api(model->device)->caps(model->device, &caps);
	if (caps.host_memory)
		run_busy_start(busy, caps.threads);
}

static void print_memory(const generate_model *model)
{
	dtrain_params_memory memory = {.struct_size = sizeof(memory)};
	dtrain_params_get_memory(model->params, &memory);
	fprintf(stderr, "dtrain-generate: %.3f MB of weights, %.3f MB of keys and values\n",
		(double)(memory.values + memory.buffers) / 1e6, (double)model->cache_bytes / 1e6);
}

static int open_mesh(const struct options *options, struct ranks *ranks, dtrain_device *device, beton_error *err)
{
	/* Neighbouring ranks divide the layers, since they wait for each other in every layer. */
	const dtrain_mesh_axis axes[] = {{.name = "pipeline", .size = (int)options->stages},
					 {.name = "replicate", .size = 1},
					 {.name = "tensor", .size = (int)options->ranks}};
	int status = rank_team_join_device(ranks->team, device, options->share_device, err);
	return status == BETON_OK ? dtrain_mesh_create(ranks->team->device_group, axes, 3, &ranks->mesh, err) : status;
}

static int open_model(const struct options *options, struct ranks *ranks, generate_model *model, beton_error *err)
{
	dtrain_device_options device_options = {.struct_size = sizeof(device_options),
						.threads = (int32_t)options->threads};
	dtrain_device *device = NULL;
	int status = generate_model_open(model, options->weights, options->model, err);
	if (status == BETON_OK && !options->threads)
		device_options.threads = generate_model_threads(model, (int64_t)options->texts, options->ranks);
	if (status == BETON_OK)
		status = run_open_device(&options->device, &ranks->team->env, options->share_device, &device_options,
					 &device, err);
	model->device = device;
	if (status == BETON_OK && rank_team_shares(ranks->team))
		status = open_mesh(options, ranks, device, err);
	if (status == BETON_OK)
		status = generate_model_load(model, device, ranks->mesh, (int64_t)options->texts, err);
	if (status == BETON_OK && options->speed)
		print_memory(model);
	return status;
}

static int generate_all(const struct options *options, generate_model *model, const struct ranks *ranks,
			beton_error *err)
{
	tokenizer *words = NULL;
	struct text prompt = {0};
	struct batch batch = {0};
	run_busy busy = {0};
	int status = open_vocabulary(options, model->description.vocabulary, &words, err);
	if (status == BETON_OK)
		status = read_prompt(options, model, words, &prompt, err);
	if (status == BETON_OK)
		status = make_texts(model, &prompt, &batch, err);
	if (status == BETON_OK)
		watch_cores(model, &busy);
	for (uint64_t i = 0; i < options->texts && status == BETON_OK; i += (uint64_t)batch.count) {
		uint64_t left = options->texts - i;
		status = generate(options, model, ranks, words, &batch, i,
				  left < (uint64_t)batch.count ? (int64_t)left : batch.count, &busy, err);
	}
	free_texts(&batch);
	free(prompt.tokens);
#ifdef HAVE_TOKENIZER
	tokenizer_close(&words);
#endif
	return status;
}

static void say(const char *line)
{
	fprintf(stderr, "dtrain-generate: %s\n", line);
}

static int run_rank(const struct options *options, rank_team *team)
{
	struct ranks ranks = {.team = team, .draws = (int)((options->stages - 1) * options->ranks)};
	generate_model model = {0};
	beton_error err = {0};
	int status = rank_team_meet(team, say, &err);
	if (status == BETON_OK)
		status = open_model(options, &ranks, &model, &err);
	if (status == BETON_OK)
		status = generate_all(options, &model, &ranks, &err);
	/* A rank may still compute the last token. */
	if (status == BETON_OK)
		status = rank_team_wait(team, &err);
	if (status != BETON_OK)
		rank_team_fail(team, &err);
	generate_model_disconnect(&model);
	dtrain_mesh_destroy(&ranks.mesh);
	rank_team_leave(team);
	generate_model_close(&model);
	return rank_team_end(team, "dtrain-generate", status, &err);
}

static int run(struct options *options, char **argv)
{
	beton_error err = {0};
	rank_team team;
	bool launches = false;
	int64_t size = options->stages * options->ranks, threads = (int64_t)options->threads;
	int status = rank_team_find(&team, options->mesh || options->world_size ? size : 0, &launches, &err);
	if (status == BETON_OK && team.env.started && team.env.world_size != size)
		status = bt_fail(&err, BETON_INVALID_ARGUMENT,
				 "%d ranks: --mesh says how they divide the model, such as tensor=%d",
				 team.env.world_size, team.env.world_size);
	if (status != BETON_OK)
		return bt_program_error("dtrain-generate", &err);
	/* Threads meet a hundred times a token: a spinning one has the core that another process has taken from a
	 * thread it waits for. */
	if (!team.env.store_hosted && threads != 1 && team.cores.machine > 1)
		run_set_passive_wait(!launches, argv);
	return launches ? rank_team_launch(&team, "dtrain-generate", size, threads, 0, argv) : run_rank(options, &team);
}

int main(int argc, char **argv)
{
	struct options options = {.sample = {.temperature = 1, .top_p = 1},
				  .count = 100,
				  .texts = 1,
				  .device = {.name = "auto", .index = -1}};
	beton_error err = {0};
	int option;
	bool seen[sizeof(long_options) / sizeof(long_options[0])] = {false};
	signal(SIGPIPE, SIG_IGN);
	while ((option = bt_getopt_once(argc, argv, "m:t:p:i:n:r:s:T:k:P:d:j:M:w:vhV", long_options, seen)) != -1) {
		if (option == '?')
			return bt_usage_error("dtrain-generate", NULL);
		if (option == 'h' || option == 'V') {
			fputs(option == 'h' ? usage_text : "dtrain-generate " DTRAIN_VERSION "\n", stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if (parse_value(option, &options, &err) != BETON_OK)
			return bt_usage_error("dtrain-generate", err.message);
	}
	if (argc - optind != 1)
		return bt_usage_error("dtrain-generate", "expected WEIGHTS");
	options.weights = argv[optind];
	if (find_problem(&options))
		return bt_usage_error("dtrain-generate", find_problem(&options));
	if (read_mesh(&options, &err) != BETON_OK)
		return bt_usage_error("dtrain-generate", err.message);
	return run(&options, argv);
}
