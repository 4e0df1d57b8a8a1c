/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-predict: classes, labels or numbers of pictures, by a trained model. */
#include <signal.h>
#include <string.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "launch/launcher.h"
#include "launch/signals.h"
#include "launch/wait_policy.h"
#include "predict.h"

static const char *const usage_text =
	"Usage: dtrain-predict [OPTION]... WEIGHTS DATA\n"
	"Classify pictures with a trained model. WEIGHTS is a checkpoint of dtrain-ffcv, a folder of checkpoints\n"
	"(the newest is used), a safetensors file, an index of several, or a folder of PyTorch's shards.\n"
	"DATA is a .beton file, a set of such files (NAME.betonset), a picture, or a folder with pictures. A line for\n"
	"each picture has its most probable classes or labels, or the model's numbers.\n"
	"\n"
	"  -o, --output=FILE        write to FILE (default: standard output)\n"
	"  -F, --force              replace FILE if it exists\n"
	"  -f, --format=json|csv    lines of JSON, or a table (default: csv if FILE ends in .csv, else json)\n"
	"  -k, --top=N              classes or labels of a picture; 0: all (default 5)\n"
	"  -S, --on-error=stop|skip end the program at a bad picture (default), or leave it out\n"
	"      --image-field=NAME   field with the pictures (default: image, or the first picture field)\n"
	"      --label-field=NAME   field with the labels, which are copied to the results (default: the model's, or "
	"label)\n"
	"\n"
	"These options replace WEIGHTS' own description of the model:\n"
	"  -m, --model=NAME|FILE    the model, or its config.json\n"
	"      --classes=N          classes that the model tells apart\n"
	"      --image-size=N       pictures are scaled to N x N pixels (else the model's size, or 224)\n"
	"      --val-ratio=X        side of the centre crop, as a share of the shorter side (else 0.875)\n"
	"      --mean=R,G,B         mean of each channel, 0..255 (else ImageNet's)\n"
	"      --std=R,G,B          standard deviation of each channel, 0..255 (else ImageNet's)\n"
	"\n"
	"  -a, --tta=NAME           test-time augmentation: none, flip, flip-shift (default none)\n"
	"  -b, --batch-size=N       pictures computed at once (default 64)\n"
	"  -p, --precision=NAME     f32, tf32, bf16, fp16 (default f32)\n"
	"  -d, --device=NAME        cuda, cpu, ref, or auto (default auto)\n"
	"  -j, --threads=N          threads that compute, and threads that load, of each rank; 0: one for each core of "
	"the\n"
	"                           rank (default 0)\n"
	"  -w, --world-size=N       share the pictures out among N ranks on this machine (default 1)\n"
	"      --share-device       let several ranks use one GPU\n"
	"  -h, --help               show this text\n"
	"  -V, --version            show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

enum { IMAGE_FIELD = 256, LABEL_FIELD, CLASSES, IMAGE_SIZE, VAL_RATIO, MEAN, STD, SHARE_DEVICE };

