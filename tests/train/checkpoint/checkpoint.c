/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and loading checkpoints: what is in them, what is kept, and what happens when one is damaged or cut short. */
#include "small_model.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/support/temporary.h"
#include "checkpoint/safetensors.h"
#include "common/system.h"

static const char *golden; /* the folder of files from elsewhere */

static int start(void **state)
{
	(void)state;
	temporary_remove("c");
	return 0;
}

static void round_trip(void **state)
{
	(void)state;
	setup from = make(1, 5);
	setup to = make(2, 5);
	beton_error err;
	if (save(&from, 120, 0, &err) != BETON_OK)
		fail_msg("%s", err.message);
	char *path;
	int64_t step;
	assert_int_equal(dtrain_checkpoint_latest("c/d", INT64_MAX, &path, &step, &err), BETON_OK);
	assert_string_equal(path, STEP);
	assert_int_equal(step, 120);
	run_position expected = at_step(120);
	run_position position = {0};
	assert_int_equal(run_position_read(path, &position, NULL, &err), BETON_OK);
	assert_memory_equal(&position, &expected, sizeof(position));
	if (load(&to, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_same(&from, &to);
	free(path);
	/* The same step again replaces it. */
	setup third = make(3, 5);
	assert_int_equal(save(&third, 120, 0, &err), BETON_OK);
	assert_int_equal(load(&to, STEP, &err), BETON_OK);
	assert_same(&third, &to);
	unmake(&from);
	unmake(&to);
	unmake(&third);
}

static float *slow_of(const setup *made, int64_t *count)
{
	const dtrain_optimizer_state *slow = dtrain_optimizer_state_find(made->optimizer, "slow");
	*count = slow->count;
	return slow->memory;
}

static void *slow_buffer(const setup *made, int index)
{
	const dtrain_optimizer_state *slow = dtrain_optimizer_state_find(made->optimizer, "slow");
	return dtrain_optimizer_state_buffer(made->optimizer, slow, index);
}

static void slow_weights_come_back(void **state)
{
	(void)state;
	setup from = make_with(1, 5, true), to = make_with(2, 5, true), without = make(3, 5);
	beton_error err = {0};
	int64_t count;
	float *saved = slow_of(&from, &count), *loaded = slow_of(&to, &count);
	for (int64_t i = 0; i < count; i++)
		saved[i] = 0.25f * (float)i;
	assert_int_equal(save(&from, 120, 0, &err), BETON_OK);
	/* A run without slow weights has no use for them, and one with them cannot do without. */
	assert_int_equal(load(&without, STEP, &err), BETON_STATE);
	assert_non_null(strstr(err.message, "saved with --lookahead"));
	assert_int_equal(load(&to, STEP, &err), BETON_OK);
	assert_same(&from, &to);
	for (int i = 0; i < dtrain_params_count(to.params); i++) {
		const dtrain_param *param = dtrain_params_at(to.params, i);
		assert_memory_equal(saved + param->offset, loaded + param->offset,
				    (size_t)param->count * sizeof(float));
	}
	for (int i = 0; i < dtrain_params_buffer_count(to.params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(to.params, i);
		assert_memory_equal(slow_buffer(&from, i), slow_buffer(&to, i),
				    (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float));
	}
	assert_int_equal(save(&without, 120, 0, &err), BETON_OK);
	assert_int_equal(load(&to, STEP, &err), BETON_STATE);
	assert_non_null(strstr(err.message, "saved without --lookahead"));
	unmake(&from);
	unmake(&to);
	unmake(&without);
}

/* Rewrites the checkpoint without the optimizer's tensor of that name. */
static void remove_tensor(const char *name)
{
	enum { MOST = 32 };
	dtrain_checkpoint *checkpoint;
	dtrain_checkpoint_view views[2][MOST];
	dtrain_checkpoint_list sets[2], less[2];
	beton_error err;
	assert_int_equal(dtrain_checkpoint_open(STEP, NULL, &checkpoint, &err), BETON_OK);
	for (int set = 0; set < 2; set++) {
		const dtrain_checkpoint_tensor *tensors;
		size_t count;
		assert_int_equal(dtrain_checkpoint_tensors(checkpoint, set, &tensors, &count, &err), BETON_OK);
		assert_true(count <= MOST);
		for (size_t i = 0, to = 0, last = count - 1; i < count; i++) {
			bool is_it = set == DTRAIN_CHECKPOINT_OPTIMIZER && strcmp(tensors[i].name, name) == 0;
			void *memory = calloc(256, sizeof(int64_t));
			assert_non_null(memory);
			views[set][is_it ? last : to++] = dtrain_checkpoint_view_whole(
				tensors[i].name, strcmp(tensors[i].dtype, "I64") == 0 ? DTRAIN_I64 : DTRAIN_F32,
				&tensors[i].shape, memory, NULL);
		}
		sets[set] = less[set] = (dtrain_checkpoint_list){views[set], count};
	}
	less[DTRAIN_CHECKPOINT_OPTIMIZER].count--;
	assert_int_equal(dtrain_checkpoint_load(checkpoint, (const dtrain_checkpoint_list *const[]){&sets[0], &sets[1]},
						NULL, &err),
			 BETON_OK);
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content),
						   .step = 120,
						   .sets = {less[0], less[1]},
						   .state = dtrain_checkpoint_state(checkpoint)};
	if (dtrain_checkpoint_save("c/d", 0, &content, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	for (int set = 0; set < 2; set++)
		for (size_t i = 0; i < sets[set].count; i++)
			free(views[set][i].memory);
	dtrain_checkpoint_close(&checkpoint);
}

static void the_count_of_steps_comes_back(void **state)
{
	(void)state;
	setup from = make_of("adamw", 1, 5, false), to = make_of("adamw", 2, 5, false);
	beton_error err;
	float *saved = dtrain_optimizer_step_count(from.optimizer), *loaded = dtrain_optimizer_step_count(to.optimizer);
	saved[0] = 5;
	saved[1] = 3;
	assert_int_equal(save(&from, 120, 0, &err), BETON_OK);
	assert_int_equal(load(&to, STEP, &err), BETON_OK);
	assert_same(&from, &to);
	assert_true(loaded[0] == 5 && loaded[1] == 3);
	/* A checkpoint of an older version. */
	remove_tensor("step_wraps");
	if (load(&to, STEP, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_true(loaded[0] == 5 && loaded[1] == 0);
	unmake(&from);
	unmake(&to);
}

static void assert_same_file(const char *a, const char *b)
{
	char command[700];
	snprintf(command, sizeof(command), "cmp %s %s", a, b);
	assert_int_equal(system(command), 0);
}

/* A quarter of the place where the element was when the file was written: each block began at a multiple of 1024. */
static void set_slow(const setup *made)
{
	int64_t count, place = 0;
	float *slow = slow_of(made, &count);
	for (int i = dtrain_params_count(made->params) - 1; i >= 0; i--) {
		const dtrain_param *param = dtrain_params_at(made->params, i);
		for (int64_t k = 0; k < param->count; k++)
			slow[param->offset + k] = 0.25f * (float)(place + k);
		int64_t multiple = i == 0 || dtrain_params_at(made->params, i - 1)->block != param->block ? 1024 : 16;
		place = (place + (param->count + 15) / 16 * 16 + multiple - 1) / multiple * multiple;
	}
	for (int64_t i = 0; i < count - dtrain_params_flat_count(made->params); i++)
		slow[dtrain_params_flat_count(made->params) + i] = 0.25f * (float)(place + i);
}

/* The format of one file for each set stays: a stored checkpoint is read, and the same saved anew has its bytes. */
static void stored_checkpoint(void **state)
{
	(void)state;
	static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
	setup from = make_with(1, 5, true), to = make_with(2, 5, true);
	beton_error err = {0};
	set_slow(&from);
	run_position position = at_step(120);
	position.scaler[DTRAIN_SCALER_SCALE] = 32768;
	position.scaler[DTRAIN_SCALER_GOOD_STEPS] = 7;
	const run_weights weights = weights_of(&from);
	assert_int_equal(run_weights_save(&weights, "c/d", 0, &position,
					  "{\"lr\": 0.1, \"model\": \"mlp\", \"tta\": null}", NULL, &err),
			 BETON_OK);
	for (int i = 0; i < 3; i++) {
		char ours[300], theirs[300];
		snprintf(ours, sizeof(ours), STEP "/%s", files[i]);
		snprintf(theirs, sizeof(theirs), "%s/step-000000000120/%s", golden, files[i]);
		assert_same_file(ours, theirs);
	}
	char path[300];
	snprintf(path, sizeof(path), "%s/step-000000000120", golden);
	if (load(&to, path, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_same(&from, &to);
	unmake(&from);
	unmake(&to);
}

static void names_are_torchvisions(void **state)
{
	(void)state;
	setup made = make(1, 5);
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	safetensors_file file;
	assert_int_equal(dtrain__safetensors_open(&file, STEP "/model.safetensors", NULL), BETON_OK);
	assert_int_equal(file.count, 8);
	const safetensors_entry *tracked = dtrain__safetensors_find(&file, "bn.num_batches_tracked");
	assert_non_null(tracked);
	assert_int_equal(tracked->dtype, DTRAIN_I64);
	assert_int_equal(tracked->shape.ndim, 0);
	int64_t batches;
	assert_int_equal(dtrain__safetensors_read(&file, tracked, &batches, NULL), BETON_OK);
	assert_int_equal(batches, 120);
	assert_non_null(dtrain__safetensors_find(&file, "bn.running_var"));
	const safetensors_entry *fixed = dtrain__safetensors_find(&file, "conv.weight");
	assert_non_null(fixed);
	assert_int_equal(fixed->shape.ndim, 4);
	assert_int_equal(fixed->shape.dim[1], 3);
	dtrain__safetensors_close(&file);
	assert_int_equal(dtrain__safetensors_open(&file, STEP "/optimizer.safetensors", NULL), BETON_OK);
	assert_non_null(dtrain__safetensors_find(&file, "fc.weight.momentum"));
	assert_int_equal(file.count, 4);
	dtrain__safetensors_close(&file);
	unmake(&made);
}

static void another_model_is_named(void **state)
{
	(void)state;
	setup made = make(1, 5);
	setup wider = make(2, 6);
	setup before = make(2, 6);
	beton_error err;
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	assert_int_equal(load(&wider, STEP, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "fc.weight"));
	assert_non_null(strstr(err.message, "[5, 3]"));
	assert_non_null(strstr(err.message, "[6, 3]"));
	assert_same(&wider, &before);
	unmake(&made);
	unmake(&wider);
	unmake(&before);
}

static int count_in(const char *folder, const char *prefix)
{
	char command[300];
	snprintf(command, sizeof(command), "ls -A %s | grep -c '^%s'", folder, prefix);
	FILE *pipe = popen(command, "r");
	int count = -1;
	assert_int_equal(fscanf(pipe, "%d", &count), 1);
	pclose(pipe);
	return count;
}

static void keeps_the_newest(void **state)
{
	(void)state;
	setup made = make(1, 5);
	for (int64_t step = 1; step <= 12; step++)
		assert_int_equal(save(&made, step * 100, 3, NULL), BETON_OK);
	assert_int_equal(count_in("c/d", ""), 3);
	char *path;
	int64_t step;
	assert_int_equal(dtrain_checkpoint_latest("c/d", 1200, &path, &step, NULL), BETON_OK);
	assert_int_equal(step, 1100);
	free(path);
	assert_int_equal(dtrain_checkpoint_latest("c/d", 1000, &path, &step, NULL), BETON_NOT_FOUND);
	assert_int_equal(dtrain_checkpoint_latest("nowhere", 1000, &path, &step, NULL), BETON_NOT_FOUND);
	unmake(&made);
}

static void leftovers_are_ignored_and_removed(void **state)
{
	(void)state;
	setup made = make(1, 5);
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	assert_int_equal(mkdir("c/d/.tmp-step-130.1.2", 0777), 0);
	assert_int_equal(mkdir("c/d/step-13", 0777), 0);
	assert_int_equal(mkdir("c/d/step-000000000130.old", 0777), 0);
	char *path;
	assert_int_equal(dtrain_checkpoint_latest("c/d", INT64_MAX, &path, NULL, NULL), BETON_OK);
	assert_string_equal(path, STEP);
	free(path);
	assert_int_equal(save(&made, 140, 0, NULL), BETON_OK);
	assert_int_equal(count_in("c/d", "[.]tmp"), 0);
	unmake(&made);
}

static bool is_damage(int code)
{
	return code == BETON_FORMAT || code == BETON_TRUNCATED || code == BETON_NOT_FOUND ||
	       code == BETON_UNSUPPORTED_VERSION;
}

/* Every bit of all three files: position or load must refuse, and change nothing. */
static void every_bit_is_guarded(void **state)
{
	(void)state;
	static const char *const files[] = {STEP "/model.safetensors", STEP "/optimizer.safetensors",
					    STEP "/state.json"};
	setup made = make(1, 5);
	setup to = make(2, 5);
	setup before = make(2, 5);
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	for (int f = 0; f < 3; f++) {
		int fd = open(files[f], O_RDWR);
		assert_true(fd >= 0);
		off_t size = lseek(fd, 0, SEEK_END);
		int harmless = 0;
		for (off_t bit = 0; bit < size * 8; bit += 3) {
			unsigned char byte;
			assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
			byte ^= (unsigned char)(1 << bit % 8);
			assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
			int result = load(&to, STEP, NULL);
			/* White space of the state may change. */
			if (f == 2 && result == BETON_OK)
				harmless++;
			else if (!is_damage(result))
				fail_msg("%s, bit %ld: %s", files[f], (long)bit, beton_status_name(result));
			else
				assert_same(&to, &before);
			if (result == BETON_OK) {
				unmake(&to);
				to = make(2, 5);
			}
			byte ^= (unsigned char)(1 << bit % 8);
			assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
		}
		close(fd);
		assert_true(harmless < size / 4);
	}
	assert_int_equal(load(&to, STEP, NULL), BETON_OK);
	unmake(&made);
	unmake(&to);
	unmake(&before);
}

static void missing_files_and_truncation(void **state)
{
	(void)state;
	setup made = make(1, 5);
	beton_error err;
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	assert_int_equal(truncate(STEP "/optimizer.safetensors", 100), 0);
	assert_int_equal(load(&made, STEP, &err), BETON_TRUNCATED);
	assert_non_null(strstr(err.message, "optimizer.safetensors"));
	assert_int_equal(unlink(STEP "/model.safetensors"), 0);
	assert_int_equal(load(&made, STEP, &err), BETON_NOT_FOUND);
	assert_int_equal(truncate(STEP "/state.json", 0), 0);
	run_position position = {0};
	assert_int_equal(run_position_read(STEP, &position, NULL, &err), BETON_FORMAT);
	assert_int_equal(dtrain_checkpoint_set_aside(STEP, &err), BETON_OK);
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	assert_int_equal(dtrain_checkpoint_set_aside(STEP, &err), BETON_OK);
	assert_int_equal(count_in("c/d", "damaged-step-"), 2);
	unmake(&made);
}

/* Below the size of its largest file, saving fails and leaves only what was there. */
static void full_disk(void **state)
{
	(void)state;
	setup made = make(1, 5);
	setup to = make(2, 5);
	assert_int_equal(save(&made, 120, 0, NULL), BETON_OK);
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit before;
	getrlimit(RLIMIT_FSIZE, &before);
	for (rlim_t limit = 0; limit < 600; limit += 50) {
		struct rlimit small = {.rlim_cur = limit, .rlim_max = before.rlim_max};
		beton_error err;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		int result = save(&made, 130, 1, &err);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		if (result == BETON_OK)
			fail_msg("a limit of %ld bytes was not felt", (long)limit);
		assert_int_equal(result, BETON_NO_SPACE);
		assert_int_equal(count_in("c/d", ""), 1);
		assert_int_equal(load(&to, STEP, NULL), BETON_OK);
	}
	unmake(&made);
	unmake(&to);
}

static void impossible_folders(void **state)
{
	(void)state;
	setup made = make(1, 5);
	beton_error err;
	const run_weights weights = weights_of(&made);
	run_position position = at_step(1);
	int fd = open("file", O_WRONLY | O_CREAT, 0666);
	close(fd);
	static const char *const folders[] = {"file", "file/inside", "", "/proc/nothing/here"};
	for (int i = 0; i < 4; i++) {
		int result = run_weights_save(&weights, folders[i], 0, &position, NULL, NULL, &err);
		assert_int_not_equal(result, BETON_OK);
		assert_int_equal(err.code, result);
	}
	unmake(&made);
}

int main(int argc, char **argv)
{
	char folder[256];
	if (argc != 2)
		return 2;
	golden = argv[1];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(round_trip, start),
		cmocka_unit_test_setup(slow_weights_come_back, start),
		cmocka_unit_test_setup(the_count_of_steps_comes_back, start),
		cmocka_unit_test_setup(stored_checkpoint, start),
		cmocka_unit_test_setup(names_are_torchvisions, start),
		cmocka_unit_test_setup(another_model_is_named, start),
		cmocka_unit_test_setup(keeps_the_newest, start),
		cmocka_unit_test_setup(leftovers_are_ignored_and_removed, start),
		cmocka_unit_test_setup(every_bit_is_guarded, start),
		cmocka_unit_test_setup(missing_files_and_truncation, start),
		cmocka_unit_test_setup(full_disk, start),
		cmocka_unit_test_setup(impossible_folders, start),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
