/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on pictures: each against torchvision's and Pillow's pixels (operations/golden.bin), and through the
 * loader: the same pictures for any number of threads and batch size, the user's own operation, refused options. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/operations/operations.h"

enum { WIDTH = 23, HEIGHT = 17, BYTES = WIDTH * HEIGHT * 3, NAME = 32 };

static const char *golden_path;
static const uint8_t FILL[3] = {10, 200, 30};
static const uint8_t BLACK[3] = {0, 0, 0};

/* One golden record; false when there is none of that name. */
static bool golden(const char *name, uint8_t pixels[BYTES])
{
	FILE *file = fopen(golden_path, "rb");
	assert_non_null(file);
	char record[NAME];
	bool found = false;
	while (!found && fread(record, NAME, 1, file) == 1 && fread(pixels, BYTES, 1, file) == 1)
		found = strncmp(record, name, NAME) == 0;
	fclose(file);
	return found;
}

typedef struct pair {
	uint8_t input[BYTES];
	uint8_t output[BYTES];
	bt_image in;
	bt_image out;
} pair;

static void begin(pair *p)
{
	assert_true(golden("input", p->input));
	p->in = (bt_image){p->input, WIDTH, HEIGHT, 3};
	p->out = (bt_image){p->output, WIDTH, HEIGHT, 3};
	memset(p->output, 77, BYTES);
}

/* The largest distance from the golden pixels is at most bound, and at most `most` bytes differ at all. */
static void compare(const char *name, const uint8_t *pixels, int bound, int most)
{
	uint8_t expected[BYTES];
	if (!golden(name, expected))
		fail_msg("no golden record '%s'", name);
	int worst = 0, different = 0;
	for (int i = 0; i < BYTES; i++) {
		int distance = abs((int)pixels[i] - expected[i]);
		worst = distance > worst ? distance : worst;
		different += distance > 0;
	}
	if (worst > bound || different > most)
		fail_msg("%s: %d bytes differ, by up to %d; allowed: %d by up to %d", name, different, worst, most,
			 bound);
}

static void colours_are_torchvision_s(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		void (*function)(const bt_image *, double);
		double value;
		int bound; /* float arithmetic in another order */
		int most;
	} cases[] = {
		{"brightness 0.4", bt_op_brightness, 0.4, 0, 0},
		{"brightness 1.7", bt_op_brightness, 1.7, 0, 0},
		{"contrast 0.3", bt_op_contrast, 0.3, 1, BYTES / 50},
		{"contrast 1.6", bt_op_contrast, 1.6, 1, BYTES / 50},
		{"saturation 0.2", bt_op_saturation, 0.2, 0, 0},
		{"saturation 1.9", bt_op_saturation, 1.9, 0, 0},
		{"hue 0.3", bt_op_hue, 0.3, 1, BYTES / 50},
		{"hue -0.45", bt_op_hue, -0.45, 1, BYTES / 50},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair p;
		begin(&p);
		cases[i].function(&p.in, cases[i].value);
		compare(cases[i].name, p.input, cases[i].bound, cases[i].most);
	}
}

static void tables_are_torchvision_s(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		void (*function)(const bt_image *);
	} cases[] = {
		{"grayscale", bt_op_grayscale},
		{"invert", bt_op_invert},
		{"autocontrast", bt_op_autocontrast},
		{"equalize", bt_op_equalize},
		{"flip horizontal", bt_op_flip_horizontal},
		{"flip vertical", bt_op_flip_vertical},
	};
	pair p;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(&p);
		cases[i].function(&p.in);
		compare(cases[i].name, p.input, 0, 0);
	}
	begin(&p);
	bt_op_solarize(&p.in, 100);
	compare("solarize 100", p.input, 0, 0);
	begin(&p);
	bt_op_posterize(&p.in, 3);
	compare("posterize 3", p.input, 0, 0);
}

static void filters_are_torchvision_s(void **state)
{
	(void)state;
	static float scratch[BYTES];
	pair p;
	begin(&p);
	bt_op_sharpness(&p.in, &p.out, 0.2);
	/* Where the blend is a whole number, float arithmetic decides whether it is cut off to it. */
	compare("sharpness 0.2", p.output, 1, BYTES / 10);
	bt_op_sharpness(&p.in, &p.out, 1.8);
	compare("sharpness 1.8", p.output, 1, BYTES / 10);
	bt_op_blur(&p.in, &p.out, 5, 1.3, scratch);
	compare("blur 5 1.3", p.output, 1, BYTES / 50);
	bt_op_blur(&p.in, &p.out, 9, 4, scratch);
	compare("blur 9 4", p.output, 1, BYTES / 50);
}

