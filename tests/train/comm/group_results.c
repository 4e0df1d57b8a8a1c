/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of a process group's operations, for each type of element and sizes that no number of ranks divides.
 * Every byte of every rank is compared: an operation changes its results alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"
#include "tests/train/support/ranks.h"

#define MOST 100003

static beton_error err;

static void finish(int status, dtrain_work **work, const char *what)
{
	must(status, &err, what);
	must(dtrain_work_wait(work, &err), &err, what);
	REQUIRE(*work == NULL);
}

#define DO(call) finish((call), &work, #call)

/* Small whole numbers: sums and products are exact in every type, and rank and place show in them. */
static int64_t value_of(dtrain_dtype dtype, dtrain_reduce_op op, int rank, int64_t i)
{
	if (op == DTRAIN_PRODUCT)
		return (rank + i) % 3 ? 1 : 2;
	if (dtype == DTRAIN_BF16 || dtype == DTRAIN_U8)
		return (rank + 1) * 3 % 8 + i * 7 % 23;
	return (rank + 1) * 3 + (i * 7) % 101 - 50;
}

static void store_value(void *data, dtrain_dtype dtype, int64_t i, int64_t value)
{
	if (dtype == DTRAIN_F32)
		((float *)data)[i] = (float)value;
	else if (dtype == DTRAIN_F64)
		((double *)data)[i] = (double)value;
	else if (dtype == DTRAIN_I64)
		((int64_t *)data)[i] = value;
	else if (dtype == DTRAIN_U8)
		((uint8_t *)data)[i] = (uint8_t)value;
	else
		((uint16_t *)data)[i] = dtype == DTRAIN_F16 ? bt_float16((float)value) : bt_bfloat16((float)value);
}

static double load_value(const void *data, dtrain_dtype dtype, int64_t i)
{
	switch (dtype) {
	case DTRAIN_F32:
		return ((const float *)data)[i];
	case DTRAIN_F64:
		return ((const double *)data)[i];
	case DTRAIN_F16:
		return bt_widen_float16(((const uint16_t *)data)[i]);
	case DTRAIN_BF16:
		return bt_widen_bfloat16(((const uint16_t *)data)[i]);
	case DTRAIN_I64:
		return (double)((const int64_t *)data)[i];
	default:
		return ((const uint8_t *)data)[i];
	}
}

static void fill(void *data, dtrain_dtype dtype, dtrain_reduce_op op, int64_t count, int rank)
{
	for (int64_t i = 0; i < count; i++)
		store_value(data, dtype, i, value_of(dtype, op, rank, i));
}

static double reduced(int size, dtrain_dtype dtype, int64_t i, dtrain_reduce_op op)
{
	double result = (double)value_of(dtype, op, 0, i);

	for (int rank = 1; rank < size; rank++) {
		double value = (double)value_of(dtype, op, rank, i);

		if (op == DTRAIN_MAX)
			result = value > result ? value : result;
		else if (op == DTRAIN_MIN)
			result = value < result ? value : result;
		else if (op == DTRAIN_PRODUCT)
			result *= value;
		else
			result += value;
	}
	return op == DTRAIN_AVG ? result / size : result;
}

static void check_reduced(const void *data, dtrain_dtype dtype, int64_t count, int64_t first, int size,
			  dtrain_reduce_op op)
{
	for (int64_t i = 0; i < count; i++) {
		double expected = reduced(size, dtype, first + i, op);
		double difference = fabs(load_value(data, dtype, i) - expected);

		/* A mean has as many bits as the type. */
		REQUIRE(difference <= (op != DTRAIN_AVG       ? 0
				       : dtype == DTRAIN_BF16 ? fabs(expected) / 256
				       : dtype == DTRAIN_F16  ? fabs(expected) / 2048
							      : 1e-4));
	}
}

/* Memory with a margin on both sides. The tests compare every byte that an operation must leave alone. */
enum { MARGIN = 64 };

