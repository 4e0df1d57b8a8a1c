/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes and points that move as the pixels of a picture do: against torchvision's numbers (tests/golden/geometry.txt),
 * and through the loader against the pixels themselves, which have a white rectangle where the box is.
 * geometry GEOMETRY: that file. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/batch/geometry.h"
#include "loader/operations/ops.h"
#include "tests/support/numbers.h"

enum step { FLIP_X, FLIP_Y, SHIFT, ROTATE, SHEAR };

typedef struct golden_case {
	uint32_t crop[4];
	uint32_t size[2];
	int num_steps;
	double steps[4][3];
	double boxes[5][4];
	double kept[5];
	double points[3][2];
	double inside[3];
} golden_case;

static const char *geometry_path;
static double golden_boxes[5][4], golden_points[3][2];
static golden_case golden_cases[16];
static int num_golden_cases;

static void read_case(numbers_table *table, golden_case *golden)
{
	for (int i = 0; i < 4; i++)
		golden->crop[i] = numbers_u32(table);
	for (int i = 0; i < 2; i++)
		golden->size[i] = numbers_u32(table);
	golden->num_steps = (int)numbers_u32(table);
	assert_true(golden->num_steps <= 4);
	numbers_doubles(table, &golden->steps[0][0], 3 * (size_t)golden->num_steps);
	numbers_doubles(table, &golden->boxes[0][0], 20);
	numbers_doubles(table, golden->kept, 5);
	numbers_doubles(table, &golden->points[0][0], 6);
	numbers_doubles(table, golden->inside, 3);
}

static int read_golden(void **state)
{
	(void)state;
	numbers_table table = numbers_open(geometry_path);
	numbers_next(&table, "boxes");
	numbers_doubles(&table, &golden_boxes[0][0], 20);
	numbers_next(&table, "points");
	numbers_doubles(&table, &golden_points[0][0], 6);
	while (numbers_next(&table, "case")) {
		assert_true(num_golden_cases < (int)(sizeof(golden_cases) / sizeof(golden_cases[0])));
		read_case(&table, &golden_cases[num_golden_cases++]);
	}
	numbers_close(&table);
	return 0;
}

static void take_step(bt_moves *moves, const double step[3])
{
	double m[6];
	switch ((enum step)step[0]) {
	case FLIP_X:
		bt_moves_flip_horizontal(moves);
		break;
	case FLIP_Y:
		bt_moves_flip_vertical(moves);
		break;
	case SHIFT:
		bt_moves_shift(moves, (int64_t)step[1], (int64_t)step[2]);
		break;
	case ROTATE:
		bt_op_rotation(m, moves->to[0], moves->to[1], step[1]);
		bt_moves_affine(moves, m);
		break;
	default:
		bt_op_shear(m, step[1], step[2]);
		bt_moves_affine(moves, m);
	}
}

static void make_moves(bt_moves *moves, const golden_case *golden)
{
	beton_operation operations[4] = {{.kind = BETON_SHIFT}, {.kind = BETON_SHIFT}, {.kind = BETON_SHIFT}};
	const beton_image_options image = {.width = golden->size[0],
					   .height = golden->size[1],
					   .operations = operations,
					   .num_operations = (uint32_t)golden->num_steps};
	const bt_rect crop = {golden->crop[0], golden->crop[1], golden->crop[2], golden->crop[3]};
	const bt_placement place = {.width = image.width, .height = image.height};
	assert_ok(bt_moves_begin(moves, &image, 100, 80, &crop, &place, err));
	for (int i = 0; i < golden->num_steps; i++)
		take_step(moves, golden->steps[i]);
}

static bt_output make_output(beton_geometry_kind kind, beton_geometry_units units, beton_dtype stored, int64_t rows,
			     int64_t numbers)
{
	return (bt_output){.tensor = {.ndim = 3, .shape = {1, rows, numbers}},
			   .sample_bytes = (size_t)(rows * numbers) * sizeof(float),
			   .stored = stored,
			   .geometry = kind,
			   .units = units};
}

static void assert_near(const char *what, int number, int row, double got, double expected)
{
	if (!(fabs(got - expected) <= 2e-4))
		fail_msg("case %d, %s %d: %g instead of %g", number, what, row, got, expected);
}

