/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes sets of shards, and adds to them: first all files are looked at, then the index is locked, read and replaced.
 */
#include <beton/set.h>

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/sized.h"
#include "common/system.h"
#include "reader.h"
#include "set_file.h"
#include "set_index.h"
#include "set_shard.h"

/* ---- names ---- */

static const char *without_dot(const char *path)
{
	while (strncmp(path, "./", 2) == 0)
		path += 1 + strspn(path + 1, "/");
	return path;
}

/* The folder of a path, without links and dots; new memory, or NULL with errno. */
static char *real_folder(const char *path)
{
	char *copy = strdup(path);
	char *found = copy ? realpath(dirname(copy), NULL) : NULL;
	free(copy);
	return found;
}

/* The part of `path` after the folder, if it is in it or below it and goes straight there; else NULL. */
static const char *part_below(const char *path, const char *folder, size_t length)
{
	if (strncmp(path, folder, length) != 0 || path[length] == '/')
		return NULL;
	const char *rest = path + length;
	for (const char *part = rest; part; part = strchr(part, '/')) {
		part += part > rest;
		if (strcmp(part, "..") == 0 || strncmp(part, "../", 3) == 0 || strncmp(part, "./", 2) == 0 ||
		    *part == '/')
			return NULL;
	}
	return rest;
}

/* The name of a shard: its path from the index's folder. New memory. */
static int make_name(const char *index, const char *shard, char **out, beton_error *err)
{
	/* As they are written first: a link below the index's folder may lead out of it. */
	const char *set = without_dot(index), *path = without_dot(shard);
	const char *slash = strrchr(set, '/');
	const char *below = part_below(path, set, slash ? (size_t)(slash + 1 - set) : 0);
	if (below) {
		*out = strdup(below);
		return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", shard);
	}
	int result = BETON_OK;
	char *folder = real_folder(index), *place = folder ? real_folder(shard) : NULL;
	size_t length = folder ? strlen(folder) : 0;
	*out = NULL;
	if (!place)
		result = bt_fail_errno(err, errno, "%s: cannot find the folder", folder ? shard : index);
	/* "/" is the only folder whose path ends in '/'. */
	else if (strncmp(place, folder, length) != 0 || (length > 1 && place[length] && place[length] != '/'))
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: a shard must be in the folder of %s or below it; put the index into a folder "
				 "above both",
				 shard, index);
	else {
		const char *rest = place + length;
		const char *last = strrchr(shard, '/');
		rest += *rest == '/';
		*out = bt_format("%s%s%s", rest, *rest ? "/" : "", last ? last + 1 : shard);
		if (!*out)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", shard);
	}
	free(folder);
	free(place);
	return result;
}

/* ---- shards ---- */

/* The new shards, as a set of their own. */
typedef struct collection {
	beton_set *set;
	const char *named_by; /* the first of them with class names */
	char *synced;         /* the folder that was synced last */
	beton_set_options options;
} collection;

static bool cannot_sync(int error_number)
{
	return error_number == EINVAL || error_number == EROFS;
}

/* An index must not survive a power failure that its shards do not survive. */
static int sync_shard(collection *self, const beton_reader *reader, beton_error *err)
{
	const char *path = beton_reader_path(reader);
	const char *slash = strrchr(path, '/');
	char *folder = strndup(path, slash ? (size_t)(slash + 1 - path) : 0);
	int result = BETON_OK;
	if (!folder)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (fsync(beton_reader_fd(reader)) != 0 && !cannot_sync(errno))
		result = bt_fail_errno(err, errno, "%s: cannot sync", path);
	else if (!self->synced || strcmp(self->synced, folder) != 0)
		result = bt_sync_parent(path, err);
	free(self->synced);
	self->synced = folder;
	return result;
}

static int take_classes(collection *self, const beton_reader *reader, const char *path, beton_error *err)
{
	shard_classes classes = {0};
	int result = bt_shard_read_classes(&classes, reader, err);
	if (result == BETON_OK)
		result = bt_shard_compare_classes(self->set, self->named_by, &classes, path, err);
	if (result == BETON_OK && classes.count && !self->set->info.num_classes) {
		self->named_by = path;
		result = bt_set_name_classes(self->set, classes.names, classes.count, err);
	}
	bt_shard_free_classes(&classes);
	return result;
}

/* JSON holds no other text. */
static int check_utf8(const char *name, const char *path, beton_error *err)
{
	json_t *text = json_string(name);
	if (!text)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: its path is not UTF-8 text, as those in an index must be", path);
	json_decref(text);
	return BETON_OK;
}

