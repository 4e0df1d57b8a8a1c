/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <float.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/device.h>
#include <dtrain/model.h>

#include "common/system.h"
#include "recipes.h"

typedef enum option_kind {
	OPTION_GROUP, /* a heading of --help */
	OPTION_TEXT,
	OPTION_WHOLE, /* int64_t */
	OPTION_SEED,  /* uint64_t */
	OPTION_REALS, /* double [count] */
	OPTION_CHOICE,
	OPTION_FLAG,
} option_kind;

typedef struct option_row {
	const char *name;
	const char *argument;
	const char *text; /* for --help */
	option_kind kind;
	size_t offset;
	double least, most;
	int count;                  /* of reals */
	const char *const *choices; /* the index is the value */
} option_row;

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

#define AT(member) offsetof(run_options, member)
#define GROUP(text)                                              \
	{                                                        \
		text, NULL, NULL, OPTION_GROUP, 0, 0, 0, 0, NULL \
	}
#define TEXT(name, member, argument, text)                                   \
	{                                                                    \
		name, argument, text, OPTION_TEXT, AT(member), 0, 0, 0, NULL \
	}
#define WHOLE(name, member, argument, least, most, text)                             \
	{                                                                            \
		name, argument, text, OPTION_WHOLE, AT(member), least, most, 0, NULL \
	}
#define REALS(name, member, argument, count, least, most, text)                          \
	{                                                                                \
		name, argument, text, OPTION_REALS, AT(member), least, most, count, NULL \
	}
#define CHOICE(name, member, argument, choices, text)                             \
	{                                                                         \
		name, argument, text, OPTION_CHOICE, AT(member), 0, 0, 0, choices \
	}
#define FLAG(name, member, text)                                         \
	{                                                                \
		name, NULL, text, OPTION_FLAG, AT(member), 0, 0, 0, NULL \
	}