static const struct option long_options[] = {{"output", required_argument, NULL, 'o'},
					     {"force", no_argument, NULL, 'F'},
					     {"format", required_argument, NULL, 'f'},
					     {"top", required_argument, NULL, 'k'},
					     {"on-error", required_argument, NULL, 'S'},
					     {"image-field", required_argument, NULL, IMAGE_FIELD},
					     {"label-field", required_argument, NULL, LABEL_FIELD},
					     {"model", required_argument, NULL, 'm'},
					     {"classes", required_argument, NULL, CLASSES},
					     {"image-size", required_argument, NULL, IMAGE_SIZE},
					     {"val-ratio", required_argument, NULL, VAL_RATIO},
					     {"mean", required_argument, NULL, MEAN},
					     {"std", required_argument, NULL, STD},
					     {"tta", required_argument, NULL, 'a'},
					     {"batch-size", required_argument, NULL, 'b'},
					     {"precision", required_argument, NULL, 'p'},
					     {"device", required_argument, NULL, 'd'},
					     {"threads", required_argument, NULL, 'j'},
					     {"world-size", required_argument, NULL, 'w'},
					     {"share-device", no_argument, NULL, SHARE_DEVICE},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

static const char *const formats[] = {[PREDICT_JSON - 1] = "json", [PREDICT_CSV - 1] = "csv", NULL};
static const char *const errors[] = {"stop", "skip", NULL};
static const char *const ttas[] = {
	[VISION_TTA_NONE] = "none", [VISION_TTA_FLIP] = "flip", [VISION_TTA_FLIP_SHIFT] = "flip-shift", NULL};
static const char *const precisions[] = {[ENGINE_PRECISION_F32] = "f32",
					 [ENGINE_PRECISION_TF32] = "tf32",
					 [ENGINE_PRECISION_BF16] = "bf16",
					 [ENGINE_PRECISION_FP16] = "fp16",
					 NULL};

static int parse_name(int option, predict_options *out, beton_error *err)
{
	int choice = 0, status;
	switch (option) {
	case 'f':
		status = bt_parse_choice("--format", optarg, formats, &choice, err);
		out->format = choice + 1;
		return status;
	case 'S':
		status = bt_parse_choice("--on-error", optarg, errors, &choice, err);
		out->skip = choice == 1;
		return status;
	case 'a':
		return bt_parse_choice("--tta", optarg, ttas, &out->tta, err);
	default:
		status = bt_parse_choice("--precision", optarg, precisions, &choice, err);
		out->precision = (engine_precision)choice;
		return status;
	}
}

static int parse_option(int option, predict_options *out, beton_error *err)
{
	const char **texts[] = {[IMAGE_FIELD - IMAGE_FIELD] = &out->image_field,
				[LABEL_FIELD - IMAGE_FIELD] = &out->label_field,
				[CLASSES - IMAGE_FIELD] = &out->classes,
				[IMAGE_SIZE - IMAGE_FIELD] = &out->image_size,
				[VAL_RATIO - IMAGE_FIELD] = &out->val_ratio,
				[MEAN - IMAGE_FIELD] = &out->mean,
				[STD - IMAGE_FIELD] = &out->std};
	switch (option) {
	case 'o':
		out->output = optarg;
		return BETON_OK;
	case 'F':
		out->force = true;
		return BETON_OK;
	case 'm':
		out->model = optarg;
		return BETON_OK;
	case 'k':
		return bt_parse_u64("--top", optarg, 0, 1000000, &out->top, err);
	case 'b':
		return bt_parse_u64("--batch-size", optarg, 1, 1 << 20, &out->batch_size, err);
	case 'd':
		return run_parse_device(optarg, &out->device, err);
	case 'j':
		return bt_parse_u64("--threads", optarg, 0, 4096, &out->threads, err);
	case 'w':
		return bt_parse_u64("--world-size", optarg, 1, LAUNCH_MAX_RANKS, &out->world_size, err);
	case SHARE_DEVICE:
		out->share_device = true;
		return BETON_OK;
	case 'f':
	case 'S':
	case 'a':
	case 'p':
		return parse_name(option, out, err);
	default:
		*texts[option - IMAGE_FIELD] = optarg;
		return BETON_OK;
	}
}

/* -1: no integer field of that name. */
static int find_integers(const beton_reader *reader, const char *name)
{
	int index = name ? beton_reader_find_field(reader, name) : -1;
	return index >= 0 && beton_reader_field(reader, (uint32_t)index)->type == BETON_FIELD_INT ? index : -1;
}

/* The field with the labels: the given one, else the training's, else the usual one; -1: none. */
static int find_labels(const predict_options *options, const run_source *weights, const beton_reader *reader, int *out,
		       beton_error *err)
{
	const char *given = options->label_field;
	*out = find_integers(reader, given ? given : run_source_info(weights, "label_field"));
	if (*out < 0 && given)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--label-field '%s': %s has no integer field of that name",
			       given, options->data);
	if (*out < 0)
		*out = find_integers(reader, "label");
	return BETON_OK;
}

