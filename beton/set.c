/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of shards: opening them, and what they tell.
 */
#include <beton/set.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "reader.h"
#include "set_index.h"
#include "set_shard.h"

/* ---- making ---- */

static int no_memory(const beton_set *set, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", set->path);
}

int bt_set_new(beton_set **out, const char *path, beton_error *err)
{
	*out = NULL;
	if (!bt_ends_with(path, BETON_SET_ENDING))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: the name of a set of shards must end in " BETON_SET_ENDING, path);
	const char *slash = strrchr(path, '/');
	beton_set *set = calloc(1, sizeof(*set));
	if (set)
		set->path = strdup(path);
	if (!set || !set->path) {
		free(set);
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	}
	set->folder = slash ? (size_t)(slash + 1 - path) : 0;
	set->info.version = BETON_SET_VERSION;
	*out = set;
	return BETON_OK;
}

/* Why a shard may not have that name; NULL: it may. Its parts are names of folders and a file below the index. */
static const char *name_fault(const char *name)
{
	if (!*name)
		return "is empty";
	if (strlen(name) > BETON_SET_PATH_MAX)
		return "is too long";
	if (*name == '/')
		return "does not begin in the index's folder";
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += part > name; /* after the '/' */
		size_t length = strcspn(part, "/");
		if (length == 0 || (length == 1 && part[0] == '.') || (length == 2 && memcmp(part, "..", 2) == 0))
			return "has an empty part, or '.' or '..'";
	}
	return NULL;
}

static int check_facts(const beton_set *self, const beton_shard *facts, beton_error *err)
{
	uint64_t records, used;
	const char *fault = name_fault(facts->name);
	if (fault)
		return bt_fail(err, BETON_FORMAT, "%s: shard %u: the path '%s' %s", self->path, self->info.num_shards,
			       facts->name, fault);
	if (facts->page_size & (facts->page_size - 1))
		fault = "'page_size' is not a power of two";
	else if (__builtin_mul_overflow(facts->samples, facts->record_size, &records) ||
		 __builtin_add_overflow(records, facts->data_bytes, &used) || used > facts->bytes)
		fault = "its samples need more bytes than it has";
	if (fault)
		return bt_fail(err, BETON_FORMAT, "%s: shard %u (%s): %s", self->path, self->info.num_shards,
			       facts->name, fault);
	return BETON_OK;
}

static int make_room(beton_set *self, beton_error *err)
{
	if (self->info.num_shards < self->room)
		return BETON_OK;
	uint32_t room = self->room ? self->room * 2 : 16;
	beton_shard *shards = realloc(self->shards, room * sizeof(*shards));
	if (!shards)
		return no_memory(self, err);
	self->shards = shards;
	self->room = room;
	return BETON_OK;
}

