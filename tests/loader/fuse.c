/* SPDX-License-Identifier: Apache-2.0
 *
 * fuse HANGING-FS: loaders whose files are on a file system that hangs, in reads and when a file is closed. Without
 * FUSE it is skipped. */
#include "fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hanging_fs.h"

enum { N = 24, BATCH = 4, SKIPPED = 77 };

static const char *server_program;
static char *file;
static char folder[] = "/tmp/beton-hanging-XXXXXX";
static char mounted[64], shared[64];
static hanging_control *control;
static pid_t server;

static atomic_int allocated;

/* Resources of loaders. */
typedef struct usage {
	int threads;
	int files;
	int batches;
} usage;

static usage usage_now(void)
{
	return (usage){.threads = fixture_threads(), .files = fixture_files(), .batches = atomic_load(&allocated)};
}

/* Waits until a loader's resources are free. */
static void wait_until_back(usage before)
{
	for (usage now = usage_now();
	     now.threads > before.threads || now.files > before.files || now.batches > before.batches;
	     now = usage_now())
		fixture_pause();
}

static void hang(void)
{
	atomic_store(&control->hangs, 1);
}

static void go_on(void)
{
	atomic_store(&control->hangs, 0);
}

static void wait_for_hang(void)
{
	while (atomic_load(&control->held) == 0)
		fixture_pause();
}

static beton_loader *open_loader(beton_engine engine, bool direct)
{
	beton_loader *loader = NULL;
	beton_loader_options options = fixture_options(BATCH, 2);
	options.engine = engine;
	options.direct = direct;
	options.allocator = fixture_allocator(&allocated);
	assert_ok(beton_loader_open(&loader, mounted, &options, err));
	return loader;
}

static void *cancel_it(void *iterator)
{
	wait_for_hang();
	beton_iterator_cancel(iterator);
	return NULL;
}

static void cancel_and_close(beton_engine engine, bool direct)
{
	usage before = usage_now();
	beton_loader *loader = open_loader(engine, direct);
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	beton_error fault = {0};
	pthread_t canceller;
	hang();
	fixture_start(&iterator, loader, 0, 0);
	assert_int_equal(pthread_create(&canceller, NULL, cancel_it, iterator), 0);
	int result = beton_iterator_next(iterator, &batch, -1, &fault);
	if (result != BETON_CANCELLED)
		fail_msg("engine %d, direct %d: %d, %s", engine, direct, result, fault.message);
	pthread_join(canceller, NULL);
	beton_iterator_close(&iterator);
	assert_int_equal(beton_loader_close_within(&loader, 50, &fault), BETON_TIMEOUT);
	if (!strstr(fault.message, mounted))
		fail_msg("engine %d, direct %d: %s", engine, direct, fault.message);
	go_on();
	wait_until_back(before);
}

static void reads_hang(void **state)
{
	(void)state;
	cancel_and_close(BETON_ENGINE_THREADS, false);
	cancel_and_close(BETON_ENGINE_THREADS, true);
	cancel_and_close(BETON_ENGINE_URING, false);
	cancel_and_close(BETON_ENGINE_URING, true);
	cancel_and_close(BETON_ENGINE_MMAP, false);
}

/* With all that was read, what can hang is the close() of the file. */
static void closing_hangs(void **state)
{
	(void)state;
	const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING, BETON_ENGINE_MMAP};
	for (int i = 0; i < 3; i++) {
		usage before = usage_now();
		beton_loader *loader = open_loader(engines[i], false);
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		beton_error fault = {0};
		fixture_start(&iterator, loader, 0, 0);
		for (int k = 0; k < N / BATCH; k++) {
			assert_ok(beton_iterator_next(iterator, &batch, -1, err));
			beton_batch_release(&batch);
		}
		beton_iterator_close(&iterator);
		hang();
		assert_int_equal(beton_loader_close_within(&loader, 100, &fault), BETON_TIMEOUT);
		if (!strstr(fault.message, mounted))
			fail_msg("engine %d: %s", engines[i], fault.message);
		wait_for_hang();
		go_on();
		wait_until_back(before);
	}
}

/* Afterwards all is as ever. */
static void it_works_again(void **state)
{
	(void)state;
	beton_loader *loader = open_loader(BETON_ENGINE_AUTO, false);
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	hang();
	fixture_start(&iterator, loader, 0, 0);
	wait_for_hang();
	go_on();
	for (int k = 0; k < N / BATCH; k++) {
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
}

/* False where nothing can be mounted. */
static bool start_server(void)
{
	struct stat status;
	if (!mkdtemp(folder))
		return false;
	snprintf(shared, sizeof(shared), "%s.control", folder);
	snprintf(mounted, sizeof(mounted), "%s/" HANGING_NAME, folder);
	int fd = open(shared, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*control)) != 0)
		return false;
	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (control == MAP_FAILED)
		return false;
	control->test = getpid();
	server = fork();
	if (server == 0) {
		execl(server_program, server_program, file, shared, "-f", folder, NULL);
		_exit(SKIPPED);
	}
	while (server > 0 && stat(mounted, &status) != 0) {
		if (waitpid(server, NULL, WNOHANG) == server)
			return false;
		fixture_pause();
	}
	return server > 0;
}

static void stop_server(void)
{
	go_on();
	kill(server, SIGTERM);
	waitpid(server, NULL, 0);
}

static void *do_nothing(void *argument)
{
	return argument;
}

/* A sanitizer may start a thread of its own with the first one. */
static int start_first_thread(void **state)
{
	(void)state;
	pthread_t first;
	return pthread_create(&first, NULL, do_nothing, NULL) || pthread_join(first, NULL);
}

static int let_all_go_on(void **state)
{
	(void)state;
	go_on();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reads_hang, let_all_go_on),
		cmocka_unit_test_teardown(closing_hangs, let_all_go_on),
		cmocka_unit_test_teardown(it_works_again, let_all_go_on),
	};
	if (argc < 2 || access("/dev/fuse", R_OK | W_OK) != 0) {
		fprintf(stderr, "skipped: %s\n", argc < 2 ? "built without libfuse3" : "/dev/fuse cannot be used");
		return SKIPPED;
	}
	server_program = argv[1];
	file = fixture_write(N, -1);
	bool mounts = start_server();
	int failures = mounts ? cmocka_run_group_tests(tests, start_first_thread, NULL) : 0;
	if (mounts)
		stop_server();
	else
		fprintf(stderr, "skipped: no file system can be mounted here\n");
	rmdir(folder);
	unlink(shared);
	fixture_remove(file);
	return mounts ? failures : SKIPPED;
}