/* In one of the forms that a field may have: XYWH, shares of the picture. */
static void check_boxes(int number, const bt_moves *moves, bool sizes, bool shares)
{
	const golden_case *golden = &golden_cases[number];
	double in[5][4];
	float out[5][4], kept[5];
	for (int i = 0; i < 20; i++)
		(&in[0][0])[i] = (&golden_boxes[0][0])[i] - (sizes && i % 4 > 1 ? (&golden_boxes[0][0])[i - 2] : 0);
	for (int i = 0; shares && i < 20; i++)
		(&in[0][0])[i] /= i % 2 ? 80 : 100;
	bt_output output = make_output(sizes ? BETON_BOXES_XYWH : BETON_BOXES_XYXY,
				       shares ? BETON_UNITS_SHARES : BETON_UNITS_PIXELS, BETON_FLOAT64, 5, 4);
	bt_geometry_fill(&output, in, moves, &out[0][0], kept);
	for (int i = 0; i < 5; i++) {
		assert_near("kept", number, i, (double)kept[i], golden->kept[i]);
		for (int k = 0; k < 4; k++) {
			double got = (double)out[i][k] * (shares ? golden->size[k % 2] : 1);
			double origin = sizes && k > 1 ? golden->boxes[i][k - 2] : 0;
			assert_near("box", number, i, got, golden->boxes[i][k] - origin);
		}
	}
}

static void check_points(int number, const bt_moves *moves)
{
	const golden_case *golden = &golden_cases[number];
	float in[3][3], out[3][3], kept[3];
	for (int i = 0; i < 3; i++) {
		in[i][0] = (float)golden_points[i][0];
		in[i][1] = (float)golden_points[i][1];
		in[i][2] = (float)i - 1;
	}
	bt_output output = make_output(BETON_POINTS, BETON_UNITS_PIXELS, BETON_FLOAT32, 3, 3);
	bt_geometry_fill(&output, in, moves, &out[0][0], kept);
	for (int i = 0; i < 3; i++) {
		assert_near("x of point", number, i, (double)out[i][0], golden->points[i][0]);
		assert_near("y of point", number, i, (double)out[i][1], golden->points[i][1]);
		assert_true(out[i][2] == (float)i - 1);
		assert_true((double)kept[i] == golden->inside[i]);
	}
}

static void places_are_torchvision_s(void **state)
{
	(void)state;
	bt_moves moves = {0};
	for (int i = 0; i < num_golden_cases; i++) {
		make_moves(&moves, &golden_cases[i]);
		check_boxes(i, &moves, false, false);
		check_boxes(i, &moves, true, false);
		check_boxes(i, &moves, false, true);
		check_boxes(i, &moves, true, true);
		check_points(i, &moves);
	}
	bt_buffer_free(&moves.memory);
}

/* A picture that does not fill the output. */
static void a_placement_cuts_boxes_off(void **state)
{
	(void)state;
	bt_moves moves = {0};
	const beton_image_options image = {.width = 50, .height = 50};
	const bt_rect crop = {.width = 100, .height = 80};
	const bt_placement place = {.y = 5, .width = 50, .height = 40};
	assert_ok(bt_moves_begin(&moves, &image, 100, 80, &crop, &place, err));
	const int32_t in[2][4] = {{-10, -10, 100, 80}, {50, 40, 60, 100}};
	float out[2][4], kept[2];
	bt_output output = make_output(BETON_BOXES_XYXY, BETON_UNITS_PIXELS, BETON_INT32, 2, 4);
	bt_geometry_fill(&output, in, &moves, &out[0][0], kept);
	const float expected[2][4] = {{0, 5, 50, 45}, {25, 25, 30, 45}};
	assert_memory_equal(out, expected, sizeof(out));
	assert_true(kept[0] == (float)(8000.0 / 9900) && kept[1] == (float)(2.0 / 3));

	/* One that reaches beyond the output. */
	const bt_placement large = {.x = -10, .y = -15, .width = 70, .height = 72};
	assert_ok(bt_moves_begin(&moves, &image, 100, 80, &crop, &large, err));
	bt_geometry_fill(&output, in, &moves, &out[0][0], kept);
	const float cut[2][4] = {{0, 0, 50, 50}, {25, 21, 32, 50}};
	assert_memory_equal(out, cut, sizeof(out));
	assert_true(kept[0] == (float)(2500.0 / (77 * 81)) && kept[1] == (float)(29.0 / 54));
	bt_buffer_free(&moves.memory);
}