static void check_rotation(double degrees, bool bilinear, int bound, const char *name)
{
	pair p;
	double m[6];
	begin(&p);
	bt_op_rotation(m, WIDTH, HEIGHT, degrees);
	bt_op_affine(&p.in, &p.out, m, bilinear, FILL);
	compare(name, p.output, bound, bound ? BYTES / 50 : 0);
}

static void check_shear(double x, double y, const char *name)
{
	pair p;
	double m[6];
	begin(&p);
	bt_op_shear(m, x, y);
	bt_op_affine(&p.in, &p.out, m, false, FILL);
	compare(name, p.output, 0, 0);
}

static void check_shift(int64_t x, int64_t y, beton_padding mode, const char *name)
{
	pair p;
	begin(&p);
	bt_op_shift(&p.in, &p.out, x, y, mode, FILL);
	compare(name, p.output, 0, 0);
}

static void shapes_are_pillow_s(void **state)
{
	(void)state;
	check_rotation(33, false, 0, "rotate 33 nearest");
	check_rotation(-71.5, false, 0, "rotate -71.5 nearest");
	check_rotation(180, false, 0, "rotate 180 nearest");
	check_rotation(33, true, 1, "rotate 33 bilinear");
	check_shear(0.3, 0, "shear x 0.3");
	check_shear(0, 0.3, "shear y 0.3");
	check_shift(3, -2, BETON_PADDING_EDGE, "shift 3 -2 edge");
	check_shift(3, -2, BETON_PADDING_REFLECT, "shift 3 -2 reflect");
	check_shift((int64_t)(150.0 / 331 * WIDTH * 9 / 30), 0, BETON_PADDING_FILL, "translate x");
	check_shift(0, (int64_t)(150.0 / 331 * HEIGHT * 20 / 30), BETON_PADDING_FILL, "translate y");
}

static void filling_and_poisoning(void **state)
{
	(void)state;
	pair p;
	begin(&p);
	bt_op_fill(&p.in, (bt_rect){20, 15, 9, 9}, BLACK);
	uint8_t before[BYTES];
	assert_true(golden("input", before));
	for (int i = 0; i < BYTES; i++) {
		int x = i / 3 % WIDTH, y = i / 3 / WIDTH;
		assert_int_equal(p.input[i], x >= 20 && y >= 15 ? 0 : before[i]);
	}
	begin(&p);
	static float mask[BYTES], alpha[BYTES / 3];
	for (int i = 0; i < BYTES; i++)
		mask[i] = (float)(i % 256);
	for (int i = 0; i < BYTES / 3; i++)
		alpha[i] = (float)(i % 5) / 4;
	bt_op_poison(&p.in, mask, alpha);
	for (int i = 0; i < BYTES; i++) {
		float value = (float)before[i] * (1 - alpha[i / 3]) + mask[i] * alpha[i / 3];
		assert_int_equal(p.input[i], (int)value);
	}
}

/* Noise has the mean and the deviation that it is asked for, and stays in its place. */
static void noise_is_normal(void **state)
{
	(void)state;
	enum { SIDE = 200, LEFT = 30, TOP = 20 };
	static uint8_t pixels[SIDE * SIDE * 3];
	static const float mean[3] = {120, 90, 250}, std[3] = {10, 40, 20};
	bt_image image = {pixels, SIDE, SIDE, 3};
	bt_random random = {.seed = 3};
	memset(pixels, 7, sizeof(pixels));
	bt_op_noise(&image, (bt_rect){LEFT, TOP, SIDE - LEFT, SIDE - TOP - 1}, mean, std, &random);
	double sum[3] = {0}, squares[3] = {0};
	int count = 0, white = 0;
	for (int i = 0; i < SIDE * SIDE * 3; i++) {
		int x = i / 3 % SIDE, y = i / 3 / SIDE, c = i % 3;
		if (x < LEFT || y < TOP || y == SIDE - 1) {
			assert_int_equal(pixels[i], 7);
			continue;
		}
		double distance = pixels[i] - (double)mean[c];
		count++;
		white += c == 2 && pixels[i] == 255;
		sum[c] += distance;
		squares[c] += distance * distance;
	}
	count /= 3;
	for (int c = 0; c < 2; c++) {
		assert_true(fabs(sum[c] / count) < 4 * (double)std[c] / sqrt(count));
		assert_true(fabs(squares[c] / count / (double)(std[c] * std[c]) - 1) < 0.05);
	}
	/* Values above a quarter of a deviation, or that round to it. */
	assert_true(fabs((double)white / count - 0.41) < 0.03);
}

