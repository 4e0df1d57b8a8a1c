/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-plan: what a model needs of each rank's memory with each strategy, without data, ranks and that memory. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "mesh_answer.h"
#include "options/options_table.h"
#include "pipeline_answer.h"

static const char *const usage_text =
	"Usage: dtrain-plan [OPTION]... MODEL\n"
	"       dtrain-plan pipeline [OPTION]... SCHEDULE\n"
	"Print what each rank keeps in memory when MODEL is trained with each strategy, and what it sends in a step.\n"
	"MODEL is a name or a config.json, as for dtrain-ffcv. Nothing is trained, and no memory of the model is "
	"used.\n"
	"With --mesh, print the meshes of ranks that fit, by the predicted time of a step, and why others do not.\n"
	"The command pipeline prints a schedule of pipeline parallelism: see dtrain-plan pipeline --help.\n"
	"\n"
	"  -w, --world-size=N       ranks (default 1)\n"
	"  -s, --shard=N            ranks that share a copy of the parameters with hsdp\n"
	"  -g, --gpu=NAME           a GPU that need not be here: t4, a10, l4, l40s, a100-40gb, a100, h100, h200, b200 "
	"(default:\n"
	"                           this machine's, else h100)\n"
	"  -M, --memory=SIZE        memory of a rank, in GB, or as 80GB, 79GiB, 500MB: say what fits, or what would "
	"(default: 95 %\n"
	"                           of the --gpu's)\n"
	"      --peak=TFLOPS        products of the --precision, for times of a step (default: the GPU's)\n"
	"      --bandwidth=GB/S     of the GPU's memory (default: the GPU's)\n"
	"      --link=GB/S          from a rank to others of its host (default: the --gpu's)\n"
	"      --network=GB/S       from a rank to other hosts (default: that of hosts with the --gpu)\n"
	"      --host-ranks=N       ranks of a host (default: 8 with a --gpu)\n"
	"  -b, --batch-size=N       samples of a rank (default: the largest that fits; 64 if no memory is known)\n"
	"      --accumulate=N       batches of a rank in a step (default 1)\n"
	"  -p, --precision=NAME     f32, tf32, bf16, fp16 (default: bf16 on GPUs that have it, fp16 on others, else "
	"f32)\n"
	"  -o, --optimizer=NAME     sgd, adam, adamw, lion, lars, lamb, muon (default: sgd; for text adamw)\n"
	"  -r, --recompute=NAME     none, selective, full, or a number of blocks (default none)\n"
	"      --offload=NAME       what is in the memory of the host: none, optimizer, activations, both, parameters, "
	"all\n"
	"                           (default none)\n"
	"      --prefetch-mb=N      units that zero3 gathers ahead (default 64)\n"
	"      --keep-gathered      units of zero3 stay gathered from forward to backward\n"
	"      --compress=NAME      none, f16, bf16, int8, topk, powersgd: how gradients are sent (default none)\n"
	"      --compress-ratio=X   of topk (default 0.01)\n"
	"      --powersgd-rank=N    of powersgd (default 1)\n"
	"      --no-error-feedback  what is not sent is not kept for the next step\n"
	"      --image-size=N       pictures have N x N pixels (default: the model's, or 224)\n"
	"      --classes=N          of pictures (default 1000)\n"
	"      --context-length=N   tokens of a sample (default: the model's longest)\n"
	"      --mesh=AXIS=N,...    predict meshes with these axes of dtrain-ffcv's --mesh; any: with all (needs "
	"--global-batch)\n"
	"      --global-batch=N     samples of a step, over all ranks\n"
	"      --micro-batch=N      samples of a micro-batch (default: the fastest)\n"
	"      --strategy=NAME      ddp, zero1, zero2, zero3: meshes with this one alone\n"
	"      --schedule=NAME      1f1b, gpipe, interleaved, naive, zb1p, zbv: pipelines with this one alone\n"
	"      --efficiency=X       share of --peak that products reach, with --mesh (default 0.6)\n"
	"      --link-latency=US    of a message to a rank of the host, with --mesh (default 14)\n"
	"      --network-latency=US of a message to another host, with --mesh (default 20)\n"
	"      --measured-step=FILE speeds of the model: JSON of a profile by dtrain-bench step\n"
	"      --measured-link=FILE, --measured-network=FILE\n"
	"                           latency and rate, in JSON of dtrain-bench comm for allreduce\n"
	"      --rows=N             meshes of the table, at most (default 10)\n"
	"      --explain            print each formula with its numbers, for the first mesh\n"
	"  -d, --device=NAME        a device that is here, in place of a --gpu: cuda, cpu, ref, or auto (default "
	"auto)\n"
	"  -h, --help               show this text\n"
	"  -V, --version            show the version\n"
	"\n"
	"Copies of checkpoints that are written while training goes on are not counted: dtrain-ffcv tells their size.\n"
	"\n"
	"Exit status: 0 success, 1 failure, or nothing fits, 2 wrong usage.\n";