static void padding_stays(void **state)
{
	(void)state;
	bt_moves moves = {0};
	make_moves(&moves, &golden_cases[2]);
	const double in[7][4] = {{0},
				 {-1, -1, -1, -1},
				 {(double)NAN, 1, 5, 5},
				 {40, 30, 40, 50},
				 {40, 30, 39, 50},
				 {1, 2, 3, 1e300},
				 {1, 2, (double)INFINITY, 9}};
	float out[7][4], kept[7];
	bt_output output = make_output(BETON_BOXES_XYXY, BETON_UNITS_PIXELS, BETON_FLOAT64, 7, 4);
	bt_geometry_fill(&output, in, &moves, &out[0][0], kept);
	for (int i = 0; i < 28; i++) {
		float expected = (float)(&in[0][0])[i];
		assert_memory_equal(&(&out[0][0])[i], &expected, sizeof(expected));
		assert_true(kept[i / 4] == 0);
	}
	const int8_t points[4][2] = {{0, 0}, {-1, -1}, {0, -3}, {12, 7}};
	output = make_output(BETON_POINTS, BETON_UNITS_PIXELS, BETON_INT8, 4, 2);
	bt_geometry_fill(&output, points, &moves, &out[0][0], kept);
	const float expected[8] = {0, 0, -1, -1, 0, -3, 64, 0}; /* the crop's corner, flipped */
	assert_memory_equal(out, expected, sizeof(expected));
	assert_true(kept[0] == 0 && kept[1] == 0 && kept[2] == 0 && kept[3] == 1);
	bt_buffer_free(&moves.memory);
}

enum { SAMPLES = 40, SIDE = 96, ROWS = 2 };

/* The white rectangle of sample i, inside the picture. */
static void rectangle(uint64_t i, uint32_t box[4])
{
	uint32_t width = 90 + (uint32_t)i, height = 120 - (uint32_t)i;
	box[0] = width / 3 + (uint32_t)i % 7;
	box[1] = height / 3 + (uint32_t)i % 5;
	box[2] = box[0] + 20 + (uint32_t)i % 9;
	box[3] = box[1] + 18 + (uint32_t)i % 4;
}

/* {boxes: int64 [2, 4] (the second is padding), image: raw, shares: float32 [4]}; freed by fixture_remove. The field of
 * boxes precedes the picture. damaged: the sample whose picture is called a JPEG; or -1. compression: of the arrays. */
static char *write_arrays(int64_t damaged, beton_compression compression)
{
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	size_t size = strlen(base) + 64;
	char *path = malloc(size);
	assert_non_null(path);
	snprintf(path, size, "%s/beton-geometry-XXXXXX", base);
	assert_non_null(mkdtemp(path));
	strcat(path, "/data.beton");
	const beton_field fields[3] = {
		{.name = "boxes",
		 .type = BETON_FIELD_NDARRAY,
		 .dtype = "<i8",
		 .ndim = 2,
		 .shape = {ROWS, 4},
		 .compression = compression},
		{.name = "image", .type = BETON_FIELD_IMAGE},
		{.name = "shares",
		 .type = BETON_FIELD_NDARRAY,
		 .dtype = "<f4",
		 .ndim = 1,
		 .shape = {4},
		 .compression = compression},
	};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 3, &options, err));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint32_t width = 90 + (uint32_t)i, height = 120 - (uint32_t)i, box[4];
		rectangle(i, box);
		uint8_t *pixels = calloc((size_t)width * height, 3);
		assert_non_null(pixels);
		for (uint32_t y = box[1]; y < box[3]; y++)
			memset(pixels + ((size_t)y * width + box[0]) * 3, 255, (size_t)(box[2] - box[0]) * 3);
		int64_t boxes[ROWS][4] = {{box[0], box[1], box[2] - box[0], box[3] - box[1]}, {-1, -1, -1, -1}};
		float shares[4];
		for (int k = 0; k < 4; k++)
			shares[k] = (float)((double)box[k] / (k % 2 ? height : width));
		beton_input inputs[3] = {{.data = boxes, .size = sizeof(boxes)},
					 {.data = pixels,
					  .size = (uint64_t)width * height * 3,
					  .mode = BETON_IMAGE_RAW,
					  .width = width,
					  .height = height},
					 {.data = shares, .size = sizeof(shares)}};
		if (damaged == (int64_t)i)
			inputs[1].mode = BETON_IMAGE_JPEG;
		assert_ok(beton_writer_append(writer, inputs, err));
		free(pixels);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static char *write_file(int64_t damaged)
{
	return write_arrays(damaged, BETON_COMPRESSION_NONE);
}

