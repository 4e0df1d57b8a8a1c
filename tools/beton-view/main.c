/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-view: pictures of a dataset side by side, as a PNG or a page for a browser. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beton/types/types.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/jpeg.h"
#include "common/suggest.h"
#include "common/system.h"
#include "tools/common/dataset.h"
#include "tools/common/input.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/summary.h"
#include "tools/common/text.h"
#include "view.h"

static const char *const usage_text =
	"Usage: beton-view [OPTION]... IN.beton OUT.png|OUT.html|-\n"
	"Show pictures of a .beton file side by side with their classes. The output is a PNG, or an HTML page that\n"
	"needs no other file. The pictures are spread evenly over the chosen samples, or over all samples. IN may be "
	"a\n"
	"set of shards (IN.betonset).\n"
	"\n"
	"  -n, --number=N          number of pictures to show (default 64)\n"
	"  -i, --index=LIST        choose these samples: 3,10-19,100- (from 0, ends included), or @FILE\n"
	"  -c, --class=CLASS       choose this class, by name or number; may be given several times\n"
	"  -w, --where=CONDITION   choose samples that meet the condition: \"label == 'cat' and width < 64\"\n"
	"  -S, --sources           show in the captions where samples come from, instead of their classes\n"
	"  -f, --field=NAME        field with the pictures (default: image, or the only field of pictures)\n"
	"  -k, --columns=N         pictures in a row (default 8)\n"
	"  -s, --side=N            length in pixels of the longer side of each picture (default 160)\n"
	"  -m, --max-pixels=N      treat a JPEG with more pixels as damaged (default 89478485)\n"
	"  -t, --format=FORMAT     png or html (default: from the name of the output)\n"
	"  -F, --force             replace the output if it exists\n"
	"  -j, --json              print the summary as JSON\n"
	"  -Q, --quiet             print no progress and no summary\n"
	"  -h, --help              show this text\n"
	"  -V, --version           show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure or damaged pictures, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"number", required_argument, NULL, 'n'},  {"index", required_argument, NULL, 'i'},
	{"class", required_argument, NULL, 'c'},   {"where", required_argument, NULL, 'w'},
	{"sources", no_argument, NULL, 'S'},       {"field", required_argument, NULL, 'f'},
	{"columns", required_argument, NULL, 'k'}, {"side", required_argument, NULL, 's'},
	{"format", required_argument, NULL, 't'},  {"max-pixels", required_argument, NULL, 'm'},
	{"force", no_argument, NULL, 'F'},         {"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'Q'},         {"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},       {NULL, 0, NULL, 0}};

enum { COLUMNS_MAX = 1000, SIDE_LEAST = 16, SIDE_MAX = 1000 };

typedef enum view_format { FORMAT_BY_NAME, FORMAT_PNG, FORMAT_HTML } view_format;

typedef struct view_options {
	const char *input;
	const char *output;
	const char *field; /* NULL: image, or the only one */
	selection selection;
	uint64_t number;
	uint64_t columns;
	uint64_t side;
	uint64_t max_pixels;
	view_format format;
	bool sources;
	bool force;
	bool json;
	bool quiet;
} view_options;

/* The only field of rasters; -1: there is none, or there are several. *several: there are more than one of pictures. */
static int only_raster(const beton_reader *reader, bool *several)
{
	int found = -1;
	uint32_t images = 0, rasters = 0;
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		bt_form form = bt_form_of(beton_reader_field(reader, i)->type);
		images += form == BT_FORM_IMAGE;
		rasters += form == BT_FORM_RASTER;
		found = form == BT_FORM_RASTER ? (int)i : found;
	}
	*several = images + rasters > 1;
	return rasters == 1 ? found : -1;
}

static int choose_field(const view_options *options, const beton_reader *reader, uint32_t *field, beton_error *err)
{
	int found = options->field ? beton_reader_find_field(reader, options->field) : dataset_picture_field(reader);
	if (found < 0 && options->field)
		return dataset_no_field(reader, options->field, err);
	bool several = false;
	if (found < 0)
		found = only_raster(reader, &several);
	if (found < 0 || !bt_type_is_picture(beton_reader_field(reader, (uint32_t)found)->type))
		return options->field
			       ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no field of pictures has the name '%s'",
					 options->input, options->field)
			       : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s", options->input,
					 several ? "several fields of pictures; --field names one"
						 : "no field of pictures");
	*field = (uint32_t)found;
	return BETON_OK;
}

static int write_view(view_job *job, view_format format, beton_error *err)
{
	int result = format == FORMAT_PNG ? view_write_png(job, err) : view_write_html(job, err);
	if (result == BETON_OK && fflush(job->stream) != 0)
		result = bt_fail_errno(err, errno, "cannot write");
	return result;
}

