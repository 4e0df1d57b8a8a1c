/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "engine/tasks/vision/class_names.h"

extern char **environ;

bool predict_is_picture(const char *name)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < sizeof(endings) / sizeof(endings[0]); i++)
		if (strcasecmp(dot, endings[i]) == 0)
			return true;
	return false;
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* A line of JSON for each picture, whose path is relative to root. */
static int list_pictures(char *root, FILE *list, uint64_t *count, beton_error *err)
{
	size_t length = strlen(root);
	FTS *tree = fts_open((char *[]){root, NULL}, FTS_LOGICAL | FTS_NOCHDIR, compare_names);
	int status = tree ? BETON_OK : bt_fail_errno(err, errno, "%s", root);
	for (FTSENT *entry; status == BETON_OK && (entry = fts_read(tree));) {
		bool hidden = entry->fts_level > 0 && entry->fts_name[0] == '.';
		if (entry->fts_info == FTS_D && hidden)
			fts_set(tree, entry, FTS_SKIP);
		else if (entry->fts_info == FTS_ERR || entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS)
			status = bt_fail_errno(err, entry->fts_errno, "%s", entry->fts_path);
		else if (entry->fts_info == FTS_DC)
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: leads back to a folder above it",
					 entry->fts_path);
		/* A link that leads nowhere is a bad picture. */
		bool file = entry->fts_info == FTS_F || entry->fts_info == FTS_SLNONE;
		if (!file || hidden || !predict_is_picture(entry->fts_name))
			continue;
		json_t *line =
			json_pack("{s:s}", "image", entry->fts_path + length + strspn(entry->fts_path + length, "/"));
		if (!line)
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the name is not UTF-8", entry->fts_path);
		else if (json_dumpf(line, list, JSON_COMPACT) != 0 || putc('\n', list) == EOF)
			status = bt_fail_errno(err, errno, "the list of pictures");
		json_decref(line);
		*count += status == BETON_OK;
	}
	if (tree)
		fts_close(tree);
	return status;
}

/* The program beside this one, if there is one, else that of the PATH. */
static const char *find_writer(char path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[length > 0 ? length : 0] = 0;
	char *name = strrchr(path, '/');
	if (!name || (size_t)(name + 1 - path) + sizeof("beton-write") > PATH_MAX)
		return "beton-write";
	strcpy(name + 1, "beton-write");
	return access(path, X_OK) == 0 ? path : "beton-write";
}

/* A signal that ends this program waits until the caller has removed the temporary files. said: the file that gets the
 * program's messages. */
