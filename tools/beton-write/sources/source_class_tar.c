/* SPDX-License-Identifier: Apache-2.0
 *
 * Tar files of class folders, as `tar -c` makes of the folder that beton-write reads too: columns image and label. The
 * labels follow from the names of all classes, so the archives are gone through twice, the first time for their names
 * alone. */
#include "class_tar.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive_input.h"
#include "archive_member.h"
#include "common/error.h"
#include "common/system.h"
#include "paths.h"
#include "replaced_members.h"
#include "sources.h"
#include "tools/beton-write/faults.h"
#include "tools/common/text.h"

enum { COLUMN_OF_IMAGE, COLUMN_OF_LABEL };

typedef struct class_tar {
	source base;
	name_list shards;
	size_t next_shard;
	archive_input *input; /* the open shard, or NULL */
	const atomic_int *interrupt;
	char *place;       /* the folder that contains the class folders; "" for none */
	name_list folders; /* of the classes, with that place, in the order of the labels */
	replaced_members replaced;
	uint64_t next_number; /* of the next member that is_counted */
} class_tar;

/* ---- the first time: names ---- */

typedef struct name_scan {
	const source_spec *spec;
	name_set pictures; /* folders that contain pictures */
	name_set folders;  /* all folders, of members that are folders or files */
	name_set filled;   /* folders of files */
	name_set in_shard; /* as pictures, of the shard that is read */
	replaced_members replaced;
	uint64_t members;
	size_t with_one; /* shards whose pictures are in one folder, and in several */
	size_t with_more;
	char *previous;  /* the file before in this shard */
	bool first_only; /* up to the first picture and the file after it */
	bool done;
	bool shared; /* a picture has a neighbour of its name: WebDataset's form */
	passed_over litter;
} name_scan;

/* Whether the part after the key contains a number, as in img.001.jpg: then it distinguishes pictures, and is not a
 * WebDataset column. */
static bool is_numbered(const char *path)
{
	const char *ending = path + member_key_length(path);
	const char *last = strrchr(ending, '.');
	for (const char *at = ending; last && at < last; at++)
		if (isdigit((unsigned char)*at))
			return true;
	return false;
}

/* Whether the member can be a sample. A file that tar packed twice is a hard link to itself at the second place, and
 * adds nothing. */
static bool is_counted(const archive_member *member)
{
	const char *path = member_path(member->name);
	bool itself = member->hard_link && strcmp(member_path(member->hard_link), path) == 0;
	return !member->folder && !itself && !path_is_litter(path) && !member_is_meta(path);
}

/* Members whose names differ only after the first dot are one WebDataset sample. */
static int compare_with_neighbour(name_scan *self, const char *path, bool picture, beton_error *err)
{
	const char *previous = self->previous;
	bool previous_is_picture = previous && member_is_picture(previous);
	size_t length = member_key_length(path);
	if (previous && member_key_length(previous) == length && strncmp(previous, path, length) == 0 &&
	    (picture || previous_is_picture) && strcmp(previous, path) != 0 &&
	    !(picture && previous_is_picture && (is_numbered(path) || is_numbered(previous))))
		self->shared = true;
	/* Both neighbours of the first picture have been looked at. */
	self->done = self->shared || (self->first_only && previous_is_picture);
	free(self->previous);
	self->previous = strdup(path);
	return self->previous ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->spec->argument);
}

static int scan_member(name_scan *self, const archive_member *member, beton_error *err)
{
	const char *path = member_path(member->name);
	if (path_is_litter(path))
		passed_over_add(&self->litter, NULL, path);
	if (!member->folder ? !is_counted(member) : path_is_litter(path) || member_is_meta(path))
		return BETON_OK;
	char *folder = member->folder ? strdup(path) : member_folder(path);
	if (!folder)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->spec->argument);
	for (size_t n = strlen(folder); n > 0 && folder[n - 1] == '/'; n--)
		folder[n - 1] = 0;
	bool picture = !member->folder && member_is_picture(path);
	int result = BETON_OK;
	if (*folder)
		result = name_set_add(&self->folders, folder, err);
	if (result == BETON_OK && *folder && !member->folder)
		result = name_set_add(&self->filled, folder, err);
	if (result == BETON_OK && picture)
		result = name_set_add(&self->pictures, folder, err);
	if (result == BETON_OK && picture)
		result = name_set_add(&self->in_shard, folder, err);
	free(folder);
	if (result == BETON_OK && !member->folder)
		result = replaced_members_note(&self->replaced, path, self->members++, err);
	return result == BETON_OK && !member->folder ? compare_with_neighbour(self, path, picture, err) : result;
}

