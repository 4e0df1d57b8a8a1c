/* SPDX-License-Identifier: Apache-2.0
 *
 * Process groups over Gloo's TCP transport, for buffers in host memory.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/group_elements.h"
#include "common/error.h"
#include "common/system.h"
#include "gloo_join.h"

/* An aborted operation ends within milliseconds. */
#define ABORT_TRIES 500
#define ABORT_PAUSE_MS 10

typedef struct gloo_state {
	const gloo_api *gloo;
	gloo_group *group;
	char *note; /* NULL: none */
	int size;
	int rank;
	atomic_int running;  /* operations and waits for messages in progress */
	atomic_bool aborted; /* no more may begin */
} gloo_state;

static int gloo_connect(const group_membership *member, void **out, beton_error *err)
{
	gloo_state *state = calloc(1, sizeof(*state));
	if (!state)
		return bt_fail(err, BETON_NO_MEMORY, "gloo: out of memory");
	state->rank = member->rank;
	state->size = member->size;
	sigset_t pipe, before;
	/* Gloo writes to sockets without MSG_NOSIGNAL, so a lost rank's socket would end this process by SIGPIPE. Other
	 * signals stay unblocked, because this thread may wait for a rank for half an hour. */
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	int status = dtrain__gloo_join(member, &state->gloo, &state->group, &state->note, err);
	static const struct timespec at_once = {0, 0};
	if (!sigismember(&before, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &at_once) == SIGPIPE)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status != BETON_OK) {
		free(state);
		bt_prefix(err, "gloo on %s", member->host);
		return status;
	}
	*out = state;
	return BETON_OK;
}

static gloo_type type_of(dtrain_dtype dtype)
{
	static const gloo_type types[] = {[DTRAIN_F32] = GLOO_F32,   [DTRAIN_F64] = GLOO_F64, [DTRAIN_F16] = GLOO_F16,
					  [DTRAIN_BF16] = GLOO_BF16, [DTRAIN_I64] = GLOO_I64, [DTRAIN_U8] = GLOO_U8};
	return types[dtype];
}

static gloo_reduction reduction_of(dtrain_reduce_op op)
{
	static const gloo_reduction reductions[] = {[DTRAIN_SUM] = GLOO_SUM,
						    [DTRAIN_MAX] = GLOO_MAX,
						    [DTRAIN_MIN] = GLOO_MIN,
						    [DTRAIN_AVG] = GLOO_SUM,
						    [DTRAIN_PRODUCT] = GLOO_PRODUCT};
	return reductions[op];
}

/* A piece of a reduction, or of a reduce-scatter for all ranks together: more would be memory that no plan has. With
 * many ranks, of one. */
enum { PIECE_BYTES = 1 << 20, LEAST_BYTES = 32 << 10 };

/* Packs one piece of each rank's part, one after another. */
static void pack(char *out, const dtrain_group_call *call, int size, size_t first, size_t count)
{
	size_t element = dtrain_dtype_size(call->dtype), part = (size_t)call->count * element;
	for (int i = 0; i < size; i++)
		memcpy(out + (size_t)i * count * element,
		       (const char *)call->input + (size_t)i * part + first * element, count * element);
}

/* Gloo's own reduce-scatter is one of its old algorithm classes, which binds buffers and has no timeout. An all-to-all
 * moves as few bytes, and adding in rank order gives the same bits at every call. It goes on in pieces, so that it
 * needs little memory. */
static int reduce_scatter(const gloo_state *state, const dtrain_group_call *call, gloo_failure *failure)
{
	size_t count = (size_t)call->count, element = dtrain_dtype_size(call->dtype), size = (size_t)state->size;
	size_t bytes = PIECE_BYTES / size > LEAST_BYTES ? PIECE_BYTES / size : LEAST_BYTES;
	size_t piece = count < bytes / element ? count : bytes / element;
	char *sent = malloc(2 * piece * element * size + 1), *got = sent + piece * element * size;
	if (!sent) {
		*failure = (gloo_failure){.code = BETON_NO_MEMORY, .message = "out of memory"};
		return BETON_NO_MEMORY;
	}
	int status = BETON_OK;
	for (size_t first = 0; first < count && status == BETON_OK; first += piece) {
		size_t now = count - first < piece ? count - first : piece;
		pack(sent, call, state->size, first, now);
		status = state->gloo->all_to_all(state->group, got, sent, now * element, call->sequence, failure);
		if (status == BETON_OK)
			dtrain__elements_reduce((char *)call->output + first * element, got, now, state->size,
						call->dtype, call->reduce);
	}
	free(sent);
	return status;
}

/* Gloo's reduction computes parts of the result on every rank, in the output. Only the root's is the caller's. After an
 * error, too, the memory is free at the end: Gloo's buffers end with the call, and each waits until Gloo's thread has
 * left it. (ThreadSanitizer cannot see that in a library that it did not compile.) */
static int reduce(const gloo_state *state, const dtrain_group_call *call, gloo_failure *failure)
{
	size_t count = (size_t)call->count, element = dtrain_dtype_size(call->dtype);
	size_t piece = count < PIECE_BYTES / element ? count : PIECE_BYTES / element;
	char *scratch = call->root == state->rank ? NULL : malloc(piece * element);
	if (!scratch && call->root != state->rank) {
		*failure = (gloo_failure){.code = BETON_NO_MEMORY, .message = "out of memory"};
		return BETON_NO_MEMORY;
	}
	int status = BETON_OK;
	for (size_t first = 0; first < count && status == BETON_OK; first += piece) {
		size_t now = count - first < piece ? count - first : piece;
		char *data = (char *)call->output + first * element;
		status = state->gloo->reduce(state->group, scratch ? scratch : data, data, now, type_of(call->dtype),
					     reduction_of(call->reduce), call->root, call->sequence, failure);
	}
	free(scratch);
	return status;
}

