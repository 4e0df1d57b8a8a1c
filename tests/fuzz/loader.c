/* SPDX-License-Identifier: Apache-2.0
 *
 * An edited file under a whole loader with threads. The input: 3 bytes that choose options, and what edited.h says.
 * Whatever the file says, there are batches or errors, as many as were promised, of samples that there are. */
#include "fuzz.h"

#include <unistd.h>

#include <beton/loader.h>

#include "edited.h"
#include "exercise.h"

enum { CHOICES = 3, BATCHES_MAX = 40 };

static beton_loader_options choose(const uint8_t *choices)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.num_threads = 1 + (choices[0] & 1);
	options.engine = (beton_engine)(choices[0] >> 1 & 3);
	options.direct = options.engine != BETON_ENGINE_MMAP && choices[0] & 8;
	options.on_error = (beton_on_error)(choices[0] >> 4 & 3) % 3;
	options.verify = choices[0] & 64;
	options.batch_size = 1 + choices[1] % 4;
	options.order = (beton_order)(choices[1] >> 2 & 3) % 3;
	options.read_ahead = choices[1] >> 4;
	options.max_bytes = choices[2] & 1 ? 64 : 0;
	options.image.crop = (beton_crop)((choices[2] >> 1 & 3) % 3);
	options.image.pixels = (beton_pixels)((choices[2] >> 3 & 3) % 3);
	options.image.height = options.image.width = 9;
	options.memory_limit = choices[2] & 32 ? 64 << 20 : 0;
	options.image.color = choices[2] & 64 ? BETON_COLOR_GREY : BETON_COLOR_RGB;
	return options;
}

static void check_batch(const beton_loader *loader, const beton_batch *batch)
{
	const beton_loader_options *options = beton_loader_get_options(loader);
	require(batch->count >= 1 && batch->count <= options->batch_size, "a batch has samples");
	require(options->on_error != BETON_ON_ERROR_FAIL || batch->bad == 0, "without a policy nothing bad comes");
	for (uint32_t i = 0; i < batch->count; i++)
		require(batch->sample_ids[i] < beton_loader_num_samples(loader), "a sample exists");
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		require(batch->tensors[i].shape[0] == batch->count, "a tensor has a row for each");
}

static void exercise_loader(const char *path, const uint8_t *choices)
{
	beton_loader_options options = choose(choices);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_error err = {0};
	int result = beton_loader_open(&loader, path, &options, &err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, choices[2], 0, &err);
	require(result == BETON_OK || (err.code == result && err.message[0]), "a failure says why");
	uint64_t batches = 0, promised = loader ? beton_loader_num_batches(loader) : 0;
	while (result == BETON_OK && batches < BATCHES_MAX) {
		beton_batch *batch;
		int got = beton_iterator_next(iterator, &batch, -1, &err);
		if (got == BETON_END)
			break;
		batches++;
		require(got == BETON_OK || (err.code == got && err.message[0]), "a lost batch says why");
		if (got == BETON_OK)
			check_batch(loader, batch);
		beton_batch_release(&batch);
	}
	require(result != BETON_OK || batches == (promised < BATCHES_MAX ? promised : BATCHES_MAX),
		"as many batches come as were promised");
	if (choices[2] & 64 && iterator) {
		beton_batch *batch;
		beton_iterator_cancel(iterator);
		require(beton_iterator_next(iterator, &batch, -1, &err) == BETON_CANCELLED, "it stays cancelled");
	}
	if (choices[0] & 128)
		beton_loader_close(&loader);
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[EDITED_PATH];
	if (size <= CHOICES)
		return 0;
	int fd = edited_open(data + CHOICES, size - CHOICES, path);
	exercise_loader(path, data);
	close(fd);
	return 0;
}
