/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuing what an earlier writer left: the same bytes as without the interruption, whatever became of the two files
 * meanwhile; and who may work on a target. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "writer_job.h"

#define DATA ".new.beton.partial"
#define JOURNAL ".new.beton.partial.journal"

static file_content whole;

static void expect_whole(const char *path)
{
	file_content file = read_file(path);
	assert_int_equal(file.size, whole.size);
	assert_memory_equal(file.data, whole.data, file.size);
	free(file.data);
	assert_int_not_equal(access(in_folder(DATA), F_OK), 0);
	assert_int_not_equal(access(in_folder(JOURNAL), F_OK), 0);
	remove(path);
}

static void leave(uint64_t stop)
{
	const job_settings settings = {.path = in_folder("new.beton"), .resumable = true, .resume = true, .stop = stop};
	assert_int_equal(job_write(&settings, NULL), BETON_OK);
	/* Files without a sample to continue from are removed. */
	assert_int_equal(access(in_folder(DATA), F_OK), stop < 200 ? -1 : 0);
}

/* Continues to the end; returns from where. */
static uint64_t complete(void)
{
	uint64_t position = 0;
	const job_settings settings = {
		.path = in_folder("new.beton"), .resumable = true, .resume = true, .position = &position};
	beton_error err;
	if (job_write(&settings, &err) != BETON_OK)
		fail_msg("%s", err.message);
	expect_whole(in_folder("new.beton"));
	return position;
}

static void test_every_position(void **state)
{
	(void)state;
	uint64_t before = 0;
	for (uint64_t stop = 1; stop <= JOB_SAMPLES; stop += 290) {
		leave(stop);
		uint64_t position = complete();
		assert_true(position <= stop);
		assert_true(position >= before);
		before = position;
	}
	assert_true(before > JOB_SAMPLES / 2);
}

static void test_closed_without_resume(void **state)
{
	(void)state;
	const job_settings settings = {.path = in_folder("new.beton"), .resumable = true, .stop = 800};
	assert_int_equal(job_write(&settings, NULL), BETON_OK);
	assert_int_not_equal(access(in_folder(DATA), F_OK), 0);
	assert_int_equal(complete(), 0);
}

static void test_another_job(void **state)
{
	(void)state;
	leave(800);
	/* One of another job is left alone. */
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.job = "another job";
	options.resume = true;
	beton_writer *writer;
	beton_error err;
	file_content left = read_file(in_folder(JOURNAL));
	assert_int_equal(beton_writer_open(&writer, in_folder("new.beton"), &field, 1, &options, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "without 'another job'"));
	options.job = "the job";
	assert_int_equal(beton_writer_open(&writer, in_folder("new.beton"), &field, 1, &options, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "of 'page size: 2097152', not of 'page size: 8388608'"));
	file_content still = read_file(in_folder(JOURNAL));
	assert_int_equal(still.size, left.size);
	assert_memory_equal(still.data, left.data, left.size);
	free(still.data);
	free(left.data);
	assert_int_equal(access(in_folder(DATA), F_OK), 0);
	/* Without a job it starts again, and so does one that does not ask to continue. */
	assert_int_equal(job_write(&(job_settings){.path = in_folder("new.beton")}, NULL), BETON_OK);
	expect_whole(in_folder("new.beton"));
	leave(800);
	uint64_t position = 1;
	const job_settings settings = {.path = in_folder("new.beton"), .resumable = true, .position = &position};
	assert_int_equal(job_write(&settings, NULL), BETON_OK);
	assert_int_equal(position, 0);
	expect_whole(in_folder("new.beton"));
}

/* The first page's worth of the journal stays good whatever happens after it. */
static void test_damaged_journal(void **state)
{
	(void)state;
	leave(800);
	file_content journal = read_file(in_folder(JOURNAL));
	file_content data = read_file(in_folder(DATA));
	uint64_t before = 0;
	for (size_t size = 0; size <= journal.size; size += size < 160 ? 11 : 99991) {
		write_file(in_folder(DATA), data.data, data.size);
		write_file(in_folder(JOURNAL), journal.data, size);
		uint64_t position = complete();
		assert_true(position >= before && position < 800);
		before = position;
	}
	for (size_t at = 0; at < journal.size; at += at < 160 ? 11 : 199933) {
		journal.data[at] ^= 4;
		write_file(in_folder(DATA), data.data, data.size);
		write_file(in_folder(JOURNAL), journal.data, journal.size);
		assert_true(complete() <= before);
		journal.data[at] ^= 4;
	}
	free(journal.data);
	free(data.data);
}