/* The smallest box around what is white; false: nothing is, but perhaps its edge, after an operation that inverts. */
static bool measure(const beton_tensor *image, uint32_t row, double box[4])
{
	int64_t height = image->shape[1], width = image->shape[2];
	const uint8_t *pixels = (const uint8_t *)image->data + row * height * width * 3;
	double left = 1e9, top = 1e9, right = -1, bottom = -1;
	for (int64_t y = 0; y < height; y++)
		for (int64_t x = 0; x < width; x++)
			if (pixels[(y * width + x) * 3] > 127) {
				left = fmin(left, (double)x);
				top = fmin(top, (double)y);
				right = fmax(right, (double)x + 1);
				bottom = fmax(bottom, (double)y + 1);
			}
	box[0] = left;
	box[1] = top;
	box[2] = right;
	box[3] = bottom;
	return right > 0 && right - left > 3 && bottom - top > 3;
}

/* Compares the boxes of a batch with its pictures: what is white is in the box, and reaches from side to side, but for
 * the tolerance, if all of it is kept. name: of the field of XYWH, with its view's number; image: of the picture.
 * Returns the number of whole boxes. */
static int check_batch(const beton_batch *batch, const char *name, const char *image, double tolerance)
{
	char kept_name[64];
	snprintf(kept_name, sizeof(kept_name), "%s.kept", name);
	const beton_tensor *boxes = fixture_find(batch, name), *kept = fixture_find(batch, kept_name),
			   *pictures = fixture_find(batch, image);
	int whole = 0;
	assert_true(boxes->dtype == BETON_FLOAT32 && boxes->ndim == 3 && boxes->shape[1] == ROWS);
	assert_true(kept->dtype == BETON_FLOAT32 && kept->ndim == 2 && kept->shape[1] == ROWS);
	for (uint32_t row = 0; row < batch->count; row++) {
		const float *b = (const float *)boxes->data + row * ROWS * 4;
		const float *share = (const float *)kept->data + row * ROWS;
		double white[4];
		bool found = measure(pictures, row, white);
		assert_true(b[4] == -1 && b[7] == -1 && share[1] == 0);
		assert_true(share[0] >= 0 && share[0] <= 1 && b[0] >= 0 && b[0] + b[2] <= (float)pictures->shape[2]);
		if (!found)
			continue;
		for (int k = 0; k < 4; k++) {
			double edge = (double)b[k] + (k > 1 ? (double)b[k - 2] : 0), inside = k < 2 ? 1 : -1;
			double distance = inside * (white[k] - edge);
			if (distance < -fmin(tolerance, 2.5) || (share[0] == 1 && distance > tolerance))
				fail_msg("sample %d, kept %g, side %d: %g is white to %g", (int)batch->sample_ids[row],
					 (double)share[0], k, edge, white[k]);
		}
		whole += share[0] == 1;
	}
	return whole;
}

static beton_loader_options base_options(const beton_geometry *geometry, uint32_t count)
{
	beton_loader_options options = fixture_options(7, 2);
	options.order = BETON_ORDER_RANDOM;
	options.image.width = SIDE;
	options.image.height = SIDE - 10;
	options.geometry = geometry;
	options.num_geometry = count;
	return options;
}

static const beton_geometry BOXES = {.field = "boxes", .kind = BETON_BOXES_XYWH};