/* Every kind once, with parameters that make it do something. */
static uint32_t every_operation(beton_operation operations[BETON_CUSTOM])
{
	static float mask[16 * 12 * 3], alpha[16 * 12];
	static const uint64_t poisoned[] = {1, 4, 5, 19};
	for (int i = 0; i < 16 * 12; i++)
		alpha[i] = 0.5f;
	for (uint32_t kind = 0; kind < BETON_CUSTOM; kind++) {
		beton_operation *o = &operations[kind];
		beton_loader_operation_init(o, kind);
		switch (o->kind) {
		case BETON_TRANSLATE:
		case BETON_CUTOUT:
			o->size = 3;
			break;
		case BETON_ROTATE:
			o->range[0] = -40;
			o->range[1] = 40;
			o->bilinear = true;
			break;
		case BETON_BRIGHTNESS:
		case BETON_CONTRAST:
		case BETON_SATURATION:
		case BETON_SHARPNESS:
			o->range[0] = 0.5;
			o->range[1] = 1.5;
			break;
		case BETON_HUE:
			o->range[0] = -0.2;
			o->range[1] = 0.3;
			break;
		case BETON_COLOR_JITTER:
			for (int i = 0; i < 4; i++)
				o->jitter[i] = 0.3;
			break;
		case BETON_POISON:
			o->mask = mask;
			o->alpha = alpha;
			o->indices = poisoned;
			o->num_indices = 4;
			break;
		default:
			break;
		}
	}
	return BETON_CUSTOM;
}

enum { SAMPLES = 24, IMAGE = 16 * 12 * 3 };

/* All pictures of epoch 3, by sample. */
static void load(const char *path, const beton_loader_options *options, uint8_t pixels[SAMPLES][IMAGE])
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 3, 0);
	beton_batch *batch;
	int seen = 0;
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		const beton_tensor *tensor = NULL;
		for (uint32_t i = 0; i < batch->num_tensors; i++)
			if (batch->tensors[i].ndim == 4)
				tensor = &batch->tensors[i];
		assert_non_null(tensor);
		for (uint32_t i = 0; i < batch->count; i++, seen++)
			memcpy(pixels[batch->sample_ids[i]], (uint8_t *)tensor->data + i * IMAGE, IMAGE);
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	assert_int_equal(seen, SAMPLES);
}

static void pictures_do_not_depend_on_threads(void **state)
{
	(void)state;
	static uint8_t expected[SAMPLES][IMAGE], pixels[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operations[BETON_CUSTOM];
	beton_loader_options options = fixture_options(5, 1);
	options.image.operations = operations;
	options.image.num_operations = every_operation(operations);
	load(path, &options, expected);
	static const uint32_t ways[][2] = {{5, 4}, {7, 2}, {24, 3}};
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		options.batch_size = ways[i][0];
		options.num_threads = ways[i][1];
		memset(pixels, 0, sizeof(pixels));
		load(path, &options, pixels);
		assert_memory_equal(pixels, expected, sizeof(pixels));
	}
	options.seed++;
	load(path, &options, pixels);
	assert_memory_not_equal(pixels, expected, sizeof(pixels));
	fixture_remove(path);
}

/* Each kind alone changes some pictures, and none at probability 0. Eight bits are all of a byte's, and 192 pixels are
 * too few for torchvision's equalize to change any. */
