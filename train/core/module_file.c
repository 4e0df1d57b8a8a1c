/* SPDX-License-Identifier: Apache-2.0 */
#include "module_file.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

/* Any object of this library, for its address. */
static const char here;

static bool is_there(const char *folder, int length, const char *name, char path[PATH_MAX])
{
	int size = snprintf(path, PATH_MAX, "%.*s/dtrain-%s.so", length, folder, name);
	return length > 0 && size > 0 && size < PATH_MAX && access(path, R_OK) == 0;
}

/* The file of this library, or of the program that contains it. The dynamic linker knows a program only by the name
 * with which it was started. */
static bool find_self(char path[PATH_MAX])
{
	Dl_info info;
	void *found;
	if (!dladdr1(&here, &info, &found, RTLD_DL_LINKMAP))
		return false;
	const struct link_map *map = found;
	if (*map->l_name)
		return snprintf(path, PATH_MAX, "%s", map->l_name) < PATH_MAX;
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[length > 0 ? length : 0] = '\0';
	return length > 0;
}

/* The libraries' folder is beside the program's. */
static bool is_beside_library(const char *name, char path[PATH_MAX])
{
	char self[PATH_MAX], folder[PATH_MAX];
	const char *slash;
	if (!find_self(self) || !(slash = strrchr(self, '/')))
		return false;
	int length = snprintf(folder, sizeof(folder), "%.*s/dtrain", (int)(slash - self), self);
	if (length < PATH_MAX && is_there(folder, length, name, path))
		return true;
	length = snprintf(folder, sizeof(folder), "%.*s/../lib/dtrain", (int)(slash - self), self);
	return length < PATH_MAX && is_there(folder, length, name, path);
}

static bool find_file(const char *name, char path[PATH_MAX])
{
	const char *folders = getenv("DTRAIN_MODULE_PATH");
	while (folders && *folders) {
		int length = (int)strcspn(folders, ":");
		if (is_there(folders, length, name, path))
			return true;
		folders += length;
		folders += *folders == ':';
	}
	return is_beside_library(name, path) || is_there(DTRAIN_MODULE_DIR, sizeof(DTRAIN_MODULE_DIR) - 1, name, path);
}

/* Opens the library, and undoes what it does to signals: UCX, which some Gloo brings, installs handlers of SIGHUP and
 * of faults when it is loaded, in the place of the program's. */
static void *open_library(const char *path)
{
	struct sigaction before[NSIG], now;
	bool known[NSIG];
	for (int i = 1; i < NSIG; i++)
		known[i] = sigaction(i, NULL, &before[i]) == 0;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	for (int i = 1; i < NSIG; i++) {
		if (known[i] && sigaction(i, NULL, &now) == 0 && now.sa_sigaction != before[i].sa_sigaction)
			sigaction(i, &before[i], NULL);
	}
	return library;
}

int dtrain__module_file_open(const char *name, const char *entry, module_file *out, beton_error *err)
{
	if (!find_file(name, out->path))
		return bt_fail(err, BETON_NOT_FOUND,
			       "no module dtrain-%s.so in DTRAIN_MODULE_PATH, beside this library or "
			       "in " DTRAIN_MODULE_DIR,
			       name);
	out->library = open_library(out->path);
	if (!out->library)
		return bt_fail(err, BETON_NOT_FOUND, "module %s cannot be loaded: %s", out->path, dlerror());
	out->entry = dlsym(out->library, entry);
	if (out->entry)
		return BETON_OK;
	dtrain__module_file_close(out);
	return bt_fail(err, BETON_UNSUPPORTED, "module %s: no symbol %s", out->path, entry);
}

void dtrain__module_file_close(const module_file *file)
{
	dlclose(file->library);
}