static const option_row rows[] = {
	GROUP("Data and model"),
	TEXT("data", data, "FILE", "training set, a .beton file with pictures and labels (required)"),
	TEXT("val", val, "FILE", "validation set; none: no evaluation"),
	TEXT("recipe", recipe, "NAME", "airbench94 or ffcv-cifar: the values below, for all that is not given"),
	TEXT("model", model, "NAME", "mlp, airbench94, resnet9, resnet20, resnet18, resnet50 (required)"),
	WHOLE("classes", classes, "N", 1, 1000000, "classes of the model (default: the data's highest label + 1)"),
	WHOLE("image-size", image_size, "N", 1, 4096, "pictures are made N x N pixels (default 224)"),

	GROUP("Length"),
	REALS("epochs", epochs, "X", 1, 1e-6, 1e6, "train X epochs, in whole steps; this or --steps is required"),
	WHOLE("steps", steps, "N", 1, RUN_STEPS_MAX, "train N steps, over as many epochs as that takes"),
	WHOLE("batch-size", batch_size, "N", 1, 65536, "pictures per rank and step (default 64)"),

	GROUP("Ranks and device"),
	WHOLE("world-size", world_size, "N", 1, 4096, "start N ranks on this machine (default 1)"),
	TEXT("device", device, "NAME[:INDEX]", "cuda, cpu, ref or auto, the fastest there is (default auto)"),
	CHOICE("precision", precision, "NAME", precisions,
	       "f32, tf32, bf16 or fp16, for what is computed (default f32)"),
	FLAG("deterministic", deterministic, "the same bits in each run on the same device, where that is slower"),
	FLAG("no-capture", no_capture, "put each step on a GPU op by op, not as a whole"),
	FLAG("share-device", share_device, "let several ranks use one GPU"),
	WHOLE("threads", threads, "N", 0, 4096, "compute threads per rank; 0 = its cores (default 0)"),
	WHOLE("workers", workers, "N", 0, 4096, "loader threads per rank; 0 = its cores (default 0)"),
	WHOLE("master-port", master_port, "N", 0, 65535, "port where ranks meet; 0 = a free one (default 0)"),
	REALS("timeout", timeout, "SECONDS", 1, 1, 86400, "longest wait for another rank in a step (default 30)"),

	GROUP("Optimizer: SGD"),
	REALS("lr", lr, "X", 1, 0, FLT_MAX, "learning rate (default 0.1)"),
	CHOICE("schedule", schedule, "NAME", schedules, "constant, linear or cosine (default cosine)"),
	REALS("initial-lr", initial_lr, "X", 1, 1e-12, FLT_MAX,
	      "of the first step, where the warm-up begins (default: --lr / its steps)"),
	REALS("final-lr", final_lr, "X", 1, 0, FLT_MAX, "where linear and cosine end (default 0)"),
	REALS("warmup-epochs", warmup_epochs, "X", 1, 0, 1e6, "the rate rises for that long (default 0)"),
	WHOLE("warmup-steps", warmup_steps, "N", 0, RUN_STEPS_MAX, "the same in steps (default 0)"),
	REALS("warmup-share", warmup_share, "X", 1, 0, 1, "the same as a share of the run (default 0)"),
	REALS("momentum", momentum, "X", 1, 0, 1 - DBL_EPSILON, "momentum (default 0.9)"),
	FLAG("nesterov", nesterov, "Nesterov's form of it"),
	REALS("weight-decay", weight_decay, "X", 1, 0, FLT_MAX, "of the parameters (default 1e-4)"),
	REALS("bias-lr-scale", bias_lr_scale, "X", 1, 1e-6, 1e6,
	      "times --lr: of biases and batch norm; their decay is by so much less (default 1)"),
	FLAG("no-bias-decay", no_bias_decay, "no weight decay of biases and batch norm"),
	WHOLE("lookahead", lookahead, "N", 0, 1e6, "every N steps go back to slow weights; 0 = never (default 0)"),
	REALS("whiten-bias-epochs", whiten_bias_epochs, "X", 1, 0, 1e6,
	      "airbench94 trains its first layer's bias for that long (default 3)"),
	REALS("label-smoothing", label_smoothing, "X", 1, 0, 1, "in the training loss (default 0)"),
	{"seed", "N", "of weights, order and augmentation (default 0)", OPTION_SEED, AT(seed), 0, 0, 0, NULL},

	GROUP("Pictures"),
	CHOICE("order", order, "NAME", orders, "of the training set: random or sequential (default random)"),
	CHOICE("crop", crop, "NAME", crops, "random (resized), center or none, in training (default random)"),
	REALS("crop-scale", crop_scale, "MIN,MAX", 2, 1e-6, 1, "random crop's share of the area (default 0.08,1)"),
	REALS("crop-ratio", crop_ratio, "MIN,MAX", 2, 1e-3, 1e3, "random crop's width / height (default 0.75,1.3333)"),
	REALS("flip", flip, "P", 1, 0, 1, "chance of a left-right flip in training (default 0.5)"),
	CHOICE("flip-mode", flip_mode, "NAME", flip_modes,
	       "random, or alternate: every picture's other side in every other epoch (default random)"),
	WHOLE("translate", translate, "N", 0, 4096, "moves training pictures by up to N pixels (default 0)"),
	CHOICE("translate-fill", translate_fill, "NAME", fills,
	       "what a move uncovers: the mean, or reflect, the picture mirrored (default mean)"),
	WHOLE("cutout", cutout, "N", 0, 4096, "covers a square of N x N pixels of training pictures (default 0)"),
	REALS("val-ratio", val_ratio, "X", 1, 1e-6, 1,
	      "validation's centre crop: share of the shorter side (default 0.875)"),
	CHOICE("tta", tta, "NAME", ttas,
	       "evaluation's views: none, flip (and the mirror image), flip-shift (and both moved) (default none)"),
	REALS("mean", mean, "R,G,B", 3, -1e6, 1e6, "subtracted, on the scale 0..255 (default 123.675,116.28,103.53)"),
	REALS("std", std, "R,G,B", 3, 1e-6, 1e6, "then divided by (default 58.395,57.12,57.375)"),

	GROUP("Output"),
	TEXT("log", log, "FILE", "a line of JSON for each step and evaluation"),
	WHOLE("val-every", val_every, "N", 1, 1e6, "evaluate every N epochs, and at the end (default 1)"),
	TEXT("checkpoint", checkpoint, "DIR", "write checkpoints there, at each epoch's end and at the end"),
	WHOLE("checkpoint-every", checkpoint_every, "N", 1, RUN_STEPS_MAX, "and every N steps"),
	WHOLE("keep-checkpoints", keep_checkpoints, "N", 0, 1e6, "keep the newest N; 0 = all (default 3)"),
	FLAG("resume", resume, "go on from the newest checkpoint of --checkpoint"),
	FLAG("help", help, "show this and exit (-h)"),
	FLAG("version", version, "show the version and exit (-V)"),
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]), FIRST_OPTION = 256, HELP_COLUMNS = 110 };

