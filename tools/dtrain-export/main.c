/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-export: one safetensors file of a checkpoint. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dtrain/checkpoint.h>
#include <dtrain/tensor_file.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: dtrain-export [OPTION]... CHECKPOINT FILE.safetensors\n"
	"Write the tensors of a checkpoint, which may consist of many files, to one file.\n"
	"CHECKPOINT is the folder of one checkpoint (step-...), or a folder of checkpoints; the newest is used then.\n"
	"\n"
	"  -s, --set=SET      model (default), optimizer, or ema (the moving average, under the names of the model)\n"
	"  -F, --force        replace the file if it exists\n"
	"  -Q, --quiet        print no summary\n"
	"  -h, --help         show this text\n"
	"  -V, --version      show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"set", required_argument, NULL, 's'}, {"force", no_argument, NULL, 'F'},   {"quiet", no_argument, NULL, 'Q'},
	{"help", no_argument, NULL, 'h'},      {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0},
};

/* malloc'ed. */
static int find_checkpoint(const char *given, char **path, beton_error *err)
{
	char *state = bt_format("%s/state.json", given);
	int result = BETON_OK;
	if (!state)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", given);
	if (access(state, F_OK) != 0) {
		result = dtrain_checkpoint_latest(given, INT64_MAX, path, NULL, err);
	} else {
		*path = strdup(given);
		if (!*path)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", given);
	}
	free(state);
	return result;
}

/* Says what was written: the tensors of the checkpoint at path. */
static int tell(const char *file, const char *path, beton_error *err)
{
	dtrain_tensor_file *written = NULL;
	struct stat status;
	size_t count = 0;
	text_buffer tensors, size;
	int result = dtrain_tensor_file_open(file, &written, err);
	while (result == BETON_OK && dtrain_tensor_file_at(written, count))
		count++;
	dtrain_tensor_file_close(&written);
	if (result == BETON_OK && stat(file, &status) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot be looked at", file);
	if (result == BETON_OK)
		printf("%s: %s of %s, %s\n", file, text_count(tensors, count, "tensor", "tensors"), path,
		       text_size(size, (uint64_t)status.st_size));
	return result;
}

static int export(const char *given, const char *set, const char *file, bool force, bool quiet, beton_error *err)
{
	dtrain_checkpoint *checkpoint = NULL;
	char *path = NULL;
	int result = output_check(file, NULL, force, err);
	if (result == BETON_OK)
		result = find_checkpoint(given, &path, err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_open(path, NULL, &checkpoint, err);
	if (result == BETON_OK && strcmp(set, "ema") == 0)
		result = dtrain_checkpoint_export_state(checkpoint, set, file, program_check_signals, err);
	else if (result == BETON_OK)
		result = dtrain_checkpoint_export(
			checkpoint, strcmp(set, "model") == 0 ? DTRAIN_CHECKPOINT_MODEL : DTRAIN_CHECKPOINT_OPTIMIZER,
			file, program_check_signals, err);
	dtrain_checkpoint_close(&checkpoint);
	if (result == BETON_OK && !quiet)
		result = tell(file, path, err);
	free(path);
	return result;
}

int main(int argc, char **argv)
{
	static const char *const sets[] = {"model", "optimizer", "ema", NULL};
	const char *set = "model";
	int chosen;
	beton_error err = {0};
	bool force = false, quiet = false;
	int option;
	while ((option = bt_getopt(argc, argv, "s:FQhV", long_options, NULL)) != -1) {
		switch (option) {
		case 's':
			if (bt_parse_choice("--set", optarg, sets, &chosen, &err) != BETON_OK) {
				fprintf(stderr, "dtrain-export: %s\n", err.message);
				return 2;
			}
			set = optarg;
			break;
		case 'F':
			force = true;
			break;
		case 'Q':
			quiet = true;
			break;
		case 'h':
		case 'V':
			fputs(option == 'h' ? usage_text : "dtrain-export " PROJECT_VERSION "\n", stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		default:
			fputs("Try 'dtrain-export --help'.\n", stderr);
			return 2;
		}
	}
	if (argc - optind != 2) {
		fputs("dtrain-export: expected CHECKPOINT and FILE\nTry 'dtrain-export --help'.\n", stderr);
		return 2;
	}
	program_start();
	int result = export(argv[optind], set, argv[optind + 1], force, quiet, &err);
	return program_end("dtrain-export", result, &err);
}
