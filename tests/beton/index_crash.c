/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that adds an index, or takes it out, is killed after every one of its system calls: the file then has the
 * same samples, and the next process completes the work to the same bytes. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/index.h>

#include "index_file.h"
#include "killed.h"

typedef struct job {
	const char *path;
	bool side;
	bool remove;
} job;

static int run(const void *context)
{
	const job *self = context;
	beton_index_report report;
	beton_index_options options;
	beton_index_options_init(&options);
	options.side = self->side;
	options.num_threads = 1;
	return self->remove ? beton_index_remove(self->path, &report, NULL)
			    : beton_index_add(self->path, &options, &report, NULL);
}

static bool exists(const char *name)
{
	return access(in_folder(name), F_OK) == 0;
}

/* Kills at each stop; done: the file as the undisturbed process leaves it. */
static void kill_everywhere(const job *killed, const char *begin, const char *done)
{
	uint64_t content = index_file_content(begin);
	long k = 0;
	bool again = true;
	/* An odd stop leaves the same files as the even stop before it. */
	for (; again; k += 2) {
		char path[512];
		snprintf(path, sizeof(path), "%s", index_file_copy(begin, "a.beton"));
		unlink(in_folder("a.beton.index"));
		if (killed->remove && killed->side)
			index_file_copy(in_folder("begin.beton.index"), "a.beton.index");
		job one = *killed;
		one.path = path;
		again = killed_at(run, &one, k);
		assert_int_equal(index_file_content(path), content);
		/* Adding completes the rest of a killed removal, which is then removed. */
		job complete = {.path = path, .side = killed->side};
		if (killed->remove)
			assert_int_equal(run(&complete), BETON_OK);
		assert_int_equal(run(&one), BETON_OK);
		if (!index_file_same(path, done))
			fail_msg("after a kill at stop %ld: other bytes", k);
		assert_int_equal(exists("a.beton.index"), killed->side && !killed->remove);
		if (killed->side && !killed->remove)
			assert_true(index_file_same(in_folder("a.beton.index"), in_folder("done.beton.index")));
		assert_false(exists(".a.beton.index.partial"));
		assert_false(exists(".a.beton.index.partial.journal"));
	}
	assert_true(k > 60);
}

static void kill_both(const index_file *wanted, bool side)
{
	char begin[512], done[512];
	snprintf(begin, sizeof(begin), "%s", index_file_make("begin.beton", wanted));
	snprintf(done, sizeof(done), "%s", index_file_copy(begin, "done.beton"));
	assert_int_equal(run(&(job){.path = done, .side = side}), BETON_OK);
	kill_everywhere(&(job){.side = side}, begin, done);
	/* The other way round. The fingerprint does not have the name, so the side file is that of each copy. */
	if (side)
		index_file_copy(in_folder("done.beton.index"), "begin.beton.index");
	kill_everywhere(&(job){.side = side, .remove = true}, side ? begin : done, begin);
	unlink(in_folder("begin.beton.index"));
	unlink(in_folder("done.beton.index"));
}

static void test_behind_the_values(void **state)
{
	(void)state;
	kill_both(&(index_file){.plain = true, .tail = INDEX_ALL}, false);
}

static void test_in_front_of_the_values(void **state)
{
	(void)state;
	kill_both(&(index_file){.plain = true, .tail = 64}, false);
}

static void test_with_a_block(void **state)
{
	(void)state;
	kill_both(&(index_file){.tail = INDEX_ALL}, false);
}

static void test_side_file(void **state)
{
	(void)state;
	kill_both(&(index_file){.plain = true, .tail = INDEX_ALL}, true);
}

int main(void)
{
	if (!killed_may_trace()) {
		fprintf(stderr, "skipped: a process may not trace its child here\n");
		return 77;
	}
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_behind_the_values),
					   cmocka_unit_test(test_in_front_of_the_values),
					   cmocka_unit_test(test_with_a_block), cmocka_unit_test(test_side_file)};
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
