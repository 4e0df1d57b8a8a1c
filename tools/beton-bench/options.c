/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-bench load [OPTION]... FILE\n"
	"Load FILE as training does, and print the images (or tokens) per second of each epoch.\n"
	"\n"
	"      --pipeline NAME     train: random-resized-crop and flip (default); eval: centre crop\n"
	"      --image-size N      height and width of the output in pixels (default 224)\n"
	"      --fit NAME          how pictures get to that size: stretch (default), or pad-center or pad-corner,\n"
	"                          which keep the aspect and pad around the picture, or right and below\n"
	"      --shorter-side N    instead: the shorter side becomes N pixels, and the centre is cut out\n"
	"      --batch-size N      samples in a batch (default 256)\n"
	"      --threads N         number of worker threads; 0 (default) means one for each core\n"
	"      --dtype NAME        u8 (default), u16 (of rasters of 16 bits), or f32, f16 or bf16, which are "
	"normalized\n"
	"      --pixels NAME       whose pixels: fast (default), ffcv or torchvision, bit for bit\n"
	"      --filter NAME       resizing filter: auto (default), area, bilinear or nearest\n"
	"      --color NAME        rgb (default), or grey: one channel\n"
	"      --layout NAME       nhwc (default) or nchw\n"
	"      --output NAME       decoded (default), or stored: the pictures' bytes as the file holds them\n"
	"      --order NAME        random (default), quasi, sequential or uniform (with replacement)\n"
	"      --window N          FILE is a stream of tokens: load windows of N tokens; see beton-info --window\n"
	"      --stride N          tokens from one window to the next (default: the window)\n"
	"      --engine NAME       auto (default), mmap, threads or uring\n"
	"      --direct            bypass the page cache (O_DIRECT)\n"
	"      --read-ahead N      samples that each thread reads ahead; 0 (default) means automatic\n"
	"      --batches-ahead N   batches prepared in advance, 1 to 64 (default 3)\n"
	"      --memory-limit SIZE memory for batches, read-ahead and work, such as 500MB; 0 (default): as needed\n"
	"      --files-open-max N  files of a set that are open at a time; 0 (default) means automatic\n"
	"      --max-pixels N      a JPEG with more pixels is a bad sample (default 89478485)\n"
	"      --on-error NAME     what to do with bad samples: fail (default), skip or substitute\n"
	"      --seed N            seed of order and augmentation (default 0)\n"
	"      --epochs N          number of epochs (default 3)\n"
	"      --digest            print a checksum over all batches, in their order\n"
	"      --json              print one JSON object instead of text\n"
	"  -h, --help              show this text\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

typedef struct choice {
	const char *name;
	int value;
} choice;

enum { PIPELINE_TRAIN, PIPELINE_EVAL };

static const choice pipelines[] = {{"train", PIPELINE_TRAIN}, {"eval", PIPELINE_EVAL}, {NULL, 0}};
static const choice dtypes[] = {{"u8", BETON_UINT8},    {"u16", BETON_UINT16},    {"f32", BETON_FLOAT32},
				{"f16", BETON_FLOAT16}, {"bf16", BETON_BFLOAT16}, {NULL, 0}};
static const choice pixels[] = {
	{"fast", BETON_PIXELS_FAST}, {"ffcv", BETON_PIXELS_FFCV}, {"torchvision", BETON_PIXELS_TORCHVISION}, {NULL, 0}};
static const choice filters[] = {{"auto", BETON_FILTER_AUTO},
				 {"area", BETON_FILTER_AREA},
				 {"bilinear", BETON_FILTER_BILINEAR},
				 {"nearest", BETON_FILTER_NEAREST},
				 {NULL, 0}};
static const choice colors[] = {{"rgb", BETON_COLOR_RGB}, {"grey", BETON_COLOR_GREY}, {NULL, 0}};
static const choice fits[] = {{"stretch", BETON_FIT_STRETCH},
			      {"pad-center", BETON_FIT_PAD_CENTER},
			      {"pad-corner", BETON_FIT_PAD_CORNER},
			      {NULL, 0}};
static const choice layouts[] = {{"nhwc", BETON_NHWC}, {"nchw", BETON_NCHW}, {NULL, 0}};
static const choice outputs[] = {{"decoded", BETON_IMAGE_DECODED}, {"stored", BETON_IMAGE_STORED}, {NULL, 0}};
static const choice orders[] = {{"random", BETON_ORDER_RANDOM},
				{"quasi", BETON_ORDER_QUASI_RANDOM},
				{"sequential", BETON_ORDER_SEQUENTIAL},
				{"uniform", BETON_ORDER_UNIFORM},
				{NULL, 0}};
static const choice engines[] = {{"auto", BETON_ENGINE_AUTO},
				 {"mmap", BETON_ENGINE_MMAP},
				 {"threads", BETON_ENGINE_THREADS},
				 {"uring", BETON_ENGINE_URING},
				 {NULL, 0}};

