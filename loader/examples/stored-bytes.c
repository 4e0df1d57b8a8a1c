/* SPDX-License-Identifier: Apache-2.0
 *
 * Hands out the pictures of a .beton file as they are stored, for a decoder of your own, on a GPU for example: the
 * bytes of a batch in one piece, where each picture begins, its size, and the crop and flip that were drawn for it.
 * This program only prints what such a decoder would get. Build it against an installed library:
 *
 *     cc stored-bytes.c $(pkg-config --cflags --libs libbeton-loader) -o stored-bytes
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <stdio.h>
#include <string.h>

#include <beton/loader.h>

static const beton_tensor *find(const beton_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0)
			return &batch->tensors[i];
	return NULL;
}

/* In place of a decoder. drawn: crop x, y, width and height in pixels of the picture, and 1 if it is to be flipped. */
static void decode(const uint8_t *bytes, int64_t size, const int32_t shape[3], const double drawn[5])
{
	if (shape[2] == BETON_IMAGE_JPEG)
		printf("JPEG of %lld bytes, begins %02x%02x", (long long)size, bytes[0], bytes[1]);
	else
		printf("RGB of %lld bytes", (long long)size);
	printf("; %d x %d, crop %.0f x %.0f at %.0f, %.0f%s\n", (int)shape[1], (int)shape[0], drawn[2], drawn[3],
	       drawn[0], drawn[1], drawn[4] == 1 ? ", flipped" : "");
}

static void decode_batch(const beton_batch *batch)
{
	const beton_tensor *image = find(batch, "image"), *drawn = find(batch, "image.drawn");
	const int64_t *offsets = find(batch, "image.offsets")->data;
	const int32_t *shapes = find(batch, "image.shape")->data;
	for (uint32_t i = 0; i < batch->count; i++)
		decode((const uint8_t *)image->data + offsets[i], offsets[i + 1] - offsets[i], shapes + 3 * (size_t)i,
		       (const double *)drawn->data + i * drawn->shape[1]);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: stored-bytes FILE.beton\n");
		return 2;
	}
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.order = BETON_ORDER_RANDOM;
	options.image.output = BETON_IMAGE_STORED;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.drawn = true;

	beton_error err;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	if (beton_loader_open(&loader, argv[1], &options, &err) != BETON_OK ||
	    beton_iterator_open(&iterator, loader, 0, 0, &err) != BETON_OK) {
		fprintf(stderr, "stored-bytes: %s\n", err.message);
		beton_loader_close(&loader);
		return 1;
	}
	beton_batch *batch;
	int result;
	int lost = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END) {
		if (result != BETON_OK) { /* this batch is lost; the next one may be fine */
			fprintf(stderr, "stored-bytes: %s\n", err.message);
			lost++;
			continue;
		}
		decode_batch(batch);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return lost > 0;
}
