/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterators of several epochs: the batches equal the batches of an iterator for each epoch, and the first batches of
 * the next epoch are prepared before this one has ended. */
#include "fixture.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

enum { N = 150, DAMAGED = 31, EPOCHS = 3 };

static char *file, *damaged;

static int setup(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	damaged = fixture_write(N, DAMAGED);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	fixture_remove(damaged);
	return 0;
}

static beton_loader *open_loader(const char *path, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	return loader;
}

static beton_iterator *open_epochs(beton_loader *loader, uint64_t epoch, uint64_t position, uint64_t epochs)
{
	beton_iterator_options options;
	beton_iterator *iterator = NULL;
	beton_iterator_options_init(&options);
	assert_int_equal(options.epochs, 1);
	options.epoch = epoch;
	options.position = position;
	options.epochs = epochs;
	assert_ok(beton_iterator_open_with(&iterator, loader, &options, err));
	return iterator;
}

/* ---- what an iterator gives, call by call ---- */

enum { CALLS_MAX = 512 };

/* A hash of each answer: of a batch with its content, of an error with its sample. */
typedef struct answers {
	uint64_t calls[CALLS_MAX];
	uint32_t count;
} answers;

static uint64_t hash_batch(const beton_batch *batch)
{
	const uint64_t facts[] = {batch->epoch, batch->position, batch->count, batch->bad};
	uint64_t hash = XXH3_64bits_withSeed(facts, sizeof(facts), 1);
	hash = XXH3_64bits_withSeed(batch->sample_ids, batch->count * sizeof(uint64_t), hash);
	hash = XXH3_64bits_withSeed(batch->tensors[0].data, batch->count * sizeof(int64_t), hash);
	const beton_tensor *image = &batch->tensors[1];
	return XXH3_64bits_withSeed(
		image->data, (size_t)(image->shape[0] * image->shape[1] * image->shape[2] * image->shape[3]), hash);
}

/* One call. Returns its code. */
static int take(beton_iterator *iterator, answers *out)
{
	beton_batch *batch;
	beton_error fault = {.sample = -1};
	int code = beton_iterator_next(iterator, &batch, -1, &fault);
	uint64_t facts[] = {(uint64_t)code, (uint64_t)fault.sample};
	assert_in_range(out->count, 0, CALLS_MAX - 1);
	out->calls[out->count++] = code ? XXH3_64bits(facts, sizeof(facts)) : hash_batch(batch);
	beton_batch_release(&batch);
	return code;
}

/* The rest of an epoch, END included. */
static void take_epoch(beton_iterator *iterator, answers *out)
{
	while (take(iterator, out) != BETON_END)
		;
}

/* EPOCHS epochs, the first from a position on, by an iterator for each. */
static void take_one_by_one(beton_loader *loader, uint64_t epoch, uint64_t position, answers *out)
{
	out->count = 0;
	for (uint64_t i = 0; i < EPOCHS; i++) {
		beton_iterator *iterator = open_epochs(loader, epoch + i, i == 0 ? position : 0, 1);
		take_epoch(iterator, out);
		beton_iterator_close(&iterator);
	}
}

static void take_together(beton_loader *loader, uint64_t epoch, uint64_t position, answers *out)
{
	beton_iterator *iterator = open_epochs(loader, epoch, position, EPOCHS);
	out->count = 0;
	for (int i = 0; i < EPOCHS; i++)
		take_epoch(iterator, out);
	answers behind = {.count = 0};
	assert_int_equal(take(iterator, &behind), BETON_END);
	assert_int_equal(take(iterator, &behind), BETON_END);
	beton_iterator_close(&iterator);
}

static void assert_same(const answers *a, const answers *b)
{
	assert_int_equal(a->count, b->count);
	assert_memory_equal(a->calls, b->calls, a->count * sizeof(*a->calls));
}

