/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a distributed job: its shard of each epoch, left in the middle and taken up again from a stored state, as
 * after a crash, by as many ranks as there are then. Run it once for each rank, or by a launcher that sets RANK and
 * WORLD_SIZE (torchrun does). Build it against an installed library:
 *
 *     cc multi-rank.c $(pkg-config --cflags --libs libbeton-loader) -o multi-rank
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 * Then run it:
 *
 *     for rank in 0 1; do RANK=$rank WORLD_SIZE=2 ./multi-rank FILE.beton & done; wait
 */
#include <stdio.h>
#include <stdlib.h>

#include <beton/loader.h>

static uint32_t from_environment(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);
	return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

/* Takes `most` batches, or what is left. */
static int take(beton_iterator *iterator, uint32_t rank, uint32_t most, beton_error *err)
{
	for (uint32_t i = 0; i < most; i++) {
		beton_batch *batch;
		int result = beton_iterator_next(iterator, &batch, -1, err);
		if (result != BETON_OK)
			return result == BETON_END ? BETON_OK : result;
		printf("rank %u, epoch %llu, position %llu:", rank, (unsigned long long)batch->epoch,
		       (unsigned long long)batch->position);
		for (uint32_t k = 0; k < batch->count; k++)
			printf(" %llu", (unsigned long long)batch->sample_ids[k]);
		printf("\n");
		beton_batch_release(&batch);
	}
	return BETON_OK;
}

static int run(beton_loader *loader, uint32_t rank, beton_error *err)
{
	beton_iterator *iterator = NULL;
	beton_loader_state state;
	int result = beton_iterator_open(&iterator, loader, 0, 0, err);
	if (result == BETON_OK)
		result = take(iterator, rank, 1, err);
	/* These bytes belong into the checkpoint. They are the same on all ranks. */
	if (result == BETON_OK)
		result = beton_iterator_get_state(iterator, &state, err);
	beton_iterator_close(&iterator);
	if (result == BETON_OK)
		result = beton_iterator_open_state(&iterator, loader, &state, err);
	if (result == BETON_OK)
		result = take(iterator, rank, UINT32_MAX, err);
	beton_iterator_close(&iterator);
	return result;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: multi-rank FILE.beton\n");
		return 2;
	}
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 2;
	options.order = BETON_ORDER_RANDOM;
	options.seed = 1; /* the same on all ranks */
	options.rank = from_environment("RANK", 0);
	options.world_size = from_environment("WORLD_SIZE", 1);
	options.last = BETON_LAST_PAD; /* all ranks get as many full batches */
	options.image.height = options.image.width = 32;

	beton_error err;
	beton_loader *loader = NULL;
	int result = beton_loader_open(&loader, argv[1], &options, &err);
	if (result == BETON_OK)
		result = run(loader, options.rank, &err);
	if (result != BETON_OK)
		fprintf(stderr, "multi-rank: %s\n", err.message);
	beton_loader_close(&loader);
	return result != BETON_OK;
}
