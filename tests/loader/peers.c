/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader's pixels, from file to batch, beside FFCV 1.0.2's and torchvision 0.29's (Pillow 13) from the same
 * pictures and crops. Usage: test-loader-peers golden.bin, which peers/make-golden makes. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PICTURES_MAX = 16 };

typedef struct stored_picture {
	uint32_t mode;
	uint32_t width;
	uint32_t height;
	uint32_t size;
	uint8_t *bytes;
} stored_picture;

/* A peer, the mode of ours that goes with it, and how far they may be from each other: the largest difference of a byte
 * in that mode; the mean one in the default mode. */
typedef struct peer {
	const char *name;
	beton_pixels exact;
	int most;
	double fast_mean;
} peer;

/* On Pillow's pictures torchvision rounds twice, on tensors once; tensors of v2 have shorter weights. */
static const peer peers[] = {
	{"ffcv", BETON_PIXELS_FFCV, 0, 3},
	{"pillow", BETON_PIXELS_TORCHVISION, 0, 3},
	{"tensors", BETON_PIXELS_TORCHVISION, 1, 3},
	{"tensors-v2", BETON_PIXELS_TORCHVISION, 2, 3},
};

/* One crop and size of output; pixels: of all pictures. */
typedef struct test_case {
	const peer *peer;
	beton_crop crop;
	uint32_t width;
	uint32_t height;
	uint32_t box[PICTURES_MAX][4];
	uint8_t *pixels;
} test_case;

static const char *const crops[] = {"none", "random", "center"};
static stored_picture pictures[PICTURES_MAX];
static uint32_t num_pictures;
static FILE *golden;
static char *path;

static uint32_t read_u32(void)
{
	uint8_t bytes[4];
	assert_int_equal(fread(bytes, sizeof(bytes), 1, golden), 1);
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint8_t *read_bytes(size_t size)
{
	uint8_t *bytes = malloc(size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, size, golden), size);
	return bytes;
}

static void write_file(void)
{
	/* The folder and name of a file of the fixture. */
	path = fixture_write(1, -1);
	remove(path);
	const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, &options, err));
	for (uint32_t i = 0; i < num_pictures; i++) {
		const stored_picture *picture = &pictures[i];
		const beton_input input = {.data = picture->bytes,
					   .size = picture->size,
					   .mode = picture->mode ? BETON_IMAGE_RAW : BETON_IMAGE_JPEG,
					   .width = picture->width,
					   .height = picture->height};
		assert_ok(beton_writer_append(writer, &input, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static int set_up(void **state)
{
	(void)state;
	char line[64];
	assert_non_null(fgets(line, sizeof(line), golden));
	assert_int_equal(sscanf(line, "pictures %u", &num_pictures), 1);
	assert_in_range(num_pictures, 1, PICTURES_MAX);
	for (uint32_t i = 0; i < num_pictures; i++) {
		stored_picture *picture = &pictures[i];
		picture->mode = read_u32();
		picture->width = read_u32();
		picture->height = read_u32();
		picture->size = read_u32();
		picture->bytes = read_bytes(picture->size);
	}
	write_file();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < num_pictures; i++)
		free(pictures[i].bytes);
	fixture_remove(path);
	fclose(golden);
	return 0;
}

/* False at the end of the file. */
static bool read_case(test_case *out)
{
	char line[64], name[16], crop[16];
	if (!fgets(line, sizeof(line), golden))
		return false;
	*out = (test_case){0};
	assert_int_equal(sscanf(line, "%15s %15s %u %u", name, crop, &out->width, &out->height), 4);
	for (size_t i = 0; i < sizeof(peers) / sizeof(*peers); i++)
		if (strcmp(name, peers[i].name) == 0)
			out->peer = &peers[i];
	assert_non_null(out->peer);
	while (strcmp(crop, crops[out->crop]) != 0)
		assert_true(++out->crop <= BETON_CROP_CENTER);
	size_t size = (size_t)out->width * out->height * 3;
	out->pixels = malloc(size * num_pictures);
	assert_non_null(out->pixels);
	for (uint32_t i = 0; i < num_pictures; i++) {
		for (int j = 0; j < 4; j++)
			out->box[i][j] = read_u32();
		assert_int_equal(fread(out->pixels + i * size, 1, size, golden), size);
	}
	return true;
}

typedef struct difference {
	int most;
	double mean;
	double share; /* of bytes that differ */
} difference;

static difference compare(const test_case *c, const uint8_t *pixels, bool flipped)
{
	size_t bytes = (size_t)num_pictures * c->width * c->height * 3, different = 0;
	difference out = {0};
	for (size_t i = 0; i < bytes; i++) {
		size_t x = i / 3 % c->width;
		size_t at = flipped ? i - x * 3 + (c->width - 1 - x) * 3 : i;
		int apart = abs(pixels[at] - c->pixels[i]);
		out.most = apart > out.most ? apart : out.most;
		out.mean += apart;
		different += apart > 0;
	}
	out.mean /= (double)bytes;
	out.share = (double)different / (double)bytes;
	return out;
}

/* Compares the loader's pixels of a case, whose crops must be the same, with the peer's. */
static difference load(const test_case *c, beton_pixels exact, bool flip)
{
	beton_loader_options options = fixture_options(num_pictures, 1);
	options.drawn = true;
	options.image.pixels = exact;
	options.image.crop = c->crop;
	options.image.width = c->width;
	options.image.height = c->height;
	options.image.flip_probability = flip;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->count, num_pictures);
	assert_int_equal(batch->num_tensors, 2);
	const double *drawn = batch->tensors[1].data;
	for (uint32_t i = 0; i < num_pictures; i++)
		for (int j = 0; j < 4; j++)
			assert_true(drawn[i * (size_t)batch->tensors[1].shape[1] + (size_t)j] == c->box[i][j]);
	difference out = compare(c, batch->tensors[0].data, flip);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	return out;
}

static void check(const test_case *c)
{
	static const char *const modes[] = {"fast", "exact", "exact, flipped"};
	for (int mode = 0; mode < 3; mode++) {
		difference found = load(c, mode == 0 ? BETON_PIXELS_FAST : c->peer->exact, mode == 2);
		print_message("%s, %s crop to %ux%u, %s: max %d, mean %.3f, %.1f %% differ\n", c->peer->name,
			      crops[c->crop], c->width, c->height, modes[mode], found.most, found.mean,
			      found.share * 100);
		if (mode == 0)
			assert_true(found.mean > 0 && found.mean < c->peer->fast_mean);
		else
			assert_true(found.most <= c->peer->most);
		/* No more than rounding. */
		assert_true(mode == 0 || found.share < 0.3);
	}
}

static void pixels_are_those_of_peers(void **state)
{
	(void)state;
	test_case c;
	int cases = 0;
	for (; read_case(&c); cases++) {
		check(&c);
		free(c.pixels);
	}
	assert_true(feof(golden));
	assert_int_equal(cases, 10);
}

int main(int argc, char **argv)
{
	golden = argc == 2 ? fopen(argv[1], "rb") : NULL;
	if (!golden) {
		fputs("usage: test-loader-peers golden.bin\n", stderr);
		return 2;
	}
	const struct CMUnitTest tests[] = {cmocka_unit_test(pixels_are_those_of_peers)};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