static void check_file(const char *path, const beton_loader_options *options, uint64_t epoch, uint64_t position)
{
	answers expected, got;
	beton_loader *loader = open_loader(path, options);
	take_one_by_one(loader, epoch, position, &expected);
	take_together(loader, epoch, position, &got);
	assert_same(&got, &expected);
	beton_loader_close(&loader);
}

static void check(const beton_loader_options *options, uint64_t epoch, uint64_t position)
{
	check_file(file, options, epoch, position);
}

/* ---- the same batches ---- */

static uint64_t turning(void *context, uint64_t epoch, uint64_t position)
{
	uint64_t n = *(const uint64_t *)context;
	return (position + 7 * epoch) % n;
}

static const uint64_t list[] = {7, 3, 3, 149, 0, 12, 13, 14, 90, 91, 92, 20, 21, 100, 5};
enum { LISTED = sizeof(list) / sizeof(*list) };

static beton_loader_options make_options(beton_order order, bool listed)
{
	static uint64_t numbers[] = {N, LISTED};
	static double weights[N];
	beton_loader_options options = fixture_options(8, 2);
	options.image.height = options.image.width = 2;
	options.image.crop = BETON_CROP_RANDOM;
	options.order = order;
	options.seed = 23;
	options.window_pages = 2;
	for (int i = 0; i < N; i++)
		weights[i] = 1 + i % 3;
	if (listed) {
		options.indices = list;
		options.num_indices = LISTED;
	}
	if (order == BETON_ORDER_CALLBACK) {
		options.order_callback = turning;
		options.order_context = &numbers[listed];
	}
	if (order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_WEIGHTED_UNIQUE) {
		options.weights = weights;
		options.num_weights = numbers[listed];
	}
	return options;
}

static void every_order_and_engine_goes_on(void **state)
{
	(void)state;
	for (int order = 0; order <= BETON_ORDER_UNIFORM; order++)
		for (int listed = order == BETON_ORDER_LIST; listed < 2; listed++)
			for (int engine = BETON_ENGINE_MMAP; engine <= BETON_ENGINE_URING; engine++) {
				beton_loader_options options = make_options((beton_order)order, listed);
				options.engine = (beton_engine)engine;
				options.num_threads = 1 + (uint32_t)(order + engine) % 3;
				check(&options, (uint64_t)order, listed ? 3 : 40);
			}
}

static void every_rank_and_end_goes_on(void **state)
{
	(void)state;
	for (int last = BETON_LAST_SHORT; last <= BETON_LAST_PAD; last++)
		for (uint32_t rank = 0; rank < 3; rank++) {
			beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
			options.last = (beton_last)last;
			options.world_size = 3;
			options.rank = rank;
			options.batch_size = 7;
			check(&options, 5, 0);
			check(&options, 5, 149);
			check(&options, 5, 150);
			/* PyTorch's order has more positions than samples then. */
			options.order = BETON_ORDER_TORCH_DISTRIBUTED;
			options.world_size = 4;
			check(&options, 5, 28);
		}
	/* Parts of windows. */
	beton_loader_options options = make_options(BETON_ORDER_FFCV_RANDOM, false);
	options.last = BETON_LAST_DROP;
	options.batch_size = 4;
	options.world_size = 2;
	options.parts = 4;
	options.part_stride = 2;
	options.first_part = 1;
	check(&options, 0, 32);
}

static void bad_samples_are_treated_alike(void **state)
{
	(void)state;
	for (int policy = BETON_ON_ERROR_FAIL; policy <= BETON_ON_ERROR_SUBSTITUTE; policy++) {
		beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
		options.on_error = (beton_on_error)policy;
		check_file(damaged, &options, 2, 0);
		/* A batch that consists of it. */
		options.batch_size = 1;
		options.order = BETON_ORDER_SEQUENTIAL;
		options.indices = (const uint64_t[]){DAMAGED, 4, DAMAGED};
		options.num_indices = 3;
		check_file(damaged, &options, 2, 0);
	}
}