static int take_shard(collection *self, const char *path, beton_error *err)
{
	beton_set *set = self->set;
	beton_reader *reader;
	beton_shard facts;
	char *name = NULL;
	int result = beton_reader_open(&reader, path, err);
	if (result != BETON_OK)
		return result;
	result = set->info.num_shards ? bt_shard_compare_fields(set, reader->fields, reader->info.num_fields, path, err)
				      : bt_shard_give_fields(set, reader, err);
	if (result == BETON_OK)
		result = take_classes(self, reader, path, err);
	if (result == BETON_OK)
		result = bt_shard_describe(&facts, reader, err);
	if (result == BETON_OK)
		result = sync_shard(self, reader, err);
	beton_reader_close(&reader);
	if (result == BETON_OK)
		result = make_name(set->path, path, &name, err);
	if (result == BETON_OK)
		result = check_utf8(name, path, err);
	if (result == BETON_OK) {
		beton_error fault;
		facts.name = name;
		result = bt_set_add(set, &facts, &fault);
		if (result != BETON_OK)
			result = bt_fail(err, result == BETON_FORMAT ? BETON_INVALID_ARGUMENT : result, "%s",
					 fault.message);
	}
	free(name);
	return result;
}

static int collect(collection *self, const char *const *shards, uint32_t count, beton_error *err)
{
	const beton_set_options *options = &self->options;
	int result = BETON_OK;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++) {
		if (!shards[i])
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the path of shard %u is NULL",
					 self->set->path, i);
		else if (options->progress && !options->progress(options->context, i, count))
			result = bt_fail(err, BETON_CANCELLED, "%s: given up", self->set->path);
		else
			result = take_shard(self, shards[i], err);
	}
	return result;
}

/* ---- the index ---- */

static int refuse_foreign(const beton_set *set, beton_error *err)
{
	return set->foreign ? bt_fail(err, BETON_UNSUPPORTED,
				      "%s: a later version wrote more into the index than this one knows, which would "
				      "be lost",
				      set->path)
			    : BETON_OK;
}

int beton_set_accepts(const beton_set *set, const char *path, const beton_field *fields, uint32_t num_fields,
		      const char *facts, beton_error *err)
{
	if (BT_MISSING(err, set, path, fields))
		return BETON_INVALID_ARGUMENT;
	shard_classes classes = {0};
	char *name = NULL;
	int result = refuse_foreign(set, err);
	if (result == BETON_OK)
		result = bt_shard_compare_fields(set, fields, num_fields, path, err);
	if (result == BETON_OK)
		result = bt_shard_parse_classes(&classes, facts, path, err);
	if (result == BETON_OK)
		result = bt_shard_compare_classes(set, set->path, &classes, path, err);
	if (result == BETON_OK)
		result = make_name(set->path, path, &name, err);
	if (result == BETON_OK)
		result = check_utf8(name, path, err);
	for (uint32_t i = 0; i < set->info.num_shards && result == BETON_OK; i++)
		if (strcmp(set->shards[i].name, name) == 0)
			result =
				bt_fail(err, BETON_EXISTS, "%s: the shard '%s' is in the set already", set->path, name);
	free(name);
	bt_shard_free_classes(&classes);
	return result;
}

/* A shard, and which file it is. */
typedef struct shard_file {
	uint32_t shard;
	bool known; /* whether device and inode are */
	uint64_t fingerprint;
	dev_t device;
	ino_t inode;
} shard_file;

static int compare_fingerprints(const void *a, const void *b)
{
	uint64_t left = ((const shard_file *)a)->fingerprint, right = ((const shard_file *)b)->fingerprint;
	return (left > right) - (left < right);
}

static int compare_files(const void *a, const void *b)
{
	const shard_file *left = a, *right = b;
	if (left->known != right->known)
		return left->known - right->known;
	if (left->device != right->device)
		return left->device < right->device ? -1 : 1;
	if (left->inode != right->inode)
		return left->inode < right->inode ? -1 : 1;
	return left->shard < right->shard ? -1 : 1;
}

/* Which file a shard is, if it is still there. */
static void identify(const beton_set *set, shard_file *file)
{
	struct stat now;
	file->known = stat(set->shards[file->shard].path, &now) == 0;
	if (!file->known)
		return;
	file->device = now.st_dev;
	file->inode = now.st_ino;
}

/* Refuses a file that has two names, by a link, since each of its samples would come twice. Of shards that are in the
 * index, the names say enough but where a new one has the same content. first: of the new shards. */
