/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/beton-write/faults.h"
#include "tools/common/output.h"

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

/* Adds the entries of the open folder, except litter. */
static int read_entries(DIR *folder, const char *path, name_list *names, passed_over *litter, beton_error *err)
{
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(folder);
		if (!entry)
			return errno ? bt_fail_errno(err, errno, "%s: cannot read the folder", path) : BETON_OK;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		    strcmp(entry->d_name, OUTPUT_EXTRACT_MARK) == 0)
			continue;
		int result = BETON_OK;
		if (name_is_litter(entry->d_name))
			passed_over_add(litter, path, entry->d_name);
		else
			result = name_list_add(names, entry->d_name, err);
		if (result != BETON_OK)
			return result;
	}
}

static int list_folder(const char *path, name_list *names, passed_over *litter, beton_error *err)
{
	DIR *folder = opendir(path);
	if (!folder)
		return bt_fail_errno(err, errno, "%s: cannot open the folder", path);
	int result = read_entries(folder, path, names, litter, err);
	closedir(folder);
	if (result == BETON_OK && names->count)
		qsort(names->names, names->count, sizeof(*names->names), compare_names);
	return result;
}

/* A fault that belongs to no sample: noted and passed over, or the end, as the user wants it. */
static int pass_fault(folder_plan *plan, const folder_request *request, beton_error *fault, beton_error *err)
{
	if (request->skip && fault_is_of_item(fault->code))
		return source_notes_add_fault(&plan->notes, fault, err);
	if (fault_is_of_item(fault->code))
		fault_name_option(fault);
	if (err)
		*err = *fault;
	return fault->code;
}

/* Whether the entry of root is a class folder; files are beside those. A link to nothing may have been one. */
static int look_at_entry(folder_plan *plan, const folder_request *request, const char *root, const char *name,
			 bool *folder, beton_error *err)
{
	struct stat status;
	beton_error fault;
	char *path = bt_format("%s/%s", root, name);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
	bool known = stat(path, &status) == 0;
	*folder = known && S_ISDIR(status.st_mode);
	if (known && !*folder)
		passed_over_add(&plan->notes.beside, root, name);
	if (!known)
		bt_fail_errno(&fault, errno, "%s: cannot be looked at", path);
	free(path);
	return known ? BETON_OK : pass_fault(plan, request, &fault, err);
}

/* Refuses a folder without class folders, with advice. */
static int refuse_flat(const char *root, size_t files, beton_error *err)
{
	if (files == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no class folders in it, nor anything else", root);
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"%s: %zu file%s and no class folders in it: classes are folders of pictures; --fields=image writes "
		"the pictures of one folder without labels",
		root, files, files == 1 ? "" : "s");
}