/* More epochs are prepared at once than there are batches in one. */
static void epochs_may_be_short(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM, BETON_ORDER_FFCV_RANDOM};
	for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++)
		for (uint32_t listed = 0; listed < 4; listed++)
			for (int last = BETON_LAST_SHORT; last <= BETON_LAST_PAD; last++) {
				beton_loader_options options = make_options(orders[i], true);
				options.num_indices = listed;
				options.last = (beton_last)last;
				options.batch_size = 2;
				options.batches_ahead = 1 + 2 * listed;
				check(&options, 1, listed / 2);
			}
}

static void other_limits_hold(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_FFCV_RANDOM, false);
	options.memory_limit = 64 << 20;
	check(&options, 0, 16);
	options.memory_limit = 0;
	options.batches_ahead = options.batches_leased = 1;
	check(&options, 0, 16);
	options.batches_ahead = 64;
	options.read_ahead = 100;
	check(&options, 0, 16);
	options.batch_size = N + 1;
	options.num_threads = 5;
	check(&options, 0, 16);
	options.last = BETON_LAST_DROP;
	check(&options, 0, 0);
}

/* ---- ahead of time ---- */

static atomic_uint drawn_of[2 * EPOCHS]; /* pictures that were made, by epoch */
static atomic_uint open_epochs_at;       /* pictures of this epoch and later ones wait */

static int count_picture(const beton_operation_call *call)
{
	while (call->epoch >= atomic_load(&open_epochs_at))
		sched_yield();
	if (call->epoch < 2 * EPOCHS)
		atomic_fetch_add(&drawn_of[call->epoch], 1);
	return 0;
}

static beton_operation counting(void)
{
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = count_picture;
	for (int i = 0; i < 2 * EPOCHS; i++)
		atomic_store(&drawn_of[i], 0);
	atomic_store(&open_epochs_at, 2 * EPOCHS);
	return operation;
}

static void wait_for_pictures(int epoch, uint32_t count)
{
	while (atomic_load(&drawn_of[epoch]) < count)
		fixture_pause();
}

/* While the consumer holds the last batch of an epoch, the first of the next are made; then they can be had at once. */
static void the_next_epoch_is_prepared_before_this_one_ends(void **state)
{
	(void)state;
	enum { BATCH = 8, AHEAD = 3, BATCHES = (N + BATCH - 1) / BATCH };
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_QUASI_RANDOM, BETON_ORDER_FFCV_RANDOM};
	for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		beton_operation operation = counting();
		beton_loader_options options = make_options(orders[i], false);
		options.image.operations = &operation;
		options.image.num_operations = 1;
		options.batch_size = BATCH;
		options.batches_ahead = AHEAD;
		beton_loader *loader = open_loader(file, &options);
		beton_iterator *iterator = open_epochs(loader, 0, 0, 2);
		beton_batch *batch = NULL, *of_next;
		for (uint32_t b = 0; b < BATCHES; b++) {
			beton_batch_release(&batch);
			assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		}
		wait_for_pictures(1, AHEAD * BATCH);
		uint64_t last = hash_batch(batch);
		/* No batch can be begun now; begun batches are being finished. */
		atomic_store(&open_epochs_at, 1);
		assert_int_equal(beton_iterator_next(iterator, &of_next, 0, NULL), BETON_END);
		assert_ok(beton_iterator_next(iterator, &of_next, -1, err));
		assert_true(of_next->epoch == 1 && of_next->position == 0);
		/* The leased batch stays unchanged. */
		assert_int_equal(hash_batch(batch), last);
		beton_batch *third;
		assert_int_equal(beton_iterator_next(iterator, &third, 0, NULL), BETON_STATE);
		atomic_store(&open_epochs_at, 2);
		beton_batch_release(&batch);
		beton_batch_release(&of_next);
		fixture_close(&loader, &iterator);
		assert_int_equal(atomic_load(&drawn_of[2]), 0);
	}
}

