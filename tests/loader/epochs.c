/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders as the consumer sees them: every rank, batch size and place of resuming gives the same global sequence. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

enum { N = 150 };

static char *file;

static int setup(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

static uint64_t backwards(void *context, uint64_t epoch, uint64_t position)
{
	uint64_t n = *(uint64_t *)context;
	return (n - 1 - position + epoch) % n;
}

static uint64_t all_samples = N;
static uint64_t list[] = {7, 3, 3, 149, 0, 12, 13, 14, 90, 91, 92, 20, 21, 100, 5};
enum { LISTED = sizeof(list) / sizeof(*list) };
static double weights[N];

/* Small pictures, so that orders and not pixels take the time. */
static beton_loader_options make_options(beton_order order, bool listed)
{
	beton_loader_options options = fixture_options(8, 2);
	options.image.height = options.image.width = 1;
	options.order = order;
	options.seed = 17;
	options.window_pages = 2;
	if (listed) {
		options.indices = list;
		options.num_indices = LISTED;
	}
	if (order == BETON_ORDER_CALLBACK) {
		static uint64_t listed_samples = LISTED;
		options.order_callback = backwards;
		options.order_context = listed ? &listed_samples : &all_samples;
	}
	for (int i = 0; i < N; i++)
		weights[i] = i % 4;
	if (order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_WEIGHTED_UNIQUE) {
		options.weights = weights;
		options.num_weights = listed ? LISTED : N;
	}
	if (order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_BALANCED)
		options.num_draws = 333;
	return options;
}

static beton_loader *open_loader(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, options, err));
	return loader;
}

/* The rest of an epoch, each sample at its position of sequence. Returns the batches. */
static uint64_t take_all(beton_iterator *iterator, const beton_loader_options *options, uint64_t *sequence)
{
	uint64_t batches = 0;
	for (;;) {
		beton_batch *batch;
		beton_error err;
		int result = beton_iterator_next(iterator, &batch, -1, &err);
		if (result == BETON_END)
			break;
		assert_int_equal(result, BETON_OK);
		uint64_t position = batch->position;
		while (position % options->world_size != options->rank)
			position++;
		const int64_t *labels = batch->tensors[0].data;
		for (uint32_t i = 0; i < batch->count; i++, position += options->world_size) {
			assert_int_equal(labels[i], 3 * batch->sample_ids[i]);
			assert_true(sequence[position] == UINT64_MAX);
			sequence[position] = batch->sample_ids[i];
		}
		beton_batch_release(&batch);
		batches++;
	}
	return batches;
}

/* A rank's samples from a position on. */
static uint64_t follow(const beton_loader_options *options, uint64_t epoch, uint64_t start, uint64_t *sequence)
{
	beton_loader *loader = open_loader(options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, epoch, start);
	uint64_t batches = take_all(iterator, options, sequence);
	fixture_close(&loader, &iterator);
	return batches;
}

enum { ROOM = 1024 };

/* The whole epoch by beton_loader_sample_at. */
static uint64_t ask(const beton_loader_options *options, uint64_t epoch, uint64_t *sequence)
{
	beton_loader *loader = open_loader(options);
	uint64_t length = beton_loader_epoch_length(loader);
	assert_true(length < ROOM);
	for (uint64_t i = 0; i < length; i++) {
		sequence[i] = beton_loader_sample_at(loader, epoch, i);
		assert_true(sequence[i] < N);
	}
	assert_true(beton_loader_sample_at(loader, epoch, length) == UINT64_MAX);
	uint64_t some[ROOM], from = length / 3;
	beton_error fault;
	assert_ok(beton_loader_samples_at(loader, epoch, from, length - from, some, err));
	assert_memory_equal(some, sequence + from, (length - from) * sizeof(*some));
	assert_int_equal(beton_loader_samples_at(loader, epoch, from, UINT64_MAX, some, &fault),
			 BETON_INVALID_ARGUMENT);
	beton_loader_close(&loader);
	return length;
}