static int write_rows(const predict_options *options, const run_source *weights, predict_data *data, rank_team *team,
		      FILE *file, beton_error *err)
{
	predict_rows rows = {.file = file, .csv = options->format == PREDICT_CSV, .data = data};
	int status = find_labels(options, weights, data->reader, &rows.label, err);
	if (status == BETON_OK)
		status = predict_run(options, weights, data, team, &rows, err);
	predict_rows_free(&rows);
	return status;
}

static int predict(const predict_options *options, rank_team *team, beton_error *err)
{
	bool first = !rank_team_shares(team) || team->env.rank == 0;
	predict_output output = {0};
	predict_data data = {0};
	run_source weights;
	int status = run_source_open(options->weights, &weights, err);
	if (status != BETON_OK)
		return status;
	status = predict_data_open(options->data, options->skip, team, &data, err);
	if (status == BETON_OK && first)
		status = predict_output_open(options->output, &output, err);
	if (status == BETON_OK)
		status = write_rows(options, &weights, &data, team, output.stream, err);
	status = predict_output_close(&output, status, err);
	predict_data_close(&data);
	run_source_close(&weights);
	return status;
}

static void say(const char *line)
{
	fprintf(stderr, "dtrain-predict: %s\n", line);
}

/* The launcher has looked at the output for its ranks. */
static int run_rank(const predict_options *options, rank_team *team)
{
	beton_error err = {0};
	/* A rank that is asked to stop removes its temporary files. */
	if (rank_team_shares(team))
		run_signals_catch();
	int status = rank_team_meet(team, say, &err);
	if (status == BETON_OK && team->env.rank == 0 && !team->env.store_hosted)
		status = predict_output_check(options, &err);
	if (status == BETON_OK)
		status = predict(options, team, &err);
	if (status != BETON_OK && !team->failed)
		rank_team_fail(team, &err);
	return rank_team_end(team, "dtrain-predict", status, &err);
}

/* The loader has as many threads as the device. */
static int run(const predict_options *options, char **argv)
{
	beton_error err = {0};
	rank_team team;
	bool launches;
	int64_t threads = (int64_t)options->threads;
	int status = rank_team_find(&team, (int64_t)options->world_size, &launches, &err);
	if (status == BETON_OK && launches)
		status = predict_output_check(options, &err);
	if (status != BETON_OK)
		return bt_program_error("dtrain-predict", &err);
	if (launches)
		return rank_team_launch(&team, "dtrain-predict", (int64_t)options->world_size, threads, threads, argv);
	if (!team.env.store_hosted && run_needs_passive_wait(1, threads, threads, team.cores.rank))
		run_set_passive_wait(true, argv);
	return run_rank(options, &team);
}

int main(int argc, char **argv)
{
	predict_options options = {.top = 5, .batch_size = 64, .device = {.name = "auto", .index = -1}};
	beton_error err = {0};
	int option;
	bool seen[sizeof(long_options) / sizeof(long_options[0])] = {false};
	/* Writing to a closed pipe must return an error: a signal would leave temporary files. */
	signal(SIGPIPE, SIG_IGN);
	while ((option = bt_getopt_once(argc, argv, "o:Ff:k:S:m:a:b:p:d:j:w:hV", long_options, seen)) != -1) {
		if (option == '?')
			return bt_usage_error("dtrain-predict", NULL);
		if (option == 'h' || option == 'V') {
			fputs(option == 'h' ? usage_text : "dtrain-predict " DTRAIN_VERSION "\n", stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if (parse_option(option, &options, &err) != BETON_OK)
			return bt_usage_error("dtrain-predict", err.message);
	}
	if (argc - optind != 2)
		return bt_usage_error("dtrain-predict", "expected WEIGHTS and DATA");
	options.weights = argv[optind];
	options.data = argv[optind + 1];
	if (!options.format)
		options.format = options.output && bt_ends_with(options.output, ".csv") ? PREDICT_CSV : PREDICT_JSON;
	return run(&options, argv);
}