static int scan_shard(name_scan *self, const char *shard, beton_error *err)
{
	archive_input *input;
	archive_member member;
	int result = archive_input_open(&input, shard, ARCHIVE_TAR, self->spec->interrupt, err);
	free(self->previous);
	self->previous = NULL;
	while (result == BETON_OK && !self->done && (result = archive_input_next(input, &member, err)) == BETON_OK)
		result = scan_member(self, &member, err);
	archive_input_close(&input);
	self->with_one += self->in_shard.list.count == 1;
	self->with_more += self->in_shard.list.count > 1;
	name_set_free(&self->in_shard);
	return result == BETON_END || result == BETON_OK ? replaced_members_end_archive(&self->replaced, err) : result;
}

static void free_scan(name_scan *self)
{
	name_set_free(&self->pictures);
	name_set_free(&self->folders);
	name_set_free(&self->filled);
	replaced_members_free(&self->replaced);
	free(self->previous);
	free(self->litter.first);
}

static int scan(name_scan *self, const name_list *shards, beton_error *err)
{
	int result = BETON_OK;
	for (size_t i = 0; i < shards->count && result == BETON_OK && !self->done; i++)
		result = scan_shard(self, shards->names[i], err);
	return result;
}

/* ---- what the names say ---- */

/* Bytes of the folder that all pictures have in common. */
static size_t common_folder(const name_set *folders)
{
	/* They are sorted, so all share the common beginning of the first and the last. */
	const char *first = folders->list.names[0];
	const char *last = folders->list.names[folders->list.count - 1];
	size_t length = 0;
	for (size_t i = 0; first[i] && first[i] == last[i]; i++)
		if (first[i] == '/')
			length = i;
	size_t whole = strlen(first);
	if (strncmp(first, last, whole) == 0 && (last[whole] == 0 || last[whole] == '/'))
		length = whole;
	return length;
}

