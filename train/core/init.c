/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <xxhash.h>

#include "common/system.h"
#include "params.h"

/* Counter-based: element i of a parameter is a hash of i under a key made of the seed and the name. */
static uint64_t draw(uint64_t key, int64_t element)
{
	return XXH3_64bits_withSeed(&element, sizeof(element), key);
}

/* In (0, 1): the middle of one of 2^32 cells, never an end point. */
static double unit(uint32_t bits)
{
	return ((double)bits + 0.5) * 0x1p-32;
}

/* Box and Muller's transform of the two halves of a draw. */
static double normal(uint64_t bits)
{
	return sqrt(-2.0 * log(unit((uint32_t)(bits >> 32)))) * cos(2.0 * M_PI * unit((uint32_t)bits));
}

/* Whether a convolution's weight belongs to an output channel that copies an input channel. */
static bool is_copy(const dtrain_shape *shape, int64_t element)
{
	int64_t inputs = shape->dim[1], window = shape->dim[2] * shape->dim[3];
	return element / window / inputs < inputs;
}

/* Whether such a weight is the window's centre at the input channel with the output's number. */
static bool is_center(const dtrain_shape *shape, int64_t element)
{
	int64_t inputs = shape->dim[1], window = shape->dim[2] * shape->dim[3];
	int64_t middle = shape->dim[2] / 2 * shape->dim[3] + shape->dim[3] / 2;
	return element % window == middle && element / window % inputs == element / window / inputs;
}

/* A quarter each: sin x, cos x, sin y, cos y, with wavelengths that grow up to 2 pi * 10000. */
static double sincos_2d(const dtrain_shape *shape, int64_t element)
{
	int64_t width = shape->dim[2], quarter = width / 4, side = llround(sqrt((double)shape->dim[1]));
	int64_t token = element / width, part = element % width / quarter;
	double rate = pow(10000, -(double)(element % quarter) / (double)(quarter - 1));
	double angle = (double)(part < 2 ? token % side : token / side) * rate;
	return part % 2 ? cos(angle) : sin(angle);
}

static double element_value(dtrain_init init, const dtrain_shape *shape, double scale, uint64_t key, int64_t element)
{
	switch (init) {
	case DTRAIN_INIT_ONE:
		return 1.0;
	case DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT:
	case DTRAIN_INIT_NORMAL:
	case DTRAIN_INIT_NORMAL_MILLIONTHS:
		return scale * normal(draw(key, element));
	case DTRAIN_INIT_DIRAC:
		if (is_copy(shape, element))
			return is_center(shape, element) ? 1.0 : 0.0;
		return scale * (2.0 * unit((uint32_t)(draw(key, element) >> 32)) - 1.0);
	case DTRAIN_INIT_LINEAR_UNIFORM:
		return scale * (2.0 * unit((uint32_t)(draw(key, element) >> 32)) - 1.0);
	case DTRAIN_INIT_SINCOS_2D:
		return sincos_2d(shape, element);
	case DTRAIN_INIT_ZERO:
		break;
	}
	return 0.0;
}

static double scale_of(dtrain_init init, const dtrain_shape *shape, int64_t fan_in)
{
	if (init == DTRAIN_INIT_LINEAR_UNIFORM || init == DTRAIN_INIT_DIRAC || init == DTRAIN_INIT_NORMAL)
		return 1.0 / sqrt((double)(fan_in > 0 ? fan_in : 1));
	if (init == DTRAIN_INIT_NORMAL_MILLIONTHS)
		return (double)fan_in / 1e6;
	int64_t fan_out = shape->ndim > 0 ? shape->dim[0] : 1;
	for (int i = 2; i < shape->ndim; i++)
		fan_out *= shape->dim[i];
	return sqrt(2.0 / (double)fan_out);
}

static void fill(const dtrain__init_piece *piece, dtrain_dtype dtype, uint64_t seed)
{
	uint64_t key = XXH3_64bits_withSeed(piece->name, strlen(piece->name), seed);
	double scale = scale_of(piece->init, piece->shape, piece->fan_in);
	for (int64_t i = 0; i < piece->count; i++) {
		int64_t mine = piece->first + i;
		int64_t element = piece->base + mine / piece->run * piece->pitch + mine % piece->run;
		float value = (float)element_value(piece->init, piece->shape, scale, key, element);
		if (dtype == DTRAIN_F64)
			((double *)piece->out)[i] = value;
		else
			((float *)piece->out)[i] = value;
	}
}

typedef struct fill_team {
	const dtrain__init_piece *pieces;
	int64_t count;
	_Atomic int64_t next;
	dtrain_dtype dtype;
	uint64_t seed;
} fill_team;

static void *fill_pieces(void *argument)
{
	fill_team *team = argument;
	int64_t index;
	while ((index = atomic_fetch_add(&team->next, 1)) < team->count)
		fill(&team->pieces[index], team->dtype, team->seed);
	return NULL;
}

void dtrain__init_fill(const dtrain__init_piece *pieces, int64_t count, dtrain_dtype dtype, uint64_t seed, int threads)
{
	fill_team team = {.pieces = pieces, .count = count, .dtype = dtype, .seed = seed};
	pthread_t others[DTRAIN__INIT_THREADS - 1];
	int started = 0;
	sigset_t before;
	bt_block_signals(&before);
	/* If a thread does not start, the others, or the caller alone, do its work. */
	while (started < DTRAIN__INIT_THREADS - 1 && started + 1 < threads && started + 1 < count &&
	       pthread_create(&others[started], NULL, fill_pieces, &team) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	fill_pieces(&team);
	for (int i = 0; i < started; i++)
		pthread_join(others[i], NULL);
}
