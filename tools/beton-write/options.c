/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/set.h>
#include <beton/tokens.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "tools/beton-write/images/image_options.h"
#include "tools/beton-write/sources/paths.h"
#include "tools/beton-write/text/text_stream.h"
#include "tools/common/output.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: beton-write [OPTION]... SOURCE OUT.beton\n"
	"Write SOURCE as a .beton dataset. If SOURCE has a validation set, write OUT.val.beton too. SOURCE is\n"
	"  a folder of class folders with pictures, or a folder with train/ and val/ (valid/, validation/) or\n"
	"  test/ that contain class folders; with all three, OUT.test.beton is written as well\n"
	"  WebDataset's shards: .tar, .tar.gz, .tar.zst; a pattern such as 'shard-{000..099}.tar'; - for\n"
	"  standard input; or tar files of class folders\n"
	"  a manifest, .csv, .tsv or .jsonl: paths of pictures and any other columns\n"
	"  NumPy's .npy or .npz: the first axis counts the samples\n"
	"  CIFAR-10's binary batches, MNIST's idx files (.gz too), or the folder with them\n"
	"  a stream of tokens: llm.c's .bin, with --format=tokens nanoGPT's .bin or a .beton file of tokens\n"
	"  text, with --tokenizer: files or a pattern of them, JSON lines\n"
	"\n"
	"Samples:\n"
	"      --format=KIND         kind of SOURCE, if its name does not tell it: folder, tar, csv, jsonl, npy, npz,\n"
	"                            cifar10, idx, tokens; with --tokenizer text, jsonl\n"
	"      --fields=LIST         the fields and their columns, NAME[=COLUMN][:TYPE],...; types: int, class "
	"(names,\n"
	"                            which become numbers), float, image, bytes, text, json, array, raster (pictures\n"
	"                            of any channels, 8 or 16 bits, as they are; FFCV cannot read such a file)\n"
	"      --columns=NAME,...    names of the columns of a .csv or .tsv file whose first row is a sample\n"
	"      --root=FOLDER         paths in a manifest are relative to FOLDER (default: the manifest's folder), and\n"
	"                            may not leave it\n"
	"      --subset=LIST         only these samples: FIRST-LAST, FIRST-, N, separated by commas, or @FILE with "
	"such "
	"a list\n"
	"      --shuffle=SEED        random order, which depends on SEED alone\n"
	"      --limit=N             the first N of the samples above\n"
	"  -f, --val-fraction=F      move a random fraction F of each class to OUT.val.beton\n"
	"      --val-seed=N          seed of this random choice (default 0)\n"
	"      --no-sources          do not store which file or archive member each sample comes from\n"
	"      --no-index            with --keep-bytes: make no index, by which loaders decode crops\n"
	"      --on-error=stop|skip  end the program at a bad sample or class folder (default), or leave it out\n"
	"      --error-list=FILE     list in FILE what was left out, not on standard error\n"
	"\n";

static const char *const usage_end =
	"\n"
	"File and program:\n"
	"      --tokenizer=VOCABULARY  SOURCE is text, or JSON lines, to be written as tokens: a folder with "
	"vocab.json\n"
	"                            and merges.txt, NAME.tiktoken, NAME.characters.json, or 'characters' to number "
	"the\n"
	"                            text's own. OUT.bin instead of OUT.beton: a file for nanoGPT or llm.c\n"
	"      --field=NAME          the text of a line of JSON (default: text)\n"
	"      --llmc                write llm.c's header into OUT.bin; with 32-bit tokens it is always there\n"
	"      --chunk-tokens=N      tokens in a sample of a stream of tokens (default 4096)\n"
	"  -p, --page-size=SIZE      power of two, 2MiB to 2GiB (default 8MiB, up to 64 MiB of data 2MiB to 8MiB, what "
	"makes\n"
	"                            the file smallest); no sample may be larger than a page\n"
	"      --compress=zstd[:N]   compress bytes, JSON, array and raster fields, at level N; FFCV cannot read such "
	"a file\n"
	"      --resume              continue an earlier run of the same command, and keep the output of this run if "
	"it\n"
	"                            does not finish; SOURCE must not have changed\n"
	"      --append=SET          add OUT.beton to the set of shards SET.betonset, which must take it (beton-set)\n"
	"  -F, --force               replace files that exist\n"
	"  -t, --threads=N           number of threads (default: one for each core)\n"
	"  -Q, --quiet               print no progress and no summary\n"
	"  -h, --help                show this text\n"
	"  -V, --version             show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

/* A window of a thousand tokens, which language models often have, then reads little more than itself. */
enum { CHUNK_TOKENS_DEFAULT = 4096 };

