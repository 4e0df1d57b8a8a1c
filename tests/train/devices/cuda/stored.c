/* SPDX-License-Identifier: Apache-2.0
 *
 * stored DRIVER GPU.json [few]: what one start of the device leaves in its cache for the next, over the stand-in, with
 * cuDNN compiling for the GPU that is described. Max pool's engines are all compiled, and quickly.
 */
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cudnn.h>

#include <dtrain/device.h>

#include "tests/train/devices/cuda/standin/described.h"
#include "tests/train/devices/cuda/standin/standin.h"

static void *gpu; /* what cuDNN plans for */
static char folder[] = "/tmp/dtrain-stored-XXXXXX", cache[64];

static void ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static dtrain_device *open_device(bool deterministic)
{
	dtrain_device *device;
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .deterministic = deterministic};
	ok(dtrain_device_open("cuda", &options, &device, &err), &err);
	return device;
}

static dtrain_op_desc describe_pool(void)
{
	dtrain_op_desc desc = {.kind = DTRAIN_OP_MAX_POOL, .num_inputs = 1, .num_outputs = 2};
	for (int i = 0; i < 2; i++)
		desc.attrs.window.kernel[i] = desc.attrs.window.stride[i] = 2;
	desc.inputs[0].shape = dtrain_shape_of(4, (int64_t[]){4, 8, 16, 16});
	desc.outputs[0].shape = desc.outputs[1].shape = dtrain_shape_of(4, (int64_t[]){4, 8, 8, 8});
	desc.outputs[1].dtype = DTRAIN_U8;
	return desc;
}

static dtrain_op_desc describe_norm(void)
{
	dtrain_op_desc desc = {.kind = DTRAIN_OP_BATCH_NORM_TRAIN, .num_inputs = 5, .num_outputs = 3};
	desc.attrs.norm.epsilon = 1e-5;
	desc.attrs.norm.momentum = 0.1;
	desc.inputs[0].shape = desc.outputs[0].shape = dtrain_shape_of(4, (int64_t[]){4, 8, 16, 16});
	for (int i = 1; i < 5; i++)
		desc.inputs[i].shape = dtrain_shape_of(1, (int64_t[]){8});
	desc.outputs[1].shape = desc.outputs[2].shape = desc.inputs[1].shape;
	return desc;
}

static dtrain_op_desc describe_attention(void)
{
	dtrain_op_desc desc = {.kind = DTRAIN_OP_ATTENTION, .num_inputs = 3, .num_outputs = 2};
	desc.attrs.attention.heads = desc.attrs.attention.kv_heads = 1;
	for (int i = 0; i < 3; i++) {
		desc.inputs[i].dtype = DTRAIN_F16;
		desc.inputs[i].shape = dtrain_shape_of(3, (int64_t[]){1, 128, 64});
	}
	desc.outputs[0] = desc.inputs[0];
	desc.outputs[1].shape = dtrain_shape_of(3, (int64_t[]){1, 1, 128});
	return desc;
}

/* One start: cuDNN's plans of it were loaded and compiled so many times. description (NULL: any) is in what the device
 * says of itself afterwards. */
static void start_op(dtrain_op_desc desc, bool deterministic, long *loaded, long *made, const char *description)
{
	standin.loaded = standin.made = 0;
	dtrain_device *device = open_device(deterministic);
	dtrain_op *op;
	dtrain_device_caps caps = {0};
	beton_error err = {0};
	ok(dtrain_device_get_api(device)->op_create(device, &desc, &op, &err), &err);
	dtrain_device_get_api(device)->caps(device, &caps);
	if (description && !strstr(caps.description, description))
		fail_msg("'%s' is not in '%s'", description, caps.description);
	if (!description)
		assert_true(!strstr(caps.description, "refused") && !strstr(caps.description, "damaged") &&
			    !strstr(caps.description, "cannot"));
	dtrain_device_get_api(device)->op_destroy(op);
	dtrain_device_close(&device);
	assert_int_equal(standin.live, 0);
	*loaded = standin.loaded;
	*made = standin.made;
}

static void start(bool deterministic, long *loaded, long *made, const char *description)
{
	start_op(describe_pool(), deterministic, loaded, made, description);
}

/* The plans of the forward and the backward op's engine. */
enum { PLANS = 2 };

static void first_start(void)
{
	long loaded, made;
	start(true, &loaded, &made, NULL);
	assert_int_equal(loaded, PLANS); /* what is compiled goes through the store */
	assert_int_equal(made, PLANS);
}

static void check_next_start(void)
{
	long loaded, made;
	start(true, &loaded, &made, NULL);
	assert_int_equal(loaded, PLANS);
	assert_int_equal(made, 0);
}

