/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel of every instruction set against plain C. With --bench: nanoseconds per call, and how much faster than
 * plain C. A failure prints its parameters; --seed N repeats a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system.h"
#include "loader/kernels.h"
#include "loader/transform.h"

enum { PAGES = 64, GUARD = 64, ROUNDS = 400 };

static uint64_t random_state;
static int failures;

static uint32_t draw(uint32_t least, uint32_t most)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return least + (uint32_t)((random_state >> 33) % (most - least + 1));
}

/* Memory that ends, or begins, at a page that nobody may touch. */
typedef struct guarded {
	uint8_t *map;
	uint8_t *begin;
	uint8_t *end;
} guarded;

static guarded guarded_map(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	guarded g = {mmap(NULL, (PAGES + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
	if (g.map == MAP_FAILED || mprotect(g.map + page, PAGES * page, PROT_READ | PROT_WRITE)) {
		perror("mmap");
		exit(1);
	}
	g.begin = g.map + page;
	g.end = g.begin + PAGES * page;
	return g;
}

/* Noise, or the extremes that overflow first. */
static void fill(uint8_t *bytes, size_t size)
{
	uint32_t kind = draw(0, 3);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(kind == 0 ? 255 : kind == 1 ? 255 * draw(0, 1) : draw(0, 255));
}

static void compare(const char *kernel, const bt_kernels *kernels, const void *expected, const void *got, size_t size,
		    const char *parameters)
{
	if (memcmp(expected, got, size) == 0)
		return;
	size_t at = 0;
	while (((const uint8_t *)expected)[at] == ((const uint8_t *)got)[at])
		at++;
	fprintf(stderr, "%s of %s differs from C at byte %zu of %zu: %s\n", kernel, kernels->name, at, size,
		parameters);
	failures++;
}

/* Weights as a plan makes them: they add up to 1, and may be one alone. */
static void draw_weights(int16_t *weights, uint32_t taps, uint32_t stride)
{
	int left = 1 << BT_WEIGHT_BITS;
	memset(weights, 0, stride * sizeof(*weights));
	for (uint32_t k = 0; k + 1 < taps; k++) {
		weights[k] = (int16_t)draw(0, (uint32_t)left);
		left -= weights[k];
	}
	weights[taps - 1] = (int16_t)left;
}

static void check_vertical(const bt_kernels *kernels, const guarded *memory)
{
	static int16_t expected[1024 + GUARD], got[1024 + GUARD];
	uint32_t taps = draw(1, 9), count = draw(1, draw(0, 1) ? 70 : 1000);
	size_t stride = count + draw(0, 40), size = stride * (taps - 1) + count;
	int16_t weights[16];
	draw_weights(weights, taps, 16);
	uint8_t *in = draw(0, 1) ? memory->end - size : memory->begin;
	fill(in, size);
	memset(expected, 0x55, sizeof(expected));
	memset(got, 0x55, sizeof(got));
	bt_kernels_c.vertical(in, stride, weights, taps, count, expected);
	kernels->vertical(in, stride, weights, taps, count, got);
	char text[96];
	snprintf(text, sizeof(text), "taps %u, count %u, stride %zu", taps, count, stride);
	compare("vertical", kernels, expected, got, sizeof(got), text);
}

static void check_ycc(const bt_kernels *kernels, const guarded *memory)
{
	static uint8_t expected[3 * 600 + GUARD], got[3 * 600 + GUARD];
	uint32_t count = draw(1, draw(0, 1) ? 70 : 600);
	uint8_t *y = memory->end - count, *cb = memory->begin + draw(0, 31), *cr = memory->begin + 1000;
	fill(y, count);
	fill(cb, count);
	fill(cr, count);
	memset(expected, 0x55, sizeof(expected));
	memset(got, 0x55, sizeof(got));
	bt_kernels_c.ycc_to_rgb(y, cb, cr, count, expected);
	kernels->ycc_to_rgb(y, cb, cr, count, got);
	char text[64];
	snprintf(text, sizeof(text), "count %u", count);
	compare("ycc_to_rgb", kernels, expected, got, sizeof(got), text);
}

/* A whole plane: the tables, horizontal, and what is read around the box. */
static void check_resize(const bt_kernels *kernels, const guarded *memory)
{
	bt_resizer plain = {.kernels = &bt_kernels_c}, fast = {.kernels = kernels};
	bt_plane plane = {.channels = draw(0, 1) ? 3 : 1};
	plane.width = draw(1, draw(0, 2) ? 60 : 400);
	plane.height = draw(1, draw(0, 2) ? 40 : 150);
	plane.stride = plane.width * plane.channels + draw(0, 20);
	size_t size = plane.stride * (plane.height - 1) + plane.width * plane.channels;
	uint8_t *in = draw(0, 1) ? memory->end - size : memory->begin;
	fill(in, size);
	plane.data = in;
	plane.box_width = draw(1, plane.width * 2) / 2.0;
	plane.box_height = draw(1, plane.height * 2) / 2.0;
	plane.x = draw(0, (uint32_t)((plane.width - plane.box_width) * 2)) / 2.0;
	plane.y = draw(0, (uint32_t)((plane.height - plane.box_height) * 2)) / 2.0;
	bt_resize_target target = {.width = draw(1, 230),
				   .height = draw(1, 60),
				   .filter = (beton_filter)draw(0, BETON_FILTER_NEAREST),
				   .mirrored = draw(0, 1)};
	char text[200];
	snprintf(text, sizeof(text), "%ux%ux%u box %g,%g %gx%g -> %ux%u filter %d mirrored %d", plane.width,
		 plane.height, plane.channels, plane.x, plane.y, plane.box_width, plane.box_height, target.width,
		 target.height, (int)target.filter, target.mirrored);
	beton_error err;
	if (bt_resize_begin(&plain, &plane, &target, &err) || bt_resize_begin(&fast, &plane, &target, &err)) {
		fprintf(stderr, "%s: %s\n", text, err.message);
		exit(1);
	}
	for (uint32_t y = 0; y < target.height; y++)
		compare("resize", kernels, bt_resize_row(&plain, y), bt_resize_row(&fast, y),
			(size_t)target.width * plane.channels, text);
	bt_resize_free(&plain);
	bt_resize_free(&fast);
}

static double transform_ns(const bt_kernels *kernels, const bt_picture *picture, const beton_loader_options *options)
{
	bt_transformer transformer = {0};
	for (int i = 0; i < 3; i++)
		transformer.planes[i].kernels = kernels;
	bt_image_format format;
	bt_image_format_init(&format, options);
	void *out = malloc(bt_image_format_bytes(&format));
	double best = 1e18;
	bt_picture moved = *picture;
	for (int i = 0; out && i < 100; i++) {
		/* Another box each time, or the tables are made once only. */
		for (int p = 0; p < 3; p++)
			moved.planes[p].x = picture->planes[p].x + i % 2;
		uint64_t begin = bt_now_ns();
		beton_error err;
		if (bt_transform(&transformer, &moved, i % 2, &format, out, &err))
			break;
		double ns = (double)(bt_now_ns() - begin);
		best = ns < best ? ns : best;
	}
	free(out);
	bt_transformer_free(&transformer);
	return best;
}

static void bench(void)
{
	static uint8_t pixels[500 * 500 * 3];
	fill(pixels, sizeof(pixels));
	bt_plane rgb = {pixels, 500 * 3, 500, 500, 3, 100, 100, 170, 170};
	bt_plane same = {pixels, 500 * 3, 500, 500, 3, 100, 100, 224, 224};
	bt_plane luma = {pixels, 500, 500, 500, 1, 100, 100, 330, 330};
	bt_plane chroma = {pixels + 250000, 250, 250, 250, 1, 50, 50, 165, 165};
	const bt_picture ycc = {BT_YCC, {luma, chroma, chroma}}, up = {BT_RGB, {rgb}}, copy = {BT_RGB, {same}};
	const struct {
		const char *name;
		const bt_picture *picture;
		beton_dtype dtype;
		beton_filter filter;
	} cases[] = {{"4:2:0 330 -> 224 u8", &ycc, BETON_UINT8, BETON_FILTER_AUTO},
		     {"4:2:0 330 -> 224 u8 bilinear", &ycc, BETON_UINT8, BETON_FILTER_BILINEAR},
		     {"RGB 170 -> 224 u8", &up, BETON_UINT8, BETON_FILTER_AUTO},
		     {"RGB 170 -> 224 f32", &up, BETON_FLOAT32, BETON_FILTER_AUTO},
		     {"RGB 170 -> 224 f16", &up, BETON_FLOAT16, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 u8", &copy, BETON_UINT8, BETON_FILTER_AUTO}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_loader_options options;
		beton_loader_options_init(&options);
		options.image.dtype = cases[i].dtype;
		options.image.filter = cases[i].filter;
		options.image.normalize = cases[i].dtype != BETON_UINT8;
		double plain = transform_ns(&bt_kernels_c, cases[i].picture, &options);
		const bt_kernels *kernels;
		for (unsigned k = 0; (kernels = bt_kernels_get(k)); k++) {
			double ns = transform_ns(kernels, cases[i].picture, &options);
			printf("%-30s %-8s %9.0f ns %6.2f x C\n", cases[i].name, kernels->name, ns, plain / ns);
		}
	}
}

int main(int argc, char **argv)
{
	random_state = argc == 3 && strcmp(argv[1], "--seed") == 0 ? strtoull(argv[2], NULL, 0) : 1;
	if (argc == 2 && strcmp(argv[1], "--bench") == 0) {
		bench();
		return 0;
	}
	guarded memory = guarded_map();
	const bt_kernels *kernels;
	for (unsigned i = 0; (kernels = bt_kernels_get(i)); i++) {
		for (int round = 0; round < ROUNDS && failures < 20; round++) {
			check_vertical(kernels, &memory);
			check_ycc(kernels, &memory);
			check_resize(kernels, &memory);
		}
		printf("%s: %s\n", kernels->name, failures ? "FAILED" : "ok");
	}
	munmap(memory.map, (size_t)(memory.end - memory.map) + (size_t)sysconf(_SC_PAGESIZE));
	return failures ? 1 : 0;
}