static void set_defaults(run_options *options)
{
	*options = (run_options){
		.device = "auto",
		.world_size = 1,
		.timeout = 30,
		.batch_size = 64,
		.image_size = 224,
		.lr = 0.1,
		.momentum = 0.9,
		.weight_decay = 1e-4,
		.whiten_bias_epochs = 3,
		.bias_lr_scale = 1,
		.schedule = DTRAIN_SCHEDULE_COSINE,
		.order = BETON_ORDER_RANDOM,
		.crop = BETON_CROP_RANDOM,
		.crop_scale = {0.08, 1},
		.crop_ratio = {3.0 / 4, 4.0 / 3},
		.val_ratio = 224.0 / 256,
		.flip = 0.5,
		.mean = {123.675, 116.28, 103.53},
		.std = {58.395, 57.12, 57.375},
		.val_every = 1,
		.keep_checkpoints = 3,
	};
}

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

static int parse_value(const option_row *row, const char *text, run_options *options, beton_error *err)
{
	char what[64];
	void *member = (char *)options + row->offset;
	uint64_t whole;
	int result = BETON_OK;
	snprintf(what, sizeof(what), "--%s", row->name);
	switch (row->kind) {
	case OPTION_TEXT:
		if (!*text)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is empty", what);
		*(const char **)member = text;
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
		*(bool *)member = true;
		return BETON_OK;
	case OPTION_GROUP:
		break;
	}
	return result;
}

static int check_names(run_options *options, beton_error *err)
{
	char list[160] = "";
	bool known = false;
	for (int i = 0; dtrain_model_name(i); i++) {
		known = known || strcmp(dtrain_model_name(i), options->model) == 0;
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", dtrain_model_name(i));
	}
	if (!known)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--model: '%s' is not one of %s", options->model, list);
	int result = run_parse_device(options->device, &options->chosen, err);
	dtrain_device *none;
	if (result != BETON_OK || dtrain_device_find(options->chosen.name))
		return result;
	/* Opening what is not there says why it is not. */
	result = dtrain_device_open(options->chosen.name, NULL, &none, err);
	bt_prefix(err, "--device");
	return result;
}

static bool has_warmup(const run_options *options)
{
	return options->warmup_epochs > 0 || options->warmup_steps > 0 || options->warmup_share > 0;
}

