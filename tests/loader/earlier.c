/* SPDX-License-Identifier: Apache-2.0
 *
 * The pixels of each default and exact mode equal earlier versions', or a user's run could not be repeated. Usage:
 * test-loader-earlier DIGESTS. A line of DIGESTS is PIXELS FILTER CROP DTYPE LAYOUT WIDTH HEIGHT FLIP SEED, numbers as
 * in beton/loader.h, and the XXH3 of a batch of all of tests/golden/pictures.beton.zst, as revision 15e36f4 made it
 * with libjpeg-turbo 2.1.5. Other dtypes than uint8 are normalized. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "tests/support/beton_files.h"

enum { EPOCH = 1, BATCH = 64, LINES_MIN = 100 }; /* BATCH: all of the file */

typedef struct test_case {
	int pixels, filter, crop, dtype, layout;
	uint32_t width, height;
	double flip;
	unsigned long long seed, digest;
} test_case;

static FILE *digests;
static const char *path;

/* False at the end of the file. */
static bool read_case(test_case *out)
{
	int found = fscanf(digests, "%d %d %d %d %d %u %u %lf %llu %llx", &out->pixels, &out->filter, &out->crop,
			   &out->dtype, &out->layout, &out->width, &out->height, &out->flip, &out->seed, &out->digest);
	if (found != EOF)
		assert_int_equal(found, 10);
	return found != EOF;
}

static XXH64_hash_t load(const test_case *c)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.seed = c->seed;
	options.image.pixels = (beton_pixels)c->pixels;
	options.image.filter = (beton_filter)c->filter;
	options.image.crop = (beton_crop)c->crop;
	options.image.dtype = (beton_dtype)c->dtype;
	options.image.layout = (beton_layout)c->layout;
	options.image.normalize = c->dtype != BETON_UINT8;
	options.image.width = c->width;
	options.image.height = c->height;
	options.image.flip_probability = c->flip;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, EPOCH, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->count, beton_loader_num_samples(loader));
	size_t element = c->dtype == BETON_UINT8 ? 1 : c->dtype == BETON_FLOAT32 ? 4 : 2;
	XXH64_hash_t digest =
		XXH3_64bits(batch->tensors[0].data, (size_t)batch->count * c->width * c->height * 3 * element);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	return digest;
}

static void pixels_are_those_of_earlier_versions(void **state)
{
	(void)state;
	path = unpack_golden("pictures");
	test_case c;
	int lines = 0, different = 0;
	for (; read_case(&c); lines++) {
		unsigned long long found = load(&c);
		if (found == c.digest)
			continue;
		print_message("%d %d %d %d %d %u %u %g %llu %016llx\n", c.pixels, c.filter, c.crop, c.dtype, c.layout,
			      c.width, c.height, c.flip, c.seed, found);
		different++;
	}
	assert_true(lines >= LINES_MIN);
	if (different)
		fail_msg("%d of %d batches differ from earlier versions': see above for the new digests", different,
			 lines);
}

static int set_up(void **state)
{
	(void)state;
	make_folder();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fclose(digests);
	remove_folder();
	return 0;
}

int main(int argc, char **argv)
{
	digests = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (!digests) {
		fputs("usage: test-loader-earlier DIGESTS\n", stderr);
		return 2;
	}
	const struct CMUnitTest tests[] = {cmocka_unit_test(pixels_are_those_of_earlier_versions)};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
