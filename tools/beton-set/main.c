/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-set: makes sets of shards, adds to them, and shows them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <beton/set.h>

#include "common/arguments.h"
#include "common/error.h"
#include "shards/shards.h"
#include "tools/common/program.h"
#include "tools/common/set_writer.h"
#include "tools/common/text.h"

static const char *const usage_text = "Usage: beton-set COMMAND [OPTION]... SET.betonset [FILE.beton]...\n"
				      "Several .beton files as one dataset: an index of them.\n"
				      "\n"
				      "  create  make a set of files\n"
				      "  append  add files to a set\n"
				      "  list    print the shards of a set\n"
				      "  check   compare the files with what the set says of them\n"
				      "\n"
				      "  -h, --help     show this text; after a command, show its options\n"
				      "  -V, --version  show the version\n"
				      "\n"
				      "Exit status: 0 success, 1 failure or a file that changed, 2 wrong usage.\n";

#define USUAL_OPTIONS                         \
	"  -h, --help     show this text\n"   \
	"  -V, --version  show the version\n" \
	"\n"

static const char *const create_text =
	"Usage: beton-set create [OPTION]... SET.betonset FILE.beton...\n"
	"Make the index of a set of .beton files, which must be in its folder or below it, and have the same fields "
	"and\n"
	"class names. Only the index is written.\n"
	"\n"
	"  -F, --force    replace the set if it exists\n"
	"  -Q, --quiet    print no summary\n" USUAL_OPTIONS "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const char *const append_text =
	"Usage: beton-set append [OPTION]... SET.betonset FILE.beton...\n"
	"Add .beton files to the end of a set. Readers see the earlier set or the new one; several\n"
	"programs may add to one set at a time.\n"
	"\n"
	"  -Q, --quiet    print no summary\n" USUAL_OPTIONS "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const char *const list_text =
	"Usage: beton-set list [OPTION]... SET.betonset\n"
	"Print a line for each shard of a set: its path, samples and bytes.\n"
	"\n"
	"  -j, --json     print a JSON object for each shard, with all that the set says of it\n" USUAL_OPTIONS
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const char *const check_text =
	"Usage: beton-set check [OPTION]... SET.betonset\n"
	"Open each file of a set, and compare its size, samples, fields and fingerprint with what the set says; "
	"beton-verify\n"
	"also looks for damage in them.\n"
	"\n"
	"  -Q, --quiet    print nothing if all files are as they were\n" USUAL_OPTIONS
	"Exit status: 0 all files are as they were, 1 a file changed or cannot be read, 2 wrong usage.\n";

typedef struct set_job {
	const char *path;
	char **files;
	uint32_t num_files;
	bool force;
	bool json;
	bool quiet;
	bool faulty; /* a file is not as it was */
} set_job;

static void print_path(const char *path)
{
	char *text = text_utf8(path);
	text_print_utf8(stdout, text ? text : "", 0);
	free(text);
}

static void print_summary(const beton_set *set)
{
	const beton_set_info *info = beton_set_get_info(set);
	text_buffer shards, samples, bytes;
	print_path(beton_set_path(set));
	printf(": %s, %s, %s\n", text_count(shards, info->num_shards, "shard", "shards"),
	       text_count(samples, info->num_samples, "sample", "samples"), text_size(bytes, info->bytes));
}

static int write_set(set_job *job, beton_set_mode mode, beton_error *err)
{
	beton_set *set = NULL;
	int result = set_write(job->path, mode, (const char *const *)job->files, job->num_files, err);
	if (result == BETON_EXISTS && mode == BETON_SET_CREATE)
		bt_fail(err, BETON_EXISTS, "%s: exists; --force replaces it, append adds to it", job->path);
	if (result == BETON_OK && !job->quiet)
		result = beton_set_open(&set, job->path, err);
	if (set)
		print_summary(set);
	beton_set_close(&set);
	return result;
}

static int create(set_job *job, beton_error *err)
{
	return write_set(job, job->force ? BETON_SET_REPLACE : BETON_SET_CREATE, err);
}

static int append(set_job *job, beton_error *err)
{
	return write_set(job, BETON_SET_APPEND, err);
}

static void print_shard(const beton_shard *shard)
{
	text_buffer samples, bytes;
	print_path(shard->path);
	printf(": %s, %s\n", text_count(samples, shard->samples, "sample", "samples"), text_size(bytes, shard->bytes));
}

