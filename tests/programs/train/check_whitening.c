/* SPDX-License-Identifier: Apache-2.0
 *
 * check-whitening WEIGHTS.safetensors DATA.beton SIZE PICTURES: the tensor 0.weight makes what it is convolved with
 * uncorrelated, over the first PICTURES pictures of the data set. Prints 0.bias. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/loader.h>

#include "checkpoint/safetensors.h"

enum { FILTERS = 24, PATCH = 12 };

static float weights[FILTERS][PATCH];

static float bias[FILTERS];

static int read_tensor(const safetensors_file *file, const char *name, void *to, size_t bytes, beton_error *err)
{
	const safetensors_entry *entry = dtrain__safetensors_find(file, name);
	if (entry && entry->bytes == bytes)
		return dtrain__safetensors_read(file, entry, to, err);
	return snprintf(err->message, sizeof(err->message), "no %s of %zu bytes", name, bytes);
}

static int read_layer(const char *path, beton_error *err)
{
	safetensors_file file;
	int result = dtrain__safetensors_open(&file, path, err);
	if (result != BETON_OK)
		return result;
	result = read_tensor(&file, "0.weight", weights, sizeof(weights), err);
	if (result == BETON_OK)
		result = read_tensor(&file, "0.bias", bias, sizeof(bias), err);
	dtrain__safetensors_close(&file);
	return result;
}

/* The output of a filter at a place of a picture, as PyTorch's conv2d has it. */
static double output(const float *picture, int size, int filter, int y, int x)
{
	double sum = 0;
	for (int c = 0; c < 3; c++)
		for (int dy = 0; dy < 2; dy++)
			for (int dx = 0; dx < 2; dx++)
				sum += (double)weights[filter][(c * 2 + dy) * 2 + dx] *
				       (double)picture[(c * size + y + dy) * size + x + dx];
	return sum;
}

static double sums[FILTERS][FILTERS];
static double places;

static void add(const float *picture, int size)
{
	double out[FILTERS];
	for (int y = 0; y < size - 1; y++)
		for (int x = 0; x < size - 1; x++, places++) {
			for (int f = 0; f < FILTERS; f++)
				out[f] = output(picture, size, f, y, x);
			for (int i = 0; i < FILTERS * FILTERS; i++)
				sums[i / FILTERS][i % FILTERS] += out[i / FILTERS] * out[i % FILTERS];
		}
}

static int read_pictures(const char *path, int size, uint64_t pictures, beton_error *err)
{
	beton_loader_options options;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	beton_loader_options_init(&options);
	options.image.width = options.image.height = (uint32_t)size;
	options.image.dtype = BETON_FLOAT32;
	options.image.layout = BETON_NCHW;
	options.image.normalize = true;
	int result = beton_loader_open(&loader, path, &options, err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, 0, 0, err);
	while (result == BETON_OK && (result = beton_iterator_next(iterator, &batch, -1, err)) == BETON_OK) {
		for (uint32_t i = 0; i < batch->count; i++)
			if (batch->sample_ids[i] < pictures)
				add((const float *)batch->tensors[0].data + (size_t)i * 3 * (size_t)(size * size),
				    size);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return result == BETON_END ? BETON_OK : result;
}

/* The variances become eigenvalue / (eigenvalue + epsilon). */
static int check(void)
{
	double most = 0, least = 1, mirrored = 0;
	if (places == 0)
		return fprintf(stderr, "no picture was looked at\n");
	for (int a = 0; a < PATCH; a++) {
		double variance = sums[a][a] / places;
		least = variance < least ? variance : least;
		if (variance > 1 + 1e-4)
			return fprintf(stderr, "filter %d: variance %g\n", a, variance);
		for (int b = 0; b < a; b++)
			most = fmax(most, fabs(sums[a][b] / places));
		for (int i = 0; i < PATCH; i++)
			mirrored = fmax(mirrored, fabs((double)weights[a][i] + (double)weights[a + PATCH][i]));
	}
	if (most > 1e-3 || least < 0.5 || mirrored > 0)
		return fprintf(stderr, "correlations up to %g, variances from %g, negated ones off by %g\n", most,
			       least, mirrored);
	return 0;
}

int main(int argc, char **argv)
{
	beton_error err = {0};
	if (argc != 5)
		return 2;
	if (read_layer(argv[1], &err) != BETON_OK ||
	    read_pictures(argv[2], atoi(argv[3]), (uint64_t)atoll(argv[4]), &err) != BETON_OK) {
		fprintf(stderr, "check-whitening: %s\n", err.message);
		return 1;
	}
	for (int f = 0; f < FILTERS; f++)
		printf("%a\n", (double)bias[f]);
	return check() != 0;
}
