/* SPDX-License-Identifier: Apache-2.0 */
#include "options_table.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dtrain/comm.h>

#include "common/system.h"

static const char *const schedules[] = {
	[DTRAIN_SCHEDULE_CONSTANT] = "constant",
	[DTRAIN_SCHEDULE_LINEAR] = "linear",
	[DTRAIN_SCHEDULE_COSINE] = "cosine",
	NULL,
};
static const char *const precisions[] = {
	[RUN_PRECISION_F32] = "f32",
	[RUN_PRECISION_TF32] = "tf32",
	[RUN_PRECISION_BF16] = "bf16",
	[RUN_PRECISION_FP16] = "fp16",
	NULL,
};
static const char *const orders[] = {
	[BETON_ORDER_SEQUENTIAL] = "sequential",
	[BETON_ORDER_RANDOM] = "random",
	NULL,
};
static const char *const crops[] = {
	[BETON_CROP_NONE] = "none",
	[BETON_CROP_RANDOM] = "random",
	[BETON_CROP_CENTER] = "center",
	NULL,
};
static const char *const flip_modes[] = {
	[BETON_FLIP_RANDOM] = "random",
	[BETON_FLIP_ALTERNATE] = "alternate",
	NULL,
};
static const char *const fills[] = {
	[RUN_FILL_MEAN] = "mean",
	[RUN_FILL_REFLECT] = "reflect",
	NULL,
};
static const char *const ttas[] = {
	[RUN_TTA_NONE] = "none",
	[RUN_TTA_FLIP] = "flip",
	[RUN_TTA_FLIP_SHIFT] = "flip-shift",
	NULL,
};

static const char *const flags[] = {"no", "yes", NULL};
static const char *const resumes[] = {
	[RUN_RESUME_NO] = "no",
	[RUN_RESUME_YES] = "yes",
	[RUN_RESUME_AUTO] = "auto",
	NULL,
};

#define AT(member) offsetof(run_options, member)
#define GROUP(text)                                                       \
	{                                                                 \
		.name = text, .kind = OPTION_GROUP, .change = OPTION_FREE \
	}
#define ROW(title, change_, type, member, value, help, ...)                                                            \
	{                                                                                                              \
		.name = title, .argument = value, .text = help, .kind = type, .change = change_, .offset = AT(member), \
		__VA_ARGS__                                                                                            \
	}