static int check_together(run_options *options, beton_error *err)
{
	const char *problem = NULL;
	if (!options->data)
		problem = "--data is missing";
	else if (!options->model)
		problem = "--model is missing";
	else if (!options->epochs == !options->steps)
		problem = "give either --epochs or --steps";
	else if ((options->warmup_epochs > 0) + (options->warmup_steps > 0) + (options->warmup_share > 0) > 1)
		problem = "give one of --warmup-epochs, --warmup-steps and --warmup-share";
	else if (options->initial_lr > 0 && !has_warmup(options))
		problem = "--initial-lr needs a warm-up: --warmup-epochs, --warmup-steps or --warmup-share";
	else if (options->crop_scale[0] > options->crop_scale[1])
		problem = "--crop-scale: MIN is above MAX";
	else if (options->crop_ratio[0] > options->crop_ratio[1])
		problem = "--crop-ratio: MIN is above MAX";
	else if (options->translate >= options->image_size)
		problem = "--translate is not below --image-size";
	else if (options->flip_mode == BETON_FLIP_ALTERNATE && options->flip == 0)
		problem = "--flip-mode alternate needs a --flip above 0";
	else if (options->cutout > options->image_size)
		problem = "--cutout is above --image-size";
	else if (options->tta != RUN_TTA_NONE && !options->val)
		problem = "--tta needs --val";
	else if (options->tta == RUN_TTA_FLIP_SHIFT && options->image_size < 2)
		problem = "--tta flip-shift needs an --image-size above 1";
	else if (options->nesterov && options->momentum == 0)
		problem = "--nesterov needs a --momentum above 0";
	else if (options->resume && !options->checkpoint)
		problem = "--resume needs --checkpoint";
	else if (options->checkpoint_every && !options->checkpoint)
		problem = "--checkpoint-every needs --checkpoint";
	return problem ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s", problem) : check_names(options, err);
}

/* What getopt knows, made of the rows, and which of them the command line has. */
struct option_table {
	struct option entries[ROWS + 1];
	const option_row *rows[ROWS];
	bool given[ROWS];
};

static void make_table(struct option_table *table)
{
	int entries = 0;
	*table = (struct option_table){0};
	for (int i = 0; i < ROWS; i++) {
		if (rows[i].kind == OPTION_GROUP)
			continue;
		/* Each its own value: getopt takes two options of one value as the same when a name is shortened. */
		table->entries[entries] =
			(struct option){rows[i].name, rows[i].kind == OPTION_FLAG ? no_argument : required_argument,
					NULL, FIRST_OPTION + entries};
		table->rows[entries++] = &rows[i];
	}
}

static int find_entry(const struct option_table *table, const char *name)
{
	for (int entry = 0; table->entries[entry].name; entry++) {
		if (strcmp(table->entries[entry].name, name) == 0)
			return entry;
	}
	return -1;
}

static bool is_given(const struct option_table *table, const char *name)
{
	int entry = find_entry(table, name);
	return entry >= 0 && table->given[entry];
}

static int parse_arguments(struct option_table *table, run_options *options, int argc, char **argv, beton_error *err)
{
	opterr = 0;
	optind = 0; /* glibc: start afresh, also when called a second time */
	for (int got; (got = getopt_long(argc, argv, ":hV", table->entries, NULL)) != -1;) {
		const char *given = argv[optind - 1];
		if (got == ':')
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: its value is missing", given);
		if (got == 'h')
			options->help = true;
		if (got == 'V')
			options->version = true;
		if (got < FIRST_OPTION && got != 'h' && got != 'V')
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no such option, or not clear which", given);
		if (got < FIRST_OPTION)
			continue;
		int result = parse_value(table->rows[got - FIRST_OPTION], optarg, options, err);
		if (result != BETON_OK)
			return result;
		table->given[got - FIRST_OPTION] = true;
	}
	return BETON_OK;
}

static const run_recipe *find_recipe(const char *name, beton_error *err)
{
	char list[128] = "";
	for (int i = 0; run_recipe_at(i); i++) {
		const char *other = run_recipe_at(i)->name;
		if (strcmp(other, name) == 0)
			return run_recipe_at(i);
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", other);
	}
	bt_fail(err, BETON_INVALID_ARGUMENT, "--recipe: '%s' is not one of %s", name, list);
	return NULL;
}