static int refuse_links(const beton_set *set, uint32_t first, beton_error *err)
{
	uint32_t count = set->info.num_shards;
	shard_file *files = calloc(count, sizeof(*files));
	if (!files)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", set->path);
	for (uint32_t i = 0; i < count; i++)
		files[i] = (shard_file){.shard = i, .fingerprint = set->shards[i].fingerprint};
	qsort(files, count, sizeof(*files), compare_fingerprints);
	for (uint32_t i = 0; i < count; i++)
		if ((i > 0 && files[i - 1].fingerprint == files[i].fingerprint) ||
		    (i + 1 < count && files[i + 1].fingerprint == files[i].fingerprint))
			identify(set, &files[i]);
	qsort(files, count, sizeof(*files), compare_files);
	int result = BETON_OK;
	for (uint32_t i = 1; i < count && result == BETON_OK; i++) {
		const shard_file *a = &files[i - 1], *b = &files[i];
		if (a->known && a->device == b->device && a->inode == b->inode && b->shard >= first)
			result = bt_fail(err, BETON_EXISTS, "%s: the shards '%s' and '%s' are one file", set->path,
					 set->shards[a->shard].name, set->shards[b->shard].name);
	}
	free(files);
	return result;
}

/* first: of the new shards. */
static int refuse_twice(const beton_set *set, uint32_t first, beton_error *err)
{
	const char *name;
	int result = bt_set_find_twice(set, &name, err);
	if (result == BETON_OK && name)
		return bt_fail(err, BETON_EXISTS, "%s: the shard '%s' is in the set already, or is given twice",
			       set->path, name);
	return result == BETON_OK ? refuse_links(set, first, err) : result;
}

/* Adds the new shards to the index, whose fields and class names they must have. */
static int join(beton_set *old, const beton_set *added, beton_error *err)
{
	const shard_classes classes = {added->classes, added->info.num_classes};
	const char *path = added->shards[0].path;
	uint32_t first = old->info.num_shards;
	int result = refuse_foreign(old, err);
	if (result == BETON_OK)
		result = bt_shard_compare_fields(old, added->fields, added->info.num_fields, path, err);
	if (result == BETON_OK)
		result = bt_shard_compare_classes(old, old->path, &classes, path, err);
	if (result == BETON_OK && classes.count && !old->info.num_classes)
		result = bt_set_name_classes(old, classes.names, classes.count, err);
	beton_error fault;
	for (uint32_t i = 0; i < added->info.num_shards && result == BETON_OK; i++)
		if ((result = bt_set_add(old, &added->shards[i], &fault)) != BETON_OK)
			return bt_fail(err, result == BETON_FORMAT ? BETON_INVALID_ARGUMENT : result, "%s",
				       fault.message);
	return result == BETON_OK ? refuse_twice(old, first, err) : result;
}

/* With the lock. */
static int replace(set_file *file, beton_set_mode mode, const beton_set *added, beton_error *err)
{
	beton_set *old = NULL;
	char *text = NULL;
	size_t size = 0;
	/* Another process may have made it since. */
	int result = bt_set_file_check(file->path, mode, err);
	if (result == BETON_OK && mode == BETON_SET_APPEND)
		result = beton_set_open(&old, file->path, err);
	if (old)
		result = join(old, added, err);
	if (result == BETON_OK)
		result = bt_set_make_text(old ? old : added, &text, &size, err);
	if (result == BETON_OK)
		result = bt_set_file_replace(file, text, size, err);
	free(text);
	beton_set_close(&old);
	return result;
}

static int check_arguments(beton_set_mode mode, const char *const *shards, uint32_t count, const char *path,
			   beton_error *err)
{
	if (mode < BETON_SET_CREATE || mode > BETON_SET_APPEND)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: mode %d is not one of beton_set_mode", path,
			       (int)mode);
	if (count < 1 || count > BETON_SET_SHARDS_MAX || !shards)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %u shards were given; it takes 1 to %u", path,
			       shards ? count : 0, BETON_SET_SHARDS_MAX);
	return BETON_OK;
}

void beton_set_options_init_sized(beton_set_options *options, size_t size)
{
	const beton_set_options defaults = {.struct_size = sizeof(defaults)};
	bt_sized_init(options, size, &defaults);
}

int beton_set_write(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count,
		    const beton_set_options *options, beton_error *err)
{
	if (BT_MISSING(err, path))
		return BETON_INVALID_ARGUMENT;
	collection added = {0};
	beton_set_options_init(&added.options);
	int result = bt_set_new(&added.set, path, err);
	if (result == BETON_OK && options)
		result = bt_sized_take(&added.options, options, "set options", err);
	if (result == BETON_OK)
		result = check_arguments(mode, shards, count, path, err);
	/* Before thousands of files are looked at. */
	if (result == BETON_OK)
		result = bt_set_file_check(path, mode, err);
	if (result == BETON_OK)
		result = collect(&added, shards, count, err);
	if (result == BETON_OK)
		result = refuse_twice(added.set, 0, err);
	if (result == BETON_OK) {
		set_file file;
		result = bt_set_file_lock(&file, path, &added.options, count, err);
		if (result == BETON_OK)
			result = replace(&file, mode, added.set, err);
		bt_set_file_close(&file);
	}
	free(added.synced);
	beton_set_close(&added.set);
	return result;
}