struct area {
	char *memory, *before, *data;
	size_t bytes; /* with the margins */
};

static struct area make_area(size_t bytes)
{
	struct area area = {malloc(bytes + 2 * MARGIN), malloc(bytes + 2 * MARGIN), NULL, bytes + 2 * MARGIN};
	REQUIRE(area.memory && area.before);
	memset(area.memory, 0xa5, area.bytes);
	area.data = area.memory + MARGIN;
	return area;
}

static void free_area(struct area *area)
{
	free(area->memory);
	free(area->before);
}

static void note_bytes(const struct area *area)
{
	memcpy(area->before, area->memory, area->bytes);
}

/* Only bytes `first` to `first` + `size` of the data may have changed since. */
static void check_bytes(const struct area *area, size_t first, size_t size)
{
	size_t end = MARGIN + first + size;
	REQUIRE(memcmp(area->memory, area->before, MARGIN + first) == 0);
	REQUIRE(memcmp(area->memory + end, area->before + end, area->bytes - end) == 0);
}

static void reductions(struct rank *r, dtrain_dtype dtype, int64_t count, dtrain_reduce_op op)
{
	size_t part = (size_t)count * dtrain_dtype_size(dtype), whole = part * (size_t)r->size;
	struct area all = make_area(whole), one = make_area(part), sum = make_area(whole);
	dtrain_work *work = NULL;

	for (int root = 0; root < r->size; root++) {
		fill(one.data, dtype, op, count, r->rank);
		note_bytes(&one);
		DO(dtrain_reduce(r->group, one.data, count, dtype, op, root, NULL, &work, &err));
		check_bytes(&one, 0, r->rank == root ? part : 0);
		if (r->rank == root)
			check_reduced(one.data, dtype, count, 0, r->size, op);
	}
	fill(one.data, dtype, op, count, r->rank);
	note_bytes(&one);
	DO(dtrain_allreduce(r->group, one.data, count, dtype, op, NULL, &work, &err));
	check_bytes(&one, 0, part);
	check_reduced(one.data, dtype, count, 0, r->size, op);
	fill(all.data, dtype, op, count * r->size, r->rank);
	memcpy(sum.data, all.data, whole);
	note_bytes(&all);
	note_bytes(&one);
	note_bytes(&sum);
	DO(dtrain_reduce_scatter(r->group, one.data, all.data, count, dtype, op, NULL, &work, &err));
	check_bytes(&all, 0, 0);
	check_bytes(&one, 0, part);
	check_reduced(one.data, dtype, count, r->rank * count, r->size, op);
	/* An all-reduce is a reduce-scatter and an all-gather. These sums have no rounding. */
	DO(dtrain_allreduce(r->group, sum.data, count * r->size, dtype, op, NULL, &work, &err));
	DO(dtrain_all_gather(r->group, all.data, one.data, count, dtype, NULL, &work, &err));
	REQUIRE(memcmp(sum.data, all.data, whole) == 0);
	check_bytes(&sum, 0, whole);
	check_bytes(&all, 0, whole);
	free_area(&all);
	free_area(&one);
	free_area(&sum);
}

static void check_part(const void *data, dtrain_dtype dtype, int64_t at, int64_t count, int rank, int64_t first)
{
	for (int64_t i = 0; i < count; i++) {
		int64_t value = value_of(dtype, DTRAIN_SUM, rank, first + i);

		REQUIRE(load_value(data, dtype, at + i) ==
			(dtype == DTRAIN_U8 ? (double)(uint8_t)value : (double)value));
	}
}

/* Each rank's part in rank order, from its element `first`. */
static void check_parts(struct rank *r, const struct area *out, dtrain_dtype dtype, int64_t count, int64_t first)
{
	for (int rank = 0; rank < r->size; rank++)
		check_part(out->data, dtype, rank * count, count, rank, first);
}

