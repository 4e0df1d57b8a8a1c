/* SPDX-License-Identifier: Apache-2.0 */
#include "picture.h"

#include <math.h>
#include <stdbool.h>
#include <xxhash.h>

#include "common/elementary.h"

enum { MARKS_MOST = 8, GRID = 3 }; /* GRID x GRID points are averaged for one pixel */

typedef struct {
	float channel[3]; /* 0..255 */
} colour;

typedef struct {
	float x, y;
} point;

/* A short stroke in the background, so that an edge alone tells nothing. */
typedef struct {
	point from, to;
	float radius;
	colour paint;
} mark;

/* Lengths are fractions of the picture's side. */
typedef struct {
	int kind;
	point centre;
	float radius, sine, cosine;
	colour paint, ground[2]; /* the ground goes from one colour to the other */
	point slope;
	mark marks[MARKS_MOST];
	int num_marks;
	float noise;
} scene;

typedef struct {
	uint64_t key, drawn;
} random_stream;

static const char *const kind_names[PICTURE_KINDS] = {
	"checker", "crescent", "cross", "disc", "dots", "ring", "square", "star", "stripes", "triangle",
};

const char *picture_kind_name(int kind)
{
	return kind_names[kind];
}

static uint64_t random_bits(random_stream *random)
{
	uint64_t number = random->drawn++;

	return XXH3_64bits_withSeed(&number, sizeof(number), random->key);
}

static float random_between(random_stream *random, float least, float most)
{
	return least + (most - least) * (float)(random_bits(random) >> 40) / (float)(1 << 24);
}

static colour random_colour(random_stream *random)
{
	colour result;

	for (int c = 0; c < 3; c++)
		result.channel[c] = random_between(random, 0, 255);
	return result;
}

static float brightness(colour paint)
{
	return 0.299f * paint.channel[0] + 0.587f * paint.channel[1] + 0.114f * paint.channel[2];
}

static scene random_scene(random_stream *random, int kind)
{
	scene s = {.kind = kind};
	double sine, cosine;
	float angle = random_between(random, 0, 1); /* turns */
	float direction = random_between(random, 0, 1);

	s.radius = random_between(random, 0.22f, 0.42f);
	s.centre.x = random_between(random, s.radius * 0.9f, 1 - s.radius * 0.9f);
	s.centre.y = random_between(random, s.radius * 0.9f, 1 - s.radius * 0.9f);
	bt_sin_cos(angle, &sine, &cosine);
	s.sine = (float)sine;
	s.cosine = (float)cosine;
	bt_sin_cos(direction, &sine, &cosine);
	s.slope = (point){(float)cosine, (float)sine};
	s.paint = random_colour(random);
	for (int i = 0; i < 2; i++) {
		do {
			s.ground[i] = random_colour(random);
		} while (fabsf(brightness(s.ground[i]) - brightness(s.paint)) < 45);
	}
	s.num_marks = (int)(random_bits(random) % (MARKS_MOST + 1));
	for (int i = 0; i < s.num_marks; i++) {
		mark *m = &s.marks[i];

		m->from = (point){random_between(random, 0, 1), random_between(random, 0, 1)};
		m->to.x = m->from.x + random_between(random, -0.2f, 0.2f);
		m->to.y = m->from.y + random_between(random, -0.2f, 0.2f);
		m->radius = random_between(random, 0.01f, 0.03f);
		m->paint = random_colour(random);
	}
	s.noise = random_between(random, 4, 24);
	return s;
}

/* A five-pointed star: folded to half of one point, inside is one side of the line from tip to notch. */
static bool in_star(float u, float v)
{
	const float notch = 0.42f, edge_x = notch * 0.80901699f - 1, edge_y = notch * 0.58778525f; /* at 36 degrees */
	static const point tips[] = {{1, 0}, {0.30901699f, 0.95105652f}, {-0.80901699f, 0.58778525f}};
	float x = -1, y = 0;

	v = fabsf(v); /* the star is its own mirror image */
	for (int i = 0; i < 3; i++) {
		float along = u * tips[i].x + v * tips[i].y;

		if (along > x) {
			x = along;
			y = fabsf(v * tips[i].x - u * tips[i].y);
		}
	}
	return edge_x * y - edge_y * (x - 1) > 0;
}