/* Two epochs; returns how many boxes were whole. */
static int check_file(const char *path, const beton_loader_options *options, double tolerance)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	int whole = 0;
	assert_ok(beton_loader_open(&loader, path, options, err));
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		fixture_start(&iterator, loader, epoch, 0);
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
		     beton_batch_release(&batch))
			whole += check_batch(batch, "boxes", "image", tolerance);
	}
	fixture_close(&loader, &iterator);
	return whole;
}

static void boxes_follow_the_pixels(void **state)
{
	(void)state;
	static const struct {
		beton_crop crop;
		beton_fit fit;
		double flip;
		/* Corners of a turned rectangle have few pixels, and a box that turned twice is around a box. */
		double tolerance;
		beton_operation_kind kinds[3];
		uint32_t num_kinds;
		int whole; /* least number of boxes that are */
	} cases[] = {
		{BETON_CROP_RANDOM, 0, 0.5, 1, {0}, 0, 10},
		{BETON_CROP_CENTER, 0, 0.5, 1, {BETON_FLIP_VERTICAL, BETON_FLIP_HORIZONTAL}, 2, 80},
		{BETON_CROP_NONE, 0, 0, 1, {BETON_TRANSLATE, BETON_SHIFT, BETON_CUTOUT}, 3, 40},
		{BETON_CROP_NONE, 0, 0.5, 2, {BETON_ROTATE}, 1, 80},
		{BETON_CROP_NONE, 0, 0.5, 3, {BETON_TRIVIAL_AUGMENT}, 1, 30},
		{BETON_CROP_CENTER, 0, 0.5, 10, {BETON_RAND_AUGMENT}, 1, 30},
		{BETON_CROP_RANDOM, 0, 0.5, 20, {BETON_ROTATE, BETON_RAND_AUGMENT, BETON_TRANSLATE}, 3, 2},
		{BETON_CROP_NONE, BETON_FIT_PAD_CENTER, 0.5, 1, {0}, 0, 80},
		{BETON_CROP_NONE, BETON_FIT_SHORTER_SIDE, 0.5, 1, {0}, 0, 60},
		{BETON_CROP_RANDOM, BETON_FIT_SHORTER_SIDE, 0.5, 2, {BETON_TRANSLATE, BETON_FLIP_VERTICAL}, 2, 5},
		{BETON_CROP_RANDOM, BETON_FIT_PAD_CORNER, 0.5, 1, {0}, 0, 10},
		{BETON_CROP_CENTER, BETON_FIT_PAD_CORNER, 0.5, 1, {BETON_SHIFT, BETON_FLIP_HORIZONTAL}, 2, 40},
		{BETON_CROP_NONE, BETON_FIT_PAD_CORNER, 0.5, 2, {BETON_ROTATE}, 1, 50},
	};
	char *path = write_file(-1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_loader_options options = base_options(&BOXES, 1);
		beton_operation operations[3];
		for (uint32_t k = 0; k < cases[i].num_kinds; k++) {
			beton_loader_operation_init(&operations[k], cases[i].kinds[k]);
			operations[k].size = 9;
			operations[k].range[0] = cases[i].kinds[k] == BETON_SHIFT ? -4 : -20;
			operations[k].range[1] = cases[i].kinds[k] == BETON_SHIFT ? 5 : 20;
			operations[k].bilinear = true;
		}
		options.image.crop = cases[i].crop;
		options.image.fit = (uint16_t)cases[i].fit;
		options.image.shorter_side = cases[i].fit == BETON_FIT_SHORTER_SIDE ? SIDE + 20 : 0;
		options.image.crop_scale[0] = 0.3;
		options.image.flip_probability = cases[i].flip;
		options.image.operations = operations;
		options.image.num_operations = cases[i].num_kinds;
		int whole = check_file(path, &options, cases[i].tolerance);
		if (whole < cases[i].whole)
			fail_msg("case %zu: %d whole boxes", i, whole);
	}
	fixture_remove(path);
}