/* One epoch is all that is prepared by default, and no more than was asked for. */
static void nothing_is_prepared_in_vain(void **state)
{
	(void)state;
	for (uint64_t epochs = 1; epochs < EPOCHS; epochs++) {
		beton_operation operation = counting();
		beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
		options.image.operations = &operation;
		options.image.num_operations = 1;
		beton_loader *loader = open_loader(file, &options);
		beton_iterator *iterator = open_epochs(loader, 0, 0, epochs);
		answers ignored = {.count = 0};
		for (uint64_t i = 0; i <= epochs; i++)
			take_epoch(iterator, &ignored);
		fixture_close(&loader, &iterator);
		for (uint64_t i = 0; i < EPOCHS; i++)
			assert_int_equal(atomic_load(&drawn_of[i]), i < epochs ? N : 0);
	}
}

/* ---- states, batches left, descriptors ---- */

/* A state saved before any call goes on with all later answers, also with other numbers of threads. */
static void check_states(const beton_loader_options *options, uint64_t position)
{
	beton_loader_state states[CALLS_MAX];
	answers expected = {.count = 0};
	beton_loader *loader = open_loader(file, options);
	beton_iterator *iterator = open_epochs(loader, 4, position, EPOCHS);
	uint64_t epochs_left[CALLS_MAX], left = EPOCHS;
	while (left > 0) {
		epochs_left[expected.count] = left;
		assert_ok(beton_iterator_get_state(iterator, &states[expected.count], err));
		left -= take(iterator, &expected) == BETON_END;
	}
	/* After the last epoch the state is that epoch's end. */
	assert_ok(beton_iterator_get_state(iterator, &states[expected.count], err));
	assert_memory_equal(&states[expected.count], &states[expected.count - 1], sizeof(*states));
	fixture_close(&loader, &iterator);

	beton_loader_options other = *options;
	other.num_threads = 3;
	loader = open_loader(file, &other);
	for (uint32_t i = 0; i < expected.count; i++) {
		answers got = {.count = 0};
		beton_iterator_options from;
		beton_iterator_options_init(&from);
		from.state = &states[i];
		from.epochs = epochs_left[i];
		assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
		for (left = from.epochs; left > 0; left -= take(iterator, &got) == BETON_END)
			;
		assert_int_equal(got.count, expected.count - i);
		assert_memory_equal(got.calls, &expected.calls[i], got.count * sizeof(*got.calls));
		beton_iterator_close(&iterator);
	}
	beton_loader_close(&loader);
}

static void a_state_saved_anywhere_goes_on(void **state)
{
	(void)state;
	for (int last = BETON_LAST_SHORT; last <= BETON_LAST_PAD; last++) {
		beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
		options.last = (beton_last)last;
		options.batch_size = 40;
		check_states(&options, 40);
		options.order = BETON_ORDER_FFCV_RANDOM;
		options.world_size = 4;
		options.rank = 3; /* its share of the last window is empty */
		options.batch_size = 7;
		check_states(&options, 0);
	}
}

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd wanted = {.fd = fd, .events = POLLIN};
	return poll(&wanted, 1, timeout_ms) == 1 && wanted.revents == POLLIN;
}

