/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "common/half.h"
#include "common/system.h"

const char *const comm_op_names[COMM_OPS] = {
	"allreduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
	"gather",    "scatter",        "all_to_all", "send_recv",
};

/* Limit of operations running at once. */
#define MOST_IN_FLIGHT 64

/* Small whole numbers: their sums over the ranks are exact in every type. */
static int value_of(int rank, int64_t i)
{
	return (int)((rank + i * 3 + i / 7) % 3);
}

static void store_value(void *data, dtrain_dtype dtype, int64_t i, int value)
{
	switch (dtype) {
	case DTRAIN_F32:
		((float *)data)[i] = (float)value;
		break;
	case DTRAIN_F64:
		((double *)data)[i] = value;
		break;
	case DTRAIN_I64:
		((int64_t *)data)[i] = value;
		break;
	case DTRAIN_BF16:
		((uint16_t *)data)[i] = bt_bfloat16((float)value);
		break;
	case DTRAIN_F16:
		((uint16_t *)data)[i] = bt_float16((float)value);
		break;
	default:
		((uint8_t *)data)[i] = (uint8_t)value;
		break;
	}
}

static double load_value(const void *data, dtrain_dtype dtype, int64_t i)
{
	switch (dtype) {
	case DTRAIN_F32:
		return ((const float *)data)[i];
	case DTRAIN_F64:
		return ((const double *)data)[i];
	case DTRAIN_I64:
		return (double)((const int64_t *)data)[i];
	case DTRAIN_BF16:
		return (double)bt_widen_bfloat16(((const uint16_t *)data)[i]);
	case DTRAIN_F16:
		return (double)bt_widen_float16(((const uint16_t *)data)[i]);
	default:
		return ((const uint8_t *)data)[i];
	}
}

int comm_place_allocate(comm_place *place, size_t bytes, beton_error *err)
{
	int status = BETON_OK;
	place->bytes = bytes;
	place->host = malloc(bytes);
	if (!place->host)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for messages of %zu bytes", bytes);
	for (int i = 0; place->device && status == BETON_OK && i < 2; i++) {
		status = dtrain_group_memory_create(place->group, bytes, DTRAIN_REGISTER_WITHIN_MACHINE,
						    &place->memory[i], err);
		if (status == BETON_OK)
			status = dtrain_group_memory_register(place->memory[i], place->group, err);
	}
	if (status != BETON_OK)
		return status;
	if (place->device) {
		place->input = dtrain_group_memory_data(place->memory[0]);
		place->output = dtrain_group_memory_data(place->memory[1]);
		return BETON_OK;
	}
	place->input = calloc(1, bytes);
	place->output = calloc(1, bytes);
	return place->input && place->output
		       ? BETON_OK
		       : bt_fail(err, BETON_NO_MEMORY, "no memory for messages of %zu bytes", bytes);
}

void comm_place_free(comm_place *place)
{
	free(place->host);
	if (place->device) {
		for (int i = 0; i < 2; i++)
			dtrain_group_memory_destroy(&place->memory[i]);
	} else {
		free(place->input);
		free(place->output);
	}
	place->host = place->input = place->output = NULL;
}

