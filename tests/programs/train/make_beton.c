/* SPDX-License-Identifier: Apache-2.0
 *
 * make-beton SET.betonset FILE...: an index of these files. make-beton OUT SAMPLES CLASSES [CORRUPT [FIRST_LABEL
 * [CHANGE [FACTS [MORE]]]]]: a small .beton with raw 16 x 16 pictures, where a stripe's place and colour give the class
 * below noise. Sample CORRUPT (-1: none) is not a JPEG. CHANGE 1: the pictures from right to left; 2: their right
 * halves are mirror images of the left ones; 3: all of the first pixel's colour; 4 and 5: moved by a pixel to the lower
 * right and to the upper left, mirrored at the edge; 6 and 7: the mirror images of these; MORE: with fields "flat",
 * pictures of one colour, "coarse", half of the label, "onehot", float64 [CLASSES], 1 at the label, "tags", u8 [3], the
 * bits of the label, and "x" and "y", floats, the label and minus half of it; 8: sample CORRUPT is the header of a JPEG
 * of 16 x 16 pixels, without a picture. MORE odd: in sample 5 "x" and an element of "onehot" are not numbers. The same
 * arguments give the same file.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/beton.h>
#include <beton/set.h>

#define SIZE 16
#define CLASSES_MAX 4096

static const unsigned char jpeg_header[] = {0xff, 0xd8, 0xff, 0xc0, 0x00, 0x11, 0x08, 0x00, SIZE, 0x00,
					    SIZE, 0x03, 0x01, 0x22, 0x00, 0x02, 0x11, 0x01, 0x03, 0x11,
					    0x01, 0xff, 0xda, 0x00, 0x0c, 0x03, 0x01, 0x00, 0x02, 0x11,
					    0x03, 0x11, 0x00, 0x3f, 0x00, 0xff, 0xd9};

static void draw(unsigned char *pixels, int label, unsigned *state)
{
	for (int y = 0; y < SIZE; y++)
		for (int x = 0; x < SIZE; x++)
			for (int channel = 0; channel < 3; channel++) {
				*state = *state * 1664525u + 1013904223u;
				int noise = (int)(*state >> 26);
				int stripe = (x + label * 3) % SIZE < 4 && channel == label % 3;
				pixels[(y * SIZE + x) * 3 + channel] = (unsigned char)(80 + noise + 100 * stripe);
			}
}

/* The column or row that a changed picture has at `place` of its own, turning back at the edge's middle. */
static int origin(int place, int move)
{
	place -= move;
	return place < 0 ? -place : place >= SIZE ? 2 * SIZE - 2 - place : place;
}

static void change(unsigned char *pixels, int how)
{
	unsigned char old[SIZE][SIZE][3];
	int move = how == 4 || how == 6 ? 1 : how == 5 || how == 7 ? -1 : 0;
	memcpy(old, pixels, sizeof(old));
	for (int y = 0; y < SIZE; y++)
		for (int x = 0; x < SIZE; x++, pixels += 3) {
			int mirrored = how == 1 || how > 5 || (how == 2 && x >= SIZE / 2);
			int column = origin(mirrored ? SIZE - 1 - x : x, move), row = origin(y, move);
			memcpy(pixels, how == 3 ? old[0][0] : old[row][column], 3);
		}
}

static int make_set(int argc, char **argv)
{
	beton_error err;
	int result = beton_set_write(argv[1], BETON_SET_CREATE, (const char *const *)argv + 2, (uint32_t)argc - 2, NULL,
				     &err);
	if (result != BETON_OK)
		fprintf(stderr, "make-beton: %s\n", err.message);
	return result != BETON_OK;
}

int main(int argc, char **argv)
{
	if (argc > 2 && strstr(argv[1], BETON_SET_ENDING))
		return make_set(argc, argv);
	if (argc < 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > CLASSES_MAX)
		return 2;
	long samples = atol(argv[2]);
	int classes = atoi(argv[3]);
	long corrupt = argc > 4 ? atol(argv[4]) : -1;
	int first_label = argc > 5 ? atoi(argv[5]) : 0;
	int changed = argc > 6 ? atoi(argv[6]) : 0;
	const char *facts = argc > 7 ? argv[7] : NULL;
	const beton_field fields[] = {
		{.name = "image", .type = BETON_FIELD_IMAGE},
		{.name = "label", .type = BETON_FIELD_INT},
		{.name = "flat", .type = BETON_FIELD_IMAGE},
		{.name = "coarse", .type = BETON_FIELD_INT},
		{.name = "onehot",
		 .type = BETON_FIELD_NDARRAY,
		 .dtype = "<f8",
		 .ndim = 1,
		 .shape = {(uint64_t)classes}},
		{.name = "tags", .type = BETON_FIELD_NDARRAY, .dtype = "|u1", .ndim = 1, .shape = {3}},
		{.name = "x", .type = BETON_FIELD_FLOAT},
		{.name = "y", .type = BETON_FIELD_FLOAT}};
	const bool odd = argc > 8 && strcmp(argv[8], "odd") == 0;
	double onehot[CLASSES_MAX];
	beton_writer_options options;
	beton_writer *writer = NULL;
	beton_error err;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.facts = facts && *facts ? facts : NULL;
	int result = beton_writer_open(&writer, argv[1], fields, argc > 8 ? 8 : 2, &options, &err);
	unsigned state = 1;
	for (long i = 0; i < samples && result == BETON_OK; i++) {
		unsigned char pixels[SIZE * SIZE * 3], flat[SIZE * SIZE * 3];
		int label = (int)(i * 7 % classes);
		draw(pixels, label, &state);
		if (changed && changed != 8)
			change(pixels, changed);
		if (changed == 8 && i == corrupt)
			memcpy(pixels, jpeg_header, sizeof(jpeg_header));
		memset(flat, label * 20, sizeof(flat));
		memset(onehot, 0, sizeof(onehot));
		onehot[label] = 1;
		if (odd && i == 5)
			onehot[1] = NAN;
		const unsigned char tags[3] = {label & 1, label >> 1 & 1, label >> 2 & 1};
		beton_input values[8] = {
			{.data = pixels,
			 .size = sizeof(pixels),
			 .mode = i == corrupt ? BETON_IMAGE_JPEG : BETON_IMAGE_RAW,
			 .width = SIZE,
			 .height = SIZE},
			{.integer = first_label + label},
			{.data = flat, .size = sizeof(flat), .mode = BETON_IMAGE_RAW, .width = SIZE, .height = SIZE},
			{.integer = label / 2},
			{.data = onehot, .size = (uint64_t)classes * sizeof(*onehot)},
			{.data = tags, .size = sizeof(tags)},
			{.real = odd && i == 5 ? NAN : label},
			{.real = -0.5 * label}};
		result = beton_writer_append(writer, values, &err);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, &err);
	beton_writer_close(&writer);
	if (result != BETON_OK)
		fprintf(stderr, "make-beton: %s\n", err.message);
	return result != BETON_OK;
}