static void batches_left_and_descriptor_are_of_the_epoch(void **state)
{
	(void)state;
	enum { BATCH = 40, BATCHES = 4 };
	beton_operation operation = counting();
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	options.batch_size = BATCH;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = open_epochs(loader, 0, BATCH, 2);
	beton_batch *batch;
	int fd;
	assert_ok(beton_iterator_descriptor(iterator, &fd, err));
	atomic_store(&open_epochs_at, 1);
	for (uint64_t left = BATCHES - 1; left > 0; left--) {
		assert_int_equal(beton_iterator_batches_left(iterator), left);
		assert_true(is_readable(fd, -1));
		assert_ok(beton_iterator_next(iterator, &batch, 0, err));
		beton_batch_release(&batch);
	}
	assert_int_equal(beton_iterator_batches_left(iterator), 0);
	assert_true(is_readable(fd, 0));
	assert_int_equal(beton_iterator_next(iterator, &batch, 0, NULL), BETON_END);
	/* The next epoch cannot begin yet. */
	assert_int_equal(beton_iterator_batches_left(iterator), BATCHES);
	assert_false(is_readable(fd, 0));
	beton_error fault;
	assert_int_equal(beton_iterator_next(iterator, &batch, 0, &fault), BETON_TIMEOUT);
	assert_non_null(strstr(fault.message, "epoch 1, batch at position 0: 0 of 40 samples"));
	atomic_store(&open_epochs_at, 2);
	assert_true(is_readable(fd, -1));
	for (uint64_t left = BATCHES; left > 0; left--) {
		assert_int_equal(beton_iterator_batches_left(iterator), left);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
	}
	for (int i = 0; i < 2; i++) {
		assert_true(is_readable(fd, 0));
		assert_int_equal(beton_iterator_next(iterator, &batch, 0, &fault), BETON_END);
		assert_non_null(strstr(fault.message, "epoch 1 has ended"));
		assert_int_equal(beton_iterator_batches_left(iterator), 0);
	}
	fixture_close(&loader, &iterator);
}