#define TEXT(name, change, member, argument, text) \
	ROW(name, OPTION_##change, OPTION_TEXT, member, argument, text, .none = false)
#define PATH(name, change, member, argument, text) \
	ROW(name, OPTION_##change, OPTION_PATH, member, argument, text, .none = false)
#define OPTIONAL_PATH(name, change, member, argument, text) \
	ROW(name, OPTION_##change, OPTION_PATH, member, argument, text, .none = true)
#define WHOLE(name, change, member, argument, low, high, text) \
	ROW(name, OPTION_##change, OPTION_WHOLE, member, argument, text, .least = low, .most = high)
#define SEED(name, change, member, argument, text) \
	ROW(name, OPTION_##change, OPTION_SEED, member, argument, text, .least = 0)
#define REALS(name, change, member, argument, number, low, high, text) \
	ROW(name, OPTION_##change, OPTION_REALS, member, argument, text, .count = number, .least = low, .most = high)
#define CHOICE(name, change, member, argument, list, text) \
	ROW(name, OPTION_##change, OPTION_CHOICE, member, argument, text, .choices = list)
#define FLAG(name, change, member, text) ROW(name, OPTION_##change, OPTION_FLAG, member, NULL, text, .choices = flags)
#define SWITCH(name, change, member, list, argument, text) \
	ROW(name, OPTION_##change, OPTION_SWITCH, member, argument, text, .choices = list)

const option_row run_rows[] = {
	GROUP("Data and model"),
	PATH("data", PLACE, data, "FILE", "training set, a .beton file with pictures and labels (required)"),
	OPTIONAL_PATH("val", PLACE, val, "FILE", "validation set; none: no evaluation"),
	TEXT("recipe", FIXED, recipe, "NAME", "airbench94 or ffcv-cifar: the values below, for all that is not given"),
	TEXT("model", FIXED, model, "NAME", "mlp, airbench94, resnet9, resnet20, resnet18, resnet50 (required)"),
	WHOLE("classes", FREE, classes, "N", 1, 1000000,
	      "classes of the model (default: the data's highest label + 1)"),
	WHOLE("image-size", TOLD, image_size, "N", 1, 4096, "pictures are made N x N pixels (default 224)"),

	GROUP("Length"),
	REALS("epochs", TOLD, epochs, "X", 1, 1e-6, 1e6, "train X epochs, in whole steps; this or --steps is required"),
	WHOLE("steps", TOLD, steps, "N", 1, RUN_STEPS_MAX, "train N steps, over as many epochs as that takes"),
	WHOLE("batch-size", TOLD, batch_size, "N", 1, 65536, "pictures per rank and step (default 64)"),

	GROUP("Ranks and device"),
	WHOLE("world-size", TOLD, world_size, "N", 1, DTRAIN_MAX_RANKS, "start N ranks on this machine (default 1)"),
	TEXT("device", PLACE, device, "NAME[:INDEX]", "cuda, cpu, ref or auto, the fastest there is (default auto)"),
	CHOICE("precision", TOLD, precision, "NAME", precisions,
	       "f32, tf32, bf16 or fp16, for what is computed (default f32)"),
	FLAG("deterministic", TOLD, deterministic,
	     "the same bits in each run on the same device, where that is slower"),
	FLAG("no-capture", FREE, no_capture, "put each step on a GPU op by op, not as a whole"),
	FLAG("share-device", FREE, share_device, "let several ranks use one GPU"),
	WHOLE("threads", PLACE, threads, "N", 0, 4096, "compute threads per rank; 0 = its cores (default 0)"),
	WHOLE("workers", FREE, workers, "N", 0, 4096, "loader threads per rank; 0 = its cores (default 0)"),
	WHOLE("master-port", FREE, master_port, "N", 0, 65535, "port where ranks meet; 0 = a free one (default 0)"),
	TEXT("interface", FREE, interface, "NAME",
	     "network interface between ranks (default: the one on the way to rank 0's machine)"),
	REALS("timeout", FREE, timeout, "SECONDS", 1, 1, 86400, "longest wait for another rank in a step (default 30)"),

	GROUP("Optimizer: SGD"),
	REALS("lr", TOLD, lr, "X", 1, 0, FLT_MAX, "learning rate (default 0.1)"),
	CHOICE("schedule", TOLD, schedule, "NAME", schedules, "constant, linear or cosine (default cosine)"),
	REALS("initial-lr", TOLD, initial_lr, "X", 1, 1e-12, FLT_MAX,
	      "of the first step, where the warm-up begins (default: --lr / its steps)"),
	REALS("final-lr", TOLD, final_lr, "X", 1, 0, FLT_MAX, "where linear and cosine end (default 0)"),
	REALS("warmup-epochs", TOLD, warmup_epochs, "X", 1, 0, 1e6, "the rate rises for that long (default 0)"),
	WHOLE("warmup-steps", TOLD, warmup_steps, "N", 0, RUN_STEPS_MAX, "the same in steps (default 0)"),
	REALS("warmup-share", TOLD, warmup_share, "X", 1, 0, 1, "the same as a share of the run (default 0)"),
	REALS("momentum", TOLD, momentum, "X", 1, 0, 1 - DBL_EPSILON, "momentum (default 0.9)"),
	FLAG("nesterov", TOLD, nesterov, "Nesterov's form of it"),
	REALS("weight-decay", TOLD, weight_decay, "X", 1, 0, FLT_MAX, "of the parameters (default 1e-4)"),
	REALS("bias-lr-scale", TOLD, bias_lr_scale, "X", 1, 1e-6, 1e6,
	      "times --lr: of biases and batch norm; their decay is by so much less (default 1)"),
	FLAG("no-bias-decay", TOLD, no_bias_decay, "no weight decay of biases and batch norm"),
	WHOLE("lookahead", SWITCHED, lookahead, "N", 0, 1e6,
	      "every N steps go back to slow weights; 0 = never (default 0)"),
	REALS("whiten-bias-epochs", TOLD, whiten_bias_epochs, "X", 1, 0, 1e6,
	      "airbench94 trains its first layer's bias for that long (default 3)"),
	REALS("label-smoothing", TOLD, label_smoothing, "X", 1, 0, 1, "in the training loss (default 0)"),
	SEED("seed", FIXED, seed, "N", "of weights, order and augmentation (default 0)"),

	GROUP("Pictures"),
	CHOICE("order", FIXED, order, "NAME", orders, "of the training set: random or sequential (default random)"),
	CHOICE("crop", TOLD, crop, "NAME", crops, "random (resized), center or none, in training (default random)"),
	REALS("crop-scale", TOLD, crop_scale, "MIN,MAX", 2, 1e-6, 1,
	      "random crop's share of the area (default 0.08,1)"),
	REALS("crop-ratio", TOLD, crop_ratio, "MIN,MAX", 2, 1e-3, 1e3,
	      "random crop's width / height (default 0.75,1.3333)"),
	REALS("flip", TOLD, flip, "P", 1, 0, 1, "chance of a left-right flip in training (default 0.5)"),
	CHOICE("flip-mode", TOLD, flip_mode, "NAME", flip_modes,
	       "random, or alternate: every picture's other side in every other epoch (default random)"),
	WHOLE("translate", TOLD, translate, "N", 0, 4096, "moves training pictures by up to N pixels (default 0)"),
	CHOICE("translate-fill", TOLD, translate_fill, "NAME", fills,
	       "what a move uncovers: the mean, or reflect, the picture mirrored (default mean)"),
	WHOLE("cutout", TOLD, cutout, "N", 0, 4096, "covers a square of N x N pixels of training pictures (default 0)"),
	REALS("val-ratio", TOLD, val_ratio, "X", 1, 1e-6, 1,
	      "validation's centre crop: share of the shorter side (default 0.875)"),
	CHOICE("tta", TOLD, tta, "NAME", ttas,
	       "evaluation's views: none, flip (and the mirror image), flip-shift (and both moved) (default none)"),
	REALS("mean", TOLD, mean, "R,G,B", 3, -1e6, 1e6,
	      "subtracted, on the scale 0..255 (default 123.675,116.28,103.53)"),
	REALS("std", TOLD, std, "R,G,B", 3, 1e-6, 1e6, "then divided by (default 58.395,57.12,57.375)"),

	GROUP("Output"),
	/* torchrun takes what its own options begin with for them, and has --log-dir. */
	ROW("log", OPTION_FREE, OPTION_PATH, log, "FILE", "a line of JSON for each step and evaluation (or --log-file)",
	    .none = true, .alias = "log-file"),
	WHOLE("val-every", TOLD, val_every, "N", 1, 1e6, "evaluate every N epochs, and at the end (default 1)"),
	PATH("checkpoint", FREE, checkpoint, "DIR", "write checkpoints there, at each epoch's end and at the end"),
	WHOLE("checkpoint-every", TOLD, checkpoint_every, "N", 0, RUN_STEPS_MAX,
	      "and every N steps; 0 = not (default 0)"),
	WHOLE("keep-checkpoints", FREE, keep_checkpoints, "N", 0, 1e6, "keep the newest N; 0 = all (default 3)"),
	SWITCH("resume", FREE, resume, resumes, "auto",
	       "go on from the newest checkpoint of --checkpoint, with the options it was saved with; auto: or begin"),
	FLAG("help", FREE, help, "show this and exit (-h)"),
	FLAG("version", FREE, version, "show the version and exit (-V)"),
};

const int run_row_count = sizeof(run_rows) / sizeof(run_rows[0]);

_Static_assert(sizeof(run_rows) / sizeof(run_rows[0]) <= RUN_ROWS_MAX, "RUN_ROWS_MAX is too small");

static int parse_reals(const option_row *row, const char *what, const char *text, double *out, beton_error *err)
{
	char *copy = strdup(text);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", what);
	int result = BETON_OK;
	char *rest = copy;
	for (int i = 0; i < row->count && result == BETON_OK; i++) {
		char *part = i + 1 < row->count ? strsep(&rest, ",") : rest;
		if (!rest || !part)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not %s", what, text, row->argument);
		else
			result = bt_parse_double(what, part, row->least, row->most, &out[i], err);
	}
	free(copy);
	return result;
}

static int parse_choice(const option_row *row, const char *what, const char *text, int *out, beton_error *err)
{
	char list[128] = "";
	for (int i = 0; row->choices[i]; i++) {
		if (strcmp(row->choices[i], text) == 0) {
			*out = i;
			return BETON_OK;
		}
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", row->choices[i]);
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not one of %s", what, text, list);
}

int run_row_parse(const option_row *row, const char *text, run_options *options, beton_error *err)
{
	char what[64];
	void *member = (char *)options + row->offset;
	uint64_t whole;
	int choice = 0;
	int result = BETON_OK;
	snprintf(what, sizeof(what), "--%s", row->name);
	switch (row->kind) {
	case OPTION_TEXT:
	case OPTION_PATH:
		if (!*text && !row->none)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is empty", what);
		*(const char **)member = *text ? text : NULL;
		return BETON_OK;
	case OPTION_WHOLE:
		result = bt_parse_u64(what, text, (uint64_t)row->least, (uint64_t)row->most, &whole, err);
		if (result == BETON_OK)
			*(int64_t *)member = (int64_t)whole;
		return result;
	case OPTION_SEED:
		return bt_parse_u64(what, text, 0, UINT64_MAX, member, err);
	case OPTION_REALS:
		return parse_reals(row, what, text, member, err);
	case OPTION_CHOICE:
		return parse_choice(row, what, text, member, err);
	case OPTION_FLAG:
		result = parse_choice(row, what, text ? text : "yes", &choice, err);
		if (result == BETON_OK)
			*(bool *)member = choice != 0;
		return result;
	case OPTION_SWITCH:
		return parse_choice(row, what, text ? text : "yes", member, err);
	case OPTION_GROUP:
		break;
	}
	return result;
}

/* The fewest digits that are the same number again. */
static void append_real(char *text, size_t size, double value)
{
	char digits[32];
	for (int precision = 6; precision <= 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	bt_append(text, size, "%s%s", *text ? "," : "", digits);
}

static char *full_path(const char *path)
{
	while (strncmp(path, "./", 2) == 0)
		path += 2 + strspn(path + 2, "/");
	char *folder = *path == '/' ? NULL : getcwd(NULL, 0);
	char *full = folder ? bt_format("%s/%s", folder, path) : strdup(path);
	free(folder);
	return full;
}

/* What has a value; NULL without memory. */
static char *text_of(const option_row *row, const void *member)
{
	char text[128] = "";
	switch (row->kind) {
	case OPTION_TEXT:
		return strdup(*(const char *const *)member);
	case OPTION_PATH:
		return full_path(*(const char *const *)member);
	case OPTION_WHOLE:
		return bt_format("%" PRId64, *(const int64_t *)member);
	case OPTION_SEED:
		return bt_format("%" PRIu64, *(const uint64_t *)member);
	case OPTION_REALS:
		for (int i = 0; i < row->count; i++)
			append_real(text, sizeof(text), ((const double *)member)[i]);
		return strdup(text);
	case OPTION_CHOICE:
	case OPTION_SWITCH:
		return strdup(row->choices[*(const int *)member]);
	case OPTION_FLAG:
		return strdup(row->choices[*(const bool *)member]);
	case OPTION_GROUP:
		break;
	}
	return strdup("");
}

/* Not given, and without a default: a number below the least that could be given. */
static bool is_none(const option_row *row, const void *member)
{
	switch (row->kind) {
	case OPTION_TEXT:
	case OPTION_PATH:
		return !*(const char *const *)member;
	case OPTION_WHOLE:
		return (double)*(const int64_t *)member < row->least;
	case OPTION_REALS:
		return row->count == 1 && *(const double *)member < row->least;
	default:
		return false;
	}
}

int run_row_text(const option_row *row, const run_options *options, char **out, beton_error *err)
{
	const void *member = (const char *)options + row->offset;
	*out = NULL;
	if (is_none(row, member))
		return BETON_OK;
	*out = text_of(row, member);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "--%s: out of memory", row->name);
}

int run_row_find(const char *name)
{
	for (int i = 0; i < run_row_count; i++)
		if (run_rows[i].kind != OPTION_GROUP && strcmp(run_rows[i].name, name) == 0)
			return i;
	return -1;
}