/* Adds the folders in root to classes; files beside them are not looked at. */
static int find_classes(folder_plan *plan, const folder_request *request, const char *root, name_list *classes,
			beton_error *err)
{
	name_list entries = {0};
	int result = list_folder(root, &entries, &plan->notes.litter, err);
	for (size_t i = 0; i < entries.count && result == BETON_OK; i++) {
		bool folder = false;
		result = look_at_entry(plan, request, root, entries.names[i], &folder, err);
		if (result == BETON_OK && folder)
			result = name_list_add(classes, entries.names[i], err);
	}
	if (result == BETON_OK && classes->count == 0)
		result = refuse_flat(root, entries.count, err);
	name_list_free(&entries);
	if (result == BETON_OK && classes->count > UINT32_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: too many class folders", root);
	return result;
}

/* Said now, not when the file's turn comes, unless it is to be left out then. */
static int check_file(const char *path, beton_error *err)
{
	struct stat status;
	int result = BETON_OK;
	if (stat(path, &status) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot be looked at", path);
	else if (S_ISDIR(status.st_mode))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: a folder inside a class folder", path);
	else if (!S_ISREG(status.st_mode))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: neither a file nor a folder", path);
	if (result != BETON_OK && fault_is_of_item(result))
		fault_name_option(err);
	return result;
}

static int add_class(folder_plan *plan, const folder_request *request, folder_list *list, const char *folder,
		     uint32_t label, beton_error *err)
{
	name_list names = {0};
	beton_error fault;
	int result = list_folder(folder, &names, &plan->notes.litter, &fault);
	if (result != BETON_OK) {
		name_list_free(&names);
		return pass_fault(plan, request, &fault, err);
	}
	for (size_t i = 0; i < names.count && result == BETON_OK; i++) {
		if (*request->interrupt) {
			result = bt_fail(err, BETON_CANCELLED, "%s: interrupted", folder);
			break;
		}
		char *path = bt_format("%s/%s", folder, names.names[i]);
		if (!path)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
		else if (!request->skip)
			result = check_file(path, err);
		if (result == BETON_OK)
			result = add_file(list, path, label, err);
		else
			free(path);
	}
	name_list_free(&names);
	return result;
}

/* Adds the files of all classes that root has; every_class: each must be there and have files. */
static int add_classes(folder_plan *plan, const folder_request *request, folder_list *list, const char *root,
		       bool every_class, beton_error *err)
{
	const name_list *classes = &plan->classes;
	int result = BETON_OK;
	for (size_t i = 0; i < classes->count && result == BETON_OK; i++) {
		size_t before = list->count;
		size_t faults = plan->notes.num_faults;
		char *folder = bt_format("%s/%s", root, classes->names[i]);
		struct stat status;
		if (!folder)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
		else if (every_class || stat(folder, &status) == 0 || errno != ENOENT)
			result = add_class(plan, request, list, folder, (uint32_t)i, err);
		if (result == BETON_OK && every_class && list->count == before && plan->notes.num_faults == faults) {
			beton_error fault;
			bt_fail(&fault, BETON_INVALID_ARGUMENT, "%s: the class folder is empty", folder);
			result = pass_fault(plan, request, &fault, err);
		}
		free(folder);
	}
	return result;
}

/* A class that training has not would have no label. */
static int check_set_classes(folder_plan *plan, const folder_request *request, const char *folder, beton_error *err)
{
	const name_list *train_classes = &plan->classes;
	name_list classes = {0};
	int result = find_classes(plan, request, folder, &classes, err);
	for (size_t i = 0; i < classes.count && result == BETON_OK; i++)
		if (!bsearch(&classes.names[i], train_classes->names, train_classes->count, sizeof(char *),
			     compare_names))
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s/%s: a class that the training set has not",
					 folder, classes.names[i]);
	name_list_free(&classes);
	return result;
}

static bool is_folder(const char *path)
{
	struct stat status;
	return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Adds the files of another set than training's. */
static int add_set(folder_plan *plan, const folder_request *request, int set, const char *folder, beton_error *err)
{
	beton_error fault;
	int result = check_set_classes(plan, request, folder, &fault);
	plan->has[set] = true;
	if (result != BETON_OK)
		return bt_fail(err, result, "%s; it is the %s set of %s, which is left out if %s/train is the source",
			       fault.message, set == SET_VAL ? "validation" : "test", request->root, request->root);
	if (result == BETON_OK)
		result = add_classes(plan, request, &plan->sets[set], folder, false, err);
	if (result == BETON_OK && plan->sets[set].count == 0)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no pictures in its class folders", folder);
	return result;
}

/* Whether the folder has folders in it, and no more than `most`. */
static int has_folders(const char *path, size_t most, bool *has, beton_error *err)
{
	name_list entries = {0};
	passed_over litter = {0};
	size_t folders = 0;
	int result = list_folder(path, &entries, &litter, err);
	for (size_t i = 0; i < entries.count && result == BETON_OK; i++) {
		char *entry = bt_format("%s/%s", path, entries.names[i]);
		if (!entry)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
		folders += is_folder(entry);
		free(entry);
	}
	*has = folders > 0 && folders <= most;
	name_list_free(&entries);
	free(litter.first);
	return result;
}

/* The pictures of a folder without class folders, if no labels are wanted. */
static int add_flat(folder_plan *plan, const folder_request *request, beton_error *err)
{
	folder_list *list = &plan->sets[SET_TRAIN];
	plan->has[SET_TRAIN] = plan->flat = true;
	int result = add_class(plan, request, list, request->root, 0, err);
	return result == BETON_OK && list->count == 0 ? refuse_flat(request->root, 0, err) : result;
}

/* A folder of nothing but train/, which has class folders, is a training set without another set. */
static int is_only_train(const folder_request *request, const char *train, bool *only, beton_error *err)
{
	int result = has_folders(request->root, 1, only, err);
	return result == BETON_OK && *only ? has_folders(train, SIZE_MAX, only, err) : result;
}

static int add_remark(folder_plan *plan, const char *train, const folder_request *request, beton_error *err)
{
	char *remark = request->holds_out
			       ? strdup("")
			       : bt_format("%s: no validation set beside it (val/, valid/, validation/ or test/); "
					   "--val-fraction=0.1 makes one",
					   train);
	int result = remark ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", train);
	if (remark && *remark)
		result = name_list_add(&plan->notes.remarks, remark, err);
	free(remark);
	return result;
}

static int add_training(folder_plan *plan, const folder_request *request, const char *folder, beton_error *err)
{
	int result = find_classes(plan, request, folder, &plan->classes, err);
	plan->has[SET_TRAIN] = true;
	return result == BETON_OK ? add_classes(plan, request, &plan->sets[SET_TRAIN], folder, true, err) : result;
}

/* The folders of root that are sets, as datasets are laid out. */
typedef struct set_folders {
	char *train;
	char *val;
	char *test;
} set_folders;

static void free_set_folders(set_folders *found)
{
	free(found->train);
	free(found->val);
	free(found->test);
}

/* *path: the folder NAME of root, or NULL if there is none. */
static int find_set(const char *root, const char *name, char **path, beton_error *err)
{
	*path = bt_format("%s/%s", root, name);
	if (!*path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", root);
	if (!is_folder(*path)) {
		free(*path);
		*path = NULL;
	}
	return BETON_OK;
}

static int find_sets(const char *root, set_folders *found, beton_error *err)
{
	static const char *const val_names[] = {"val", "valid", "validation"};
	int result = find_set(root, "train", &found->train, err);
	if (result == BETON_OK)
		result = find_set(root, "test", &found->test, err);
	for (size_t i = 0; i < sizeof(val_names) / sizeof(*val_names) && result == BETON_OK; i++) {
		char *path;
		result = find_set(root, val_names[i], &path, err);
		if (result == BETON_OK && path && found->val && found->train)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s and %s: both are a validation set",
					 found->val, path);
		if (result == BETON_OK && !found->val) {
			found->val = path;
			path = NULL;
		}
		free(path);
	}
	return result;
}

int folder_plan_make(folder_plan *plan, const folder_request *request, beton_error *err)
{
	*plan = (folder_plan){0};
	set_folders found = {0};
	int result = find_sets(request->root, &found, err);
	bool sets = found.train && (found.val || found.test);
	bool classes = true;
	if (result == BETON_OK && found.train && !sets)
		result = is_only_train(request, found.train, &sets, err);
	if (result == BETON_OK && sets && !found.val && !found.test)
		result = add_remark(plan, found.train, request, err);
	if (result == BETON_OK && !request->wants_label && !sets)
		result = has_folders(request->root, SIZE_MAX, &classes, err);
	if (result == BETON_OK && !classes)
		result = add_flat(plan, request, err);
	else if (result == BETON_OK)
		result = add_training(plan, request, sets ? found.train : request->root, err);
	if (result == BETON_OK && sets && found.val)
		result = add_set(plan, request, SET_VAL, found.val, err);
	/* A test set is the validation set in the absence of another. */
	if (result == BETON_OK && sets && found.test)
		result = add_set(plan, request, found.val || request->holds_out ? SET_TEST : SET_VAL, found.test, err);
	free_set_folders(&found);
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
	for (int set = 0; set < NUM_SETS; set++)
		folder_list_free(&plan->sets[set]);
	source_notes_free(&plan->notes);
}
