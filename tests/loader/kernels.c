/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel of every instruction set against plain C. With --bench: nanoseconds per call, and how much faster than
 * plain C. A failure prints its parameters; --seed N repeats a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/isa.h"
#include "common/system.h"
#include "jpeg/idct.h"
#include "jpeg/marker.h"
#include "jpeg/rgb.h"
#include "loader/pixels/kernels.h"
#include "loader/pixels/transform.h"

enum { PAGES = 64, GUARD = 64, ROUNDS = 400 };

static uint64_t random_state;
static int failures;

static uint32_t draw(uint32_t least, uint32_t most)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return least + (uint32_t)((random_state >> 33) % (most - least + 1));
}

/* Memory that ends, or begins, at a page that must not be touched. */
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
		weights[k] = (int16_t)(draw(0, 7) ? draw(0, (uint32_t)left) : (uint32_t)left);
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

/* `size` bytes that end, or begin, at an untouchable page, or lie anywhere in part `part` of four. */
static uint8_t *place(const guarded *memory, uint32_t part, size_t size)
{
	size_t room = (size_t)(memory->end - memory->begin) / 4;
	uint8_t *in = part == 3 ? memory->end - size : memory->begin + part * room;
	if (part == 1 || part == 2)
		in += draw(0, (uint32_t)(room - size));
	fill(in, size);
	return in;
}

enum { WIDTH_MAX = 600 };

/* Where a kernel may write, and what is around it, which it may not. */
typedef struct outputs {
	_Alignas(64) uint8_t bytes[3][(GUARD + WIDTH_MAX * 3 * sizeof(float) + 2 * GUARD) / 64 * 64];
} outputs;

/* Output number i, at a place that no vector begins at if shift is odd. */
static uint8_t *output(outputs *out, int i, uint32_t shift)
{
	return out->bytes[i] + GUARD + shift;
}

static uint32_t draw_width(void)
{
	return draw(1, draw(0, 1) ? 100 : WIDTH_MAX);
}

static void check_colour(const bt_kernels *kernels, const guarded *memory)
{
	static outputs expected, got;
	memset(&expected, 0x55, sizeof(expected));
	memset(&got, 0x55, sizeof(got));
	uint32_t count = draw_width(), shift = draw(0, 63);
	const uint8_t *in[3], *rgb = place(memory, draw(0, 3), (size_t)count * 3);
	uint8_t *const expected_planes[3] = {output(&expected, 0, shift), output(&expected, 1, 0),
					     output(&expected, 2, 3)};
	uint8_t *const got_planes[3] = {output(&got, 0, shift), output(&got, 1, 0), output(&got, 2, 3)};
	char text[64];
	snprintf(text, sizeof(text), "count %u, shift %u", count, shift);

	bt_kernels_c.split(rgb, count, expected_planes);
	kernels->split(rgb, count, got_planes);
	compare("split", kernels, &expected, &got, sizeof(got), text);
	for (uint32_t i = 0; i < 3; i++)
		in[i] = place(memory, i + draw(0, 1), count);
	bt_kernels_c.ycc_to_rgb(in, count, expected_planes);
	kernels->ycc_to_rgb(in, count, got_planes);
	compare("ycc_to_rgb", kernels, &expected, &got, sizeof(got), text);
	bt_kernels_c.join(in, count, expected_planes[0]);
	kernels->join(in, count, got_planes[0]);
	compare("join", kernels, &expected, &got, sizeof(got), text);
}

/* Bytes that often are a marker's, or never. */
static void check_marker(const guarded *memory)
{
	static const uint8_t special[] = {0, 0xff, 0xff, 0xd0};
	uint32_t size = draw(0, draw(0, 1) ? 80 : 1000), rare = draw(0, 1) ? 2 : 300;
	uint8_t *bytes = place(memory, draw(0, 3), size);
	for (uint32_t i = 0; i < size; i++)
		bytes[i] = draw(0, rare) ? (uint8_t)draw(0, 254) : special[draw(0, 3)];
	for (uint32_t i = 0; draw(0, 1) && i + 1 < size; i++)
		bytes[i + 1] = bytes[i] == 0xff ? special[draw(0, 2)] : bytes[i + 1];
	uint32_t expected = 0;
	while (expected < size && (expected + 1 == size || bytes[expected] != 0xff || bytes[expected + 1] == 0 ||
				   bytes[expected + 1] == 0xff))
		expected++;
	if (bt_find_marker(bytes, bytes + size) != bytes + expected) {
		fprintf(stderr, "bt_find_marker: not %u of %u bytes\n", expected, size);
		failures++;
	}
}