/* The cache as a first start leaves it, which is the same for each test: compiled once. Later calls load it. */
static void have_started(bool deterministic)
{
	char command[256], made[64];
	long loaded, compiled;
	snprintf(made, sizeof(made), "%s/%s", folder, deterministic ? "made" : "timed");
	bool there = access(made, F_OK) == 0;
	if (!there && deterministic)
		first_start();
	else if (!there)
		start(false, &loaded, &compiled, NULL);
	snprintf(command, sizeof(command), "cp -r '%s' '%s'", there ? made : cache, there ? cache : made);
	assert_int_equal(system(command), 0);
}

/* A deterministic start takes one engine for an op, and compiles it once. */
static void what_was_compiled_is_loaded(void **state)
{
	(void)state;
	first_start();
	check_next_start();
}

/* The same GPU under a newer driver, to be destroyed. */
static void *describe_newer_driver(void)
{
	char text[8192] = "", *number;
	int64_t length = 0;
	void *newer;
	assert_int_equal(cudnnBackendGetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
						  sizeof(text) - 1, &length, text),
			 CUDNN_STATUS_SUCCESS);
	number = strstr(text, "13000");
	assert_non_null(number);
	memcpy(number, "13020", 5);
	standin.gpu = gpu;
	assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &newer),
			 CUDNN_STATUS_SUCCESS);
	assert_int_equal(cudnnBackendSetAttribute(newer, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
						  (int64_t)strlen(text), text),
			 CUDNN_STATUS_SUCCESS);
	assert_int_equal(cudnnBackendFinalize(newer), CUDNN_STATUS_SUCCESS);
	return newer;
}

/* The driver's version is in cuDNN's text, which cuDNN refuses under another; what is compiled does not depend on it.
 */
static void a_newer_driver_loads_them(void **state)
{
	(void)state;
	have_started(true);
	void *newer = describe_newer_driver();
	standin.gpu = newer;
	standin.driver_version = 13020;
	check_next_start();
	cudnnBackendDestroyDescriptor(newer);
}

/* Calls `change` with each of the cache's files of a name. */
static void for_each(const char *name, size_t count, void (*change)(FILE *file))
{
	char pattern[128];
	glob_t files;
	snprintf(pattern, sizeof(pattern), "%s/%s", cache, name);
	assert_int_equal(glob(pattern, 0, NULL, &files), 0);
	assert_int_equal(files.gl_pathc, count);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		FILE *file = fopen(files.gl_pathv[i], "r+b");
		assert_non_null(file);
		change(file);
		assert_int_equal(fclose(file), 0);
	}
	globfree(&files);
}

static void cut(FILE *file)
{
	assert_int_equal(fseek(file, -5, SEEK_END), 0);
	assert_int_equal(ftruncate(fileno(file), ftell(file)), 0);
}

static void flip(FILE *file)
{
	assert_int_equal(fseek(file, 2000, SEEK_SET), 0);
	int byte = fgetc(file);
	assert_int_equal(fseek(file, 2000, SEEK_SET), 0);
	assert_int_not_equal(fputc(byte ^ 1, file), EOF);
}

static void damaged_plans_are_compiled_again(void **state)
{
	(void)state;
	have_started(true);
	for_each("plans-*/*", PLANS, flip);
	first_start();
	check_next_start();
}

/* A file is where the cache's folder should be. The process keeps what it compiled, and the next one compiles again. */
static void an_unwritable_cache_is_told(void **state)
{
	(void)state;
	FILE *file = fopen(cache, "w");
	assert_non_null(file);
	assert_int_equal(fclose(file), 0);
	for (int i = 0; i < 2; i++) {
		long loaded, made;
		char what[160];
		snprintf(what, sizeof(what), ", plans cannot be stored: %s", cache);
		start(true, &loaded, &made, what);
		assert_int_equal(made, PLANS);
	}
}

/* By the driver, which sees the kernel when it runs first. */
static void refused_plans_are_compiled_again(void **state)
{
	(void)state;
	long loaded, made;
	have_started(true);
	standin.refused = 1;
	start(true, &loaded, &made, "1 stored plans refused");
	assert_int_equal(loaded, PLANS);
	assert_int_equal(made, 1);
	check_next_start();
}

/* The same of plans that were the fastest, which later starts do not time. */
static void refused_choices_are_compiled_again(void **state)
{
	(void)state;
	long loaded, made;
	have_started(false);
	setenv("DTRAIN_CUDA_MAX_POOL", "cudnn", 1);
	start(false, &loaded, &made, NULL);
	assert_int_equal(made, 0);
	standin.refused = 1;
	start(false, &loaded, &made, "1 stored plans refused");
	assert_int_equal(loaded, PLANS);
	assert_int_equal(made, 1);
	start(false, &loaded, &made, NULL);
	assert_int_equal(loaded, PLANS);
	assert_int_equal(made, 0);
	unsetenv("DTRAIN_CUDA_MAX_POOL");
}