/* The way back that beton_batch describes: from an output's places to the stored picture's. */
static void check_way_back(const beton_batch *batch)
{
	const beton_tensor *drawn = fixture_find(batch, "image.drawn");
	assert_int_equal(drawn->shape[1], 9);
	for (uint32_t row = 0; row < batch->count; row++) {
		const float *b = (const float *)fixture_find(batch, "boxes")->data + row * ROWS * 4;
		const double *crop = (const double *)drawn->data + row * 9, *place = crop + 5;
		double from_left = (double)b[0] - place[0];
		if (crop[4] == 1)
			from_left = place[0] + place[2] - (double)(b[0] + b[2]);
		double x = crop[0] + from_left * crop[2] / place[2];
		double y = crop[1] + ((double)b[1] - place[1]) * crop[3] / place[3];
		uint32_t box[4];
		rectangle(batch->sample_ids[row], box);
		assert_true(fabs(x - box[0]) < 1e-3 && fabs(y - box[1]) < 1e-3);
	}
}

static void drawn_numbers_lead_back(void **state)
{
	(void)state;
	char *path = write_file(-1);
	for (uint16_t fit = BETON_FIT_PAD_CENTER; fit <= BETON_FIT_PAD_CORNER; fit++) {
		beton_loader_options options = base_options(&BOXES, 1);
		options.drawn = true;
		options.image.width = SIDE * 2 - 1;
		options.image.fit = fit;
		options.image.keep_small = 1;
		options.image.flip_probability = 0.5;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
		     beton_batch_release(&batch)) {
			assert_int_equal(check_batch(batch, "boxes", "image", 1), batch->count);
			check_way_back(batch);
		}
		fixture_close(&loader, &iterator);
	}
	fixture_remove(path);
}

/* Boxes of one field for two views, and of another: named and made for the right views, in any order of fields. */
static void boxes_belong_to_their_views(void **state)
{
	(void)state;
	char *path = write_file(-1);
	const beton_geometry geometry[3] = {
		BOXES,
		{.field = "shares", .kind = BETON_BOXES_XYXY, .units = BETON_UNITS_SHARES, .view = 1},
		{.field = "boxes", .kind = BETON_BOXES_XYWH, .view = 1}};
	beton_loader_options options = base_options(geometry, 3);
	beton_image_options views[2] = {options.image, options.image};
	views[0].crop = BETON_CROP_RANDOM;
	views[1].width = 60;
	views[1].height = 131;
	views[1].flip_probability = 0.5;
	options.views = views;
	options.num_views = 2;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	assert_null(beton_loader_get_options(loader)->geometry);
	assert_int_equal(beton_loader_get_options(loader)->num_geometry, 0);
	fixture_start(&iterator, loader, 0, 0);
	for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
	     beton_batch_release(&batch)) {
		assert_int_equal(batch->num_tensors, 8);
		check_batch(batch, "boxes", "image", 1.5);
		assert_int_equal(check_batch(batch, "boxes.1", "image.1", 1), batch->count);
		const beton_tensor *shares = fixture_find(batch, "shares"), *boxes = fixture_find(batch, "boxes.1");
		assert_true(shares->ndim == 2 && shares->shape[1] == 4 &&
			    fixture_find(batch, "shares.kept")->ndim == 1);
		for (uint32_t row = 0; row < batch->count; row++)
			for (int k = 0; k < 4; k++) {
				const float *b = (const float *)boxes->data + row * ROWS * 4;
				double edge = (double)b[k] + (k > 1 ? (double)b[k - 2] : 0);
				double share = (double)((const float *)shares->data)[row * 4 + k];
				assert_true(fabs(share * (k % 2 ? 131 : 60) - edge) < 1e-3);
			}
	}
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

/* Rows of an output of an epoch, by position; to be freed. from: where the iterator begins, and again after a state. */
static float *load(const char *path, const beton_loader_options *options, const char *name, bool resume, size_t bytes)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	char *out = calloc(SAMPLES, bytes);
	assert_non_null(out);
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 3, 0);
	for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
	     beton_batch_release(&batch)) {
		memcpy(out + batch->position * bytes, fixture_find(batch, name)->data, batch->count * bytes);
		if (resume && batch->position == 0) {
			beton_loader_state saved;
			assert_ok(beton_iterator_get_state(iterator, &saved, err));
			beton_iterator_close(&iterator);
			assert_ok(beton_iterator_open_state(&iterator, loader, &saved, err));
		}
	}
	fixture_close(&loader, &iterator);
	return (float *)out;
}