/* Also what makes halves subnormal or infinite, and what cannot be computed. */
static void draw_elements(bt_elements *elements)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.image.dtype = draw(0, 1) ? BETON_FLOAT16 : BETON_BFLOAT16;
	options.image.normalize = draw(0, 3);
	static const float means[] = {123.675f, 0, 255, -1.5f, 1e30f, 116.28f, 17};
	static const float stds[] = {58.395f, 1, 255, -3, 1e9f, 1e-4f, 57.12f, 1e-38f, 1e-40f, 3e38f};
	for (int c = 0; c < 3; c++) {
		options.image.mean[c] = draw(0, 1) ? (float)draw(0, 25500) / 100 : means[draw(0, 6)];
		options.image.std[c] = draw(0, 1) ? (float)draw(1, 25500) / 100 : stds[draw(0, 9)];
	}
	int channel = (int)draw(0, 2);
	const int same[3] = {channel, channel, channel}, all[3] = {0, 1, 2};
	bt_elements_init(elements, &options, draw(0, 1) ? same : all);
}

static bool one_channel(const bt_elements *elements)
{
	return memcmp(elements->value[0], elements->value[1], 2 * sizeof(elements->value[0])) == 0;
}

static void check_elements(const bt_kernels *kernels, const guarded *memory)
{
	static outputs expected, got;
	static bt_elements elements;
	memset(&expected, 0x55, sizeof(expected));
	memset(&got, 0x55, sizeof(got));
	draw_elements(&elements);
	uint32_t count = draw_width() * (one_channel(&elements) ? 1 : 3);
	/* Streaming needs aligned places, and sizes that are multiples of 16. */
	bool aligned = draw(0, 1);
	uint32_t shift = aligned ? 0 : draw(0, 15) * 4;
	count = aligned ? (count + 15) / 16 * 24 : count;
	count = count > WIDTH_MAX * 3 ? WIDTH_MAX * 3 / 24 * 24 : count;
	const uint8_t *in = place(memory, draw(0, 3), count);
	char text[128];
	snprintf(text, sizeof(text), "count %u, mean %g, %g, %g, std %g, %g, %g", count, (double)elements.mean[0],
		 (double)elements.mean[1], (double)elements.mean[2], (double)elements.std[0], (double)elements.std[1],
		 (double)elements.std[2]);
	bool stream = draw(0, 1);
	bt_kernels_c.floats(&elements, in, count, stream, (float *)output(&expected, 0, shift));
	kernels->floats(&elements, in, count, stream, (float *)output(&got, 0, shift));
	bt_kernels_c.halves(&elements, in, count, stream, (uint16_t *)output(&expected, 1, aligned ? 0 : shift + 2));
	kernels->halves(&elements, in, count, stream, (uint16_t *)output(&got, 1, aligned ? 0 : shift + 2));
	bt_kernels_c.bytes(in, count, stream, output(&expected, 2, shift + 1));
	kernels->bytes(in, count, stream, output(&got, 2, shift + 1));
	kernels->fence();
	compare("bytes", kernels, expected.bytes[2], got.bytes[2], sizeof(got.bytes[2]), text);
	compare("floats", kernels, expected.bytes[0], got.bytes[0], sizeof(got.bytes[0]), text);
	compare("halves", kernels, expected.bytes[1], got.bytes[1], sizeof(got.bytes[1]), text);
}

static void check_axis(const bt_kernels *kernels, const bt_axis *plain, const bt_axis *fast, const char *text)
{
	size_t out = plain->key.out;
	compare("first of fill", kernels, plain->first, fast->first, out * sizeof(*plain->first), text);
	compare("count of fill", kernels, plain->count, fast->count, out * sizeof(*plain->count), text);
	compare("weights of fill", kernels, plain->weights, fast->weights,
		out * plain->stride * sizeof(*plain->weights), text);
}

/* A whole plane: the tables, horizontal, and what is read around the box. */
static void check_resize(const bt_kernels *kernels, const guarded *memory)
{
	bt_resizer plain = {.kernels = &bt_kernels_c}, fast = {.kernels = kernels};
	static const uint32_t channels[] = {1, 3, 1, 3, 2, 4, 5, 17, 64};
	bt_plane plane = {.channels = channels[draw(0, 8)]};
	bool few = plane.channels <= 3;
	plane.width = draw(1, few && !draw(0, 2) ? 400 : 60);
	plane.height = draw(1, few && !draw(0, 2) ? 150 : 40);
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
	if (bt_resize_begin(&plain, &plane, &target, NULL, &err) ||
	    bt_resize_begin(&fast, &plane, &target, NULL, &err)) {
		fprintf(stderr, "%s: %s\n", text, err.message);
		exit(1);
	}
	check_axis(kernels, plain.horizontal, fast.horizontal, text);
	check_axis(kernels, plain.vertical, fast.vertical, text);
	for (uint32_t y = 0, count; y < target.height; y += count) {
		count = draw(1, target.height - y < BT_ROWS ? target.height - y : BT_ROWS);
		size_t plain_stride, fast_stride;
		const uint8_t *expected = bt_resize_rows(&plain, y, count, &plain_stride);
		const uint8_t *got = bt_resize_rows(&fast, y, count, &fast_stride);
		for (uint32_t i = 0; i < count; i++)
			compare("resize", kernels, expected + i * plain_stride, got + i * fast_stride,
				(size_t)target.width * plane.channels, text);
	}
	bt_resize_free(&plain);
	bt_resize_free(&fast);
}