/* Compiled by threads, each by its own, and timed; the next start finds what is the fastest, and loads that alone. */
static void timed_candidates_are_compiled_once(void **state)
{
	(void)state;
	long loaded, made;
	have_started(false);
	assert_true(standin.made >= PLANS);
	assert_true(standin.loaded >= PLANS);
	start(false, &loaded, &made, NULL);
	assert_int_equal(made, 0);
	assert_in_range(loaded, 0, PLANS); /* none where our kernels were faster */
	/* The record of the winner names the build of our kernels. */
	char command[256];
	snprintf(command, sizeof(command),
		 "cat '%s'/algorithms-*[0-9] | grep 'contest [0-9a-f]*[1-9a-f][0-9a-f]* ' >/dev/null", cache);
	assert_int_equal(system(command), 0);
	/* Lost choices are reported, and made again. */
	for_each("algorithms-*[0-9]", 1, cut);
	start(false, &loaded, &made, "1 stored algorithms damaged");
	assert_int_equal(made, 0);
	start(false, &loaded, &made, NULL);
}

static dtrain_op *make_pool(dtrain_device *device, dtrain_tuning *out)
{
	dtrain_op *op;
	beton_error err = {0};
	dtrain_op_desc desc = describe_pool();
	ok(dtrain_device_get_api(device)->op_create(device, &desc, &op, &err), &err);
	dtrain_device_get_api(device)->tune(device, 0, out);
	return op;
}

/* The first op compiles nothing; engines are compiled and timed beside it, when the device is lent; the next op of the
 * kind, and the next start, have what was chosen. */
static void algorithms_are_found_beside_training(void **state)
{
	(void)state;
	dtrain_device *device;
	dtrain_tuning tuning;
	beton_error err = {0};
	long loaded, made;
	const dtrain_device_options options = {.struct_size = sizeof(options), .tune_later = true};
	standin.made = 0;
	ok(dtrain_device_open("cuda", &options, &device, &err), &err);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_op *op = make_pool(device, &tuning);
	assert_int_equal(standin.made, 0);
	assert_int_equal(tuning.ops, 1);
	assert_int_equal(tuning.left, 1);
	for (int i = 0; i < 100000 && tuning.left > 0; i++) {
		usleep(1000);
		api->tune(device, 5, &tuning);
	}
	assert_int_equal(tuning.left, 0);
	assert_true(tuning.found > 0);
	assert_true(standin.made >= PLANS);
	dtrain_op *other = make_pool(device, &tuning);
	assert_int_equal(tuning.ops, 1);
	api->op_destroy(op);
	api->op_destroy(other);
	dtrain_device_close(&device);
	assert_int_equal(standin.live, 0);
	start(false, &loaded, &made, NULL);
	assert_int_equal(made, 0);
}

/* A search that is cut short stores nothing that it has not measured. */
static void a_device_closes_while_it_searches(void **state)
{
	(void)state;
	long loaded, made;
	for (int lends = 0; lends < 3; lends++) {
		dtrain_device *device;
		dtrain_tuning tuning;
		beton_error err = {0};
		const dtrain_device_options options = {.struct_size = sizeof(options), .tune_later = true};
		ok(dtrain_device_open("cuda", &options, &device, &err), &err);
		dtrain_op *op = make_pool(device, &tuning);
		for (int i = 0; i < lends; i++) {
			usleep(200000);
			dtrain_device_get_api(device)->tune(device, 0.01, &tuning);
		}
		dtrain_device_get_api(device)->op_destroy(op);
		dtrain_device_close(&device);
		assert_int_equal(standin.live, 0);
	}
	start(false, &loaded, &made, NULL);
	char command[256];
	snprintf(command, sizeof(command), "cat '%s'/algorithms-*[0-9] | grep contest >/dev/null", cache);
	assert_int_equal(system(command), 0);
}

enum { RANKS = 3 };

/* Ranks that start together share a cache: one compiles, and the others wait for it. */
static void ranks_wait_for_each_other(void **state)
{
	(void)state;
	pid_t ranks[RANKS];
	int made_by_all = 0;
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = fork();
		assert_true(ranks[i] >= 0);
		if (ranks[i] == 0) {
			long loaded, made;
			start(true, &loaded, &made, NULL);
			_exit(loaded + made < PLANS ? 99 : (int)made);
		}
	}
	for (int i = 0; i < RANKS; i++) {
		int status = 0;
		assert_int_equal(waitpid(ranks[i], &status, 0), ranks[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= PLANS);
		made_by_all += WEXITSTATUS(status);
	}
	assert_int_equal(made_by_all, PLANS);
}

