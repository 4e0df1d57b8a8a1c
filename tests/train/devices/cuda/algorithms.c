/* SPDX-License-Identifier: Apache-2.0
 *
 * The store of algorithms, with many writers and bad files, and the choice of the fastest, with a clock of the test's.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "common/hash.h"
#include "common/system.h"
#include "devices/cuda/algorithms.h"

static char folder[] = "/tmp/dtrain-algorithms-XXXXXX";

/* A folder of its own for each test. */
static int set_up(void **state)
{
	static int count;
	char *path = bt_format("%s/%d", folder, count++);
	*state = path;
	return !path || setenv("DTRAIN_CACHE", path, 1) != 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static cuda_algorithms *open_store(const char *key)
{
	cuda_algorithms *store = NULL;
	beton_error err;
	if (cuda_algorithms_open(key, &store, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return store;
}

static void put(cuda_algorithms *store, const char *signature, int64_t first, int64_t second)
{
	beton_error err;
	cuda_algorithm algorithm = {.count = 2, .numbers = {first, second}};
	if (cuda_algorithms_put(store, signature, &algorithm, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

static void check(const cuda_algorithms *store, const char *signature, int64_t first, int64_t second)
{
	cuda_algorithm found;
	if (!cuda_algorithms_find(store, signature, &found))
		fail_msg("'%s' is not there", signature);
	assert_int_equal(found.count, 2);
	assert_int_equal(found.numbers[0], first);
	assert_int_equal(found.numbers[1], second);
}

static bool knows(const cuda_algorithms *store, const char *signature)
{
	cuda_algorithm found;
	return cuda_algorithms_find(store, signature, &found);
}

static void what_is_put_is_found_again(void **state)
{
	(void)state;
	cuda_algorithms *store = open_store("a GPU/9.0, \"v1\"");
	assert_false(knows(store, "conv"));
	put(store, "conv", INT64_MIN, INT64_MAX);
	put(store, "linear \"x\" \n", 0, -1);
	put(store, "linear \"x\" \n", 7, 8);
	check(store, "conv", INT64_MIN, INT64_MAX);
	cuda_algorithms_close(store);
	store = open_store("a GPU/9.0, \"v1\"");
	check(store, "conv", INT64_MIN, INT64_MAX);
	check(store, "linear \"x\" \n", 7, 8);
	cuda_algorithms_close(store);
	/* Another version knows nothing of it, even if its file has the same name. */
	store = open_store("a GPU/9.0, \"v2\"");
	assert_false(knows(store, "conv"));
	cuda_algorithms_close(store);
	store = open_store("a GPU/9.0, (v1)");
	assert_false(knows(store, "conv"));
	cuda_algorithms_close(store);
	cuda_algorithms_close(NULL);
}

static void what_others_wrote_stays(void **state)
{
	(void)state;
	cuda_algorithms *one = open_store("gpu"), *two = open_store("gpu");
	put(one, "a", 1, 1);
	put(two, "b", 2, 2);
	check(two, "a", 1, 1);
	put(one, "c", 3, 3);
	check(one, "b", 2, 2);
	/* Each keeps to what it uses; the later one's is kept. */
	put(two, "c", 4, 4);
	check(one, "c", 3, 3);
	cuda_algorithms_close(one);
	cuda_algorithms_close(two);
	one = open_store("gpu");
	check(one, "a", 1, 1);
	check(one, "b", 2, 2);
	check(one, "c", 4, 4);
	cuda_algorithms_close(one);
}

enum { RANKS = 6, EACH = 12 };

static void ranks_share_a_file(void **state)
{
	(void)state;
	char signature[32];
	pid_t children[RANKS];
	for (int rank = 0; rank < RANKS; rank++) {
		children[rank] = fork();
		assert_true(children[rank] >= 0);
		if (children[rank] == 0) {
			cuda_algorithms *store = NULL;
			int failed = cuda_algorithms_open("gpu", &store, NULL);
			for (int i = 0; i < EACH && !failed; i++) {
				cuda_algorithm algorithm = {.count = 2, .numbers = {rank, i}};
				snprintf(signature, sizeof(signature), "%d %d", rank, i);
				failed = cuda_algorithms_put(store, signature, &algorithm, NULL);
			}
			_exit(failed != 0);
		}
	}
	for (int rank = 0; rank < RANKS; rank++) {
		int result = -1;
		assert_int_equal(waitpid(children[rank], &result, 0), children[rank]);
		assert_int_equal(result, 0);
	}
	cuda_algorithms *store = open_store("gpu");
	for (int rank = 0; rank < RANKS; rank++)
		for (int i = 0; i < EACH; i++) {
			snprintf(signature, sizeof(signature), "%d %d", rank, i);
			check(store, signature, rank, i);
		}
	cuda_algorithms_close(store);
}

static void write_text(const char *path, const char *text, size_t length)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

static char *path_of(const char *key)
{
	cuda_algorithms *store = open_store(key);
	char *path = strdup(cuda_algorithms_path(store));
	assert_non_null(path);
	cuda_algorithms_close(store);
	return path;
}

/* A file of this key with `entries` algorithms, "0" to its number, each with two numbers. */
static size_t make_file(const char *key, int entries, char *text, size_t size)
{
	char signature[16];
	cuda_algorithms *store = open_store(key);
	for (int i = 0; i < entries; i++)
		put(store, (snprintf(signature, sizeof(signature), "%d", i), signature), i, 2 * i);
	FILE *file = fopen(cuda_algorithms_path(store), "rb");
	assert_non_null(file);
	size_t length = fread(text, 1, size, file);
	assert_int_equal(fclose(file), 0);
	assert_in_range(length, 20, size - 1);
	text[length] = 0;
	cuda_algorithms_close(store);
	return length;
}

/* How many of the file's algorithms are known, each with its own numbers. */
static int count_known(const cuda_algorithms *store, int entries)
{
	int known = 0;
	for (int i = 0; i < entries; i++) {
		char signature[16];
		snprintf(signature, sizeof(signature), "%d", i);
		if (knows(store, signature))
			check(store, signature, i, 2 * i), known++;
	}
	return known;
}

enum { ENTRIES = 5 };

/* The reported number is at least 1, and with a sound first line the number of lost algorithms. */
static void check_damaged(const char *path, const char *text, size_t length, size_t head, int least)
{
	write_text(path, text, length);
	cuda_algorithms *store = open_store("gpu");
	int known = count_known(store, ENTRIES), damaged = cuda_algorithms_damaged(store);
	if (known < least || damaged < 1 || (head && damaged != ENTRIES - known))
		fail_msg("%d algorithms known, %d damaged, of %zu bytes", known, damaged, length);
	cuda_algorithms_close(store);
}

/* A cut leaves the lines before it, but for its end, which is the end of a line. */
static void every_cut_is_told(void **state)
{
	(void)state;
	char text[512], *path = path_of("gpu");
	size_t length = make_file("gpu", ENTRIES, text, sizeof(text)), head = strcspn(text, "\n");
	int lines = 0;
	for (size_t i = 0; i < length - 1; i++) {
		check_damaged(path, text, i, i > head, lines > 1 ? lines - 1 : 0);
		lines += text[i] == '\n';
	}
	free(path);
}

/* A changed byte takes one line, or the two that it joins; one of the first line takes all. */
static void every_change_is_told(void **state)
{
	(void)state;
	char text[512], *path = path_of("gpu");
	size_t length = make_file("gpu", ENTRIES, text, sizeof(text)), head = strcspn(text, "\n");
	for (size_t i = 0; i < length - 1; i++) {
		char original = text[i];
		text[i] ^= 0x11;
		check_damaged(path, text, length, i > head, i <= head ? 0 : ENTRIES - (original == '\n' ? 2 : 1));
		text[i] = original;
	}
	free(path);
}

/* The next algorithm makes a sound file of what was left. */
static void damaged_files_are_repaired(void **state)
{
	(void)state;
	char text[512], *path = path_of("gpu");
	size_t length = make_file("gpu", ENTRIES, text, sizeof(text));
	text[length - 5] ^= 1;
	write_text(path, text, length);
	cuda_algorithms *store = open_store("gpu");
	assert_int_equal(cuda_algorithms_damaged(store), 1);
	put(store, "new", 3, 4);
	cuda_algorithms_close(store);
	store = open_store("gpu");
	assert_int_equal(cuda_algorithms_damaged(store), 0);
	assert_int_equal(count_known(store, ENTRIES), ENTRIES - 1);
	check(store, "new", 3, 4);
	cuda_algorithms_close(store);
	free(path);
}

/* Sound lines after a sound first line of another format, and without a first line. */
static void lines_of_another_format_are_not_taken(void **state)
{
	(void)state;
	static const char head[] = "[\"dtrain-algorithms-1\",\"gpu\",5]";
	char text[512], other[640], *path = path_of("gpu");
	size_t length = make_file("gpu", ENTRIES, text, sizeof(text));
	const char *lines = strchr(text, '\n') + 1;
	int first = snprintf(other, sizeof(other), "%016" PRIx64 " %s\n",
			     (uint64_t)XXH3_64bits_withSeed(head, strlen(head), XXH3_64bits("gpu", 3)), head);
	memcpy(other + first, lines, length - (size_t)(lines - text));
	for (int i = 0; i < 2; i++) {
		write_text(path, other + (i ? first : 0), length - (size_t)(lines - text) + (size_t)(i ? 0 : first));
		cuda_algorithms *store = open_store("gpu");
		assert_int_equal(count_known(store, ENTRIES), 0);
		assert_true(cuda_algorithms_damaged(store) >= ENTRIES);
		cuda_algorithms_close(store);
	}
	free(path);
}

/* Files of another key, and files that are not a store. */
static void what_others_made_is_not_taken(void **state)
{
	(void)state;
	static const char *const texts[] = {"",  "\n",   "\n\n\n",
					    "{", "null", "{\"format\": 1, \"algorithms\": {\"0\": [1]}}"};
	char text[512], *path = path_of("gpu");
	size_t length = make_file("gpu2", ENTRIES, text, sizeof(text));
	for (size_t i = 0; i <= sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(path, i ? texts[i - 1] : text, i ? strlen(texts[i - 1]) : length);
		cuda_algorithms *store = open_store("gpu");
		assert_int_equal(count_known(store, ENTRIES), 0);
		assert_true(cuda_algorithms_damaged(store) > 0);
		put(store, "b", 5, (int64_t)i);
		cuda_algorithms_close(store);
		store = open_store("gpu");
		check(store, "b", 5, (int64_t)i);
		assert_int_equal(cuda_algorithms_damaged(store), 0);
		cuda_algorithms_close(store);
	}
	free(path);
}

static void what_is_no_file_is_left_alone(void **state)
{
	(void)state;
	char text[256], *path = path_of("gpu");
	cuda_algorithm algorithm = {.count = 1};
	beton_error err;
	(void)make_file("gpu", 1, text, sizeof(text));
	for (int pipe = 0; pipe < 2; pipe++) {
		assert_int_equal(remove(path), 0);
		assert_int_equal(pipe ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
		cuda_algorithms *store = open_store("gpu");
		assert_false(knows(store, "a"));
		assert_int_not_equal(cuda_algorithms_put(store, "a", &algorithm, &err), BETON_OK);
		assert_true(knows(store, "a"));
		cuda_algorithms_close(store);
	}
	/* Neither does a file where the folder should be stop anything. */
	write_text((remove(path), path), "", 0);
	setenv("DTRAIN_CACHE", path, 1);
	cuda_algorithms *store = open_store("gpu");
	assert_int_not_equal(cuda_algorithms_put(store, "a", &algorithm, &err), BETON_OK);
	assert_true(knows(store, "a"));
	cuda_algorithms_close(store);
	free(path);
}

static void check_path(const char *right)
{
	cuda_algorithms *store = open_store("a GPU");
	if (right)
		assert_string_equal(cuda_algorithms_path(store), right);
	else
		assert_null(cuda_algorithms_path(store));
	cuda_algorithms_close(store);
}

static void the_environment_says_where(void **state)
{
	(void)state;
	setenv("HOME", "/home/me", 1);
	setenv("XDG_CACHE_HOME", "/cache", 1);
	setenv("DTRAIN_CACHE", "here", 1);
	check_path("here/algorithms-a_GPU");
	unsetenv("DTRAIN_CACHE");
	check_path("/cache/dtrain/algorithms-a_GPU");
	setenv("XDG_CACHE_HOME", "relative", 1);
	check_path("/home/me/.cache/dtrain/algorithms-a_GPU");
	setenv("XDG_CACHE_HOME", "", 1);
	check_path("/home/me/.cache/dtrain/algorithms-a_GPU");
	unsetenv("HOME");
	check_path(NULL);
	setenv("HOME", "/home/me", 1);
	setenv("DTRAIN_CACHE", "", 1);
	check_path(NULL);
	cuda_algorithms *store = open_store("a GPU");
	put(store, "a", 1, 2);
	check(store, "a", 1, 2);
	cuda_algorithms_close(store);
}

/* ---- timing ---- */

typedef struct clock_of_test {
	const double (*times)[6]; /* of each candidate: the run that is not timed, then five; negative: fails */
	int runs[8];
	int asleep; /* the next runs that take ten times as long */
} clock_of_test;

static int run_candidate(void *context, int index, double *ms, beton_error *err)
{
	(void)err;
	clock_of_test *clock = context;
	*ms = clock->times[index][clock->runs[index]++ % 6] * (clock->asleep-- > 0 ? 10 : 1);
	return *ms < 0 ? BETON_DEVICE : BETON_OK;
}

static void the_fastest_is_found(void **state)
{
	(void)state;
	static const struct {
		int count, fastest;
		double times[4][6];
	} cases[] = {
		{0, -1, {{0}}},
		{1, 0, {{9, 5, 5, 5, 5, 5}}},
		{1, -1, {{-1}}},
		{2, 1, {{1, 5, 5, 5, 5, 5}, {9, 4, 4, 4, 4, 4}}},
		/* Disturbed runs, of the better one and of the worse. */
		{2, 1, {{1, 5, 5, 5, 5, 5}, {9, 4, 90, 4, 90, 4}}},
		{2, 0, {{1, 3, 3, 3, 3, 3}, {9, 4, 1, 4, 1, 4}}},
		{2, 1, {{1, 5, 5, 5, 5, 5}, {9, 90, 4, 4, 4, 4}}},
		/* The order that cuDNN proposed decides among equals. */
		{3, 0, {{1, 100, 100, 100, 100, 100}, {1, 99, 99, 99, 99, 99}, {1, 98.5, 98.5, 98.5, 98.5, 98.5}}},
		{3, 2, {{1, -1}, {1, 9, 9, 9, 9, 9}, {1, 8, 8, 8, 8, 8}}},
		{3, 1, {{-1}, {1, 9, 9, 9, 9, 9}, {1, 8, 8, 8, 8, -1}}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		clock_of_test clock = {.times = cases[i].times};
		if (cuda_fastest(cases[i].count, run_candidate, &clock) != cases[i].fastest)
			fail_msg("case %zu", i);
	}
}

static void a_slow_start_does_not_decide(void **state)
{
	(void)state;
	static const double times[2][6] = {{1, 4, 4, 4, 4, 4}, {1, 5, 5, 5, 5, 5}};
	clock_of_test clock = {.times = times, .asleep = 6};
	assert_int_equal(cuda_fastest(2, run_candidate, &clock), 0);
}

static void the_slow_are_given_up(void **state)
{
	(void)state;
	static const double times[2][6] = {{1, 5, 5, 5, 5, 5}, {90, 50, 50, 50, 50, 50}};
	clock_of_test clock = {.times = times};
	assert_int_equal(cuda_fastest(2, run_candidate, &clock), 0);
	assert_int_equal(clock.runs[0], 6);
	assert_int_equal(clock.runs[1], 3);
}

enum { MANY = 100 };

/* Milliseconds of each candidate; negative: it does not work. */
typedef struct many_of_test {
	double ms[MANY];
	int calls[MANY];
	double slower, total; /* by this factor after each call; of all runs */
	int fails_at;         /* the last candidate fails from this call of it on; 0: never */
	int count, last;
	bool in_turn; /* no candidate twice in succession after its first call */
} many_of_test;

static int run_one_of_many(void *context, int index, int runs, double *ms)
{
	many_of_test *many = context;
	assert_in_range(index, 0, many->count - 1);
	assert_in_range(runs, 1, 5);
	if (many->ms[index] < 0 ||
	    (many->fails_at && index == many->count - 1 && many->calls[index] + 1 >= many->fails_at))
		return BETON_DEVICE;
	*ms = many->ms[index] * (1 + many->total * many->slower);
	many->total += *ms * runs;
	many->calls[index]++;
	many->in_turn &= many->last != index;
	many->last = index;
	return BETON_OK;
}

static many_of_test make_many(int count, double first, double step)
{
	many_of_test many = {.count = count, .last = -1};
	for (int i = 0; i < count; i++)
		many.ms[i] = first + step * i;
	return many;
}

static void the_fastest_of_many_is_found(void **state)
{
	(void)state;
	many_of_test many = make_many(64, 0.6, 0);
	/* The order of the heuristics decides among equals. */
	assert_int_equal(cuda_fastest_of_many(64, false, run_one_of_many, &many), 0);
	many = make_many(64, 0.6, 0);
	many.ms[17] = 0.598;
	assert_int_equal(cuda_fastest_of_many(64, false, run_one_of_many, &many), 0);
	many.ms[17] = 0.55;
	many.ms[0] = many.ms[9] = -1;
	assert_int_equal(cuda_fastest_of_many(64, false, run_one_of_many, &many), 17);
	/* One that stops working. */
	many = make_many(9, 0.6, -0.01);
	many.fails_at = 4;
	assert_int_equal(cuda_fastest_of_many(9, false, run_one_of_many, &many), 7);
	many = make_many(3, -1, 0);
	assert_int_equal(cuda_fastest_of_many(3, false, run_one_of_many, &many), -1);
	assert_int_equal(cuda_fastest_of_many(0, false, run_one_of_many, &many), -1);
	many = make_many(1, 500, 0);
	assert_int_equal(cuda_fastest_of_many(1, false, run_one_of_many, &many), 0);
}

/* A clock that falls under load neither favours the first candidate nor the last. */
static void finalists_take_turns(void **state)
{
	(void)state;
	for (int better = 0; better < 4; better++) {
		many_of_test many = make_many(4, 0.6, 0);
		many.ms[better] = 0.59;
		many.slower = 1e-4;
		many.in_turn = true;
		assert_int_equal(cuda_fastest_of_many(4, false, run_one_of_many, &many), better);
		for (int i = 1; i < 4; i++)
			assert_int_equal(many.calls[i], many.calls[3]);
		assert_true(many.calls[3] >= 6);
		assert_true(many.total > 60);
	}
}

/* Only the first few of a hundred slow candidates are timed, and the clearly slower ones once. */
static void the_time_for_many_is_limited(void **state)
{
	(void)state;
	many_of_test many = make_many(MANY, 10, 0);
	many.ms[1] = 5;
	assert_int_equal(cuda_fastest_of_many(MANY, false, run_one_of_many, &many), 1);
	assert_int_equal(many.calls[2], 1);
	assert_int_equal(many.calls[MANY - 1], 0);
	assert_true(many.total < 400);
	many = make_many(MANY, 0.6, 0.001);
	assert_int_equal(cuda_fastest_of_many(MANY, false, run_one_of_many, &many), 0);
	assert_int_equal(many.calls[20], 1);
	assert_true(many.total < 300);
}

int main(void)
{
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_put_is_found_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_others_wrote_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ranks_share_a_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_cut_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_change_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damaged_files_are_repaired, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lines_of_another_format_are_not_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_others_made_is_not_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_file_is_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_environment_says_where, set_up, tear_down),
		cmocka_unit_test(the_fastest_is_found),
		cmocka_unit_test(the_slow_are_given_up),
		cmocka_unit_test(a_slow_start_does_not_decide),
		cmocka_unit_test(the_fastest_of_many_is_found),
		cmocka_unit_test(finalists_take_turns),
		cmocka_unit_test(the_time_for_many_is_limited),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_remove(folder);
	return failed;
}