static int print_shard_json(const beton_shard *shard, beton_error *err)
{
	char fingerprint[17];
	char *path = text_utf8(shard->path);
	snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, shard->fingerprint);
	json_t *object = path ? json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:b}", "path", path, "first",
					  (json_int_t)shard->first, "samples", (json_int_t)shard->samples, "bytes",
					  (json_int_t)shard->bytes, "fingerprint", fingerprint, "record_size",
					  (json_int_t)shard->record_size, "page_size", (json_int_t)shard->page_size,
					  "data_bytes", (json_int_t)shard->data_bytes, "ordered", shard->ordered)
			      : NULL;
	free(path);
	if (!object)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", shard->path);
	json_dumpf(object, stdout, 0);
	putchar('\n');
	json_decref(object);
	return BETON_OK;
}

static int list(set_job *job, beton_error *err)
{
	beton_set *set;
	int result = beton_set_open(&set, job->path, err);
	uint32_t count = set ? beton_set_get_info(set)->num_shards : 0;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		if (job->json)
			result = print_shard_json(beton_set_shard(set, i), err);
		else
			print_shard(beton_set_shard(set, i));
	}
	if (result == BETON_OK && !job->json)
		print_summary(set);
	beton_set_close(&set);
	return result;
}

static int check(set_job *job, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	size_t faults = 0;
	int result = bt_shard_inputs_add(&inputs, job->path, err);
	for (size_t i = 0; i < inputs.count && result == BETON_OK; i++) {
		beton_reader *reader;
		beton_error fault;
		result = program_check_signals(err);
		if (result != BETON_OK)
			break;
		if (bt_shard_input_open(&inputs.list[i], &reader, &fault) != BETON_OK) {
			printf("%s\n", fault.message);
			faults++;
		}
		beton_reader_close(&reader);
	}
	if (result == BETON_OK && !job->quiet && faults == 0)
		print_summary(inputs.sets[0]);
	if (result == BETON_OK && faults)
		printf("%s: %zu of %zu files are not as they were when they were added\n", job->path, faults,
		       inputs.count);
	job->faulty = faults > 0;
	bt_shard_inputs_free(&inputs);
	return result;
}

static const struct option long_options[] = {{"force", no_argument, NULL, 'F'},   {"json", no_argument, NULL, 'j'},
					     {"quiet", no_argument, NULL, 'Q'},   {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};

typedef struct set_command {
	const char *name;
	const char *usage;
	const char *letters; /* of the options that it takes */
	bool files;
	int (*run)(set_job *job, beton_error *err);
} set_command;

static const set_command commands[] = {
	{"create", create_text, "FQhV", true, create},
	{"append", append_text, "QhV", true, append},
	{"list", list_text, "jhV", false, list},
	{"check", check_text, "QhV", false, check},
};

static int show(const char *text)
{
	fputs(text, stdout);
	return fflush(stdout) == 0 ? 0 : 1;
}

static int refuse_option(const set_command *command, int option)
{
	const struct option *given = long_options;
	beton_error err;
	while (given->val != option)
		given++;
	bt_fail(&err, BETON_INVALID_ARGUMENT, "%s does not take --%s", command->name, given->name);
	return bt_usage_error("beton-set", err.message);
}

static int run(const set_command *command, int argc, char **argv)
{
	set_job job = {0};
	beton_error err;
	int option;
	while ((option = bt_getopt(argc, argv, "FjQhV", long_options, NULL)) != -1) {
		if (option == '?')
			return bt_usage_error("beton-set", NULL);
		if (!strchr(command->letters, option))
			return refuse_option(command, option);
		if (option == 'h' || option == 'V')
			return show(option == 'h' ? command->usage : "beton-set " PROJECT_VERSION "\n");
		*(option == 'F' ? &job.force : option == 'j' ? &job.json : &job.quiet) = true;
	}
	int words = argc - optind;
	if (command->files ? words < 2 : words != 1)
		return bt_usage_error("beton-set", command->files ? "expected SET.betonset and at least one FILE.beton"
								  : "expected SET.betonset");
	job.path = argv[optind];
	job.files = argv + optind + 1;
	job.num_files = (uint32_t)(words - 1);
	if (!bt_is_set(job.path)) {
		bt_fail(&err, BETON_INVALID_ARGUMENT, "%s: the name of a set ends in " BETON_SET_ENDING, job.path);
		return bt_usage_error("beton-set", err.message);
	}
	program_start();
	int result = command->run(&job, &err);
	int status = program_end("beton-set", result, &err);
	return status ? status : job.faulty;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return run(&commands[i], argc - 1, argv + 1);
	if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0)
		return show(usage_text);
	if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0)
		return show("beton-set " PROJECT_VERSION "\n");
	fprintf(stderr, argc > 1 ? "beton-set: no command '%s'\n" : "beton-set: expected a command\n", name);
	return bt_usage_error("beton-set", NULL);
}
