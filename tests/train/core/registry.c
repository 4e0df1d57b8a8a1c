/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules as the registry finds, loads and refuses them. The folder of the build's modules is in DTRAIN_MODULE_PATH.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/device.h>

static const char *made; /* the build's folder of modules */

static void expect_refusal(const char *name, int code, const char *text)
{
	dtrain_device *device = NULL;
	beton_error err = {0};
	int status = dtrain_device_open(name, NULL, &device, &err);
	if (status != code || !strstr(err.message, text))
		fail_msg("%s: status %d, not %d with '%s': %s", name, status, code, text, err.message);
	assert_int_equal(err.code, code);
	assert_null(device);
}

static bool is_registered(const char *name)
{
	for (int i = 0; dtrain_device_at(i); i++)
		if (strcmp(dtrain_device_at(i)->name, name) == 0)
			return true;
	return false;
}

static void faulty_modules_are_refused(void **state)
{
	(void)state;
	setenv("DTRAIN_MODULE_PATH", made, 1);
	expect_refusal("other-version", BETON_UNSUPPORTED, "dtrain-other-version.so: version 99, this library needs ");
	expect_refusal("other-table", BETON_UNSUPPORTED, "device table version 98, this library needs ");
	expect_refusal("no-entry", BETON_UNSUPPORTED, "dtrain-no-entry.so: no symbol dtrain_module_entry");
	expect_refusal("no-module", BETON_UNSUPPORTED, "dtrain-no-module.so: its entry returned nothing");
	expect_refusal("no-device", BETON_UNSUPPORTED, "dtrain-no-device.so: it has no device");
	expect_refusal("other-name", BETON_UNSUPPORTED, "its device is 'sound'");
	assert_false(is_registered("sound"));
	assert_null(dtrain_device_find("other-table"));
}

/* Its device says itself why it does not open; the module stays. */
static void sound_modules_are_registered(void **state)
{
	(void)state;
	setenv("DTRAIN_MODULE_PATH", made, 1);
	expect_refusal("sound", BETON_DEVICE, "made-up device: no hardware");
	assert_true(is_registered("sound"));
	setenv("DTRAIN_MODULE_PATH", "", 1);
	assert_non_null(dtrain_device_find("sound"));
	expect_refusal("sound", BETON_DEVICE, "made-up device: no hardware");
}

static void names_are_names(void **state)
{
	(void)state;
	expect_refusal("", BETON_NOT_FOUND, "'' is not a valid module name");
	expect_refusal("../sound", BETON_NOT_FOUND, "'../sound' is not a valid module name");
	expect_refusal("Sound", BETON_NOT_FOUND, "not a valid module name");
	expect_refusal("missing", BETON_NOT_FOUND, "no module dtrain-missing.so");
	expect_refusal("missing", BETON_NOT_FOUND, "there are: auto");
}

static void write_file(const char *path, const char *bytes, size_t size, mode_t mode)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static char *folder(void)
{
	const char *parent = getenv("TMPDIR");
	static char path[512];
	snprintf(path, sizeof(path), "%s/dtrain-registry-XXXXXX", parent ? parent : "/tmp");
	assert_non_null(mkdtemp(path));
	return path;
}

/* Files that are not a module, that are the first part of one, and that must not be read. */
static void files_that_are_no_modules(void **state)
{
	(void)state;
	char paths[4][600], source[600], head[32];
	const char *place = folder();
	snprintf(source, sizeof(source), "%s/dtrain-sound.so", made);
	FILE *file = fopen(source, "rb");
	assert_non_null(file);
	assert_int_equal(fread(head, 1, sizeof(head), file), sizeof(head));
	fclose(file);
	snprintf(paths[0], sizeof(paths[0]), "%s/dtrain-text.so", place);
	write_file(paths[0], "not a library\n", 14, 0644);
	snprintf(paths[1], sizeof(paths[1]), "%s/dtrain-cut.so", place);
	write_file(paths[1], head, sizeof(head), 0644);
	snprintf(paths[2], sizeof(paths[2]), "%s/dtrain-folder.so", place);
	assert_int_equal(mkdir(paths[2], 0755), 0);
	snprintf(paths[3], sizeof(paths[3]), "%s/dtrain-secret.so", place);
	write_file(paths[3], "not a library\n", 14, 0);
	setenv("DTRAIN_MODULE_PATH", place, 1);
	expect_refusal("text", BETON_NOT_FOUND, "dtrain-text.so cannot be loaded: ");
	expect_refusal("cut", BETON_NOT_FOUND, "dtrain-cut.so cannot be loaded: ");
	expect_refusal("folder", BETON_NOT_FOUND, "dtrain-folder.so cannot be loaded: ");
	/* Root may read it. */
	expect_refusal("secret", BETON_NOT_FOUND, "dtrain-secret.so");
	for (int i = 0; i < 4; i++)
		assert_int_equal(remove(paths[i]), 0);
	assert_int_equal(rmdir(place), 0);
}

/* The first folder that has it wins, and a path of many and empty folders is walked to its end. */
static void folders_are_searched_in_order(void **state)
{
	(void)state;
	char path[4096], file[600];
	const char *place = folder();
	snprintf(file, sizeof(file), "%s/dtrain-late.so", place);
	write_file(file, "not a library\n", 14, 0644);
	snprintf(path, sizeof(path), "::/nowhere:%s:%s:", place, made);
	setenv("DTRAIN_MODULE_PATH", path, 1);
	expect_refusal("late", BETON_NOT_FOUND, "cannot be loaded");
	snprintf(path, sizeof(path), "/nowhere:%s:%s", made, place);
	setenv("DTRAIN_MODULE_PATH", path, 1);
	expect_refusal("late", BETON_DEVICE, "made-up device");
	assert_int_equal(remove(file), 0);
	assert_int_equal(rmdir(place), 0);
}

int main(void)
{
	made = getenv("DTRAIN_MODULE_PATH") ? strdup(getenv("DTRAIN_MODULE_PATH")) : NULL;
	if (!made) {
		fprintf(stderr, "DTRAIN_MODULE_PATH names no folder\n");
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faulty_modules_are_refused),
		cmocka_unit_test(sound_modules_are_registered),
		cmocka_unit_test(names_are_names),
		cmocka_unit_test(files_that_are_no_modules),
		cmocka_unit_test(folders_are_searched_in_order),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free((char *)made);
	return failed;
}