int bt_set_add(beton_set *self, const beton_shard *facts, beton_error *err)
{
	beton_set_info *info = &self->info;
	if (info->num_shards >= BETON_SET_SHARDS_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: more than %u shards", self->path, BETON_SET_SHARDS_MAX);
	int result = check_facts(self, facts, err);
	if (result == BETON_OK &&
	    (facts->bytes > INT64_MAX - info->bytes || facts->samples > INT64_MAX - info->num_samples))
		result = bt_fail(err, BETON_FORMAT, "%s: the shards up to '%s' have 2^63 bytes or samples, or more",
				 self->path, facts->name);
	if (result == BETON_OK)
		result = make_room(self, err);
	if (result != BETON_OK)
		return result;
	char *path = bt_format("%.*s%s", (int)self->folder, self->path, facts->name);
	if (!path)
		return no_memory(self, err);
	beton_shard *shard = &self->shards[info->num_shards++];
	*shard = *facts;
	shard->path = path;
	shard->name = path + self->folder;
	shard->first = info->num_samples;
	info->num_samples += facts->samples;
	info->bytes += facts->bytes;
	return BETON_OK;
}

int bt_set_name_classes(beton_set *self, char *const *classes, uint32_t count, beton_error *err)
{
	self->classes = calloc(count, sizeof(*self->classes));
	if (!self->classes)
		return no_memory(self, err);
	for (uint32_t i = 0; i < count; i++) {
		self->classes[i] = strdup(classes[i]);
		if (!self->classes[i])
			return no_memory(self, err);
		self->info.num_classes++;
	}
	return BETON_OK;
}

static int compare_names(const void *a, const void *b)
{
	const char *const *left = a;
	const char *const *right = b;
	return strcmp(*left, *right);
}

int bt_set_find_twice(const beton_set *self, const char **name, beton_error *err)
{
	uint32_t count = self->info.num_shards;
	const char **names = malloc(count * sizeof(*names));
	*name = NULL;
	if (!names)
		return no_memory(self, err);
	for (uint32_t i = 0; i < count; i++)
		names[i] = self->shards[i].name;
	qsort(names, count, sizeof(*names), compare_names);
	for (uint32_t i = 1; i < count && !*name; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			*name = names[i];
	free(names);
	return BETON_OK;
}

/* ---- opening ---- */

static int read_index(const char *path, char **out, size_t *size, beton_error *err)
{
	struct stat facts;
	*out = NULL;
	/* A pipe would block. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	int result = BETON_OK;
	if (fstat(fd, &facts) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot read its status", path);
	else if (!S_ISREG(facts.st_mode))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", path);
	else if (facts.st_size > BETON_SET_INDEX_MAX)
		result = bt_fail(err, BETON_FORMAT, "%s: an index of %lld bytes; the most are %u", path,
				 (long long)facts.st_size, BETON_SET_INDEX_MAX);
	else if (!(*out = malloc((size_t)facts.st_size + 1)))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	ssize_t got = result == BETON_OK ? bt_pread_full(fd, *out, (size_t)facts.st_size, 0) : 0;
	if (got < 0)
		result = bt_fail_errno(err, errno, "%s: cannot read", path);
	*size = got < 0 ? 0 : (size_t)got;
	close(fd);
	return result;
}

int beton_set_parse(beton_set **out, const char *path, const char *text, size_t size, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path, text))
		return BETON_INVALID_ARGUMENT;
	int result = bt_set_new(out, path, err);
	if (result == BETON_OK)
		result = bt_set_read_text(*out, text, size, err);
	if (result != BETON_OK)
		beton_set_close(out);
	return result;
}

int beton_set_open(beton_set **out, const char *path, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path))
		return BETON_INVALID_ARGUMENT;
	char *text = NULL;
	size_t size = 0;
	/* Before it is read, so that a .beton file is recognised by its name. */
	int result = bt_set_new(out, path, err);
	if (result == BETON_OK)
		result = read_index(path, &text, &size, err);
	if (result == BETON_OK)
		result = bt_set_read_text(*out, text, size, err);
	if (result != BETON_OK)
		beton_set_close(out);
	free(text);
	return result;
}

void beton_set_close(beton_set **set)
{
	if (!set || !*set)
		return;
	beton_set *self = *set;
	*set = NULL;
	for (uint32_t i = 0; i < self->info.num_shards; i++)
		free((char *)self->shards[i].path);
	for (uint32_t i = 0; i < self->info.num_classes; i++)
		free(self->classes[i]);
	free(self->shards);
	free(self->classes);
	free(self->fields);
	free(self->path);
	free(self);
}

/* ---- what it tells ---- */

const char *beton_set_path(const beton_set *set)
{
	if (!set)
		return NULL;
	return set->path;
}

const beton_set_info *beton_set_get_info(const beton_set *set)
{
	if (!set)
		return NULL;
	return &set->info;
}

const beton_shard *beton_set_shard(const beton_set *set, uint32_t shard)
{
	return set && shard < set->info.num_shards ? &set->shards[shard] : NULL;
}

const beton_field *beton_set_field(const beton_set *set, uint32_t field)
{
	return set && field < set->info.num_fields ? &set->fields[field] : NULL;
}

const char *beton_set_class(const beton_set *set, uint32_t label)
{
	return set && label < set->info.num_classes ? set->classes[label] : NULL;
}

int beton_set_locate(const beton_set *set, uint64_t sample, uint32_t *shard, uint64_t *index, beton_error *err)
{
	if (BT_MISSING(err, set, shard, index))
		return BETON_INVALID_ARGUMENT;
	if (sample >= set->info.num_samples)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %" PRIu64 ", it has %" PRIu64, set->path,
			       sample, set->info.num_samples);
	/* The last shard that begins at or before it, and so none without samples. */
	uint32_t low = 0, high = set->info.num_shards;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (set->shards[middle].first <= sample)
			low = middle;
		else
			high = middle;
	}
	*shard = low;
	*index = sample - set->shards[low].first;
	return BETON_OK;
}

static int changed(const beton_set *set, const beton_shard *shard, const char *what, uint64_t now, uint64_t before,
		   beton_error *err)
{
	return bt_fail(err, BETON_FILE_CHANGED, "%s: %s %" PRIu64 ", but when it was added to %s it was %" PRIu64,
		       shard->path, what, now, set->path, before);
}

int beton_set_check(const beton_set *set, uint32_t shard, const beton_reader *reader, beton_error *err)
{
	if (BT_MISSING(err, set, reader))
		return BETON_INVALID_ARGUMENT;
	const beton_shard *wanted = beton_set_shard(set, shard);
	if (!wanted)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no shard %u, it has %u", set->path, shard,
			       set->info.num_shards);
	beton_shard now;
	int result = bt_shard_describe(&now, reader, err);
	if (result != BETON_OK)
		return result;
	if (now.bytes != wanted->bytes)
		return changed(set, wanted, "its size in bytes is", now.bytes, wanted->bytes, err);
	if (now.samples != wanted->samples)
		return changed(set, wanted, "its number of samples is", now.samples, wanted->samples, err);
	if (now.page_size != wanted->page_size)
		return changed(set, wanted, "its page size is", now.page_size, wanted->page_size, err);
	if (now.record_size != wanted->record_size)
		return changed(set, wanted, "the size of its records is", now.record_size, wanted->record_size, err);
	/* data_bytes may differ: it ends where something in the file's free space begins. */
	if (now.ordered != wanted->ordered)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: its values have another order than when it was added to %s", wanted->path,
			       set->path);
	beton_error fault;
	if (bt_shard_compare_fields(set, reader->fields, reader->info.num_fields, beton_reader_path(reader), &fault) !=
	    BETON_OK)
		return bt_fail(err, BETON_FILE_CHANGED, "%s", fault.message);
	if (now.fingerprint != wanted->fingerprint)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: its content changed since it was added to %s: the fingerprint is %016" PRIx64
			       ", not %016" PRIx64,
			       wanted->path, set->path, now.fingerprint, wanted->fingerprint);
	return BETON_OK;
}