static void gathers(struct rank *r, const struct area *in, const struct area *out, dtrain_dtype dtype, int64_t count,
		    int root)
{
	size_t part = (size_t)count * dtrain_dtype_size(dtype), whole = part * (size_t)r->size;
	dtrain_work *work = NULL;

	DO(dtrain_all_gather(r->group, out->data, in->data, count, dtype, NULL, &work, &err));
	check_bytes(out, 0, whole);
	check_parts(r, out, dtype, count, 0);
	/* In place. */
	memset(out->data, 0, whole);
	memcpy(out->data + part * (size_t)r->rank, in->data, part);
	DO(dtrain_all_gather(r->group, out->data, out->data + part * (size_t)r->rank, count, dtype, NULL, &work, &err));
	check_bytes(out, 0, whole);
	check_parts(r, out, dtype, count, 0);
	memset(out->data, 0, whole);
	note_bytes(out);
	DO(dtrain_gather(r->group, out->data, in->data, count, dtype, root, NULL, &work, &err));
	check_bytes(out, 0, r->rank == root ? whole : 0);
	if (r->rank == root)
		check_parts(r, out, dtype, count, 0);
	check_bytes(in, 0, 0);
}

static void movements(struct rank *r, dtrain_dtype dtype, int64_t count, int root)
{
	size_t part = (size_t)count * dtrain_dtype_size(dtype), whole = part * (size_t)r->size;
	struct area in = make_area(whole), out = make_area(whole);
	dtrain_work *work = NULL;

	fill(in.data, dtype, DTRAIN_SUM, count * r->size, r->rank);
	note_bytes(&in);
	note_bytes(&out);
	gathers(r, &in, &out, dtype, count, root);
	note_bytes(&out);
	DO(dtrain_scatter(r->group, out.data, in.data, count, dtype, root, NULL, &work, &err));
	check_bytes(&out, 0, part);
	check_part(out.data, dtype, 0, count, root, r->rank * count);
	DO(dtrain_all_to_all(r->group, out.data, in.data, count, dtype, NULL, &work, &err));
	check_bytes(&out, 0, whole);
	check_parts(r, &out, dtype, count, r->rank * count);
	note_bytes(&out);
	/* From the root to the rank before it, whose memory alone changes. */
	int before = (root + r->size - 1) % r->size;
	if (r->size > 1 && r->rank == root)
		DO(dtrain_send(r->group, in.data, count, dtype, before, 3, NULL, &work, &err));
	if (r->size > 1 && r->rank == before)
		DO(dtrain_recv(r->group, out.data, count, dtype, root, 3, NULL, &work, &err));
	if (r->size > 1 && r->rank == before)
		check_part(out.data, dtype, 0, count, root, 0);
	check_bytes(&out, 0, r->rank == before ? part : 0);
	check_bytes(&in, 0, 0);
	DO(dtrain_broadcast(r->group, in.data, count, dtype, root, NULL, &work, &err));
	check_bytes(&in, 0, r->rank == root ? 0 : part);
	check_part(in.data, dtype, 0, count, root, 0);
	free_area(&in);
	free_area(&out);
}

static int rank_main(struct rank *r)
{
	static const int64_t counts[] = {0, 1, 2, 7, 1021, MOST};
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (dtrain_dtype type = DTRAIN_F32; type <= DTRAIN_U8; type++) {
			bool whole = type == DTRAIN_I64 || type == DTRAIN_U8;

			if (counts[c] == MOST && type != DTRAIN_F32 && type != DTRAIN_BF16)
				continue;
			for (int op = DTRAIN_SUM; op <= DTRAIN_PRODUCT; op++) {
				if (op != DTRAIN_AVG || !whole)
					reductions(r, type, counts[c], (dtrain_reduce_op)op);
			}
			movements(r, type, counts[c], 0);
			movements(r, type, counts[c], r->size - 1);
		}
	}
	return 0;
}

static void results_are_right(void **state)
{
	(void)state;
	run_ranks("results", 1);
	run_ranks("results", 2);
	run_ranks("results", 3);
	run_ranks("results", 8);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_right)};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
