/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads one shuffled epoch of a .beton file and prints what each batch holds. Build it against an installed library:
 *
 *     cc print-batches.c $(pkg-config --cflags --libs libbeton-loader) -o print-batches
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <stdio.h>

#include <beton/loader.h>

static void print_batch(const beton_batch *batch)
{
	printf("batch at %llu: %u samples, first %llu;", (unsigned long long)batch->position, batch->count,
	       (unsigned long long)batch->sample_ids[0]);
	for (uint32_t i = 0; i < batch->num_tensors; i++) {
		const beton_tensor *tensor = &batch->tensors[i];
		printf(" %s [", tensor->name);
		for (uint32_t d = 0; d < tensor->ndim; d++)
			printf("%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
		printf("]");
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: print-batches FILE.beton\n");
		return 2;
	}
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.height = options.image.width = 32;

	beton_error err;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	if (beton_loader_open(&loader, argv[1], &options, &err) != BETON_OK ||
	    beton_iterator_open(&iterator, loader, 0, 0, &err) != BETON_OK) {
		fprintf(stderr, "print-batches: %s\n", err.message);
		beton_loader_close(&loader);
		return 1;
	}
	beton_batch *batch;
	int result;
	int lost = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END) {
		if (result != BETON_OK) { /* this batch is lost; the next one may be fine */
			fprintf(stderr, "print-batches: %s\n", err.message);
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