static void epochs_without_end_go_on(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_TORCH_DISTRIBUTED, false);
	answers expected = {.count = 0}, got = {.count = 0};
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = open_epochs(loader, 3, 100, 0), *one;
	for (uint64_t i = 0; i < 2 * EPOCHS; i++) {
		take_epoch(iterator, &got);
		one = open_epochs(loader, 3 + i, i == 0 ? 100 : 0, 1);
		take_epoch(one, &expected);
		beton_iterator_close(&one);
	}
	assert_same(&got, &expected);
	fixture_close(&loader, &iterator);
	/* Without a batch in an epoch. */
	options.last = BETON_LAST_DROP;
	options.batch_size = N + 1;
	loader = open_loader(file, &options);
	iterator = open_epochs(loader, 3, 0, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(take(iterator, &got), BETON_END);
	fixture_close(&loader, &iterator);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A consumer's work between epochs, such as an evaluation, counts neither as its time nor as the time of workers that
 * wait for it. */
static void time_between_epochs_does_not_count(void **state)
{
	(void)state;
	enum { TRIES = 20, PAUSES = 40 };
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = open_epochs(loader, 0, 0, TRIES);
	bool in_time = false;
	for (int i = 1; i < TRIES; i++) {
		beton_loader_stats ended = {.struct_size = sizeof(ended)}, begun = ended;
		answers ignored = {.count = 0};
		take_epoch(iterator, &ignored);
		beton_loader_get_stats(loader, &ended);
		uint64_t began = now_ns();
		for (int k = 0; k < PAUSES; k++)
			fixture_pause();
		uint64_t called = now_ns();
		assert_int_equal(take(iterator, &ignored), BETON_OK);
		uint64_t returned = now_ns();
		beton_loader_get_stats(loader, &begun);
		assert_true(begun.run_ns - ended.run_ns <= returned - called);
		/* Workers may be late to see that the epoch has ended. */
		in_time |= begun.idle_ns - ended.idle_ns < (called - began) * options.num_threads / 2;
	}
	assert_true(in_time);
	fixture_close(&loader, &iterator);
}

static void pictures_keep_the_size_of_the_iterator(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
	options.image.height = options.image.width = 24;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator_options from;
	beton_iterator *iterator = NULL;
	beton_iterator_options_init(&from);
	from.epochs = 2;
	from.height[0] = 9;
	from.width[0] = 5;
	assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
	beton_batch *batch;
	for (int ends = 0; ends < 2;) {
		int code = beton_iterator_next(iterator, &batch, -1, NULL);
		ends += code == BETON_END;
		if (code == BETON_OK)
			assert_true(batch->tensors[1].shape[1] == 9 && batch->tensors[1].shape[2] == 5);
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
}

static void numbers_of_epochs_are_checked(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
	beton_loader *loader = open_loader(file, &options);
	beton_iterator_options from;
	beton_iterator *iterator = NULL;
	beton_error fault;
	beton_iterator_options_init(&from);
	from.epoch = UINT64_MAX - 1;
	from.epochs = 3;
	assert_int_equal(beton_iterator_open_with(&iterator, loader, &from, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "epochs 3 from epoch 18446744073709551614 on"));
	answers got = {.count = 0};
	for (from.epochs = 0; from.epochs < 4; from.epochs += 2) {
		assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
		for (int i = 0; i < 2; i++)
			take_epoch(iterator, &got);
		assert_int_equal(take(iterator, &got), BETON_END);
		beton_iterator_close(&iterator);
	}
	/* A caller that does not know the option gets one epoch. */
	from.epoch = 0;
	from.epochs = 0;
	from.struct_size = offsetof(beton_iterator_options, epochs);
	assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
	for (int i = 0; i < 2; i++)
		take_epoch(iterator, &got);
	assert_int_equal(take(iterator, &got), BETON_END);
	fixture_close(&loader, &iterator);
}

/* ---- leaving ---- */

/* Closes, cancels, or closes the loader, at every place, also while a worker draws an order that takes long. */
static void leaving_is_possible_at_any_time(void **state)
{
	(void)state;
	enum { LONG = 100000 };
	uint64_t *indices = malloc(LONG * sizeof(*indices));
	assert_non_null(indices);
	for (uint64_t i = 0; i < LONG; i++)
		indices[i] = i % N;
	for (uint32_t place = 0; place < 24; place++) {
		beton_loader_options options = make_options(BETON_ORDER_FFCV_RANDOM, false);
		options.num_threads = 1 + place % 3;
		options.batch_size = 2;
		options.read_ahead = place % 2 ? 20 : 0;
		options.indices = indices;
		options.num_indices = LONG;
		beton_loader *loader = open_loader(file, &options);
		beton_iterator *iterator = open_epochs(loader, 0, LONG - 2 * (place / 3), 0), *other = NULL;
		fixture_start(&other, loader, 9, LONG - 6);
		answers got = {.count = 0};
		for (uint32_t i = 0; i < place / 2; i++)
			take(iterator, &got);
		beton_batch *batch;
		if (place % 3 == 0) {
			beton_iterator_cancel(iterator);
			assert_int_equal(beton_iterator_next(iterator, &batch, -1, NULL), BETON_CANCELLED);
			assert_int_equal(beton_iterator_batches_left(iterator), 0);
		}
		if (place % 3 == 1) {
			beton_loader_close(&loader);
			assert_int_equal(beton_iterator_next(iterator, &batch, -1, NULL), BETON_STATE);
		}
		beton_iterator_close(&iterator);
		/* The workers that drew for it go on with others. */
		for (int i = 0; place % 3 != 1 && i < 3; i++)
			assert_int_equal(take(other, &got), BETON_OK);
		beton_iterator_close(&other);
		beton_loader_close(&loader);
	}
	free(indices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_order_and_engine_goes_on),
		cmocka_unit_test(every_rank_and_end_goes_on),
		cmocka_unit_test(bad_samples_are_treated_alike),
		cmocka_unit_test(epochs_may_be_short),
		cmocka_unit_test(other_limits_hold),
		cmocka_unit_test(the_next_epoch_is_prepared_before_this_one_ends),
		cmocka_unit_test(nothing_is_prepared_in_vain),
		cmocka_unit_test(a_state_saved_anywhere_goes_on),
		cmocka_unit_test(batches_left_and_descriptor_are_of_the_epoch),
		cmocka_unit_test(epochs_without_end_go_on),
		cmocka_unit_test(time_between_epochs_does_not_count),
		cmocka_unit_test(pictures_keep_the_size_of_the_iterator),
		cmocka_unit_test(numbers_of_epochs_are_checked),
		cmocka_unit_test(leaving_is_possible_at_any_time),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