/* The vector units have to compute what is usual. */
static void check_computable(void)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.image.dtype = BETON_FLOAT32;
	for (int normalize = 0; normalize < 2; normalize++) {
		static bt_elements elements;
		options.image.normalize = normalize;
		bt_elements_init(&elements, &options, (const int[3]){0, 1, 2});
		if (elements.computable)
			continue;
		fprintf(stderr, "the elements of the defaults, normalize %d, are not computable\n", normalize);
		failures++;
	}
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
		if (bt_transform(&transformer, &moved, i % 2, NULL, &format, out, &err))
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
	bt_plane bigger = {pixels, 500 * 3, 500, 500, 3, 100, 100, 240, 240};
	bt_plane same = {pixels, 500 * 3, 500, 500, 3, 100, 100, 224, 224};
	bt_plane luma = {pixels, 500, 500, 500, 1, 100, 100, 330, 330};
	bt_plane chroma = {pixels + 250000, 250, 250, 250, 1, 50, 50, 165, 165};
	const bt_picture ycc = {BT_YCC, {luma, chroma, chroma}}, up = {BT_RGB, {rgb}}, down = {BT_RGB, {bigger}},
			 copy = {BT_RGB, {same}};
	const struct {
		const char *name;
		const bt_picture *picture;
		beton_dtype dtype;
		beton_layout layout;
		beton_filter filter;
	} cases[] = {{"4:2:0 330 -> 224 u8", &ycc, BETON_UINT8, BETON_NHWC, BETON_FILTER_AUTO},
		     {"4:2:0 330 -> 224 u8 bilinear", &ycc, BETON_UINT8, BETON_NHWC, BETON_FILTER_BILINEAR},
		     {"4:2:0 330 -> 224 f32 planes", &ycc, BETON_FLOAT32, BETON_NCHW, BETON_FILTER_AUTO},
		     {"RGB 170 -> 224 u8", &up, BETON_UINT8, BETON_NHWC, BETON_FILTER_AUTO},
		     {"RGB 240 -> 224 u8", &down, BETON_UINT8, BETON_NHWC, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 u8", &copy, BETON_UINT8, BETON_NHWC, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 u8 planes", &copy, BETON_UINT8, BETON_NCHW, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 f32", &copy, BETON_FLOAT32, BETON_NHWC, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 f32 planes", &copy, BETON_FLOAT32, BETON_NCHW, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 f16", &copy, BETON_FLOAT16, BETON_NHWC, BETON_FILTER_AUTO},
		     {"RGB 224 -> 224 bf16 planes", &copy, BETON_BFLOAT16, BETON_NCHW, BETON_FILTER_AUTO}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_loader_options options;
		beton_loader_options_init(&options);
		options.image.dtype = cases[i].dtype;
		options.image.layout = cases[i].layout;
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

/* The variable takes away the versions above it, here and wherever else there are several. */
static void check_cap(void)
{
	static const struct {
		const char *value, *above[2];
	} caps[] = {{"sse2", {"avx2", "avx512"}}, {"avx2", {"avx512"}}};
	const char *value = getenv(BT_ISA_VARIABLE);
	const char *best[] = {bt_kernels_best()->name, bt_idct_get(0)->name, bt_rgb_get(0)->name};
	for (int i = 0; value && i < 2; i++)
		for (int k = 0; strcmp(value, caps[i].value) == 0 && k < 2 && caps[i].above[k]; k++)
			for (int b = 0; b < 3; b++)
				if (strcmp(best[b], caps[i].above[k]) == 0) {
					printf("%s is used at most, but here %s is\n", value, best[b]);
					failures++;
				}
}

int main(int argc, char **argv)
{
	random_state = argc == 3 && strcmp(argv[1], "--seed") == 0 ? strtoull(argv[2], NULL, 0) : 1;
	if (argc == 2 && strcmp(argv[1], "--bench") == 0) {
		bench();
		return 0;
	}
	check_cap();
	check_computable();
	guarded memory = guarded_map();
	const bt_kernels *kernels;
	for (unsigned i = 0; (kernels = bt_kernels_get(i)); i++) {
		for (int round = 0; round < ROUNDS && failures < 20; round++) {
			check_vertical(kernels, &memory);
			check_colour(kernels, &memory);
			check_elements(kernels, &memory);
			check_marker(&memory);
			check_resize(kernels, &memory);
		}
		printf("%s: %s\n", kernels->name, failures ? "FAILED" : "ok");
	}
	munmap(memory.map, (size_t)(memory.end - memory.map) + (size_t)sysconf(_SC_PAGESIZE));
	return failures ? 1 : 0;
}
