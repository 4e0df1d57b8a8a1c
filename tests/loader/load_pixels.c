/* SPDX-License-Identifier: Apache-2.0
 *
 * load-pixels FILE EXACT CROP WIDTH HEIGHT [COUNT]: writes what the loader makes of the first COUNT pictures (all of
 * them) of a file to standard output, for programs that compare it with a peer's pixels. EXACT: fast, ffcv,
 * torchvision. CROP: none, random, center. For each picture, as uint64 of this
 * machine: mode (0 JPEG, 1 raw), width, height,
 * bytes as stored, the crop's x, y, width and height; then the stored bytes; then WIDTH x HEIGHT RGB pixels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/beton.h>
#include <beton/loader.h>

static int fail(const beton_error *err)
{
	fprintf(stderr, "load-pixels: %s\n", err->message);
	return 1;
}

/* The number of `name` in a list that ends with NULL; -1 if it is not there. */
static int find(const char *name, const char *const *list)
{
	for (int i = 0; list[i]; i++)
		if (strcmp(name, list[i]) == 0)
			return i;
	return -1;
}

/* The stored bytes of a picture and its metadata, before its pixels. */
static int write_stored(const beton_reader *reader, uint64_t sample, uint32_t field, const double *box,
			beton_error *err)
{
	beton_value value;
	int result = beton_reader_value(reader, sample, field, &value, err);
	if (result)
		return result;
	void *bytes = malloc(value.blob.size);
	if (!bytes) {
		snprintf(err->message, sizeof(err->message), "out of memory");
		return BETON_NO_MEMORY;
	}
	result = beton_reader_read(reader, &value.blob, bytes, err);
	if (result == BETON_OK) {
		uint64_t numbers[8] = {value.mode == BETON_IMAGE_RAW, value.width, value.height, value.blob.size};
		for (int i = 0; i < 4; i++)
			numbers[4 + i] = (uint64_t)box[i];
		fwrite(numbers, sizeof(numbers), 1, stdout);
		fwrite(bytes, 1, value.blob.size, stdout);
	}
	free(bytes);
	return result;
}

static int write_batch(const beton_reader *reader, const beton_batch *batch, uint32_t field, uint64_t count,
		       beton_error *err)
{
	const beton_tensor *image = NULL, *drawn = &batch->tensors[batch->num_tensors - 1];
	for (uint32_t i = 0; i < batch->num_tensors && !image; i++)
		image = batch->tensors[i].ndim == 4 ? &batch->tensors[i] : NULL;
	size_t bytes = (size_t)(image->shape[1] * image->shape[2] * image->shape[3]);
	for (uint32_t i = 0; i < batch->count && batch->position + i < count; i++) {
		int result = write_stored(reader, batch->sample_ids[i], field,
					  (const double *)drawn->data + i * drawn->shape[1], err);
		if (result)
			return result;
		fwrite((const char *)image->data + i * bytes, 1, bytes, stdout);
	}
	return BETON_OK;
}

static int write_all(const char *path, const beton_loader_options *options, uint64_t count, beton_error *err)
{
	beton_reader *reader = NULL;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	int result = beton_reader_open(&reader, path, err);
	if (result == BETON_OK)
		result = beton_loader_open(&loader, path, options, err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, 0, 0, err);
	for (uint64_t done = 0; result == BETON_OK && done < count;) {
		beton_batch *batch = NULL;
		result = beton_iterator_next(iterator, &batch, -1, err);
		if (result)
			break;
		uint32_t field = (uint32_t)beton_reader_find_type(reader, BETON_FIELD_IMAGE);
		result = write_batch(reader, batch, field, count, err);
		done += batch->count;
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	beton_reader_close(&reader);
	return result == BETON_END ? BETON_OK : result;
}

int main(int argc, char **argv)
{
	static const char *const exact[] = {"fast", "ffcv", "torchvision", NULL};
	static const char *const crops[] = {"none", "random", "center", NULL};
	beton_loader_options options;
	beton_loader_options_init(&options);
	if (argc < 6 || argc > 7 || find(argv[2], exact) < 0 || find(argv[3], crops) < 0) {
		fputs("usage: load-pixels FILE EXACT CROP WIDTH HEIGHT [COUNT]\n", stderr);
		return 2;
	}
	options.batch_size = 16;
	options.drawn = true;
	options.image.pixels = (beton_pixels)find(argv[2], exact);
	options.image.crop = (beton_crop)find(argv[3], crops);
	options.image.width = (uint32_t)atoi(argv[4]);
	options.image.height = (uint32_t)atoi(argv[5]);
	beton_error err = {0};
	if (write_all(argv[1], &options, argc > 6 ? strtoull(argv[6], NULL, 10) : UINT64_MAX, &err))
		return fail(&err);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("load-pixels");
		return 1;
	}
	return 0;
}