static void check_same_sequence(beton_order order, bool listed, uint64_t epoch)
{
	beton_loader_options options = make_options(order, listed);
	uint64_t expected[ROOM], got[ROOM];
	uint64_t length = ask(&options, epoch, expected);
	const uint32_t worlds[] = {1, 7, 8};
	for (size_t w = 0; w < 3; w++) {
		/* The first part at one world size, the rest at another. */
		options.world_size = worlds[w];
		options.batch_size = 1 + (uint32_t)w * 4;
		memset(got, 0xff, sizeof(got));
		uint64_t middle = length / 3 / 40 * 40 + 7 % (length + 1);
		for (uint32_t rank = 0; rank < worlds[w]; rank++) {
			options.rank = rank;
			options.num_threads = 1 + rank % 3;
			follow(&options, epoch, middle, got);
		}
		for (uint64_t i = 0; i < middle; i++)
			assert_true(got[i] == UINT64_MAX);
		/* The order that is padded for PyTorch has more positions in larger worlds. */
		for (uint64_t i = middle; i < length; i++)
			assert_true(got[i] == expected[i]);
	}
}

static void every_world_gets_the_same_sequence(void **state)
{
	(void)state;
	for (int order = 0; order <= BETON_ORDER_UNIFORM; order++)
		for (int listed = order == BETON_ORDER_LIST; listed < 2; listed++)
			check_same_sequence((beton_order)order, listed, (uint64_t)order * 3);
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

/* Orders of all samples have each once; of a list, each as often as it is listed. */
static void orders_are_permutations_of_what_they_are_of(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM,      BETON_ORDER_QUASI_RANDOM,
				      BETON_ORDER_LIST,       BETON_ORDER_FFCV_RANDOM, BETON_ORDER_TORCH_DISTRIBUTED,
				      BETON_ORDER_CALLBACK};
	uint64_t expected[LISTED];
	memcpy(expected, list, sizeof(list));
	qsort(expected, LISTED, sizeof(*expected), compare);
	for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		uint64_t got[ROOM];
		beton_loader_options options = make_options(orders[i], true);
		assert_int_equal(ask(&options, 1, got), LISTED);
		if (orders[i] == BETON_ORDER_LIST)
			assert_memory_equal(got, list, sizeof(list));
		if (orders[i] == BETON_ORDER_SEQUENTIAL)
			assert_memory_equal(got, expected, sizeof(expected));
		qsort(got, LISTED, sizeof(*got), compare);
		assert_memory_equal(got, expected, sizeof(expected));
		if (orders[i] == BETON_ORDER_LIST)
			continue;
		options = make_options(orders[i], false);
		assert_int_equal(ask(&options, 1, got), N);
		qsort(got, N, sizeof(*got), compare);
		for (uint64_t k = 0; k < N; k++)
			assert_true(got[k] == k);
	}
}

static void drawn_orders_draw_what_they_may(void **state)
{
	(void)state;
	uint64_t got[ROOM];
	beton_loader_options options = make_options(BETON_ORDER_WEIGHTED, false);
	assert_int_equal(ask(&options, 1, got), 333);
	for (int i = 0; i < 333; i++)
		assert_true(weights[got[i]] > 0);
	options = make_options(BETON_ORDER_WEIGHTED_UNIQUE, false);
	uint64_t length = ask(&options, 1, got);
	assert_int_equal(length, N - (N + 3) / 4);
	qsort(got, length, sizeof(*got), compare);
	for (uint64_t i = 0; i < length; i++)
		assert_true(weights[got[i]] > 0 && (i == 0 || got[i] != got[i - 1]));
	/* Every label is a class of its own: 333 draws are each sample twice, and 33 of them once more. */
	options = make_options(BETON_ORDER_BALANCED, false);
	assert_int_equal(ask(&options, 1, got), 333);
	uint32_t counts[N] = {0};
	for (int i = 0; i < 333; i++)
		counts[got[i]]++;
	for (int i = 0; i < N; i++)
		assert_in_range(counts[i], 2, 3);
}

static void padding_repeats_the_beginning(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_RANDOM, false);
	options.last = BETON_LAST_PAD;
	options.world_size = 7;
	options.batch_size = 4;
	uint64_t expected[ROOM], got[ROOM];
	ask(&options, 2, expected);
	memset(got, 0xff, sizeof(got));
	for (options.rank = 0; options.rank < 7; options.rank++)
		assert_int_equal(follow(&options, 2, 0, got), 6);
	for (uint64_t i = 0; i < 6 * 28; i++)
		assert_true(got[i] == expected[i % N]);
	assert_true(got[6 * 28] == UINT64_MAX);
}