/* The rest of path after the folder `place`; NULL if it is not in there. */
static const char *inside(const char *path, const char *place)
{
	size_t length = strlen(place);
	if (length == 0)
		return path;
	return strncmp(path, place, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

/* Finds the folder that contains the class folders: the common folder of all pictures or, if all pictures are in one
 * folder, its parent. */
static int find_place(class_tar *self, const name_scan *names, beton_error *err)
{
	const char *first = names->pictures.list.names[0];
	size_t length = common_folder(&names->pictures);
	if (names->pictures.list.count == 1) {
		const char *slash = strrchr(first, '/');
		length = slash ? (size_t)(slash - first) : 0;
	}
	self->place = strndup(first, length);
	return self->place ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
}

/* Whether a file is in the folder or below it. */
static bool holds_files(const name_scan *names, const char *folder)
{
	const name_list *filled = &names->filled.list;
	size_t length = strlen(folder);
	for (size_t i = 0; i < filled->count; i++)
		if (strncmp(filled->names[i], folder, length) == 0 &&
		    (filled->names[i][length] == 0 || filled->names[i][length] == '/'))
			return true;
	return false;
}

static int add_classes(class_tar *self, const name_scan *names, bool skip, beton_error *err)
{
	int result = BETON_OK;
	for (size_t i = 0; i < names->folders.list.count && result == BETON_OK; i++) {
		const char *folder = names->folders.list.names[i];
		const char *name = inside(folder, self->place);
		if (!name || !*name || strchr(name, '/'))
			continue;
		result = name_list_add(&self->folders, folder, err);
		if (result == BETON_OK)
			result = name_list_add(&self->base.classes, name, err);
		if (result != BETON_OK || holds_files(names, folder))
			continue;
		beton_error fault;
		bt_fail(&fault, BETON_INVALID_ARGUMENT, "%s: %s: the class folder is empty", self->base.name, folder);
		if (skip) {
			result = source_notes_add_fault(&self->base.notes, &fault, err);
		} else {
			fault_name_option(&fault);
			*err = fault;
			result = fault.code;
		}
	}
	return result;
}

/* Class folders hold pictures. Where none does, the sets of a dataset may have been packed together. */
static int check_classes(const class_tar *self, const name_scan *names, beton_error *err)
{
	for (size_t i = 0; i < self->folders.count; i++)
		if (name_set_has(&names->pictures, self->folders.names[i]))
			return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "%s: pictures stand in '%s' and in '%s': labels are taken from folders beside each other; give "
		       "each set by itself, or leave the labels out with --fields=image",
		       self->base.name, names->pictures.list.names[0],
		       names->pictures.list.names[names->pictures.list.count - 1]);
}

/* Folders that only keep files separate are not classes. Where they look like that, the user must say that labels are
 * meant. */
static int check_meant(class_tar *self, const name_scan *names, beton_error *err)
{
	const char *first = names->pictures.list.names[0];
	if (self->folders.count == 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: all pictures stand in one folder, '%s', without classes; --fields=image leaves "
			       "the labels out, --fields=image,label takes the folder as the only class",
			       self->base.name, first);
	if (names->with_one > 1 && names->with_more == 0 && names->pictures.list.count == names->with_one)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"%s: each archive has one folder of its own ('%s' in the first), which need not be a class; "
			"--fields=image leaves the labels out, --fields=image,label takes the folders as classes",
			self->base.name, first);
	char *remark =
		bt_format("%s: the labels are taken from its folders: %zu classes; --fields=image leaves them out",
			  self->base.name, self->folders.count);
	int result = remark ? name_list_add(&self->base.notes.remarks, remark, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	free(remark);
	return result;
}

static int remark_replaced(class_tar *self, beton_error *err)
{
	text_buffer count;
	if (self->replaced.count == 0)
		return BETON_OK;
	char *remark = bt_format("%s: passed over: %s with a later one of the same name in the archive, which is taken",
				 self->base.name, text_count(count, self->replaced.count, "member", "members"));
	int result = remark ? name_list_add(&self->base.notes.remarks, remark, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	free(remark);
	return result;
}

/* ---- the second time: content ---- */

/* *shard: of the member. END: the last one was the last. */
static int next_member(class_tar *self, archive_member *member, const char **shard, beton_error *err)
{
	for (;;) {
		if (!self->input) {
			if (self->next_shard == self->shards.count)
				return BETON_END;
			int result = archive_input_open(&self->input, self->shards.names[self->next_shard++],
							ARCHIVE_TAR, self->interrupt, err);
			if (result != BETON_OK)
				return result;
		}
		*shard = self->shards.names[self->next_shard - 1];
		int result = archive_input_next(self->input, member, err);
		if (result != BETON_END)
			return result;
		archive_input_close(&self->input);
	}
}

/* The class whose folder the path is in, directly or not; -1: none. *rest: the path in the class folder. */
static int64_t find_class(const class_tar *self, const char *path, const char **rest)
{
	size_t low = 0;
	const char *name = inside(path, self->place);
	*rest = name ? strchr(name, '/') : NULL;
	if (!*rest)
		return -1;
	size_t length = (size_t)(*rest - path);
	++*rest;
	for (size_t high = self->folders.count; low < high;) {
		size_t middle = low + (high - low) / 2;
		const char *folder = self->folders.names[middle];
		int order = strncmp(folder, path, length);
		if (order == 0 && folder[length] == 0)
			return (int64_t)middle;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

static int take_member(class_tar *self, const archive_member *member, const char *inner, int64_t label,
		       source_item *item, beton_error *err)
{
	uint64_t bytes = 0;
	if (strchr(inner, '/'))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: in a folder inside a class folder", item->name);
	if (!member->regular) {
		char *what = member_describe(member);
		int result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %s", item->name, what ? what : "not a file");
		free(what);
		return result;
	}
	item->values[COLUMN_OF_LABEL] = (raw_value){.kind = RAW_INT, .integer = label};
	return self->base.columns[COLUMN_OF_IMAGE].wanted
		       ? member_read(self->input, item->name, &bytes, &item->values[COLUMN_OF_IMAGE], err)
		       : BETON_OK;
}

static int next(source *base, source_item *item, beton_error *err)
{
	class_tar *self = (class_tar *)base;
	for (;;) {
		archive_member member;
		const char *shard;
		int result = next_member(self, &member, &shard, err);
		if (result != BETON_OK)
			return result;
		const char *path = member_path(member.name);
		const char *inner;
		if (!is_counted(&member) || replaced_members_has(&self->replaced, self->next_number++))
			continue;
		int64_t label = find_class(self, path, &inner);
		if (label < 0) {
			passed_over_add(&base->notes.beside, NULL, path);
			continue;
		}
		item->name = bt_format("%s: %s", shard, path);
		if (!item->name)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
		result = source_item_set_member(item, shard, path, err);
		return result == BETON_OK ? take_member(self, &member, inner, label, item, err) : result;
	}
}

/* Members that next would give, bad ones included. */
static int skip(source *base, beton_error *err)
{
	class_tar *self = (class_tar *)base;
	for (;;) {
		archive_member member;
		const char *shard;
		const char *inner;
		int result = next_member(self, &member, &shard, err);
		if (result != BETON_OK)
			return result;
		if (!is_counted(&member) || replaced_members_has(&self->replaced, self->next_number++))
			continue;
		if (find_class(self, member_path(member.name), &inner) >= 0)
			return BETON_OK;
		passed_over_add(&base->notes.beside, NULL, member_path(member.name));
	}
}

static int peek(source *base, const source_item **item, beton_error *err)
{
	*item = NULL;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: its columns image and label hold no arrays", base->name);
}

static void close_class_tar(source *base)
{
	class_tar *self = (class_tar *)base;
	archive_input_close(&self->input);
	name_list_free(&self->shards);
	name_list_free(&self->folders);
	replaced_members_free(&self->replaced);
	free(self->place);
	free(self);
}

static const source_ops class_tar_ops = {.next = next, .peek = peek, .skip = skip, .close = close_class_tar};

static int open_scanned(const source_spec *spec, name_list *shards, name_scan *names, source **train, beton_error *err)
{
	class_tar *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->base;
	self->base.count = SOURCE_COUNT_UNKNOWN;
	self->interrupt = spec->interrupt;
	self->shards = *shards;
	*shards = (name_list){0};
	int result = source_init(&self->base, "tar", &class_tar_ops, spec->argument, err);
	self->base.notes.litter = names->litter;
	names->litter = (passed_over){0};
	self->replaced = names->replaced;
	names->replaced = (replaced_members){0};
	if (result == BETON_OK)
		result = remark_replaced(self, err);
	if (result == BETON_OK)
		result = source_add_column(&self->base, "image", "image", COLUMN_IMAGE, err);
	if (result == BETON_OK)
		result = source_add_column(&self->base, "label", "label", COLUMN_INT, err);
	if (result == BETON_OK)
		result = find_place(self, names, err);
	if (result == BETON_OK)
		result = add_classes(self, names, spec->skip_bad, err);
	if (result == BETON_OK)
		result = check_classes(self, names, err);
	return result == BETON_OK && !spec->has_fields ? check_meant(self, names, err) : result;
}

bool class_tar_can_read(const name_list *shards)
{
	struct stat status;
	for (size_t i = 0; i < shards->count; i++)
		if (stat(shards->names[i], &status) != 0 || !S_ISREG(status.st_mode))
			return false;
	return true;
}

static bool has_class_folders(const name_scan *names)
{
	const name_list *folders = &names->pictures.list;
	/* They are sorted: the last one is a name if any is. */
	return !names->shared && folders->count > 0 && *folders->names[folders->count - 1];
}

int class_tar_open(const source_spec *spec, name_list *shards, source **train, beton_error *err)
{
	if (!class_tar_can_read(shards))
		return BETON_OK;
	/* The first members tell of most archives that they are no such. */
	name_scan names = {.spec = spec, .first_only = true};
	int result = scan(&names, shards, err);
	bool perhaps = names.pictures.list.count > 0 && !names.shared;
	free_scan(&names);
	if (result != BETON_OK || !perhaps)
		return result;
	names = (name_scan){.spec = spec};
	result = scan(&names, shards, err);
	if (result == BETON_OK && has_class_folders(&names))
		result = open_scanned(spec, shards, &names, train, err);
	free_scan(&names);
	return result;
}
