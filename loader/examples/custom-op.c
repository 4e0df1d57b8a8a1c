/* SPDX-License-Identifier: Apache-2.0
 *
 * Augments the pictures of a .beton file with colour jitter, an operation of its own (noise) and a cutout, and prints
 * what was drawn for each. Build it against an installed library:
 *
 *     cc custom-op.c $(pkg-config --cflags --libs libbeton-loader) -o custom-op
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <stdio.h>
#include <string.h>

#include <beton/loader.h>

/* Adds up to `most` to each byte. Called by several threads at once: it changes nothing but the picture. The numbers
 * come from call->random alone, so that the result does not depend on which thread it runs in. */
static int add_noise(const beton_operation_call *call)
{
	const unsigned most = *(const unsigned *)call->context;
	uint64_t random = call->random[0] | 1;
	size_t bytes = (size_t)call->height * call->width * 3;
	for (size_t i = 0; i < bytes; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		unsigned value = call->pixels[i] + (unsigned)(random >> 32) % (most + 1);
		call->pixels[i] = (uint8_t)(value < 255 ? value : 255);
	}
	return 0;
}

static void print_batch(const beton_batch *batch)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++) {
		const beton_tensor *tensor = &batch->tensors[i];
		const char *dot = strrchr(tensor->name, '.');
		if (!dot || strcmp(dot, ".drawn") != 0)
			continue;
		for (uint32_t row = 0; row < batch->count; row++) {
			/* 5 numbers of crop and flip, 4 of jitter, 4 of the noise, 4 of the cutout */
			const double *drawn = (const double *)tensor->data + row * tensor->shape[1];
			printf("sample %llu: brightness %.3f, noise %s, cutout at %.0f, %.0f\n",
			       (unsigned long long)batch->sample_ids[row], drawn[6], drawn[9] == 1 ? "yes" : "no",
			       drawn[14], drawn[15]);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: custom-op FILE.beton\n");
		return 2;
	}
	unsigned most = 20;
	beton_operation operations[3];
	beton_loader_operation_init(&operations[0], BETON_COLOR_JITTER);
	operations[0].jitter[0] = operations[0].jitter[1] = operations[0].jitter[2] = 0.4;
	operations[0].jitter[3] = 0.1;
	beton_loader_operation_init(&operations[1], BETON_CUSTOM);
	operations[1].apply = add_noise;
	operations[1].context = &most;
	operations[1].probability = 0.5;
	beton_loader_operation_init(&operations[2], BETON_CUTOUT);
	operations[2].size = 8;

	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.image.height = options.image.width = 32;
	options.image.operations = operations;
	options.image.num_operations = 3;
	options.drawn = true;

	beton_error err;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	if (beton_loader_open(&loader, argv[1], &options, &err) != BETON_OK ||
	    beton_iterator_open(&iterator, loader, 0, 0, &err) != BETON_OK) {
		fprintf(stderr, "custom-op: %s\n", err.message);
		beton_loader_close(&loader);
		return 1;
	}
	beton_batch *batch;
	int result;
	int lost = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END) {
		if (result != BETON_OK) { /* this batch is lost; the next one may be fine */
			fprintf(stderr, "custom-op: %s\n", err.message);
			lost++;
			continue;
		}
		print_batch(batch);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return lost > 0;
}