/* ---- state ---- */

/* Takes some batches of every rank of one world, and the rest of the epoch in others, by the state alone. */
static void check_resumed(beton_order order, uint32_t batches)
{
	beton_loader_options options = make_options(order, false);
	uint64_t expected[ROOM], got[ROOM];
	uint64_t length = ask(&options, 5, expected);
	beton_loader_state states[3];
	memset(got, 0xff, sizeof(got));
	options.world_size = 3;
	options.batch_size = 5;
	for (options.rank = 0; options.rank < 3; options.rank++) {
		beton_loader *loader = open_loader(&options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 5, 0);
		for (uint32_t i = 0; i < batches; i++) {
			beton_batch *batch;
			beton_error fault;
			int result = beton_iterator_next(iterator, &batch, -1, &fault);
			if (result == BETON_END)
				break;
			assert_int_equal(result, BETON_OK);
			for (uint32_t k = 0; k < batch->count; k++)
				got[batch->position + k * 3 + options.rank] = batch->sample_ids[k];
			beton_batch_release(&batch);
		}
		assert_ok(beton_iterator_get_state(iterator, &states[options.rank], err));
		fixture_close(&loader, &iterator);
	}
	assert_memory_equal(&states[0], &states[1], sizeof(states[0]));
	assert_memory_equal(&states[0], &states[2], sizeof(states[0]));
	options.world_size = 2;
	options.batch_size = 9;
	for (options.rank = 0; options.rank < 2; options.rank++) {
		options.num_threads = 3;
		beton_loader *loader = open_loader(&options);
		beton_iterator *iterator = NULL;
		assert_ok(beton_iterator_open_state(&iterator, loader, &states[0], err));
		take_all(iterator, &options, got);
		fixture_close(&loader, &iterator);
	}
	for (uint64_t i = 0; i < length; i++)
		assert_true(got[i] == expected[i]);
}

static void a_state_goes_on_in_another_world(void **state)
{
	(void)state;
	for (int order = 0; order <= BETON_ORDER_UNIFORM; order++)
		for (uint32_t batches = 0; order != BETON_ORDER_LIST && batches < 12; batches += 4)
			check_resumed((beton_order)order, batches);
	check_resumed(BETON_ORDER_RANDOM, 100);
}

static void expect_mismatch(const beton_loader_state *state, const char *path, const beton_loader_options *options,
			    int code, const char *text)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_error fault;
	assert_ok(beton_loader_open(&loader, path, options, err));
	assert_int_equal(beton_iterator_open_state(&iterator, loader, state, &fault), code);
	if (!strstr(fault.message, text))
		fail_msg("'%s' does not say '%s'", fault.message, text);
	fixture_close(&loader, &iterator);
}

static void a_state_of_something_else_is_refused(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_QUASI_RANDOM, true);
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = NULL;
	beton_loader_state saved, damaged;
	fixture_start(&iterator, loader, 1, 3);
	assert_ok(beton_iterator_get_state(iterator, &saved, err));
	/* Bytes that must not change. */
	const uint8_t front[] = {'B', 't', 'L', 's', 2, 0, 48, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};
	assert_memory_equal(saved.bytes, front, sizeof(front));
	beton_iterator_close(&iterator);
	assert_ok(beton_iterator_open_state(&iterator, loader, &saved, err));
	fixture_close(&loader, &iterator);

	for (size_t i = 0; i < sizeof(saved); i++) {
		damaged = saved;
		damaged.bytes[i] ^= 4;
		bool version = i == 4 || i == 5;
		expect_mismatch(&damaged, file, &options, version ? BETON_UNSUPPORTED_VERSION : BETON_FORMAT, "state");
	}
	char *other = fixture_write(N, 3);
	expect_mismatch(&saved, other, &options, BETON_MISMATCH, "another data set");
	fixture_remove(other);
	beton_loader_options changed = options;
	changed.seed++;
	expect_mismatch(&saved, file, &changed, BETON_MISMATCH, "another order");
	changed = options;
	changed.num_indices--;
	expect_mismatch(&saved, file, &changed, BETON_MISMATCH, "another order");
	changed = options;
	changed.window_pages = 3;
	expect_mismatch(&saved, file, &changed, BETON_MISMATCH, "another order");
	changed = options;
	changed.order = BETON_ORDER_RANDOM;
	expect_mismatch(&saved, file, &changed, BETON_MISMATCH, "another order");
}