static void check_same(const char *path, const beton_loader_options *a, const beton_loader_options *b, const char *name,
		       bool resume, size_t bytes)
{
	float *one = load(path, a, name, false, bytes), *two = load(path, b, name, resume, bytes);
	assert_memory_equal(one, two, SAMPLES * bytes);
	free(one);
	free(two);
}

static void draws_and_rows_stay_the_same(void **state)
{
	(void)state;
	char *path = write_file(-1);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_TRIVIAL_AUGMENT);
	beton_loader_options options = base_options(&BOXES, 1), other = options;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.operations = &operation;
	options.image.num_operations = 1;
	other = options;
	other.num_geometry = 0;
	check_same(path, &options, &other, "image", false, (size_t)SIDE * (SIDE - 10) * 3);
	other = options;
	other.num_threads = 4;
	other.engine = BETON_ENGINE_MMAP;
	other.drawn = true;
	other.image.dtype = BETON_FLOAT32;
	other.image.layout = BETON_NCHW;
	other.image.normalize = true;
	check_same(path, &options, &other, "boxes", true, sizeof(float[ROWS][4]));
	check_same(path, &options, &other, "boxes.kept", true, sizeof(float[ROWS]));
	other.memory_limit = 64 << 20;
	other.engine = BETON_ENGINE_THREADS;
	check_same(path, &options, &other, "boxes", false, sizeof(float[ROWS][4]));
	fixture_remove(path);
}

static void compressed_arrays_move_too(void **state)
{
	(void)state;
	char *path = write_file(-1), *packed = write_arrays(-1, BETON_COMPRESSION_ZSTD);
	beton_loader_options options = base_options(&BOXES, 1);
	beton_reader *reader;
	beton_value value;
	assert_ok(beton_reader_open(&reader, packed, err));
	assert_ok(beton_reader_value(reader, 0, 0, &value, err));
	assert_true(value.compression == BETON_COMPRESSION_ZSTD && value.size == sizeof(int64_t[ROWS][4]));
	beton_reader_close(&reader);
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	float *plain = load(path, &options, "boxes", false, sizeof(float[ROWS][4]));
	options.engine = BETON_ENGINE_MMAP;
	float *moved = load(packed, &options, "boxes", true, sizeof(float[ROWS][4]));
	assert_memory_equal(plain, moved, SAMPLES * sizeof(float[ROWS][4]));
	free(plain);
	free(moved);
	fixture_remove(path);
	fixture_remove(packed);
}

/* Each number of a row is lambda times the sample's, and the rest of its partner's. */
static void check_joined(const beton_batch *batch, const float *lambda, const int64_t *partner)
{
	enum { BOX_NUMBERS = ROWS * 4, NUMBERS = BOX_NUMBERS + 4 };
	const float *boxes = fixture_find(batch, "boxes")->data, *shares = fixture_find(batch, "shares")->data;
	const beton_tensor *joined = fixture_find(batch, "boxes.joined");
	assert_true(joined->dtype == BETON_FLOAT32 && joined->ndim == 2 && joined->shape[1] == NUMBERS);
	for (uint32_t row = 0; row < batch->count; row++)
		for (uint32_t k = 0; k < NUMBERS; k++) {
			const float *part = k < BOX_NUMBERS ? boxes + k : shares + k - BOX_NUMBERS;
			int64_t step = k < BOX_NUMBERS ? BOX_NUMBERS : 4;
			double share = lambda ? (double)lambda[row] : 1;
			double value = share * (double)part[row * step];
			if (share < 1)
				value += (1 - share) * (double)part[partner[row] * step];
			assert_true(((const float *)joined->data)[row * NUMBERS + k] == (float)value);
		}
}