static void the_environment_says_who_runs_it(void **state)
{
	(void)state;
	static const struct {
		const char *variable;
		dtrain_op_desc (*describe)(void);
	} ops[] = {{"DTRAIN_CUDA_MAX_POOL", describe_pool},
		   {"DTRAIN_CUDA_BATCH_NORM", describe_norm},
		   {"DTRAIN_CUDA_ATTENTION", describe_attention}};
	dtrain_device *device = NULL;
	beton_error err = {0};
	for (int i = 0; i < 3; i++)
		for (int cudnn = 0; cudnn < 2; cudnn++) {
			long loaded, made;
			setenv(ops[i].variable, cudnn ? "cudnn" : "kernels", 1);
			start_op(ops[i].describe(), true, &loaded, &made, NULL);
			assert_int_equal(made > 0, cudnn);
			unsetenv(ops[i].variable);
		}
	const char *const variables[] = {"DTRAIN_CUDA_MAX_POOL",  "DTRAIN_CUDA_BATCH_NORM",
					 "DTRAIN_CUDA_ATTENTION", "DTRAIN_CUDA_CONV_STATISTICS",
					 "DTRAIN_CUDA_STEM",      "DTRAIN_CUDA_LOGITS",
					 "DTRAIN_CUDA_CONV_1X1",  "DTRAIN_CUDA_NORM_PAIR"};
	for (int i = 0; i < 8; i++) {
		setenv(variables[i], "mine", 1);
		assert_int_equal(dtrain_device_open("cuda", NULL, &device, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, variables[i]));
		assert_non_null(strstr(err.message, "'mine'"));
		unsetenv(variables[i]);
	}
	assert_int_equal(standin.live, 0);
}

/* Beside the module's file, which is under this name in a folder of the test's. */
static void plans_beside_the_module_are_loaded(void **state)
{
	(void)state;
	char command[256];
	have_started(true);
	snprintf(command, sizeof(command), "mv '%s'/plans-* '%s/modules'", cache, folder);
	assert_int_equal(system(command), 0);
	check_next_start();
	snprintf(command, sizeof(command), "rm -r '%s'/modules/plans-*", folder);
	assert_int_equal(system(command), 0);
	first_start();
}

static bool link_module(void)
{
	const char *from = getenv("DTRAIN_MODULE_PATH");
	char path[PATH_MAX], place[64], link[128];
	snprintf(path, sizeof(path), "%s/dtrain-cuda.so", from ? from : ".");
	snprintf(place, sizeof(place), "%s/modules", folder);
	snprintf(link, sizeof(link), "%s/dtrain-cuda.so", place);
	return mkdir(place, 0700) == 0 && symlink(path, link) == 0 && setenv("DTRAIN_MODULE_PATH", place, 1) == 0;
}

static int reset(void **state)
{
	(void)state;
	static int count;
	standin_reset();
	standin.memory = (size_t)1 << 30;
	standin.gpu = gpu;
	snprintf(cache, sizeof(cache), "%s/%d", folder, count++);
	return setenv("DTRAIN_CACHE", cache, 1);
}

static void remove_folder(void)
{
	char command[64];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	if (system(command) != 0)
		perror(folder);
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: %s DRIVER GPU.json [few]\n", argv[0]);
		return 2;
	}
	int failed = standin_describe(argv[1], argv[2], &gpu);
	if (failed)
		return failed;
	if (!mkdtemp(folder) || !link_module()) {
		perror(folder);
		return 1;
	}
	const struct CMUnitTest few[] = {
		/* First: it forks, before this process knows what cuDNN opens. */
		cmocka_unit_test_setup(ranks_wait_for_each_other, reset),
		cmocka_unit_test_setup(what_was_compiled_is_loaded, reset),
		cmocka_unit_test_setup(a_newer_driver_loads_them, reset),
		cmocka_unit_test_setup(plans_beside_the_module_are_loaded, reset),
		cmocka_unit_test_setup(damaged_plans_are_compiled_again, reset),
		cmocka_unit_test_setup(refused_plans_are_compiled_again, reset),
	};
	const struct CMUnitTest others[] = {
		cmocka_unit_test_setup(an_unwritable_cache_is_told, reset),
		/* The first of the two that have_started(false): it looks at what that compiles. */
		cmocka_unit_test_setup(timed_candidates_are_compiled_once, reset),
		cmocka_unit_test_setup(refused_choices_are_compiled_again, reset),
		cmocka_unit_test_setup(algorithms_are_found_beside_training, reset),
		cmocka_unit_test_setup(a_device_closes_while_it_searches, reset),
		cmocka_unit_test_setup(the_environment_says_who_runs_it, reset),
	};
	failed = cmocka_run_group_tests_name("few", few, NULL, NULL);
	if (argc == 3)
		failed += cmocka_run_group_tests_name("others", others, NULL, NULL);
	remove_folder();
	cudnnBackendDestroyDescriptor(gpu);
	return failed;
}