/* As after a power failure: a page that the journal names is not there, or not as it was written. */
static void test_damaged_data(void **state)
{
	(void)state;
	leave(800);
	file_content journal = read_file(in_folder(JOURNAL));
	file_content data = read_file(in_folder(DATA));
	uint64_t untouched = complete();
	for (size_t at = BETON_PAGE_SIZE_MIN; at < data.size; at += BETON_PAGE_SIZE_MIN / 2 + 1) {
		uint8_t kept = data.data[at];
		data.data[at] ^= 64;
		write_file(in_folder(DATA), data.data, data.size);
		write_file(in_folder(JOURNAL), journal.data, journal.size);
		assert_true(complete() < untouched);
		data.data[at] = kept;
		write_file(in_folder(DATA), data.data, at);
		write_file(in_folder(JOURNAL), journal.data, journal.size);
		assert_true(complete() < untouched);
	}
	remove(in_folder(DATA));
	write_file(in_folder(JOURNAL), journal.data, journal.size);
	assert_int_equal(complete(), 0);
	free(journal.data);
	free(data.data);
}

static void test_two_writers(void **state)
{
	(void)state;
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	const char *path = in_folder("new.beton");
	beton_writer *one;
	beton_writer *two;
	beton_error err;
	assert_int_equal(beton_writer_open(&one, path, &field, 1, NULL, &err), BETON_OK);
	assert_int_equal(beton_writer_open(&two, path, &field, 1, NULL, &err), BETON_EXISTS);
	assert_null(two);
	assert_non_null(strstr(err.message, "another process is writing"));
	/* The loser left all in place. */
	assert_int_equal(beton_writer_append(one, &(beton_input){.integer = 1}, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(one, &err), BETON_OK);
	assert_int_equal(beton_writer_open(&two, path, &field, 1, NULL, &err), BETON_OK);
	beton_writer_close(&one);
	assert_int_equal(beton_writer_finish(two, &err), BETON_OK);
	beton_writer_close(&two);
	remove(path);
}

/* A process that writes may fork at any time: its child has the writer's memory, descriptors and lock too. */
static void test_children(void **state)
{
	(void)state;
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	const char *path = in_folder("new.beton");
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.job = "children";
	options.resume = true;
	beton_writer *writer;
	beton_error err;
	assert_int_equal(beton_writer_open(&writer, path, &field, 1, &options, &err), BETON_OK);
	for (int i = 0; i < 50000; i++)
		assert_int_equal(beton_writer_append(writer, &(beton_input){.integer = i}, &err), BETON_OK);
	/* One that lives on does not keep the next writer out. */
	int ends[2];
	char end;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		close(ends[1]);
		_exit(read(ends[0], &end, 1) != 0);
	}
	close(ends[0]);
	beton_writer_close(&writer);
	int code = beton_writer_open(&writer, path, &field, 1, &options, &err);
	close(ends[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(code, BETON_OK);
	assert_true(beton_writer_position(writer) > 0);
	beton_writer_close(&writer);
	/* One that closes its copy takes neither the files nor the lock away. */
	options.resume = false;
	assert_int_equal(beton_writer_open(&writer, path, &field, 1, &options, &err), BETON_OK);
	child = fork();
	if (child == 0) {
		beton_writer_close(&writer);
		_exit(writer != NULL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	beton_writer *other;
	assert_int_equal(beton_writer_open(&other, path, &field, 1, &options, &err), BETON_EXISTS);
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
	remove(path);
}

static void expect_in_the_way(const char *name)
{
	beton_error err;
	assert_int_not_equal(job_write(&(job_settings){.path = in_folder("new.beton")}, &err), BETON_OK);
	if (!strstr(err.message, name))
		fail_msg("'%s' is not in: %s", name, err.message);
	assert_int_not_equal(access(in_folder("new.beton"), F_OK), 0);
}

/* Names in a folder that others may write to can be traps. */
static void test_strange_temporary_files(void **state)
{
	(void)state;
	write_file(in_folder("precious"), "data", 4);
	assert_int_equal(symlink("precious", in_folder(JOURNAL)), 0);
	expect_in_the_way(JOURNAL);
	remove(in_folder(JOURNAL));
	assert_int_equal(link(in_folder("precious"), in_folder(JOURNAL)), 0);
	expect_in_the_way(JOURNAL);
	remove(in_folder(JOURNAL));
	assert_int_equal(mkfifo(in_folder(JOURNAL), 0600), 0);
	expect_in_the_way(JOURNAL);
	remove(in_folder(JOURNAL));
	assert_int_equal(mkdir(in_folder(DATA), 0700), 0);
	expect_in_the_way(DATA);
	rmdir(in_folder(DATA));
	/* A link in place of the data is replaced, not followed. */
	assert_int_equal(symlink("precious", in_folder(DATA)), 0);
	assert_int_equal(job_write(&(job_settings){.path = in_folder("new.beton")}, NULL), BETON_OK);
	expect_whole(in_folder("new.beton"));
	file_content precious = read_file(in_folder("precious"));
	assert_int_equal(precious.size, 4);
	free(precious.data);
}

static void test_no_name(void **state)
{
	(void)state;
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	char folder[1024];
	snprintf(folder, sizeof(folder), "%s/", in_folder("missing"));
	beton_writer *writer;
	assert_int_equal(chdir(in_folder("")), 0);
	assert_int_equal(beton_writer_open(&writer, "", &field, 1, NULL, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_writer_open(&writer, folder, &field, 1, NULL, NULL), BETON_INVALID_ARGUMENT);
	assert_int_not_equal(access("..partial.journal", F_OK), 0);
	/* And one that has no room for its temporary files' names. */
	char name[NAME_MAX + 1];
	memset(name, 'n', NAME_MAX);
	beton_error err;
	name[NAME_MAX - 17] = 0;
	assert_int_equal(beton_writer_open(&writer, name, &field, 1, NULL, NULL), BETON_OK);
	beton_writer_close(&writer);
	name[NAME_MAX - 17] = 'n';
	name[NAME_MAX - 16] = 0;
	assert_int_equal(beton_writer_open(&writer, name, &field, 1, NULL, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "a name of 239 bytes is too long"));
}

static void test_resume_needs_a_job(void **state)
{
	(void)state;
	beton_error err;
	const job_settings settings = {.path = in_folder("new.beton"), .resume = true};
	assert_int_equal(job_write(&settings, &err), BETON_INVALID_ARGUMENT);
}

/* Without pages the journal alone tells; a name without a folder. */
static void test_scalars(void **state)
{
	(void)state;
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.job = "scalars";
	options.resume = true;
	assert_int_equal(chdir(in_folder("")), 0);
	uint64_t position = 0;
	for (int run = 0; run < 2; run++) {
		beton_writer *writer;
		assert_int_equal(beton_writer_open(&writer, "scalars", &field, 1, &options, NULL), BETON_OK);
		position = beton_writer_position(writer);
		for (uint64_t i = position; i < 100000; i++)
			assert_int_equal(beton_writer_append(writer, &(beton_input){.integer = (int64_t)i}, NULL),
					 BETON_OK);
		assert_int_equal(access(".scalars.partial", F_OK), 0);
		if (run == 1)
			assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
		beton_writer_close(&writer);
	}
	assert_in_range(position, 50000, 99999);
	beton_reader *reader = open_good("scalars");
	assert_int_equal(beton_reader_info(reader)->num_samples, 100000);
	for (uint64_t i = 0; i < 100000; i += 7) {
		beton_value value;
		assert_int_equal(beton_reader_value(reader, i, 0, &value, NULL), BETON_OK);
		assert_int_equal(value.integer, i);
	}
	beton_reader_close(&reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_position), cmocka_unit_test(test_closed_without_resume),
		cmocka_unit_test(test_another_job),    cmocka_unit_test(test_damaged_journal),
		cmocka_unit_test(test_damaged_data),   cmocka_unit_test(test_two_writers),
		cmocka_unit_test(test_children),       cmocka_unit_test(test_strange_temporary_files),
		cmocka_unit_test(test_no_name),        cmocka_unit_test(test_resume_needs_a_job),
		cmocka_unit_test(test_scalars),
	};
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	beton_error err;
	if (job_write(&(job_settings){.path = in_folder("whole.beton")}, &err) != BETON_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	whole = read_file(in_folder("whole.beton"));
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(whole.data);
	remove_folder();
	return failed;
}
