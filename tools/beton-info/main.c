/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-info: prints the content of a .beton file, or of a file of tokens.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "info.h"
#include "shards/shards.h"
#include "tools/common/program.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-info [OPTION]... FILE\n"
	"Show the contents of a .beton file, of a .bin file of tokens (nanoGPT's, llm.c's), or of the index of a set "
	"of\n"
	"shards (.betonset).\n"
	"\n"
	"  -j, --json         print JSON\n"
	"  -s, --samples      print every sample and where it comes from; with --json, also the SHA-256 of stored "
	"values\n"
	"  -i, --index=LIST   print these samples: 3,10-19,100- (from 0, ends included), or @FILE\n"
	"  -w, --where=CONDITION\n"
	"                     print samples that meet it: \"label == 'cat' and width < 64\", \"source ~ 'cat/*'\"\n"
	"  -T, --window=N     FILE is a stream of tokens: print its number of tokens, and of windows of N tokens\n"
	"  -H, --histogram    print the distribution of sizes and classes\n"
	"  -h, --help         show this text\n"
	"  -V, --version      show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure or damaged samples, 2 wrong usage.\n";

/* Prints the readable content of a damaged file, then the fault. */
static int show(const char *path, bool json, info_options *options)
{
	beton_error err;
	beton_error fault;
	text_buffer count;
	beton_reader *reader;
	uint64_t damaged = 0;
	int structure = BETON_OK;
	int result = beton_reader_open(&reader, path, &err);
	if (result == BETON_OK)
		structure = beton_reader_check_structure(reader, &fault);
	if (result == BETON_OK) {
		const dataset_input in = input_of(reader);
		result = selection_bind(&options->chosen, &in, &err);
	}
	if (result == BETON_OK)
		result = json ? info_print_json(reader, options, &damaged, &err)
			      : info_print_text(reader, options, &damaged, &err);
	beton_reader_close(&reader);
	if (result == BETON_OK && damaged) {
		fprintf(stderr, "beton-info: %s; the first: %s\n",
			text_count(count, damaged, "damaged value", "damaged values"), err.message);
		structure = BETON_OK; /* what the values show already */
	}
	if (structure != BETON_OK)
		fprintf(stderr, "beton-info: %s\n", fault.message);
	int status = program_end("beton-info", result, &err);
	return structure != BETON_OK || damaged ? 1 : status;
}

static int usage_error(info_options *options, const char *message)
{
	selection_free(&options->chosen);
	return bt_usage_error("beton-info", message);
}

/* The command line. */
typedef struct info_line {
	info_options options;
	bool json;
} info_line;

static int parse_option(void *context, int option, const char *text, beton_error *err)
{
	info_line *line = context;
	info_options *options = &line->options;
	int result = BETON_OK;
	switch (option) {
	case 'j':
		line->json = true;
		break;
	case 'i':
		options->samples = true;
		result = selection_add_ranges(&options->chosen, text, err);
		if (result != BETON_OK)
			bt_prefix(err, "--index");
		break;
	case 'w':
		options->samples = true;
		return condition_parse(&options->chosen.where, text, err);
	case 's':
		options->samples = true;
		break;
	case 'T':
		return bt_parse_u64("--window", text, 1, INT32_MAX - 1, &options->window, err);
	default:
		options->histogram = true;
		break;
	}
	return result;
}

static const struct option long_options[] = {{"json", no_argument, NULL, 'j'},
					     {"samples", no_argument, NULL, 's'},
					     {"index", required_argument, NULL, 'i'},
					     {"where", required_argument, NULL, 'w'},
					     {"histogram", no_argument, NULL, 'H'},
					     {"window", required_argument, NULL, 'T'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

static const program_command command = {"beton-info", PROJECT_VERSION, usage_text, long_options, parse_option};

int main(int argc, char **argv)
{
	info_line line = {.json = false};
	info_options *options = &line.options;
	beton_error err;
	int status;
	if (!program_options(&command, argc, argv, &line, &status)) {
		selection_free(&options->chosen);
		return status;
	}
	if (argc - optind != 1)
		return usage_error(options, "expected FILE");
	const char *path = argv[optind];
	if (bt_is_set(path)) {
		if (options->samples || options->histogram || options->window)
			return usage_error(options,
					   "of a set of shards only the index is shown; name one of its files");
		return program_end("beton-info", info_print_set(path, line.json, &err), &err);
	}
	bool stream = options->window || bt_ends_with(path, ".bin");
	if (stream && (options->samples || options->histogram))
		return usage_error(options, "a stream of tokens has no samples and no histogram");
	status = stream ? program_end("beton-info", info_print_tokens(path, options, line.json, &err), &err)
			: show(path, line.json, options);
	selection_free(&options->chosen);
	return status;
}