/* Is (u, v) inside the shape? The shape lies in the unit circle. */
static bool inside(int kind, float u, float v)
{
	float r2 = u * u + v * v;

	if (r2 > 1)
		return false;
	switch (kind) {
	case 0: /* checker */
		return ((int)floorf(u * 2.2f) + (int)floorf(v * 2.2f)) % 2 == 0;
	case 1: /* crescent */
		return (u - 0.5f) * (u - 0.5f) + v * v > 0.64f;
	case 2: /* cross */
		return fabsf(u) < 0.27f || fabsf(v) < 0.27f;
	case 3: /* disc */
		return r2 < 0.8f;
	case 4: /* dots */
		u = remainderf(u, 0.6f);
		v = remainderf(v, 0.6f);
		return u * u + v * v < 0.04f;
	case 5: /* ring */
		return r2 > 0.36f;
	case 6: /* square */
		return fmaxf(fabsf(u), fabsf(v)) < 0.7f;
	case 7:
		return in_star(u, v);
	case 8: /* stripes */
		return (int)floorf(v * 2.5f) % 2 == 0;
	default: /* triangle */
		return u > -0.5f && u * 0.5f + fabsf(v) * 0.8660254f < 0.5f;
	}
}

static bool on_mark(const mark *m, float x, float y)
{
	float dx = m->to.x - m->from.x, dy = m->to.y - m->from.y;
	float length2 = dx * dx + dy * dy;
	float along = length2 > 0 ? ((x - m->from.x) * dx + (y - m->from.y) * dy) / length2 : 0;

	along = fminf(fmaxf(along, 0), 1);
	dx = x - m->from.x - along * dx;
	dy = y - m->from.y - along * dy;
	return dx * dx + dy * dy < m->radius * m->radius;
}

static colour colour_at(const scene *s, float x, float y)
{
	float u = ((x - s->centre.x) * s->cosine + (y - s->centre.y) * s->sine) / s->radius;
	float v = ((y - s->centre.y) * s->cosine - (x - s->centre.x) * s->sine) / s->radius;
	float share = 0.5f + ((x - 0.5f) * s->slope.x + (y - 0.5f) * s->slope.y) * (float)M_SQRT1_2;
	colour result;

	if (inside(s->kind, u, v))
		return s->paint;
	for (int i = 0; i < s->num_marks; i++) {
		if (on_mark(&s->marks[i], x, y))
			return s->marks[i].paint;
	}
	for (int c = 0; c < 3; c++)
		result.channel[c] = s->ground[0].channel[c] * (1 - share) + s->ground[1].channel[c] * share;
	return result;
}

void picture_draw(uint64_t key, int kind, int size, uint8_t *rgb)
{
	random_stream random = {.key = key};
	scene s = random_scene(&random, kind);

	for (int pixel = 0; pixel < size * size; pixel++) {
		float sum[3] = {0};

		for (int i = 0; i < GRID * GRID; i++) {
			float x = (float)(pixel % size) + ((float)(i % GRID) + 0.5f) / GRID;
			float y = (float)(pixel / size) + ((float)(i / GRID) + 0.5f) / GRID;
			colour paint = colour_at(&s, x / (float)size, y / (float)size);

			for (int c = 0; c < 3; c++)
				sum[c] += paint.channel[c];
		}
		for (int c = 0; c < 3; c++) {
			/* The sum of two is close enough to a bell curve. */
			float noise = random_between(&random, -1, 1) + random_between(&random, -1, 1);
			float value = sum[c] / (GRID * GRID) + noise * s.noise;

			rgb[pixel * 3 + c] = (uint8_t)lrintf(fminf(fmaxf(value, 0), 255));
		}
	}
}
