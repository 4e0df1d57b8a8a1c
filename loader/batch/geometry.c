/* SPDX-License-Identifier: Apache-2.0 */
#include "geometry.h"

#include <math.h>

#include "numbers.h"

/* Numbers beyond this are taken as padding, so that no area overflows. */
static const double FARTHEST = 0x1p31;

/* Rounding does not put a point that lies on an edge beyond it. */
static const double SLACK = 0x1p-20;

size_t bt_geometry_bytes(const bt_output *output)
{
	return output->sample_bytes / sizeof(float) * bt_number_bytes(output->stored);
}

static double between(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

static double area(const bt_edges *box)
{
	return (box->right - box->left) * (box->bottom - box->top);
}

static void move_point(const bt_move *move, double *x, double *y)
{
	const double *m = move->m;
	double from_x = *x, from_y = *y;
	*x = m[0] * from_x + m[1] * from_y + m[2];
	*y = m[3] * from_x + m[4] * from_y + m[5];
}

/* Moves a box and cuts it off. Returns the share of its area that is left. */
static double move_box(const bt_move *move, bt_edges *box)
{
	const double x[4] = {box->left, box->right, box->right, box->left};
	const double y[4] = {box->top, box->top, box->bottom, box->bottom};
	const bt_edges *edges = &move->edges;
	bt_edges out = {INFINITY, INFINITY, -INFINITY, -INFINITY};
	for (int i = 0; i < 4; i++) {
		double to_x = x[i], to_y = y[i];
		move_point(move, &to_x, &to_y);
		out.left = fmin(out.left, to_x);
		out.top = fmin(out.top, to_y);
		out.right = fmax(out.right, to_x);
		out.bottom = fmax(out.bottom, to_y);
	}
	box->left = between(out.left, edges->left, edges->right);
	box->top = between(out.top, edges->top, edges->bottom);
	box->right = between(out.right, edges->left, edges->right);
	box->bottom = between(out.bottom, edges->top, edges->bottom);
	return area(box) > 0 ? area(box) / area(&out) : 0;
}

/* Whether the point is inside the edges; one on an edge is put there exactly. */
static bool settle(const bt_edges *edges, double *x, double *y)
{
	if (!(*x >= edges->left - SLACK && *x <= edges->right + SLACK && *y >= edges->top - SLACK &&
	      *y <= edges->bottom + SLACK))
		return false;
	*x = between(*x, edges->left, edges->right);
	*y = between(*y, edges->top, edges->bottom);
	return true;
}

/* row: left, top, right, bottom in pixels of the stored picture; becomes pixels of the output. Returns the share
 * kept. */
static double box_row(const bt_moves *moves, double row[4])
{
	bt_edges box = {row[0], row[1], row[2], row[3]};
	double kept = 1;
	for (uint32_t i = 0; kept > 0 && i < moves->count; i++)
		kept *= move_box(&moves->list[i], &box);
	row[0] = kept > 0 ? box.left : 0;
	row[1] = kept > 0 ? box.top : 0;
	row[2] = kept > 0 ? box.right : 0;
	row[3] = kept > 0 ? box.bottom : 0;
	return kept;
}

static double point_row(const bt_moves *moves, double row[2])
{
	bool inside = true;
	for (uint32_t i = 0; i < moves->count; i++) {
		move_point(&moves->list[i], &row[0], &row[1]);
		inside &= settle(&moves->list[i].edges, &row[0], &row[1]);
	}
	return inside;
}

/* Moves the places in a row of at least 2 numbers; false: it is padding, and is left as it is. */
static bool move_row(const bt_output *output, const bt_moves *moves, double row[4], double *kept)
{
	bool points = output->geometry == BETON_POINTS, sizes = output->geometry == BETON_BOXES_XYWH;
	bool shares = output->units == BETON_UNITS_SHARES;
	int places = points ? 2 : 4;
	double place[4] = {row[0], row[1], row[2], row[3]};
	if (sizes) {
		place[2] += place[0];
		place[3] += place[1];
	}
	if (points ? !(place[0] > 0 || place[1] > 0) : !(place[2] > place[0] && place[3] > place[1]))
		return false;
	for (int i = 0; i < places; i++)
		place[i] *= shares ? moves->from[i % 2] : 1;
	*kept = points ? point_row(moves, place) : box_row(moves, place);
	if (sizes) {
		place[2] -= place[0];
		place[3] -= place[1];
	}
	for (int i = 0; i < places; i++)
		row[i] = shares ? place[i] / moves->to[i % 2] : place[i];
	return true;
}

void bt_geometry_fill(const bt_output *output, const void *array, const bt_moves *moves, float *to, float *kept)
{
	size_t numbers = (size_t)output->tensor.shape[output->tensor.ndim - 1];
	size_t rows = output->sample_bytes / sizeof(float) / numbers;
	for (size_t i = 0; i < rows; i++, to += numbers) {
		double row[4] = {0}, share = 0;
		bool usable = true;
		for (size_t k = 0; k < numbers; k++) {
			row[k] = bt_number(output->stored, array, i * numbers + k);
			usable &= fabs(row[k]) <= FARTHEST;
		}
		kept[i] = usable && move_row(output, moves, row, &share) ? (float)share : 0;
		for (size_t k = 0; k < numbers; k++)
			to[k] = (float)row[k];
	}
}