static int dispatch(const gloo_state *state, const dtrain_group_call *call, gloo_failure *failure)
{
	size_t count = (size_t)call->count, size = count * dtrain_dtype_size(call->dtype);
	gloo_group *group = state->group;
	uint32_t tag = call->sequence;
	switch (call->op) {
	case DTRAIN_GROUP_ALLREDUCE:
		return state->gloo->allreduce(group, call->output, count, type_of(call->dtype),
					      reduction_of(call->reduce), tag, failure);
	case DTRAIN_GROUP_REDUCE_SCATTER:
		return reduce_scatter(state, call, failure);
	case DTRAIN_GROUP_ALL_GATHER:
		return state->gloo->all_gather(group, call->output, call->input, size, tag, failure);
	case DTRAIN_GROUP_BROADCAST:
		return state->gloo->broadcast(group, call->output, size, call->root, tag, failure);
	case DTRAIN_GROUP_REDUCE:
		return reduce(state, call, failure);
	case DTRAIN_GROUP_GATHER:
		return state->gloo->gather(group, call->output, call->input, size, call->root, tag, failure);
	case DTRAIN_GROUP_SCATTER:
		return state->gloo->scatter(group, call->output, call->input, size, call->root, tag, failure);
	case DTRAIN_GROUP_ALL_TO_ALL:
		return state->gloo->all_to_all(group, call->output, call->input, size, tag, failure);
	default:
		return state->gloo->barrier(group, tag, failure);
	}
}

static bool has_result_to_scale(const gloo_state *state, const dtrain_group_call *call)
{
	if (call->reduce != DTRAIN_AVG)
		return false;
	return call->op == DTRAIN_GROUP_ALLREDUCE || call->op == DTRAIN_GROUP_REDUCE_SCATTER ||
	       (call->op == DTRAIN_GROUP_REDUCE && call->root == state->rank);
}

static int gloo_run(void *memory, const dtrain_group_call *call, beton_error *err)
{
	gloo_state *state = memory;
	gloo_failure failure = {.code = BETON_CANCELLED, .message = "the connections were closed"};
	atomic_fetch_add(&state->running, 1);
	if (!atomic_load(&state->aborted)) {
		failure = (gloo_failure){0};
		dispatch(state, call, &failure);
	}
	atomic_fetch_sub(&state->running, 1);
	if (failure.code)
		return bt_fail(err, failure.code, "%s", failure.message);
	if (has_result_to_scale(state, call))
		dtrain__elements_divide(call->output, (size_t)call->count, call->dtype, state->size);
	return BETON_OK;
}

static int gloo_post(void *memory, const dtrain_group_call *call, void **message, beton_error *err)
{
	gloo_state *state = memory;
	size_t size = (size_t)call->count * dtrain_dtype_size(call->dtype);
	gloo_failure failure = {0};
	gloo_message *begun = NULL;
	if (atomic_load(&state->aborted))
		return bt_fail(err, BETON_CANCELLED, "the connections were closed");
	if (call->op == DTRAIN_GROUP_SEND)
		state->gloo->send(state->group, call->input, size, call->root, (uint32_t)call->tag, &begun, &failure);
	else
		state->gloo->recv(state->group, call->output, size, call->root, (uint32_t)call->tag, &begun, &failure);
	*message = begun;
	return failure.code ? bt_fail(err, failure.code, "%s", failure.message) : BETON_OK;
}

static void gloo_drop(void *memory, void *message)
{
	const gloo_state *state = memory;
	state->gloo->message_free(message);
}

static int gloo_finish(void *memory, void *message, beton_error *err)
{
	gloo_state *state = memory;
	gloo_failure failure = {.code = BETON_CANCELLED, .message = "the connections were closed"};
	atomic_fetch_add(&state->running, 1);
	if (!atomic_load(&state->aborted))
		state->gloo->message_wait(message, &failure);
	gloo_drop(state, message);
	atomic_fetch_sub(&state->running, 1);
	return failure.code ? bt_fail(err, failure.code, "%s", failure.message) : BETON_OK;
}

/* Repeats, because one abort misses an operation that is about to post a wait. */
static void gloo_abort(void *memory)
{
	gloo_state *state = memory;
	atomic_store(&state->aborted, true);
	for (int tries = 0; tries < ABORT_TRIES; tries++) {
		state->gloo->abort(state->group);
		if (!atomic_load(&state->running))
			return;
		poll(NULL, 0, ABORT_PAUSE_MS);
	}
}

static void gloo_close(void *memory)
{
	gloo_state *state = memory;
	state->gloo->close(state->group);
	free(state->note);
	free(state);
}

static const char *gloo_note(const void *memory)
{
	return ((const gloo_state *)memory)->note;
}

const group_backend dtrain__group_gloo = {
	.name = "gloo",
	.host_memory = true,
	.connect = gloo_connect,
	.run = gloo_run,
	.post = gloo_post,
	.finish = gloo_finish,
	.drop = gloo_drop,
	.abort = gloo_abort,
	.close = gloo_close,
	.note = gloo_note,
};
