/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-export: a checkpoint as one safetensors file, or as several with an index. */
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
#include "common/tensor_names.h"
#include "files.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/staging.h"
#include "tools/common/text.h"

static const char *const usage_text =
	"Usage: dtrain-export [OPTION]... CHECKPOINT FILE.safetensors\n"
	"Write the tensors of a checkpoint, which may consist of many files, to one file, or to several with an "
	"index.\n"
	"CHECKPOINT is the folder of one checkpoint (step-...), or a folder of checkpoints; the newest is used then.\n"
	"\n"
	"  -s, --set=SET              model (default), optimizer, or ema (the moving average, under the model's "
	"names)\n"
	"  -n, --names=PROGRAM        write the names of timm, torchvision or huggingface (default: the model's own)\n"
	"  -m, --max-shard-size=SIZE  put at most SIZE of tensors (500MB, 5GB) in a file, and write several if "
	"needed:\n"
	"                             FILE-00001-of-00002.safetensors, ..., and the index FILE.safetensors.index.json\n"
	"  -F, --force                replace an export to that name, whatever files it has\n"
	"  -Q, --quiet                print no summary\n"
	"  -h, --help                 show this text\n"
	"  -V, --version              show the version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const struct option long_options[] = {
	{"set", required_argument, NULL, 's'},
	{"names", required_argument, NULL, 'n'},
	{"max-shard-size", required_argument, NULL, 'm'},
	{"force", no_argument, NULL, 'F'},
	{"quiet", no_argument, NULL, 'Q'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

typedef struct export_request {
	const char *set;
	const char *names;  /* NULL: the model's own */
	uint64_t max_bytes; /* of tensors in a file; 0: one file */
	bool force, quiet;
} export_request;

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

/* Adds up what a file holds. */
static int look_at(const char *file, size_t *tensors, uint64_t *bytes, beton_error *err)
{
	dtrain_tensor_file *written = NULL;
	struct stat status;
	size_t count = 0;
	int result = dtrain_tensor_file_open(file, &written, err);
	while (result == BETON_OK && dtrain_tensor_file_at(written, count))
		count++;
	dtrain_tensor_file_close(&written);
	if (result == BETON_OK && stat(file, &status) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot be looked at", file);
	*tensors += count;
	*bytes += result == BETON_OK ? (uint64_t)status.st_size : 0;
	return result;
}

/* Says what was written to `files` files: the tensors of the checkpoint at path. */
static int tell(const char *file, int files, const char *path, beton_error *err)
{
	size_t count = 0;
	uint64_t bytes = 0;
	text_buffer tensors, size;
	int result = BETON_OK;
	for (int i = 0; i < files && result == BETON_OK; i++) {
		char *part = dtrain_checkpoint_export_path(file, i, files);
		result = part ? look_at(part, &count, &bytes, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file);
		free(part);
	}
	if (result != BETON_OK)
		return result;
	printf("%s: %s of %s, %s", file, text_count(tensors, count, "tensor", "tensors"), path, text_size(size, bytes));
	if (files > 1)
		printf(" in %d files", files);
	puts("");
	return BETON_OK;
}

static int open_checkpoint(const char *given, char **path, dtrain_checkpoint **out, beton_error *err)
{
	int result = find_checkpoint(given, path, err);
	return result == BETON_OK ? dtrain_checkpoint_open(*path, NULL, out, err) : result;
}

/* Errors of writing begin with a file of the hidden folder, which is gone when they are read: the file has its final
 * name there. */
static void name_final(const char *staged, const char *file, beton_error *err)
{
	const beton_error found = *err;
	size_t hidden = (size_t)(strrchr(staged, '/') + 1 - staged);
	const char *slash = strrchr(file, '/');
	if (strncmp(found.message, staged, hidden) == 0)
		snprintf(err->message, sizeof(err->message), "%.*s%s", slash ? (int)(slash + 1 - file) : 0, file,
			 found.message + hidden);
}

/* All files appear when the last one is complete. */
static int write_files(dtrain_checkpoint *checkpoint, const export_request *request, const char *file, staging *place,
		       int *files, beton_error *err)
{
	dtrain_checkpoint_export_options options;
	char *staged = staging_path(place, file);
	if (!staged)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file);
	dtrain_checkpoint_export_options_init(&options);
	options.set = strcmp(request->set, "model") == 0 ? DTRAIN_CHECKPOINT_MODEL : DTRAIN_CHECKPOINT_OPTIMIZER;
	options.state = strcmp(request->set, "ema") == 0 ? request->set : NULL;
	options.names = request->names;
	options.max_file_bytes = request->max_bytes;
	options.check = program_check_signals;
	int result = dtrain_checkpoint_export(checkpoint, &options, staged, files, err);
	if (result != BETON_OK)
		name_final(staged, file, err);
	free(staged);
	return result;
}

static int export_checkpoint(const char *given, const char *file, const export_request *request, beton_error *err)
{
	dtrain_checkpoint *checkpoint = NULL;
	export_files old = {0};
	staging place = {0};
	char *path = NULL;
	int files = 0;
	/* Its files would be taken for an older export's. */
	if (dtrain_checkpoint_holds(file))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: is in the folder of a checkpoint, which is not changed", file);
	int result = staging_recover(file, err);
	if (result == BETON_OK)
		result = export_files_find(&old, file, request->force, err);
	if (result == BETON_OK)
		result = open_checkpoint(given, &path, &checkpoint, err);
	if (result == BETON_OK)
		result = staging_open(&place, file, err);
	if (result == BETON_OK)
		result = write_files(checkpoint, request, file, &place, &files, err);
	if (result == BETON_OK)
		result = export_files_publish(&old, &place, file, files, err);
	if (!staging_close(&place))
		fprintf(stderr, "dtrain-export: cannot remove the temporary folder beside %s\n", file);
	dtrain_checkpoint_close(&checkpoint);
	if (result == BETON_OK && !request->quiet)
		result = tell(file, files, path, err);
	export_files_free(&old);
	free(path);
	return result;
}

/* 0, or the exit status plus 1: the program ends at once. */
static int take_option(int option, const char *text, export_request *request, beton_error *err)
{
	static const char *const sets[] = {"model", "optimizer", "ema", NULL};
	int chosen, result = BETON_OK;
	switch (option) {
	case 's':
		result = bt_parse_choice("--set", text, sets, &chosen, err);
		request->set = text;
		break;
	case 'n':
		result = bt_parse_choice("--names", text, bt_name_givers, &chosen, err);
		request->names = text;
		break;
	case 'm':
		result = bt_parse_size("--max-shard-size", text, 1, &request->max_bytes, err);
		break;
	case 'F':
		request->force = true;
		break;
	case 'Q':
		request->quiet = true;
		break;
	case 'h':
	case 'V':
		fputs(option == 'h' ? usage_text : "dtrain-export " PROJECT_VERSION "\n", stdout);
		return fflush(stdout) == 0 ? 1 : 2;
	default:
		return bt_usage_error("dtrain-export", NULL) + 1;
	}
	if (result == BETON_OK)
		return 0;
	fprintf(stderr, "dtrain-export: %s\n", err->message);
	return 3;
}

int main(int argc, char **argv)
{
	export_request request = {.set = "model"};
	beton_error err = {0};
	int option;
	while ((option = bt_getopt(argc, argv, "s:n:m:FQhV", long_options, NULL)) != -1) {
		int end = take_option(option, optarg, &request, &err);
		if (end)
			return end - 1;
	}
	if (argc - optind != 2)
		return bt_usage_error("dtrain-export", "expected CHECKPOINT and FILE");
	if (request.names && strcmp(request.set, "optimizer") == 0)
		return bt_usage_error("dtrain-export", "--names cannot be combined with --set optimizer");
	program_start();
	int result = export_checkpoint(argv[optind], argv[optind + 1], &request, &err);
	return program_end("dtrain-export", result, &err);
}