static const choice policies[] = {{"fail", BETON_ON_ERROR_FAIL},
				  {"skip", BETON_ON_ERROR_SKIP},
				  {"substitute", BETON_ON_ERROR_SUBSTITUTE},
				  {NULL, 0}};

static bool choose(const char *option, const choice *choices, const char *text, int *value)
{
	for (const choice *c = choices; c->name; c++) {
		if (strcmp(c->name, text) == 0) {
			*value = c->value;
			return true;
		}
	}
	fprintf(stderr, "beton-bench: --%s: '%s' is none of", option, text);
	bt_suggestion like;
	bt_suggest_begin(&like, text);
	for (const choice *c = choices; c->name; c++) {
		fprintf(stderr, " %s", c->name);
		bt_suggest_try(&like, c->name);
	}
	fprintf(stderr, "%s\n", bt_suggest_text(&like));
	return false;
}

static bool number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	beton_error err;
	if (bt_parse_u64(option, text, least, most, value, &err) == BETON_OK)
		return true;
	fprintf(stderr, "beton-bench: %s\n", err.message);
	return false;
}

static bool size(const char *option, const char *text, uint64_t *value)
{
	beton_error err;
	if (bt_parse_size(option, text, 0, value, &err) == BETON_OK)
		return true;
	fprintf(stderr, "beton-bench: %s\n", err.message);
	return false;
}

static void set_pipeline(beton_loader_options *loader, int pipeline)
{
	loader->image.crop = pipeline == PIPELINE_TRAIN ? BETON_CROP_RANDOM : BETON_CROP_CENTER;
	loader->image.flip_probability = pipeline == PIPELINE_TRAIN ? 0.5 : 0;
}

/* Options of pictures; *known false: it is another option. */
static bool take_image(beton_image_options *image, int option, const char *name, const char *text, bool *known)
{
	uint64_t count = 0;
	int value = 0;
	bool good;
	switch (option) {
	case 'i':
		good = number("--image-size", text, 1, UINT16_MAX, &count);
		image->height = image->width = (uint32_t)count;
		return good;
	case 'f':
		good = choose(name, fits, text, &value);
		image->fit = (uint16_t)value;
		image->shorter_side = 0;
		return good;
	case 'H':
		good = number("--shorter-side", text, 1, UINT16_MAX, &count);
		image->fit = BETON_FIT_SHORTER_SIDE;
		image->shorter_side = (uint32_t)count;
		return good;
	case 'd':
		good = choose(name, dtypes, text, &value);
		image->dtype = (beton_dtype)value;
		image->normalize = value != BETON_UINT8 && value != BETON_UINT16;
		return good;
	case 'P':
		good = choose(name, pixels, text, &value);
		image->pixels = (beton_pixels)value;
		return good;
	case 'F':
		good = choose(name, filters, text, &value);
		image->filter = (beton_filter)value;
		return good;
	case 'c':
		good = choose(name, colors, text, &value);
		image->color = (uint32_t)value;
		return good;
	case 'l':
		good = choose(name, layouts, text, &value);
		image->layout = (beton_layout)value;
		return good;
	case 'O':
		good = choose(name, outputs, text, &value);
		image->output = (uint64_t)value;
		return good;
	default:
		*known = false;
		return false;
	}
}

/* Options of loading; *known likewise. */
static bool take_loader(beton_loader_options *loader, int option, const char *name, const char *text, bool *known)
{
	uint64_t count = 0;
	int value = 0;
	bool good = true;
	switch (option) {
	case 'p':
		good = choose(name, pipelines, text, &value);
		set_pipeline(loader, value);
		return good;
	case 'b':
		good = number("--batch-size", text, 1, UINT32_MAX, &count);
		loader->batch_size = (uint32_t)count;
		return good;
	case 't':
		good = number("--threads", text, 0, 1024, &count);
		loader->num_threads = (uint32_t)count;
		return good;
	case 'o':
		good = choose(name, orders, text, &value);
		loader->order = (beton_order)value;
		return good;
	case 'e':
		good = choose(name, engines, text, &value);
		loader->engine = (beton_engine)value;
		return good;
	case 'T':
		return number("--window", text, 1, INT32_MAX - 1, &loader->tokens.window);
	case 'S':
		return number("--stride", text, 1, INT32_MAX - 1, &loader->tokens.stride);
	case 'u':
		loader->direct = true;
		return good;
	case 'a':
		good = number("--read-ahead", text, 0, 1024, &count);
		loader->read_ahead = (uint32_t)count;
		return good;
	case 'B':
		good = number("--batches-ahead", text, 1, 64, &count);
		loader->batches_ahead = (uint32_t)count;
		return good;
	case 'm':
		return size("--memory-limit", text, &loader->memory_limit);
	case 'M':
		return number("--files-open-max", text, 0, 1 << 20, &loader->files_open_max);
	case 'x':
		return number("--max-pixels", text, 1, UINT64_MAX, &loader->max_pixels);
	case 'E':
		good = choose(name, policies, text, &value);
		loader->on_error = (beton_on_error)value;
		return good;
	case 's':
		return number("--seed", text, 0, UINT64_MAX, &loader->seed);
	default:
		*known = false;
		return false;
	}
}

