/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/system.h"

/* Takes path, which it frees on failure (NULL: out of memory). */
static int add_file(folder_list *list, char *path, uint32_t label, beton_error *err)
{
	folder_file *files = path ? list_grow(list->files, list->count, &list->capacity, sizeof(*files)) : NULL;
	if (!files) {
		free(path);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the list of files");
	}
	list->files = files;
	files[list->count++] = (folder_file){path, label};
	return BETON_OK;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds what the open folder holds; hidden entries, . and .. start with a dot. */
static int read_entries(DIR *folder, const char *path, name_list *names, beton_error *err)
{
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(folder);
		if (!entry)
			return errno ? bt_fail_errno(err, errno, "%s: cannot read the folder", path) : BETON_OK;
		if (entry->d_name[0] == '.')
			continue;
		int result = name_list_add(names, entry->d_name, err);
		if (result != BETON_OK)
			return result;
	}
}

static int list_folder(const char *path, name_list *names, beton_error *err)
{
	DIR *folder = opendir(path);
	if (!folder)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	int result = read_entries(folder, path, names, err);
	closedir(folder);
	if (result == BETON_OK && names->count)
		qsort(names->names, names->count, sizeof(*names->names), compare_names);
	return result;
}

/* *folder: whether path, or what it links to, is a folder; anything but a folder or a regular file is an error. */
static int look_at(const char *path, bool *folder, beton_error *err)
{
	struct stat status;
	if (stat(path, &status) != 0)
		return bt_fail_errno(err, errno, "%s: cannot be looked at", path);
	*folder = S_ISDIR(status.st_mode);
	if (!*folder && !S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: neither a file nor a folder", path);
	return BETON_OK;
}

/* Adds the folders in root to classes; files beside them are not looked at. */
static int find_classes(const char *root, name_list *classes, beton_error *err)
{
	name_list entries = {0};
	int result = list_folder(root, &entries, err);
	for (size_t i = 0; i < entries.count && result == BETON_OK; i++) {
		bool folder = false;
		char *path = bt_format("%s/%s", root, entries.names[i]);
		result = path ? look_at(path, &folder, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
		if (result == BETON_OK && folder)
			result = name_list_add(classes, entries.names[i], err);
		free(path);
	}
	name_list_free(&entries);
	if (result == BETON_OK && classes->count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no class folders in it", root);
	if (result == BETON_OK && classes->count > UINT32_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: too many class folders", root);
	return result;
}

static int add_class(folder_list *list, const char *folder, uint32_t label, const atomic_int *interrupt,
		     beton_error *err)
{
	name_list names = {0};
	int result = list_folder(folder, &names, err);
	for (size_t i = 0; i < names.count && result == BETON_OK; i++) {
		if (*interrupt) {
			result = bt_fail(err, BETON_CANCELLED, "%s: interrupted", folder);
			break;
		}
		bool is_folder = false;
		char *path = bt_format("%s/%s", folder, names.names[i]);
		result = path ? look_at(path, &is_folder, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
		if (result == BETON_OK && is_folder)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a folder inside a class folder", path);
		if (result == BETON_OK)
			result = add_file(list, path, label, err);
		else
			free(path);
	}
	name_list_free(&names);
	return result;
}

/* Adds the files of all classes that root has; every_class: each must be there and have files. */
static int add_classes(folder_list *list, const char *root, const name_list *classes, bool every_class,
		       const atomic_int *interrupt, beton_error *err)
{
	int result = BETON_OK;
	for (size_t i = 0; i < classes->count && result == BETON_OK; i++) {
		size_t before = list->count;
		char *folder = bt_format("%s/%s", root, classes->names[i]);
		struct stat status;
		if (!folder)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
		else if (every_class || stat(folder, &status) == 0 || errno != ENOENT)
			result = add_class(list, folder, (uint32_t)i, interrupt, err);
		if (result == BETON_OK && every_class && list->count == before)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the class folder is empty", folder);
		free(folder);
	}
	return result;
}

/* A class of the validation set that training has not would have no label. */
static int check_val_classes(const char *val, const name_list *train_classes, beton_error *err)
{
	name_list classes = {0};
	int result = find_classes(val, &classes, err);
	for (size_t i = 0; i < classes.count && result == BETON_OK; i++)
		if (!bsearch(&classes.names[i], train_classes->names, train_classes->count, sizeof(char *),
			     compare_names))
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s/%s: a class that the training set has not",
					 val, classes.names[i]);
	name_list_free(&classes);
	return result;
}

/* Moves val_fraction of each class, evenly spread over its files, from train to val; one file at least stays. */
static int hold_out(folder_plan *plan, double fraction, beton_error *err)
{
	folder_list all = plan->train;
	plan->train = (folder_list){0};
	int result = BETON_OK;
	for (size_t first = 0, end; first < all.count; first = end) {
		for (end = first; end < all.count && all.files[end].label == all.files[first].label;)
			end++;
		size_t count = end - first;
		size_t held = (size_t)((double)count * fraction + 0.5);
		if (held >= count)
			held = count - 1;
		for (size_t i = 0; i < count; i++) {
			bool val = (i + 1) * held / count > i * held / count;
			folder_file *file = &all.files[first + i];
			if (result == BETON_OK)
				result = add_file(val ? &plan->val : &plan->train, file->path, file->label, err);
			else
				free(file->path);
		}
	}
	free(all.files);
	if (result == BETON_OK && plan->val.count == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "a validation fraction of %g holds out no picture",
			       fraction);
	return result;
}

static bool is_folder(const char *path)
{
	struct stat status;
	return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int plan_folders(folder_plan *plan, const char *train, const char *val, const atomic_int *interrupt,
			beton_error *err)
{
	int result = find_classes(train, &plan->classes, err);
	if (result == BETON_OK)
		result = add_classes(&plan->train, train, &plan->classes, true, interrupt, err);
	if (result == BETON_OK && val)
		result = check_val_classes(val, &plan->classes, err);
	if (result == BETON_OK && val)
		result = add_classes(&plan->val, val, &plan->classes, false, interrupt, err);
	if (result == BETON_OK && val && plan->val.count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no pictures in its class folders", val);
	return result;
}

int folder_plan_make(folder_plan *plan, const char *root, double val_fraction, const atomic_int *interrupt,
		     beton_error *err)
{
	*plan = (folder_plan){.has_val = val_fraction > 0};
	char *train = bt_format("%s/train", root);
	char *val = bt_format("%s/val", root);
	int result = BETON_OK;
	if (!train || !val)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
	else if (!is_folder(train) || !is_folder(val))
		result = plan_folders(plan, root, NULL, interrupt, err);
	else if (plan->has_val)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there is a validation set, so none can be held out",
				 val);
	else {
		plan->has_val = true;
		result = plan_folders(plan, train, val, interrupt, err);
	}
	if (result == BETON_OK && val_fraction > 0)
		result = hold_out(plan, val_fraction, err);
	free(train);
	free(val);
	return result;
}

void folder_list_free(folder_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->files[i].path);
	free(list->files);
	*list = (folder_list){0};
}

void folder_plan_free(folder_plan *plan)
{
	name_list_free(&plan->classes);
	folder_list_free(&plan->train);
	folder_list_free(&plan->val);
}