static void each_operation_is_applied(void **state)
{
	(void)state;
	static uint8_t plain[SAMPLES][IMAGE], pixels[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operations[BETON_CUSTOM];
	uint32_t count = every_operation(operations);
	beton_loader_options options = fixture_options(8, 2);
	load(path, &options, plain);
	options.image.num_operations = 1;
	for (uint32_t i = 0; i < count; i++) {
		options.image.operations = &operations[i];
		bool idle = operations[i].kind == BETON_POSTERIZE || operations[i].kind == BETON_EQUALIZE;
		operations[i].probability = 1;
		load(path, &options, pixels);
		bool same = memcmp(plain, pixels, sizeof(plain)) == 0;
		if (same != idle)
			fail_msg("operation %u: pictures are %s", i, same ? "unchanged" : "changed");
		operations[i].probability = 0;
		load(path, &options, pixels);
		assert_memory_equal(pixels, plain, sizeof(plain));
	}
	fixture_remove(path);
}

/* A black and a noisy rectangle lie in the same place, and once normalized noise has as many values above 0 as below.
 */
static void erased_parts_are_noise(void **state)
{
	(void)state;
	static uint8_t plain[SAMPLES][IMAGE], black[SAMPLES][IMAGE], noisy[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_ERASE);
	operation.probability = 1;
	beton_loader_options options = fixture_options(8, 2);
	load(path, &options, plain);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	load(path, &options, black);
	operation.noise = true;
	load(path, &options, noisy);
	int erased = 0, above = 0;
	for (int i = 0; i < SAMPLES * IMAGE; i++) {
		int sample = i / IMAGE, k = i % IMAGE;
		if (black[sample][k] == plain[sample][k]) {
			/* Not erased, or black before. */
			assert_true(noisy[sample][k] == plain[sample][k] || plain[sample][k] == 0);
			continue;
		}
		erased++;
		above += noisy[sample][k] > (double)options.image.mean[k % 3];
	}
	assert_in_range(erased, SAMPLES * IMAGE / 50, SAMPLES * IMAGE / 2);
	assert_in_range(above, erased * 2 / 5, erased * 3 / 5);
	fixture_remove(path);
}

/* Where a coordinate outside comes from, by turning back at the middles of the border's pixels. */
static int mirrored(int place, int size)
{
	return place < 0 ? -place : place >= size ? 2 * size - 2 - place : place;
}

/* The same move for every picture, in the directions that the header says. */
static void shifts_are_fixed(void **state)
{
	(void)state;
	static const int moves[][2] = {{1, 1}, {-1, -1}, {5, -3}, {-15, 11}, {0, 0}};
	static uint8_t plain[SAMPLES][IMAGE], pixels[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_SHIFT);
	beton_loader_options options = fixture_options(8, 2);
	load(path, &options, plain);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	for (size_t m = 0; m < sizeof(moves) / sizeof(moves[0]); m++)
		for (int reflect = 0; reflect < 2; reflect++) {
			operation.range[0] = moves[m][0];
			operation.range[1] = moves[m][1];
			operation.padding = reflect ? BETON_PADDING_REFLECT : BETON_PADDING_FILL;
			operation.fill[0] = operation.fill[1] = operation.fill[2] = 77;
			load(path, &options, pixels);
			for (int i = 0; i < SAMPLES * IMAGE; i++) {
				int x = i % 48 / 3 - moves[m][0], y = i % IMAGE / 48 - moves[m][1];
				bool outside = x < 0 || x >= 16 || y < 0 || y >= 12;
				int from = mirrored(y, 12) * 48 + mirrored(x, 16) * 3 + i % 3;
				assert_int_equal(pixels[i / IMAGE][i % IMAGE],
						 outside && !reflect ? 77 : plain[i / IMAGE][from]);
			}
		}
	fixture_remove(path);
}

/* Only the samples that are listed are poisoned. */
static void poison_hits_its_samples(void **state)
{
	(void)state;
	static uint8_t plain[SAMPLES][IMAGE], pixels[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	beton_operation operations[BETON_CUSTOM];
	every_operation(operations);
	beton_loader_options options = fixture_options(8, 2);
	load(path, &options, plain);
	options.image.num_operations = 1;
	options.image.operations = &operations[BETON_POISON];
	load(path, &options, pixels);
	for (int i = 0; i < SAMPLES; i++) {
		bool poisoned = memcmp(plain[i], pixels[i], IMAGE) != 0;
		assert_int_equal(poisoned, i == 1 || i == 4 || i == 5 || i == 19);
	}
	fixture_remove(path);
}

/* Writes the sample's number everywhere; fails for the sample that context points to. */
static int stamp(const beton_operation_call *call)
{
	if (call->width != 16 || call->height != 12 || call->epoch != 3 || call->view != 0)
		return 1;
	if (call->sample == *(const uint64_t *)call->context)
		return 42;
	memset(call->pixels, (int)call->sample, IMAGE);
	call->pixels[0] = (uint8_t)call->random[0];
	return 0;
}

static void custom_operations_are_called(void **state)
{
	(void)state;
	static uint8_t pixels[SAMPLES][IMAGE], again[SAMPLES][IMAGE];
	char *path = fixture_write(SAMPLES, -1);
	uint64_t refused = UINT64_MAX;
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = stamp;
	operation.context = &refused;
	beton_loader_options options = fixture_options(8, 2);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	load(path, &options, pixels);
	for (int i = 0; i < SAMPLES; i++)
		assert_int_equal(pixels[i][IMAGE - 1], i);
	options.num_threads = 1;
	load(path, &options, again);
	assert_memory_equal(pixels, again, sizeof(pixels));

	refused = 13;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	fixture_start(&iterator, loader, 3, 0);
	beton_batch *batch;
	beton_error err;
	int result, failures = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END)
		if (result == BETON_OK) {
			beton_batch_release(&batch);
		} else {
			failures++;
			assert_int_equal(result, BETON_USER_ERROR);
			assert_int_equal(err.sample, 13);
			assert_non_null(strstr(err.message, "42"));
		}
	assert_int_equal(failures, 1);
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

/* An option that must be refused with a message that names it. */
static void refuse(const char *member, beton_operation operation)
{
	beton_image_options image = {.width = 16, .height = 12, .operations = &operation, .num_operations = 1};
	beton_error err = {0};
	assert_int_equal(bt_operations_check(&image, "image", &err), BETON_INVALID_ARGUMENT);
	char expected[64];
	snprintf(expected, sizeof(expected), "image.operations[0].%s", member);
	if (!strstr(err.message, expected))
		fail_msg("'%s' does not name %s", err.message, expected);
}

static beton_operation make(beton_operation_kind kind, uint32_t size, double low, double high)
{
	beton_operation operation;
	beton_loader_operation_init(&operation, kind);
	operation.size = size;
	operation.range[0] = low;
	operation.range[1] = high;
	return operation;
}

static void bad_operations_are_refused(void **state)
{
	(void)state;
	refuse("kind", make((beton_operation_kind)99, 1, 1, 1));
	refuse("size", make(BETON_CUTOUT, 13, 1, 1));
	refuse("size", make(BETON_CUTOUT, 0, 1, 1));
	refuse("size", make(BETON_SOLARIZE, 257, 1, 1));
	refuse("size", make(BETON_POSTERIZE, 9, 1, 1));
	refuse("size", make(BETON_BLUR, 4, 1, 1));
	refuse("size", make(BETON_BLUR, 25, 1, 1));
	refuse("range", make(BETON_BLUR, 3, 0, 1));
	refuse("range", make(BETON_BRIGHTNESS, 0, -1, 1));
	refuse("range", make(BETON_HUE, 0, 0, 0.6));
	refuse("range", make(BETON_ROTATE, 0, 10, 5));
	refuse("range", make(BETON_ERASE, 0, 0.0 / 0.0, 1));
	refuse("size", make(BETON_RAND_AUGMENT, 31, 1, 1));
	beton_operation noise = make(BETON_ERASE, 0, 0.1, 0.2);
	noise.noise = true; /* of pictures without mean and std */
	refuse("noise", noise);
	refuse("apply", make(BETON_CUSTOM, 0, 1, 1));
	refuse("mask", make(BETON_POISON, 0, 1, 1));
	beton_operation operation = make(BETON_TRANSLATE, 12, 1, 1);
	operation.padding = BETON_PADDING_REFLECT;
	refuse("size", operation);
	refuse("range[0]", make(BETON_SHIFT, 0, 0.5, 0));
	refuse("range[0]", make(BETON_SHIFT, 0, -65536, 0));
	refuse("range[1]", make(BETON_SHIFT, 0, 0, 0.0 / 0.0));
	operation = make(BETON_SHIFT, 0, 15, -12);
	operation.padding = BETON_PADDING_REFLECT;
	refuse("range[1]", operation);
	operation.padding = (beton_padding)3;
	refuse("padding", operation);
	operation = make(BETON_INVERT, 0, 1, 1);
	operation.probability = 1.5;
	refuse("probability", operation);
	operation = make(BETON_COLOR_JITTER, 0, 1, 1);
	operation.jitter[3] = 0.6;
	refuse("jitter[3]", operation);
	operation = make(BETON_INVERT, 0, 1, 1);
	operation.reserved[2] = 1;
	refuse("reserved", operation);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: test-loader-operations GOLDEN.bin\n");
		return 2;
	}
	golden_path = argv[1];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(colours_are_torchvision_s),
		cmocka_unit_test(tables_are_torchvision_s),
		cmocka_unit_test(filters_are_torchvision_s),
		cmocka_unit_test(shapes_are_pillow_s),
		cmocka_unit_test(noise_is_normal),
		cmocka_unit_test(filling_and_poisoning),
		cmocka_unit_test(pictures_do_not_depend_on_threads),
		cmocka_unit_test(each_operation_is_applied),
		cmocka_unit_test(erased_parts_are_noise),
		cmocka_unit_test(shifts_are_fixed),
		cmocka_unit_test(poison_hits_its_samples),
		cmocka_unit_test(custom_operations_are_called),
		cmocka_unit_test(bad_operations_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