static bool take(load_options *out, int option, const char *name, const char *text)
{
	uint64_t count = 0;
	bool known = true;
	bool good = take_image(&out->loader.image, option, name, text, &known);
	if (known)
		return good;
	known = true;
	good = take_loader(&out->loader, option, name, text, &known);
	if (known)
		return good;
	switch (option) {
	case 'n':
		good = number("--epochs", text, 1, 1000000, &count);
		out->epochs = (uint32_t)count;
		return good;
	case 'D':
		out->digest = true;
		return true;
	case 'j':
		out->json = true;
		return true;
	default: /* getopt has said what */
		return false;
	}
}

/* Refuses options that do not go together in their own names; the loader has others. */
static int check_pairs(const beton_loader_options *loader, beton_error *err)
{
	const beton_image_options *image = &loader->image;
	const char *of_pixels = image->dtype != BETON_UINT8            ? "--dtype"
				: image->layout != BETON_NHWC          ? "--layout"
				: image->pixels != BETON_PIXELS_FAST   ? "--pixels"
				: image->filter != BETON_FILTER_AUTO   ? "--filter"
				: image->fit == BETON_FIT_SHORTER_SIDE ? "--shorter-side"
				: image->fit != BETON_FIT_STRETCH      ? "--fit"
				: image->color != BETON_COLOR_RGB      ? "--color"
								       : NULL;
	if (loader->direct && loader->engine == BETON_ENGINE_MMAP)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--direct bypasses the page cache, but --engine mmap reads from it");
	if (image->output == BETON_IMAGE_STORED && of_pixels)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s is about pixels, but --output stored has none",
			       of_pixels);
	return BETON_OK;
}

void load_options_rename(beton_error *err)
{
	static const struct {
		const char *member, *option;
	} names[] = {{"memory_limit", "--memory-limit"}, {"tokens.window", "--window"}, {"tokens.stride", "--stride"}};
	static const char begin[] = "loader options: ";
	if (strncmp(err->message, begin, strlen(begin)) != 0)
		return;
	const char *member = err->message + strlen(begin);
	size_t length = strcspn(member, " ");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strlen(names[i].member) != length || strncmp(member, names[i].member, length) != 0)
			continue;
		beton_error renamed;
		bt_fail(&renamed, err->code, "%s%s", names[i].option, member + length);
		*err = renamed;
		return;
	}
}

static void print_line(void *context, beton_log_level level, const char *line)
{
	(void)level;
	(void)context;
	fprintf(stderr, "beton-bench: %s\n", line);
}

int load_options_parse(load_options *out, int argc, char **argv)
{
	static const struct option names[] = {{"pipeline", required_argument, NULL, 'p'},
					      {"image-size", required_argument, NULL, 'i'},
					      {"fit", required_argument, NULL, 'f'},
					      {"shorter-side", required_argument, NULL, 'H'},
					      {"batch-size", required_argument, NULL, 'b'},
					      {"threads", required_argument, NULL, 't'},
					      {"dtype", required_argument, NULL, 'd'},
					      {"pixels", required_argument, NULL, 'P'},
					      {"filter", required_argument, NULL, 'F'},
					      {"color", required_argument, NULL, 'c'},
					      {"layout", required_argument, NULL, 'l'},
					      {"output", required_argument, NULL, 'O'},
					      {"order", required_argument, NULL, 'o'},
					      {"window", required_argument, NULL, 'T'},
					      {"stride", required_argument, NULL, 'S'},
					      {"engine", required_argument, NULL, 'e'},
					      {"direct", no_argument, NULL, 'u'},
					      {"read-ahead", required_argument, NULL, 'a'},
					      {"batches-ahead", required_argument, NULL, 'B'},
					      {"memory-limit", required_argument, NULL, 'm'},
					      {"files-open-max", required_argument, NULL, 'M'},
					      {"max-pixels", required_argument, NULL, 'x'},
					      {"on-error", required_argument, NULL, 'E'},
					      {"seed", required_argument, NULL, 's'},
					      {"epochs", required_argument, NULL, 'n'},
					      {"digest", no_argument, NULL, 'D'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	*out = (load_options){.epochs = 3};
	beton_loader_options_init(&out->loader);
	out->loader.order = BETON_ORDER_RANDOM;
	out->loader.log = print_line;
	set_pipeline(&out->loader, PIPELINE_TRAIN);
	int option, index = 0;
	while ((option = bt_getopt(argc, argv, "h", names, &index)) != -1) {
		if (option == 'h') {
			fputs(usage_text, stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		if (!take(out, option, names[index].name, optarg))
			return bt_usage_error("beton-bench load", NULL);
	}
	if (argc - optind != 1)
		return bt_usage_error("beton-bench load", "expected FILE");
	out->path = argv[optind];
	beton_error err;
	if (check_pairs(&out->loader, &err) != BETON_OK)
		return bt_usage_error("beton-bench load", err.message);
	return -1;
}