static int run_writer(char *const *arguments, const char *said, const predict_list *list, beton_error *err)
{
	char path[PATH_MAX];
	const char *program = find_writer(path);
	sigset_t none;
	posix_spawnattr_t attributes;
	posix_spawn_file_actions_t files;
	pid_t child;
	int how = 0;
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int number = posix_spawnp(&child, program, &files, &attributes, arguments, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	if (number != 0)
		return bt_fail_errno(err, number, "cannot start '%s', which makes a data set of pictures", program);
	while (waitpid(child, &how, 0) < 0 && errno == EINTR)
		;
	return predict_messages_tell(said, list, !WIFEXITED(how) || WEXITSTATUS(how) != 0, err);
}

static int write_pictures(const predict_list *list, bool skip, const char *output, beton_error *err)
{
	char *base = bt_format("--root=%s", list->root), *said = bt_format("%s.said", list->path);
	char *arguments[] = {"beton-write",
			     "--quiet",
			     "--format=jsonl",
			     "--fields=image:image",
			     "--keep-bytes",
			     skip ? "--on-error=skip" : "--on-error=stop",
			     base,
			     "--",
			     (char *)list->path,
			     (char *)output,
			     NULL};
	int status =
		base && said ? run_writer(arguments, said, list, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (said)
		unlink(said);
	free(said);
	free(base);
	return status;
}

/* Splits the path of a picture into its folder and a list of one. */
static int list_one(const char *given, FILE *list, char **root, beton_error *err)
{
	const char *slash = strrchr(given, '/');
	*root = slash ? strndup(given, (size_t)(slash - given) + 1) : strdup("./");
	json_t *line = json_pack("{s:s}", "image", slash ? slash + 1 : given);
	int status = *root && line ? BETON_OK
				   : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: out of memory, or not UTF-8", given);
	if (status == BETON_OK && (json_dumpf(line, list, JSON_COMPACT) != 0 || putc('\n', list) == EOF))
		status = bt_fail_errno(err, errno, "the list of pictures");
	json_decref(line);
	return status;
}

static int make_list(const char *given, bool folder, const char *path, char **root, beton_error *err)
{
	uint64_t count = 0;
	int status = BETON_OK;
	FILE *list = fopen(path, "w");
	if (!list)
		return bt_fail_errno(err, errno, "%s", path);
	if (folder) {
		*root = bt_format("%s%s", given, given[strlen(given) - 1] == '/' ? "" : "/");
		status = *root ? list_pictures(*root, list, &count, err)
			       : bt_fail(err, BETON_NO_MEMORY, "out of memory");
		if (status == BETON_OK && count == 0)
			status = bt_fail(err, BETON_NOT_FOUND, "%s: no picture in it", given);
	} else {
		status = list_one(given, list, root, err);
	}
	if (fclose(list) != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s", path);
	return status;
}

static int make_file(const char *given, bool folder, bool skip, predict_data *out, beton_error *err)
{
	const char *place = getenv("TMPDIR");
	out->folder = bt_format("%s/dtrain-predict.XXXXXX", place && *place ? place : "/tmp");
	if (!out->folder)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (!mkdtemp(out->folder)) {
		int status = bt_fail_errno(err, errno, "%s: cannot create a temporary folder", out->folder);
		free(out->folder);
		out->folder = NULL;
		return status;
	}
	char *list = bt_format("%s/list.jsonl", out->folder);
	out->path = bt_format("%s/pictures.beton", out->folder);
	int status = list && out->path ? make_list(given, folder, list, &out->prefix, err)
				       : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = write_pictures(&(predict_list){.path = list, .given = given, .root = out->prefix}, skip,
					out->path, err);
	if (list)
		unlink(list);
	free(list);
	return status;
}

static void remove_folder(predict_data *data)
{
	if (!data->folder)
		return;
	if (data->path)
		unlink(data->path);
	rmdir(data->folder);
	free(data->folder);
	data->folder = NULL;
}

static int open_pictures(const char *given, bool folder, bool skip, predict_data *out, beton_error *err)
{
	sigset_t blocked, before;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	int status = make_file(given, folder, skip, out, err);
	sigset_t pending;
	if (status != BETON_OK ||
	    (sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
					   sigismember(&pending, SIGHUP) == 1)))
		remove_folder(out);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

static int open_file(predict_data *data, uint32_t at, beton_error *err)
{
	beton_reader_close(&data->reader);
	data->at = at;
	return bt_shard_input_open(&data->files.list[at], &data->reader, err);
}

/* NULL: a file. */
static const beton_set *set_of(const predict_data *data)
{
	return data->files.list[0].set;
}

static int open_files(predict_data *data, beton_error *err)
{
	int status = bt_shard_inputs_add(&data->files, data->path, err);
	if (status == BETON_OK)
		status = open_file(data, 0, err);
	if (status == BETON_OK)
		data->samples = set_of(data) ? beton_set_get_info(set_of(data))->num_samples
					     : beton_reader_info(data->reader)->num_samples;
	return status;
}

int predict_data_seek(predict_data *data, uint64_t sample, uint64_t *index, beton_error *err)
{
	uint32_t at = 0;
	*index = sample;
	int status = set_of(data) ? beton_set_locate(set_of(data), sample, &at, index, err) : BETON_OK;
	return status == BETON_OK && at != data->at ? open_file(data, at, err) : status;
}

int predict_data_names(const predict_data *data, json_t **out, beton_error *err)
{
	const beton_set *set = set_of(data);
	if (!set)
		return vision_class_names_load(data->reader, out, err);
	uint32_t count = beton_set_get_info(set)->num_classes;
	bool failed = false;
	*out = count ? json_array() : NULL;
	for (uint32_t i = 0; i < count && !failed; i++)
		failed = json_array_append_new(*out, json_string(beton_set_class(set, i))) != 0;
	return failed ? bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of classes") : BETON_OK;
}

/* Gives all ranks the text of rank 0. */
static int share_text(const rank_team *team, char **text, beton_error *err)
{
	uint64_t size = *text ? strlen(*text) + 1 : 0;
	int status = rank_team_broadcast(team, &size, sizeof(size), 0, err);
	if (status == BETON_OK && !*text)
		*text = calloc(1, size);
	if (status == BETON_OK && !*text)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory");
	return status == BETON_OK ? rank_team_broadcast(team, *text, size, 0, err) : status;
}

/* Rank 0 makes the file. */
static int open_shared_pictures(const char *given, bool folder, bool skip, const rank_team *team, predict_data *out,
				beton_error *err)
{
	bool makes = !rank_team_shares(team) || team->env.rank == 0;
	int status = makes ? open_pictures(given, folder, skip, out, err) : BETON_OK;
	if (status == BETON_OK)
		status = share_text(team, &out->path, err);
	return status == BETON_OK ? share_text(team, &out->prefix, err) : status;
}

int predict_data_open(const char *given, bool skip, const rank_team *team, predict_data *out, beton_error *err)
{
	struct stat info;
	*out = (predict_data){0};
	int status = stat(given, &info) == 0 ? BETON_OK : bt_fail_errno(err, errno, "%s", given);
	if (status == BETON_OK && (S_ISDIR(info.st_mode) || predict_is_picture(given)))
		status = open_shared_pictures(given, S_ISDIR(info.st_mode), skip, team, out, err);
	else if (status == BETON_OK && !((out->path = strdup(given)) && (out->prefix = strdup(""))))
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = open_files(out, err);
	if (status != BETON_OK)
		predict_data_close(out);
	return status;
}

int predict_data_release(predict_data *data, const rank_team *team, beton_error *err)
{
	int status = rank_team_wait(team, err);
	remove_folder(data);
	return status;
}

void predict_data_close(predict_data *data)
{
	beton_reader_close(&data->reader);
	bt_shard_inputs_free(&data->files);
	remove_folder(data);
	free(data->path);
	free(data->prefix);
	*data = (predict_data){0};
}