/* Options without a letter. */
enum {
	OPTION_FORMAT = 256,
	OPTION_FIELDS,
	OPTION_COLUMNS,
	OPTION_ROOT,
	OPTION_SUBSET,
	OPTION_SHUFFLE,
	OPTION_LIMIT,
	OPTION_VAL_SEED,
	OPTION_NO_SOURCES,
	OPTION_NO_INDEX,
	OPTION_ON_ERROR,
	OPTION_ERROR_LIST,
	OPTION_COMPRESS,
	OPTION_CHUNK_TOKENS,
	OPTION_TOKENIZER,
	OPTION_FIELD,
	OPTION_LLMC,
	OPTION_RESUME,
	OPTION_APPEND,
};

static const struct option long_options[] = {{"format", required_argument, NULL, OPTION_FORMAT},
					     {"columns", required_argument, NULL, OPTION_COLUMNS},
					     {"root", required_argument, NULL, OPTION_ROOT},
					     {"fields", required_argument, NULL, OPTION_FIELDS},
					     {"subset", required_argument, NULL, OPTION_SUBSET},
					     {"shuffle", required_argument, NULL, OPTION_SHUFFLE},
					     {"limit", required_argument, NULL, OPTION_LIMIT},
					     {"on-error", required_argument, NULL, OPTION_ON_ERROR},
					     {"error-list", required_argument, NULL, OPTION_ERROR_LIST},
					     {"val-fraction", required_argument, NULL, 'f'},
					     {"val-seed", required_argument, NULL, OPTION_VAL_SEED},
					     {"no-sources", no_argument, NULL, OPTION_NO_SOURCES},
					     {"no-index", no_argument, NULL, OPTION_NO_INDEX},
					     IMAGE_LONG_OPTIONS,
					     {"page-size", required_argument, NULL, 'p'},
					     {"compress", required_argument, NULL, OPTION_COMPRESS},
					     {"chunk-tokens", required_argument, NULL, OPTION_CHUNK_TOKENS},
					     {"tokenizer", required_argument, NULL, OPTION_TOKENIZER},
					     {"field", required_argument, NULL, OPTION_FIELD},
					     {"llmc", no_argument, NULL, OPTION_LLMC},
					     {"resume", no_argument, NULL, OPTION_RESUME},
					     {"append", required_argument, NULL, OPTION_APPEND},
					     {"force", no_argument, NULL, 'F'},
					     {"threads", required_argument, NULL, 't'},
					     {"quiet", no_argument, NULL, 'Q'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

static int parse_compress(const char *text, write_options *options, beton_error *err)
{
	uint64_t level = 0;
	int result = BETON_OK;
	if (strncmp(text, "zstd:", 5) == 0)
		result = bt_parse_u64("--compress: the level", text + 5, 1, 22, &level, err);
	else if (strcmp(text, "zstd") != 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "--compress: '%s' is not zstd or zstd:LEVEL", text);
	options->compress = true;
	options->compression_level = (int)level;
	return result;
}

/* Parses the options that choose samples. */
static int parse_sample_option(write_options *options, int option, const char *text, beton_error *err)
{
	static const char *const reactions[] = {"stop", "skip", NULL};
	int reaction = 0, result;
	switch (option) {
	case OPTION_FORMAT:
		options->format = text;
		return BETON_OK;
	case OPTION_COLUMNS:
		options->columns = text;
		return BETON_OK;
	case OPTION_ROOT:
		options->root = text;
		return BETON_OK;
	case OPTION_FIELDS:
		options->fields = text;
		return BETON_OK;
	case OPTION_SUBSET:
		options->selected.subset = text;
		return BETON_OK;
	case OPTION_SHUFFLE:
		options->selected.shuffle = true;
		return bt_parse_u64("--shuffle", text, 0, UINT64_MAX, &options->selected.seed, err);
	case OPTION_LIMIT:
		return bt_parse_u64("--limit", text, 1, INT64_MAX, &options->selected.limit, err);
	case 'f':
		return bt_parse_double("--val-fraction", text, 1e-6, 1 - 1e-6, &options->val_fraction, err);
	case OPTION_VAL_SEED:
		options->has_val_seed = true;
		return bt_parse_u64("--val-seed", text, 0, UINT64_MAX, &options->val_seed, err);
	case OPTION_NO_SOURCES:
		options->no_sources = true;
		return BETON_OK;
	case OPTION_NO_INDEX:
		options->image.no_index = true;
		return BETON_OK;
	case OPTION_ERROR_LIST:
		options->error_list = text;
		return BETON_OK;
	default:
		result = bt_parse_choice("--on-error", text, reactions, &reaction, err);
		options->skip_bad = reaction == 1;
		return result;
	}
}

static int parse_option(write_options *options, int option, const char *text, beton_error *err)
{
	uint64_t number = 0;
	int result = BETON_OK;
	if (image_option_known(option))
		return image_option_parse(&options->image, option, text, err);
	switch (option) {
	case 'p':
		return text_parse_page_size("--page-size", text, &options->page_size, err);
	case 't':
		result = bt_parse_u64("--threads", text, 1, 1024, &number, err);
		options->threads = (int)number;
		return result;
	case OPTION_COMPRESS:
		return parse_compress(text, options, err);
	case OPTION_TOKENIZER:
		options->tokenizer = text;
		return result;
	case OPTION_FIELD:
		options->text_field = text;
		return result;
	case OPTION_LLMC:
		options->llmc_header = true;
		return result;
	case OPTION_CHUNK_TOKENS:
		return bt_parse_u64("--chunk-tokens", text, 1, BETON_TOKENS_CHUNK_MAX, &options->chunk_tokens, err);
	case OPTION_RESUME:
		options->resume = true;
		return result;
	case OPTION_APPEND:
		options->append = text;
		return bt_ends_with(text, BETON_SET_ENDING)
			       ? result
			       : bt_fail(err, BETON_INVALID_ARGUMENT,
					 "--append: '%s': the name of a set ends in " BETON_SET_ENDING, text);
	case 'F':
		options->force = true;
		return result;
	case 'Q':
		options->quiet = true;
		return result;
	default:
		return parse_sample_option(options, option, text, err);
	}
}

/* The name of an option that is for OUT.beton alone; NULL: it is not. */
static const char *name_of_dataset(int option)
{
	if (!image_option_known(option) && option != 'p' && option != OPTION_COMPRESS &&
	    option != OPTION_CHUNK_TOKENS && option != OPTION_RESUME && option != OPTION_NO_SOURCES &&
	    option != OPTION_APPEND)
		return NULL;
	int i = 0;
	while (long_options[i].val != option)
		i++;
	return long_options[i].name;
}

static void print_version(void)
{
	char unicode[24];
	puts("beton-write " PROJECT_VERSION);
	text_stream_unicode(unicode);
	if (*unicode)
		printf("text is split into tokens by Unicode %s\n", unicode);
}

static options_outcome usage_error(const char *message)
{
	bt_usage_error("beton-write", message);
	return OPTIONS_WRONG;
}

/* The operands are not SOURCE and OUT.beton. Where the shell seems to have made several names of a pattern, all with
 * one ending, that is said. */
static options_outcome wrong_operands(char **operands, int count, const char *otherwise)
{
	beton_error message;
	int sources = 0;
	while (sources < count && output_check_dataset_name(operands[sources], NULL) != BETON_OK)
		sources++;
	char *pattern = sources > 1 ? paths_pattern(operands, (size_t)sources) : NULL;
	bool helps = pattern && !strchr("*}", pattern[strlen(pattern) - 1]);
	if (helps)
		bt_fail(&message, BETON_INVALID_ARGUMENT,
			"expected SOURCE and OUT.beton; several sources are one pattern, in quotes that keep the "
			"shell from expanding it: '%s'",
			pattern);
	free(pattern);
	return usage_error(helps ? message.message : otherwise);
}

options_outcome options_parse(write_options *options, int argc, char **argv)
{
	*options = (write_options){.selected = {.limit = UINT64_MAX},
				   .chunk_tokens = CHUNK_TOKENS_DEFAULT,
				   .threads = bt_available_cores()};
	image_settings_init(&options->image);
	beton_error err;
	int option;
	while ((option = bt_getopt(argc, argv, "m:r:q:p:t:f:FQhV", long_options, NULL)) != -1) {
		if (option == '?')
			return usage_error(NULL);
		if (option == 'h' || option == 'V') {
			if (option == 'h')
				printf("%s%s%s", usage_text, image_options_usage, usage_end);
			else
				print_version();
			return OPTIONS_DONE;
		}
		if (parse_option(options, option, optarg, &err) != BETON_OK)
			return usage_error(err.message);
		if (!options->of_dataset)
			options->of_dataset = name_of_dataset(option);
	}
	if (argc - optind != 2)
		return wrong_operands(argv + optind, argc - optind, "expected SOURCE and OUT.beton");
	bool bin = options->tokenizer && path_ends_with(argv[optind + 1], ".bin");
	if (!bin && output_check_dataset_name(argv[optind + 1], &err) != BETON_OK)
		return wrong_operands(argv + optind, 2, err.message);
	if (image_options_check(&options->image, &err) != BETON_OK)
		return usage_error(err.message);
	if (options->error_list && !options->skip_bad)
		return usage_error("--error-list goes with --on-error=skip");
	if (options->has_val_seed && options->val_fraction == 0)
		return usage_error("--val-seed goes with --val-fraction");
	if (options->append && options->val_fraction > 0)
		return usage_error("--append adds one file to a set; it does not go with --val-fraction");
	if (options->text_field && !options->tokenizer)
		return usage_error("--field goes with --tokenizer");
	if (options->image.no_index && (!options->image.keep_bytes || options->image.unchecked))
		return usage_error("--no-index goes with --keep-bytes, and not with --no-check, which makes none");
	if (options->llmc_header && !bin)
		return usage_error("--llmc goes with --tokenizer and OUT.bin");
	options->source = argv[optind];
	options->output = argv[optind + 1];
	if (options->error_list && strcmp(options->error_list, options->output) == 0)
		return usage_error("--error-list is the output");
	if (options->error_list && output_check_list_name(options->error_list, &err) != BETON_OK)
		return usage_error(err.message);
	return OPTIONS_RUN;
}
