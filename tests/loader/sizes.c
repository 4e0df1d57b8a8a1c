/* SPDX-License-Identifier: Apache-2.0
 *
 * Options and statistics of programs of older and newer releases. */
#include "fixture.h"

#include "tests/support/sized.h"

enum { N = 5 };

static char *file;
static beton_loader *loader;

static int open_with(const void *options, beton_error *err)
{
	beton_loader *opened = NULL;
	int result = beton_loader_open(&opened, file, options, err);
	beton_loader_close(&opened);
	return result;
}

static void options_of_every_size(void **state)
{
	(void)state;
	const beton_loader_options options = fixture_options(4, 1);
	sized_check(&(sized_options){"beton_loader_open", &options, sizeof(options), open_with});
	/* Members beyond a smaller struct's size do not count, whatever their content. */
	beton_loader_options cut = fixture_options(4, 1);
	cut.struct_size = offsetof(beton_loader_options, seed);
	cut.world_size = 0;
	assert_int_equal(open_with(&cut, NULL), BETON_OK);
	cut.struct_size = sizeof(cut);
	assert_int_equal(open_with(&cut, NULL), BETON_INVALID_ARGUMENT);
}

SIZED_INIT(beton_loader_options)
SIZED_INIT(beton_iterator_options)

static void defaults_of_every_size(void **state)
{
	(void)state;
	SIZED_CHECK_INIT(beton_loader_options);
	SIZED_CHECK_INIT(beton_iterator_options);
}

static void get_stats(void *stats)
{
	beton_loader_get_stats(loader, stats);
}

static void statistics_of_every_size(void **state)
{
	(void)state;
	const beton_loader_options options = fixture_options(4, 1);
	assert_ok(beton_loader_open(&loader, file, &options, err));
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	for (int i = 0; i < 2; i++) {
		beton_batch *batch;
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	sized_check_filled("beton_loader_get_stats", sizeof(beton_loader_stats), get_stats);
	beton_loader_stats stats = {.struct_size = sizeof(stats)};
	beton_loader_get_stats(loader, &stats);
	assert_int_equal(stats.samples, N);
	fixture_close(&loader, &iterator);
}

/* Both libraries come from one release. */
static void the_version(void **state)
{
	(void)state;
	assert_string_equal(beton_loader_version(), beton_version());
}

static int set_up(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_every_size),
		cmocka_unit_test(defaults_of_every_size),
		cmocka_unit_test(statistics_of_every_size),
		cmocka_unit_test(the_version),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