static int apply_recipe(const struct option_table *table, const char *name, run_options *options, beton_error *err)
{
	const run_recipe *recipe = find_recipe(name, err);
	int result = recipe ? BETON_OK : BETON_INVALID_ARGUMENT;
	for (const run_recipe_option *o = recipe ? recipe->options : NULL; o && o->name && result == BETON_OK; o++) {
		int entry = find_entry(table, o->name);
		result = entry >= 0 ? parse_value(table->rows[entry], o->value, options, err)
				    : bt_fail(err, BETON_STATE, "recipe %s: no option --%s", recipe->name, o->name);
	}
	return result;
}

/* The command line wins also where it says the same thing by another option, and where it leaves a value of the recipe
 * without meaning. What it says itself stays, for check_together() to judge. */
static void drop_void(const struct option_table *table, run_options *options)
{
	if (is_given(table, "steps") && !is_given(table, "epochs"))
		options->epochs = 0;
	if ((is_given(table, "warmup-steps") || is_given(table, "warmup-epochs")) && !is_given(table, "warmup-share"))
		options->warmup_share = 0;
	if (!has_warmup(options) && !is_given(table, "initial-lr"))
		options->initial_lr = 0;
	if (options->momentum == 0 && !is_given(table, "nesterov"))
		options->nesterov = false;
	if (options->flip == 0 && !is_given(table, "flip-mode"))
		options->flip_mode = BETON_FLIP_RANDOM;
	if (!options->val && !is_given(table, "tta"))
		options->tta = RUN_TTA_NONE;
}

int run_options_parse(run_options *options, int argc, char **argv, beton_error *err)
{
	struct option_table table;
	make_table(&table);
	set_defaults(options);
	int result = parse_arguments(&table, options, argc, argv, err);
	if (result != BETON_OK || options->help || options->version)
		return result;
	if (optind < argc)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "'%s': there is no argument without an option",
			       argv[optind]);
	if (options->recipe) {
		const char *recipe = options->recipe;
		set_defaults(options);
		result = apply_recipe(&table, recipe, options, err);
		if (result == BETON_OK)
			result = parse_arguments(&table, options, argc, argv, err);
		drop_void(&table, options);
	}
	return result == BETON_OK ? check_together(options, err) : result;
}

/* Lines of options, as they would stand on a command line. */
static void print_recipe(FILE *out, const run_recipe *recipe)
{
	int column = 0;
	fprintf(out, "  --recipe %s: %s\n", recipe->name, recipe->text);
	for (const run_recipe_option *o = recipe->options; o->name; o++) {
		char text[96];
		int length = snprintf(text, sizeof(text), " --%s%s%s", o->name, o->value ? " " : "",
				      o->value ? o->value : "");
		if (column == 0 || column + length > HELP_COLUMNS)
			column = fprintf(out, "%s   ", column ? "\n" : "");
		column += fprintf(out, "%s", text);
	}
	fputs("\n", out);
}

void run_options_help(FILE *out)
{
	fputs("Usage: dtrain-ffcv --data FILE --model NAME --epochs X|--steps N [OPTION...]\n"
	      "       dtrain-ffcv --data FILE --recipe NAME [OPTION...]\n"
	      "Trains an image classifier on a .beton file, on any number of ranks.\n",
	      out);
	for (int i = 0; i < ROWS; i++) {
		char left[64];
		if (rows[i].kind == OPTION_GROUP) {
			fprintf(out, "\n%s:\n", rows[i].name);
			continue;
		}
		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].argument ? " " : "",
			 rows[i].argument ? rows[i].argument : "");
		fprintf(out, "  %-24s %s\n", left, rows[i].text);
	}
	fputs("\nRecipes (--batch-size is for one rank: on N ranks give an N-th of it):\n", out);
	for (int i = 0; run_recipe_at(i); i++)
		print_recipe(out, run_recipe_at(i));
	fputs("\nExit status: 0 done, 1 failed, 2 wrong usage, 75 a rank whose peer was lost,\n"
	      "128 + N stopped by signal N.\n",
	      out);
}