enum {
	ACCUMULATE = 256,
	PEAK,
	BANDWIDTH,
	LINK,
	NETWORK,
	HOST_RANKS,
	OFFLOAD,
	PREFETCH,
	KEEP_GATHERED,
	COMPRESS,
	COMPRESS_RATIO,
	POWERSGD_RANK,
	NO_ERROR_FEEDBACK,
	IMAGE_SIZE,
	CLASSES,
	CONTEXT_LENGTH,
	MESH,
	GLOBAL_BATCH,
	MICRO_BATCH,
	STRATEGY,
	SCHEDULE,
	EFFICIENCY,
	LINK_LATENCY,
	NETWORK_LATENCY,
	MEASURED_STEP,
	MEASURED_LINK,
	MEASURED_NETWORK,
	ROWS,
	EXPLAIN,
	OPTIONS
};

static const struct option long_options[] = {{"world-size", required_argument, NULL, 'w'},
					     {"shard", required_argument, NULL, 's'},
					     {"gpu", required_argument, NULL, 'g'},
					     {"memory", required_argument, NULL, 'M'},
					     {"peak", required_argument, NULL, PEAK},
					     {"bandwidth", required_argument, NULL, BANDWIDTH},
					     {"link", required_argument, NULL, LINK},
					     {"network", required_argument, NULL, NETWORK},
					     {"host-ranks", required_argument, NULL, HOST_RANKS},
					     {"batch-size", required_argument, NULL, 'b'},
					     {"accumulate", required_argument, NULL, ACCUMULATE},
					     {"precision", required_argument, NULL, 'p'},
					     {"optimizer", required_argument, NULL, 'o'},
					     {"recompute", required_argument, NULL, 'r'},
					     {"offload", required_argument, NULL, OFFLOAD},
					     {"prefetch-mb", required_argument, NULL, PREFETCH},
					     {"keep-gathered", no_argument, NULL, KEEP_GATHERED},
					     {"compress", required_argument, NULL, COMPRESS},
					     {"compress-ratio", required_argument, NULL, COMPRESS_RATIO},
					     {"powersgd-rank", required_argument, NULL, POWERSGD_RANK},
					     {"no-error-feedback", no_argument, NULL, NO_ERROR_FEEDBACK},
					     {"image-size", required_argument, NULL, IMAGE_SIZE},
					     {"classes", required_argument, NULL, CLASSES},
					     {"context-length", required_argument, NULL, CONTEXT_LENGTH},
					     {"mesh", required_argument, NULL, MESH},
					     {"global-batch", required_argument, NULL, GLOBAL_BATCH},
					     {"micro-batch", required_argument, NULL, MICRO_BATCH},
					     {"strategy", required_argument, NULL, STRATEGY},
					     {"schedule", required_argument, NULL, SCHEDULE},
					     {"efficiency", required_argument, NULL, EFFICIENCY},
					     {"link-latency", required_argument, NULL, LINK_LATENCY},
					     {"network-latency", required_argument, NULL, NETWORK_LATENCY},
					     {"measured-step", required_argument, NULL, MEASURED_STEP},
					     {"measured-link", required_argument, NULL, MEASURED_LINK},
					     {"measured-network", required_argument, NULL, MEASURED_NETWORK},
					     {"rows", required_argument, NULL, ROWS},
					     {"explain", no_argument, NULL, EXPLAIN},
					     {"device", required_argument, NULL, 'd'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

static const char *const precisions[] = {[ENGINE_PRECISION_F32] = "f32",
					 [ENGINE_PRECISION_TF32] = "tf32",
					 [ENGINE_PRECISION_BF16] = "bf16",
					 [ENGINE_PRECISION_FP16] = "fp16",
					 NULL};

static const char *const methods[] = {"none", "f16", "bf16", "int8", "topk", "powersgd", NULL};

static int parse_count(const char *name, uint64_t least, uint64_t most, int64_t *out, beton_error *err)
{
	uint64_t value;
	int status = bt_parse_u64(name, optarg, least, most, &value, err);
	if (status == BETON_OK)
		*out = (int64_t)value;
	return status;
}

static int parse_method(dtrain_compression *out, beton_error *err)
{
	int method;
	int status = bt_parse_choice("--compress", optarg, methods, &method, err);
	if (status == BETON_OK)
		out->method = methods[method];
	return status;
}

static int parse_powersgd_rank(dtrain_compression *out, beton_error *err)
{
	uint64_t rank;
	int status = bt_parse_u64("--powersgd-rank", optarg, 1, 65536, &rank, err);
	if (status == BETON_OK)
		out->rank = (int32_t)rank;
	return status;
}

enum { LEAST_MEMORY = 1000000 }; /* bytes of a device */

/* A number alone is in GB, unless it is one of bytes. */
static int parse_memory(uint64_t *out, beton_error *err)
{
	char text[40];
	bool alone = !optarg[strspn(optarg, "0123456789.")] && atof(optarg) < LEAST_MEMORY;
	snprintf(text, sizeof(text), "%s%s", optarg, alone ? "GB" : "");
	return bt_parse_size("--memory", text, LEAST_MEMORY, out, err);
}

static int parse_gpu(const dtrain__gpu **out, beton_error *err)
{
	char names[160] = "";
	bt_suggestion like;
	*out = dtrain__gpu_find(optarg);
	if (*out)
		return BETON_OK;
	bt_suggest_begin(&like, optarg);
	for (int i = 0; dtrain__gpu_at(i); i++) {
		bt_suggest_try(&like, dtrain__gpu_at(i)->name);
		bt_append(names, sizeof(names), "%s%s", i ? ", " : "", dtrain__gpu_at(i)->name);
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--gpu: '%s' is not one of %s%s", optarg, names,
		       bt_suggest_text(&like));
}

static int parse_host_ranks(int32_t *out, beton_error *err)
{
	uint64_t ranks;
	int status = bt_parse_u64("--host-ranks", optarg, 1, 65536, &ranks, err);
	if (status == BETON_OK)
		*out = (int32_t)ranks;
	return status;
}

static int parse_speed(int option, engine_speed *out, beton_error *err)
{
	const bool peak = option == PEAK;
	double *const speeds[] = {&out->flops, &out->bandwidth, &out->link, &out->network};
	static const char *const names[] = {"--peak", "--bandwidth", "--link", "--network"};
	double value;
	if (option == HOST_RANKS)
		return parse_host_ranks(&out->host_ranks, err);
	int status = bt_parse_double(names[option - PEAK], optarg, 1e-6, 1e9, &value, err);
	if (status == BETON_OK)
		*speeds[option - PEAK] = value * (peak ? 1e12 : 1e9);
	return status;
}

static int parse_name(const char *option, const char *const *names, const char **out, beton_error *err)
{
	int index;
	int status = bt_parse_choice(option, optarg, names, &index, err);
	if (status == BETON_OK)
		*out = names[index];
	return status;
}

static int parse_axes(run_axes *out, beton_error *err)
{
	*out = (run_axes){{0}};
	return strcmp(optarg, "any") == 0 ? BETON_OK : run_axes_parse(optarg, out, err);
}

static int parse_latency(const char *name, double *out, beton_error *err)
{
	int status = bt_parse_double(name, optarg, 0, 1e6, out, err);
	*out *= 1e-6;
	return status;
}

static int parse_mesh_option(int option, plan_mesh_options *out, beton_error *err)
{
	static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3", NULL};
	static const char *const schedules[] = {"naive", "gpipe", "1f1b", "interleaved", "zb1p", "zbv", NULL};
	int64_t rows;
	int status;
	switch (option) {
	case MESH:
		return parse_axes(&out->search.axes, err);
	case GLOBAL_BATCH:
		return parse_count("--global-batch", 1, INT32_MAX, &out->search.samples, err);
	case MICRO_BATCH:
		return parse_count("--micro-batch", 1, 65536, &out->search.batch, err);
	case STRATEGY:
		return parse_name("--strategy", strategies, &out->search.strategy, err);
	case SCHEDULE:
		return parse_name("--schedule", schedules, &out->search.schedule, err);
	case EFFICIENCY:
		return bt_parse_double("--efficiency", optarg, 1e-6, 1, &out->efficiency, err);
	case LINK_LATENCY:
		return parse_latency("--link-latency", &out->link_latency, err);
	case NETWORK_LATENCY:
		return parse_latency("--network-latency", &out->network_latency, err);
	case MEASURED_STEP:
		out->measured_step = optarg;
		return BETON_OK;
	case MEASURED_LINK:
		out->measured_link = optarg;
		return BETON_OK;
	case MEASURED_NETWORK:
		out->measured_network = optarg;
		return BETON_OK;
	case ROWS:
		status = parse_count("--rows", 1, INT32_MAX, &rows, err);
		out->rows = status == BETON_OK ? (int)rows : 0;
		return status;
	default:
		out->explain = true;
		return BETON_OK;
	}
}

static int parse_option(int option, plan_options *out, beton_error *err)
{
	engine_example_options *example = &out->example;
	switch (option) {
	case 'g':
		return parse_gpu(&out->gpu, err);
	case PEAK:
	case BANDWIDTH:
	case LINK:
	case NETWORK:
	case HOST_RANKS:
		return parse_speed(option, &out->speed, err);
	case 'w':
		return bt_parse_u64("--world-size", optarg, 1, 65536, &out->ranks, err);
	case 's':
		return bt_parse_u64("--shard", optarg, 1, 65536, &out->shard, err);
	case 'M':
		return parse_memory(&out->memory, err);
	case 'b':
		return parse_count("--batch-size", 1, 65536, &example->batch_size, err);
	case ACCUMULATE:
		return bt_parse_u64("--accumulate", optarg, 1, 65536, &out->micro_batches, err);
	case 'p':
		return bt_parse_choice("--precision", optarg, precisions, &out->precision, err);
	case 'o':
		out->optimizer = optarg;
		return BETON_OK;
	case 'r':
		return engine_recompute_parse("--recompute", optarg, &out->recompute, err);
	case OFFLOAD:
		return bt_parse_choice("--offload", optarg, engine_offload_names, &out->offload, err);
	case PREFETCH:
		return bt_parse_double("--prefetch-mb", optarg, 0, 1e6, &out->prefetch_mb, err);
	case KEEP_GATHERED:
		out->keep_gathered = true;
		return BETON_OK;
	case COMPRESS:
		return parse_method(&out->compression, err);
	case COMPRESS_RATIO:
		return bt_parse_double("--compress-ratio", optarg, 1e-9, 1, &out->compression.ratio, err);
	case POWERSGD_RANK:
		return parse_powersgd_rank(&out->compression, err);
	case NO_ERROR_FEEDBACK:
		out->compression.error_feedback = false;
		return BETON_OK;
	case IMAGE_SIZE:
		return parse_count("--image-size", 1, 4096, &example->image_size, err);
	case CLASSES:
		return parse_count("--classes", 1, 1 << 24, &example->classes, err);
	case CONTEXT_LENGTH:
		return parse_count("--context-length", 1, INT32_MAX - 1, &example->context_length, err);
	default:
		return run_parse_device(optarg, &out->device, err);
	}
}

/* Options of one of the two questions. */
static int check_question(const char *const *given, beton_error *err)
{
	static const struct {
		int option;
		const char *name;
		bool of_meshes;
	} all[] = {{GLOBAL_BATCH, "--global-batch", true},
		   {MICRO_BATCH, "--micro-batch", true},
		   {STRATEGY, "--strategy", true},
		   {SCHEDULE, "--schedule", true},
		   {EFFICIENCY, "--efficiency", true},
		   {LINK_LATENCY, "--link-latency", true},
		   {NETWORK_LATENCY, "--network-latency", true},
		   {MEASURED_STEP, "--measured-step", true},
		   {MEASURED_LINK, "--measured-link", true},
		   {MEASURED_NETWORK, "--measured-network", true},
		   {ROWS, "--rows", true},
		   {EXPLAIN, "--explain", true},
		   {'s', "--shard", false},
		   {'b', "--batch-size", false},
		   {ACCUMULATE, "--accumulate", false},
		   {OFFLOAD, "--offload", false},
		   {COMPRESS, "--compress", false},
		   {PREFETCH, "--prefetch-mb", false},
		   {KEEP_GATHERED, "--keep-gathered", false}};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (given[all[i].option] && all[i].of_meshes != (given[MESH] != NULL))
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s %s --mesh", all[i].name,
				       all[i].of_meshes ? "needs" : "cannot be combined with");
	if (given[MESH] && !given[GLOBAL_BATCH])
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--mesh needs --global-batch: the samples of a step");
	return BETON_OK;
}

static int find_answer(const plan_options *options, plan_mesh_options *meshes, const char *const *given, bool *fits,
		       beton_error *err)
{
	if (!given[MESH])
		return plan_answer(options, fits, err);
	const engine_recompute *how = &options->recompute;
	if (how->what == DTRAIN_RECOMPUTE_FULL && how->blocks != INT64_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--recompute: with --mesh none, selective or full");
	meshes->search.recompute = given['r'] ? (int)how->what : -1;
	return plan_mesh_answer(options, meshes, fits, err);
}

static bool is_of_meshes(int option)
{
	return option >= MESH && option < OPTIONS;
}

/* context: the texts that are given, by the code of an option; other options have the trainer's defaults. */
static bool find_value(const void *context, const char *name, option_value *out)
{
	const char *const *given = context;
	const struct option *option = long_options;
	while (option->name && strcmp(option->name, name) != 0)
		option++;
	*out = (option_value){.text = NULL};
	/* Options of meshes limit a search; a run would have one value. */
	if (!option->name || is_of_meshes(option->val))
		return false;
	const int row = run_row_find(name);
	out->text = given[option->val];
	out->given = out->text;
	out->toggles = option->has_arg == no_argument;
	if (!out->text && row >= 0)
		out->text = run_rows[row].standard;
	out->number = out->text ? strtod(out->text, NULL) : 0;
	out->set = out->text && strcmp(out->text, "none") != 0 && strcmp(out->text, "0") != 0;
	return true;
}

/* The first of several arguments may be the misspelt name of the command. */
static int refuse_arguments(int count, char **arguments)
{
	static const char *const commands[] = {"pipeline", NULL};
	bt_suggestion like;
	beton_error err = {0};
	if (count == 0)
		return bt_usage_error("dtrain-plan", "expected MODEL; none is given");
	bt_fail(&err, BETON_INVALID_ARGUMENT, "expected one MODEL, and there are %d: %s, %s%s%s", count, arguments[0],
		arguments[1], count > 2 ? ", ..." : "", bt_suggest_of(&like, arguments[0], commands));
	return bt_usage_error("dtrain-plan", err.message);
}

int main(int argc, char **argv)
{
	plan_options options = {.precision = -1,
				.device = {.name = "auto", .index = -1},
				.ranks = 1,
				.micro_batches = 1,
				.prefetch_mb = -1};
	plan_mesh_options meshes = {.efficiency = 0.6, .link_latency = 14e-6, .network_latency = 20e-6, .rows = 10};
	beton_error err = {0};
	bool fits = true;
	const char *given[OPTIONS] = {NULL};
	const option_values values = {.context = given, .find = find_value, .what = "plan"};
	bool seen[sizeof(long_options) / sizeof(long_options[0])] = {false};
	int option;
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], "pipeline") == 0)
		return plan_pipeline(argc - 1, argv + 1);
	dtrain_compression_init(&options.compression);
	while ((option = bt_getopt_once(argc, argv, "w:s:g:M:b:p:o:r:d:hV", long_options, seen)) != -1) {
		if (option == '?')
			return bt_usage_error("dtrain-plan", NULL);
		if (option == 'h' || option == 'V') {
			fputs(option == 'h' ? usage_text : "dtrain-plan " DTRAIN_VERSION "\n", stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if ((is_of_meshes(option) ? parse_mesh_option(option, &meshes, &err)
					  : parse_option(option, &options, &err)) != BETON_OK)
			return bt_usage_error("dtrain-plan", err.message);
		given[option] = optarg ? optarg : "yes";
	}
	if (argc - optind != 1)
		return refuse_arguments(argc - optind, argv + optind);
	options.example.model = argv[optind];
	if (run_constraints_check(&values, false, &err) != BETON_OK || check_question(given, &err) != BETON_OK)
		return bt_usage_error("dtrain-plan", err.message);
	if (find_answer(&options, &meshes, given, &fits, &err) == BETON_OK)
		return fits ? 0 : 1;
	return bt_program_error("dtrain-plan", &err);
}
