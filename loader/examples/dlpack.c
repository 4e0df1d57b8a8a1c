/* SPDX-License-Identifier: Apache-2.0
 *
 * Hands the pictures of a .beton file on as DLPack tensors, as a binding to Python would: here to a function that only
 * knows DLPack and adds the bytes up. Build it against an installed library (Debian: libdlpack-dev has the header):
 *
 *     cc dlpack.c $(pkg-config --cflags --libs libbeton-loader) -o dlpack
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <dlpack/dlpack.h>
#include <stdio.h>

#include <beton/loader.h>

/* Takes the tensor over, as every consumer of DLPack does, and gives it back by its deleter. */
static double mean_of(DLManagedTensor *managed)
{
	const DLTensor *tensor = &managed->dl_tensor;
	const uint8_t *bytes = (const uint8_t *)tensor->data + tensor->byte_offset;
	double sum = 0;
	int64_t count = 1;
	for (int i = 0; i < tensor->ndim; i++)
		count *= tensor->shape[i];
	for (int64_t i = 0; i < count; i++)
		sum += bytes[i];
	managed->deleter(managed);
	return sum / (double)count;
}

static int print_means(beton_iterator *iterator, uint32_t image, beton_error *err)
{
	for (;;) {
		beton_batch *batch;
		DLManagedTensor *tensor;
		int result = beton_iterator_next(iterator, &batch, -1, err);
		if (result == BETON_END)
			return BETON_OK;
		if (result == BETON_OK)
			result = beton_batch_dlpack(batch, image, &tensor, err);
		/* The tensor has a reference of its own. */
		beton_batch_release(&batch);
		if (result != BETON_OK)
			return result;
		printf("mean %.2f\n", mean_of(tensor));
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: dlpack FILE.beton\n");
		return 2;
	}
	const char *const fields[] = {"image"};
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.image.height = options.image.width = 32;
	options.fields = fields;
	options.num_fields = 1;

	beton_error err;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	int result = beton_loader_open(&loader, argv[1], &options, &err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, 0, 0, &err);
	if (result == BETON_OK)
		result = print_means(iterator, 0, &err);
	if (result != BETON_OK)
		fprintf(stderr, "dlpack: %s\n", err.message);
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return result != BETON_OK;
}
