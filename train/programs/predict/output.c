/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dtrain/checkpoint.h>

#include "common/error.h"

static bool is_same_file(const struct stat *one, const char *path)
{
	struct stat other;
	return stat(path, &other) == 0 && one->st_dev == other.st_dev && one->st_ino == other.st_ino;
}

static int check_shards(const predict_options *options, const struct stat *there, beton_error *err)
{
	bt_shard_inputs files = {0};
	int status = bt_is_set(options->data) ? bt_shard_inputs_add(&files, options->data, err) : BETON_OK;
	for (size_t i = 0; i < files.count && status == BETON_OK; i++)
		if (is_same_file(there, files.list[i].path))
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the output is a shard of the data (%s)",
					 options->output, files.list[i].path);
	bt_shard_inputs_free(&files);
	return status;
}

static int check(const predict_options *options, beton_error *err)
{
	const char *path = options->output;
	struct stat there;
	/* A link is something too, wherever it leads. */
	if (lstat(path, &there) != 0)
		return BETON_OK; /* nothing there, or what opening it reports */
	bool dangling = S_ISLNK(there.st_mode) && stat(path, &there) != 0;
	if (!dangling && is_same_file(&there, options->data))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the output is the data too (%s)", path, options->data);
	if (!dangling && is_same_file(&there, options->weights))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the output is the weights too (%s)", path,
			       options->weights);
	if (!dangling && !S_ISREG(there.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is %s", path,
			       S_ISDIR(there.st_mode) ? "a folder" : "not a regular file");
	if (!dangling && dtrain_checkpoint_holds(path))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is a file of a checkpoint, which is not replaced",
			       path);
	int status = dangling ? BETON_OK : check_shards(options, &there, err);
	if (status != BETON_OK || options->force)
		return status;
	return bt_fail(err, BETON_EXISTS, "%s: exists; --force replaces it", path);
}

int predict_output_check(const predict_options *options, beton_error *err)
{
	if (!options->output)
		return BETON_OK;
	/* Such a name comes from a shell pattern, or is a picture of the folder. */
	if (predict_is_picture(options->output))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no results are written to a name that ends with '%s'",
			       options->output, strrchr(options->output, '.'));
	return check(options, err);
}

int predict_output_open(const char *path, predict_output *out, beton_error *err)
{
	*out = (predict_output){.stream = stdout, .path = path};
	if (!path)
		return BETON_OK;
	out->stream = NULL;
	int status = bt_atomic_open(&out->file, path, err);
	if (status != BETON_OK)
		return status;
	int copy = dup(out->file.fd);
	out->stream = copy >= 0 ? fdopen(copy, "w") : NULL;
	if (out->stream)
		return BETON_OK;
	status = bt_fail_errno(err, errno, "%s", path);
	if (copy >= 0)
		close(copy);
	bt_atomic_abandon(&out->file);
	return status;
}

int predict_output_close(predict_output *output, int status, beton_error *err)
{
	const char *name = output->path ? output->path : "standard output";
	if (!output->stream)
		return status;
	int closed = output->path ? fclose(output->stream) : fflush(output->stream);
	if (closed != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s", name);
	output->stream = NULL;
	if (output->path && status == BETON_OK)
		return bt_atomic_commit(&output->file, err);
	if (output->path)
		bt_atomic_abandon(&output->file);
	return status;
}