static uint64_t nonsense(void *context, uint64_t epoch, uint64_t position)
{
	(void)epoch;
	(void)context;
	return position == 5 ? N : position;
}

static void a_callback_that_is_wrong_is_named(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_CALLBACK, false);
	options.order_callback = nonsense;
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = NULL;
	assert_true(beton_loader_sample_at(loader, 0, 5) == UINT64_MAX);
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	beton_error fault;
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "order_callback gave 150 for epoch 0, position 5"));
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

static void check_refused(const beton_loader_options *options, const char *text)
{
	beton_loader *loader;
	beton_error err = {0};
	int code = strstr(text, "no field") ? BETON_NOT_FOUND : BETON_INVALID_ARGUMENT;
	assert_int_equal(beton_loader_open(&loader, file, options, &err), code);
	if (!strstr(err.message, text))
		fail_msg("'%s' does not say '%s'", err.message, text);
}

#define refused(order_, text, ...)                                          \
	do {                                                                \
		beton_loader_options options = make_options(order_, false); \
		__VA_ARGS__;                                                \
		check_refused(&options, text);                              \
	} while (0)

static void options_of_orders_are_checked(void **state)
{
	(void)state;
	uint64_t bad_list[] = {1, 150};
	double bad_weights[N] = {[3] = -1};
	refused(BETON_ORDER_LIST, "indices is NULL", );
	refused(BETON_ORDER_RANDOM, "num_indices is not 0", options.num_indices = 3);
	refused(BETON_ORDER_RANDOM, "indices[1] is 150", options.indices = bad_list; options.num_indices = 2);
	refused(BETON_ORDER_WEIGHTED, "weights is NULL", options.weights = NULL);
	refused(BETON_ORDER_WEIGHTED, "num_weights is 149", options.num_weights = 149);
	refused(BETON_ORDER_WEIGHTED, "weights[3] is -1", options.weights = bad_weights);
	refused(BETON_ORDER_WEIGHTED_UNIQUE, "weights[3] is -1", options.weights = bad_weights);
	refused(BETON_ORDER_WEIGHTED_UNIQUE, "num_draws is 113", options.num_draws = 113);
	refused(BETON_ORDER_RANDOM, "weights is given", options.weights = weights);
	refused(BETON_ORDER_RANDOM, "num_draws is given", options.num_draws = 3);
	refused(BETON_ORDER_WEIGHTED, "num_draws is 2^63", options.num_draws = UINT64_MAX);
	refused(BETON_ORDER_RANDOM, "class_field is given", options.class_field = "label");
	refused(BETON_ORDER_BALANCED, "no field 'nothing'", options.class_field = "nothing");
	refused(BETON_ORDER_BALANCED, "holds no integers", options.class_field = "weight");
	refused(BETON_ORDER_RANDOM, "order_callback", options.order_callback = backwards);
	refused(BETON_ORDER_CALLBACK, "order_callback", options.order_callback = NULL);
}

static void an_empty_list_is_an_empty_epoch(void **state)
{
	(void)state;
	for (int order = 0; order <= BETON_ORDER_UNIFORM; order++) {
		beton_loader_options options = make_options((beton_order)order, true);
		options.num_indices = options.num_weights = options.num_draws = 0;
		uint64_t got[ROOM];
		assert_int_equal(ask(&options, 0, got), 0);
		assert_int_equal(follow(&options, 0, 0, got), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_world_gets_the_same_sequence),
		cmocka_unit_test(orders_are_permutations_of_what_they_are_of),
		cmocka_unit_test(drawn_orders_draw_what_they_may),
		cmocka_unit_test(padding_repeats_the_beginning),
		cmocka_unit_test(a_state_goes_on_in_another_world),
		cmocka_unit_test(a_state_of_something_else_is_refused),
		cmocka_unit_test(a_callback_that_is_wrong_is_named),
		cmocka_unit_test(options_of_orders_are_checked),
		cmocka_unit_test(an_empty_list_is_an_empty_epoch),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
