/* SPDX-License-Identifier: Apache-2.0 */
#include "moves.h"

#include <math.h>
#include <string.h>

#include "common/error.h"

uint32_t bt_moves_most(const beton_image_options *image)
{
	uint32_t most = 2; /* from the crop, and the flip at the end */
	for (uint32_t i = 0; i < image->num_operations; i++) {
		const beton_operation *o = &image->operations[i];
		most += o->kind == BETON_RAND_AUGMENT ? o->count : 1;
	}
	return most;
}

int bt_moves_begin(bt_moves *moves, const beton_image_options *image, uint32_t width, uint32_t height,
		   const bt_rect *crop, const bt_placement *place, beton_error *err)
{
	uint32_t most = bt_moves_most(image);
	moves->list = bt_buffer_reserve(&moves->memory, most * sizeof(*moves->list));
	if (!moves->list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u moves of a picture", most);
	moves->from[0] = width;
	moves->from[1] = height;
	moves->to[0] = image->width;
	moves->to[1] = image->height;
	double scale_x = (double)place->width / crop->width, scale_y = (double)place->height / crop->height;
	moves->list[0] = (bt_move){
		.m = {scale_x, 0, place->x - crop->x * scale_x, 0, scale_y, place->y - crop->y * scale_y},
		.edges = {fmax(place->x, 0), fmax(place->y, 0), fmin((double)place->x + place->width, image->width),
			  fmin((double)place->y + place->height, image->height)}};
	moves->count = 1;
	return BETON_OK;
}

static void add(bt_moves *moves, const double m[6])
{
	if (!moves)
		return;
	bt_move *move = &moves->list[moves->count++];
	memcpy(move->m, m, sizeof(move->m));
	move->edges = (bt_edges){0, 0, moves->to[0], moves->to[1]};
}

void bt_moves_shift(bt_moves *moves, int64_t x, int64_t y)
{
	add(moves, (const double[6]){1, 0, (double)x, 0, 1, (double)y});
}

void bt_moves_flip_horizontal(bt_moves *moves)
{
	if (moves)
		add(moves, (const double[6]){-1, 0, moves->to[0], 0, 1, 0});
}

void bt_moves_flip_vertical(bt_moves *moves)
{
	if (moves)
		add(moves, (const double[6]){1, 0, 0, 0, -1, moves->to[1]});
}

void bt_moves_affine(bt_moves *moves, const double m[6])
{
	/* Rotations and shears keep areas, so no determinant is near 0. */
	double determinant = m[0] * m[4] - m[1] * m[3];
	double a = m[4] / determinant, b = -m[1] / determinant, c = -m[3] / determinant, d = m[0] / determinant;
	add(moves, (const double[6]){a, b, -(a * m[2] + b * m[5]), c, d, -(c * m[2] + d * m[5])});
}