/* Mixing leaves the rows of boxes, and moves no draw; what is joined is mixed, with boxes that have moved. */
static void mixed_and_joined_rows(void **state)
{
	(void)state;
	char *path = write_file(-1);
	const char *const joined[2] = {"boxes", "shares"};
	beton_batch_operation mixing[2];
	beton_loader_batch_operation_init(&mixing[0], BETON_BATCH_MIXUP);
	beton_loader_batch_operation_init(&mixing[1], BETON_BATCH_CUTMIX);
	mixing[0].probability = mixing[1].probability = 0.5;
	mixing[0].per_sample = true;
	for (uint32_t count = 0; count <= 2; count++) {
		beton_loader_options options = base_options(&BOXES, 1), plain = options;
		options.image.fit = plain.image.fit = count ? BETON_FIT_PAD_CENTER : BETON_FIT_STRETCH;
		options.image.flip_probability = plain.image.flip_probability = 0.5;
		options.joined = joined;
		options.num_joined = 2;
		options.batch_operations = mixing;
		options.num_batch_operations = count;
		check_same(path, &plain, &options, "boxes", false, sizeof(float[ROWS][4]));
		check_same(path, &plain, &options, "boxes.kept", false, sizeof(float[ROWS]));
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		int mixed = 0;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 1, 0);
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
		     beton_batch_release(&batch)) {
			const float *lambda = count ? fixture_find(batch, "image.lambda")->data : NULL;
			const int64_t *partner = count ? fixture_find(batch, "image.partner")->data : NULL;
			mixed += lambda && lambda[0] < 1;
			check_joined(batch, lambda, partner);
		}
		assert_true(count == 0 ? mixed == 0 : mixed > 0);
		fixture_close(&loader, &iterator);
	}
	fixture_remove(path);
}

static void rows_of_bad_samples_go_or_are_replaced(void **state)
{
	(void)state;
	char *path = write_file(7);
	beton_loader_options options = base_options(&BOXES, 1);
	options.on_error = BETON_ON_ERROR_SKIP;
	assert_int_equal(check_file(path, &options, 1), 2 * (SAMPLES - 1));
	options.on_error = BETON_ON_ERROR_SUBSTITUTE;
	assert_int_equal(check_file(path, &options, 1), 2 * SAMPLES);
	fixture_remove(path);
}

static void refuse(const char *path, const beton_loader_options *options, int code, const char *words)
{
	beton_loader *loader;
	beton_error fault;
	assert_int_equal(beton_loader_open(&loader, path, options, &fault), code);
	if (!strstr(fault.message, words))
		fail_msg("'%s' does not say '%s'", fault.message, words);
}

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	char *path = write_file(-1);
	beton_geometry geometry = BOXES;
	beton_loader_options options = base_options(&geometry, 1);
	geometry.field = NULL;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "geometry[0].field is NULL");
	geometry.field = "none";
	refuse(path, &options, BETON_NOT_FOUND, "no field 'none' (option geometry[0].field)");
	geometry.field = "image";
	refuse(path, &options, BETON_INVALID_ARGUMENT,
	       "'image' (option geometry[0].field) is not an output of an array");
	geometry = BOXES;
	options.fields = (const char *const[]){"image"};
	options.num_fields = 1;
	refuse(path, &options, BETON_INVALID_ARGUMENT,
	       "'boxes' (option geometry[0].field) is not an output of an array");
	options.fields = (const char *const[]){"boxes"};
	refuse(path, &options, BETON_INVALID_ARGUMENT, "the picture of option geometry[0].view (0) is not an output");
	options.fields = NULL;
	options.num_fields = 0;
	geometry.kind = BETON_POINTS;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "has rows of 4 numbers, and points have 2 or 3");
	geometry.kind = (beton_geometry_kind)3;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "geometry[].kind is 3");
	geometry = BOXES;
	geometry.view = 1;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "geometry[].view is 1");
	geometry = BOXES;
	geometry.reserved[3] = 5;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "geometry[].reserved is 5");
	options.geometry = NULL;
	refuse(path, &options, BETON_INVALID_ARGUMENT, "geometry is NULL");
	fixture_remove(path);
}

int main(int argc, char **argv)
{
	geometry_path = argc > 1 ? argv[1] : NULL;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_torchvision_s),
		cmocka_unit_test(a_placement_cuts_boxes_off),
		cmocka_unit_test(padding_stays),
		cmocka_unit_test(boxes_follow_the_pixels),
		cmocka_unit_test(drawn_numbers_lead_back),
		cmocka_unit_test(boxes_belong_to_their_views),
		cmocka_unit_test(draws_and_rows_stay_the_same),
		cmocka_unit_test(compressed_arrays_move_too),
		cmocka_unit_test(mixed_and_joined_rows),
		cmocka_unit_test(rows_of_bad_samples_go_or_are_replaced),
		cmocka_unit_test(what_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, read_golden, NULL);
}