/* Copies `elements` between the host's copy and a buffer. */
static int move(comm_place *place, void *memory, int64_t elements, bool up, beton_error *err)
{
	size_t bytes = (size_t)elements * dtrain_dtype_size(place->dtype);
	if (!place->device) {
		memcpy(up ? memory : place->host, up ? place->host : memory, bytes);
		return BETON_OK;
	}
	int status = place->api->copy(place->stream, up ? memory : place->host, up ? place->host : memory, bytes,
				      up ? DTRAIN_HOST_TO_DEVICE : DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? place->api->stream_synchronize(place->stream, err) : status;
}

/* True if each rank has a part in the larger buffer; `bytes` counts all parts. */
static bool has_parts(comm_op op)
{
	return op == COMM_REDUCE_SCATTER || op == COMM_ALL_GATHER || op == COMM_GATHER || op == COMM_SCATTER ||
	       op == COMM_ALL_TO_ALL;
}

/* Elements of the call's larger buffer. */
static int64_t elements_of(const comm_place *place, comm_op op, int64_t count)
{
	return has_parts(op) ? count * place->size : count;
}

static bool is_in_place(comm_op op)
{
	return op == COMM_ALLREDUCE || op == COMM_BROADCAST || op == COMM_REDUCE;
}

/* Sends a message to the next rank and receives one from the previous, concurrently. */
static int submit_messages(const comm_place *place, int64_t count, dtrain_work **work, beton_error *err)
{
	int next = (place->rank + 1) % place->size, previous = (place->rank + place->size - 1) % place->size;
	int status = dtrain_group_begin(place->group, err);
	if (status == BETON_OK)
		status = dtrain_send(place->group, place->input, count, place->dtype, next, 0, NULL, NULL, err);
	if (status == BETON_OK)
		status = dtrain_recv(place->group, place->output, count, place->dtype, previous, 0, NULL, NULL, err);
	return status == BETON_OK ? dtrain_group_end(place->group, work, err) : status;
}

static int submit(const comm_place *place, comm_op op, int64_t count, dtrain_work **work, beton_error *err)
{
	dtrain_group *group = place->group;
	dtrain_dtype dtype = place->dtype;
	void *in = place->input, *out = place->output;
	switch (op) {
	case COMM_ALLREDUCE:
		return dtrain_allreduce(group, in, count, dtype, DTRAIN_SUM, NULL, work, err);
	case COMM_REDUCE_SCATTER:
		return dtrain_reduce_scatter(group, out, in, count, dtype, DTRAIN_SUM, NULL, work, err);
	case COMM_ALL_GATHER:
		return dtrain_all_gather(group, out, in, count, dtype, NULL, work, err);
	case COMM_BROADCAST:
		return dtrain_broadcast(group, in, count, dtype, 0, NULL, work, err);
	case COMM_REDUCE:
		return dtrain_reduce(group, in, count, dtype, DTRAIN_SUM, 0, NULL, work, err);
	case COMM_GATHER:
		return dtrain_gather(group, out, in, count, dtype, 0, NULL, work, err);
	case COMM_SCATTER:
		return dtrain_scatter(group, out, in, count, dtype, 0, NULL, work, err);
	case COMM_ALL_TO_ALL:
		return dtrain_all_to_all(group, out, in, count, dtype, NULL, work, err);
	default:
		return submit_messages(place, count, work, err);
	}
}

static int run(const comm_place *place, comm_op op, int64_t count, int times, beton_error *err)
{
	dtrain_work *work[MOST_IN_FLIGHT] = {0};
	int status = BETON_OK;
	for (int done = 0; done < times && status == BETON_OK; done += MOST_IN_FLIGHT) {
		int batch = times - done < MOST_IN_FLIGHT ? times - done : MOST_IN_FLIGHT, begun = 0;
		while (begun < batch && status == BETON_OK)
			status = submit(place, op, count, &work[begun++], err);
		for (int i = 0; i < begun; i++)
			if (work[i] && dtrain_work_wait(&work[i], status == BETON_OK ? err : NULL) != BETON_OK &&
			    status == BETON_OK)
				status = err->code;
	}
	return status;
}

static double sum_of(int size, int64_t i)
{
	double sum = 0;
	for (int rank = 0; rank < size; rank++)
		sum += value_of(rank, i);
	return sum;
}

/* The expected value of the result's element i; -1: anything. */
static double expected(const comm_place *place, comm_op op, int64_t count, int64_t i)
{
	int source = (int)(i / count);
	switch (op) {
	case COMM_ALLREDUCE:
		return sum_of(place->size, i);
	case COMM_REDUCE_SCATTER:
		return sum_of(place->size, place->rank * count + i);
	case COMM_REDUCE:
		return place->rank == 0 ? sum_of(place->size, i) : -1;
	case COMM_BROADCAST:
		return value_of(0, i);
	case COMM_ALL_GATHER:
		return value_of(source, i % count);
	case COMM_GATHER:
		return place->rank == 0 ? value_of(source, i % count) : -1;
	case COMM_SCATTER:
		return value_of(0, place->rank * count + i);
	case COMM_ALL_TO_ALL:
		return value_of(source, place->rank * count + i % count);
	default:
		return value_of((place->rank + place->size - 1) % place->size, i);
	}
}

static int check(comm_place *place, comm_op op, int64_t count, int64_t *wrong, beton_error *err)
{
	bool gathers = op == COMM_ALL_GATHER || op == COMM_GATHER || op == COMM_ALL_TO_ALL;
	int64_t results = gathers ? count * place->size : count;
	int64_t elements = elements_of(place, op, count);
	for (int64_t i = 0; i < elements; i++)
		store_value(place->host, place->dtype, i, value_of(place->rank, i));
	int status = move(place, place->input, elements, true, err);
	if (status == BETON_OK)
		status = run(place, op, count, 1, err);
	if (status == BETON_OK)
		status = move(place, is_in_place(op) ? place->input : place->output, results, false, err);
	*wrong = 0;
	for (int64_t i = 0; i < results && status == BETON_OK; i++) {
		double right = expected(place, op, count, i);
		/* A sum of bytes wraps around. */
		if (place->dtype == DTRAIN_U8 && right >= 0)
			right = (uint8_t)right;
		*wrong += right >= 0 && load_value(place->host, place->dtype, i) != right;
	}
	return status;
}

static double bus_factor(comm_op op, int size)
{
	double n = size;
	if (op == COMM_ALLREDUCE)
		return 2 * (n - 1) / n;
	return has_parts(op) ? (n - 1) / n : 1;
}

int comm_measure(comm_place *place, comm_op op, int64_t bytes, int warm_up, int iterations, comm_figure *out,
		 beton_error *err)
{
	int64_t each = (int64_t)dtrain_dtype_size(place->dtype), parts = elements_of(place, op, 1);
	struct {
		double seconds;
		int64_t wrong;
	} mine = {0}, *all = calloc((size_t)place->size, sizeof(*all));
	if (!all)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	out->count = bytes / (each * parts) > 0 ? bytes / (each * parts) : 1;
	out->bytes = out->count * each * parts;
	int status = check(place, op, out->count, &mine.wrong, err);
	/* Otherwise sums would grow from run to run, until they overflow and arithmetic becomes slow. */
	if (status == BETON_OK && is_in_place(op)) {
		memset(place->host, 0, (size_t)(out->count * each));
		status = move(place, place->input, out->count, true, err);
	}
	if (status == BETON_OK)
		status = run(place, op, out->count, warm_up, err);
	dtrain_work *work = NULL;
	if (status == BETON_OK)
		status = dtrain__work_finish(dtrain_barrier(place->group, &work, err), &work, err);
	if (status == BETON_OK) {
		uint64_t began = bt_now_ns();
		status = run(place, op, out->count, iterations, err);
		mine.seconds = (double)(bt_now_ns() - began) * 1e-9 / iterations;
	}
	if (status == BETON_OK)
		status = dtrain__group_gather_host(place->group, &mine, sizeof(mine), all, err);
	out->seconds = 0;
	out->wrong = 0;
	for (int rank = 0; rank < place->size && status == BETON_OK; rank++) {
		out->seconds = fmax(out->seconds, all[rank].seconds);
		out->wrong += all[rank].wrong;
	}
	out->algbw = (double)out->bytes / fmax(out->seconds, 1e-9);
	out->busbw = out->algbw * bus_factor(op, place->size);
	free(all);
	return status;
}