/* *written: bytes of the file. */
static int write_file(view_job *job, const view_options *options, uint64_t *written, beton_error *err)
{
	struct stat status;
	bt_atomic_file file;
	int result = input_check_output(job->in, options->output, options->force, err);
	if (result == BETON_OK)
		result = bt_atomic_open(&file, options->output, err);
	if (result != BETON_OK)
		return result;
	int copy = dup(file.fd); /* fclose closes it, commit the other */
	job->stream = copy >= 0 ? fdopen(copy, "w") : NULL;
	if (!job->stream) {
		result = bt_fail_errno(err, errno, "%s: cannot open", options->output);
		if (copy >= 0)
			close(copy);
		bt_atomic_abandon(&file);
		return result;
	}
	result = write_view(job, options->format, err);
	if (result != BETON_OK)
		bt_prefix(err, "%s", options->output);
	if (fclose(job->stream) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close", options->output);
	if (result == BETON_OK && fstat(file.fd, &status) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot be looked at", options->output);
	if (result == BETON_OK) {
		*written = (uint64_t)status.st_size;
		return bt_atomic_commit(&file, err);
	}
	bt_atomic_abandon(&file);
	return result;
}

static int prepare(view_job *job, view_options *options, json_t **facts, beton_error *err)
{
	int result = choose_field(options, job->in->schema, &job->picture, err);
	if (result == BETON_OK)
		result = input_facts(job->in, facts, err);
	if (result == BETON_OK)
		result = selection_bind(&options->selection, job->in, err);
	if (result == BETON_OK)
		result = selection_count(&options->selection, job->in, &job->chosen_count, err);
	job->facts = *facts;
	job->label = dataset_label_field(job->in->schema);
	job->shown = job->chosen_count < options->number ? job->chosen_count : options->number;
	if (job->columns > job->shown && job->shown > 0)
		job->columns = (uint32_t)job->shown;
	return result;
}

static int view(view_options *options, uint64_t *damaged, beton_error *err)
{
	dataset_input in;
	json_t *facts = NULL;
	progress bar = {0};
	view_job job = {.chosen = &options->selection,
			.columns = (uint32_t)options->columns,
			.side = (uint32_t)options->side,
			.max_pixels = options->max_pixels,
			.sources = options->sources,
			.stream = stdout,
			.bar = &bar};
	bool standard = strcmp(options->output, "-") == 0;
	uint64_t written = 0;
	int result = input_open(&in, options->input, err);
	job.in = &in;
	if (result == BETON_OK)
		result = prepare(&job, options, &facts, err);
	progress_start(&bar, job.shown, options->quiet);
	if (result == BETON_OK)
		result = standard ? write_view(&job, options->format, err) : write_file(&job, options, &written, err);
	progress_clear(&bar);
	json_decref(facts);
	input_close(&in);
	*damaged = job.damaged;
	if (result == BETON_OK && job.damaged)
		*err = job.first_damage;
	bar.bytes = written; /* the summary has the file's size */
	if (result == BETON_OK && !options->quiet && !standard)
		summary_print(options->output, &bar, options->json);
	return result;
}

static int parse_format(const char *text, view_format *format, beton_error *err)
{
	static const char *const names[] = {"png", "html", NULL};
	int found = 0, status = bt_parse_choice("--format", text, names, &found, err);
	*format = found ? FORMAT_HTML : FORMAT_PNG;
	return status;
}

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	view_options *options = context;
	int result = BETON_OK;
	switch (option) {
	case 'n':
		return bt_parse_u64("--number", text, 1, UINT32_MAX, &options->number, err);
	case 'k':
		return bt_parse_u64("--columns", text, 1, COLUMNS_MAX, &options->columns, err);
	case 's':
		return bt_parse_u64("--side", text, SIDE_LEAST, SIDE_MAX, &options->side, err);
	case 'm':
		return bt_parse_u64("--max-pixels", text, 1, UINT64_MAX, &options->max_pixels, err);
	case 't':
		return parse_format(text, &options->format, err);
	case 'i':
		result = selection_add_ranges(&options->selection, text, err);
		if (result != BETON_OK)
			bt_prefix(err, "--index");
		return result;
	case 'c':
		return selection_add_class(&options->selection, text, err);
	case 'w':
		return condition_parse(&options->selection.where, text, err);
	case 'S':
		options->sources = true;
		break;
	case 'f':
		options->field = text;
		break;
	case 'F':
		options->force = true;
		break;
	case 'j':
		options->json = true;
		break;
	default:
		options->quiet = true;
		break;
	}
	return result;
}

static int usage_error(view_options *options, const char *message)
{
	selection_free(&options->selection);
	return bt_usage_error("beton-view", message);
}

/* By the ending, unless --format said it. */
static view_format format_of(const view_options *options)
{
	const char *dot = strrchr(options->output, '.');
	if (options->format != FORMAT_BY_NAME || !dot)
		return options->format;
	if (strcmp(dot, ".png") == 0)
		return FORMAT_PNG;
	return strcmp(dot, ".html") == 0 || strcmp(dot, ".htm") == 0 ? FORMAT_HTML : FORMAT_BY_NAME;
}

static const program_command command = {"beton-view", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	view_options options = {.number = 64, .columns = 8, .side = 160, .max_pixels = BT_MAX_PIXELS_DEFAULT};
	beton_error err;
	uint64_t damaged = 0;
	text_buffer count;
	int status;
	if (!program_options(&command, argc, argv, &options, &status)) {
		selection_free(&options.selection);
		return status;
	}
	if (argc - optind != 2)
		return usage_error(&options, "expected IN.beton and the output");
	options.input = argv[optind];
	options.output = argv[optind + 1];
	options.format = format_of(&options);
	if (options.format == FORMAT_BY_NAME)
		return usage_error(&options,
				   "the name of the output ends with neither .png nor .html; --format says what it is");
	program_start();
	int result = view(&options, &damaged, &err);
	selection_free(&options.selection);
	if (result == BETON_OK && damaged)
		fprintf(stderr, "beton-view: %s; the first: %s\n",
			text_count(count, damaged, "damaged picture", "damaged pictures"), err.message);
	status = program_end("beton-view", result, &err);
	return damaged ? 1 : status;
}
