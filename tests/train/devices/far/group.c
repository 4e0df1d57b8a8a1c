/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of ranks on the test device, with the manners of NCCL: an operation runs on a stream, in Gloo; when it fails
 * it does not end, but waits to be aborted, and only asking the communicator tells that something is wrong.
 *
 * The id that rank 0 makes is the port of a store, through which the ranks' Gloo contexts find each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/group/group_backend.h"
#include "comm/group/group_sequence.h"
#include "comm/socket.h"
#include "comm/store/store.h"
#include "common/error.h"
#include "common/system.h"
#include "far.h"

/* Deadlines are the library's business, and a rank of a busy machine may be late: Gloo's own is never reached. */
#define GLOO_TIMEOUT_MS (24 * 60 * 60 * 1000)
/* For ranks that end at about the same time. */
#define LEAVE_TIMEOUT_MS 10000

#define LEFT_KEY 24

struct far_id {
	uint16_t port;
};

struct far_group {
	void *gloo;
	dtrain_store_server *server; /* on rank 0 */
	dtrain_store *store;
	int will; /* on other ranks: tells rank 0 that this rank needs the store no more; -1: none */
	uint16_t port;
	int size;
	group_sequence executed; /* operations so far, captured ones at each launch: Gloo's tags */
	bool copy_engines;
	bool silent;           /* errors are not told */
	bool deaf;             /* aborting does not work */
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	bool aborted;
	beton_error failure;
};

/* Not only of a group: it is the driver that does not return. */
static atomic_bool stuck;

/* Windows of all groups; one thread makes and destroys memory. Closing or freeing memory with a window ends the
 * process. */
static struct far_window {
	struct far_window *next;
	const void *group;
	const void *memory;
	size_t bytes;
} * windows;

/* Kept between make_id and connect, on rank 0; one group is made at a time. */
static dtrain_store_server *server;

static int far_stream_capturing(dtrain_stream *stream, bool *capturing, beton_error *err)
{
	(void)err;
	*capturing = stream->capture != NULL;
	return BETON_OK;
}

static int far_event_query(dtrain_event *event, bool *complete, beton_error *err)
{
	*complete = false;
	if (event->capture)
		return bt_fail(err, BETON_STATE, "device 'far': a question about an event that was captured");
	while (stuck)
		pause();
	pthread_mutex_lock(&event->mutex);
	*complete = event->completed >= event->recorded;
	beton_error failure = event->failure;
	pthread_mutex_unlock(&event->mutex);
	return *complete && failure.code ? bt_fail(err, failure.code, "%s", failure.message) : BETON_OK;
}

static int far_identify(dtrain_device *device, dtrain_device_identity *out, beton_error *err)
{
	const char *given = getenv("DTRAIN_FAR_UUID"), *pci = getenv("DTRAIN_FAR_PCI");
	(void)err;
	if (given)
		snprintf(out->id, sizeof(out->id), "%s", given);
	else
		snprintf(out->id, sizeof(out->id), "far-%d-%d", (int)getpid(), device->index);
	snprintf(out->name, sizeof(out->name), "a far device");
	for (int i = 0; pci && i < device->index; i++)
		pci = strchr(pci, ',') ? strchr(pci, ',') + 1 : NULL;
	snprintf(out->pci, sizeof(out->pci), "%.*s", pci ? (int)strcspn(pci, ",") : 0, pci ? pci : "");
	return BETON_OK;
}

static int far_can_reach(dtrain_device *a, dtrain_device *b, bool *out, beton_error *err)
{
	(void)a;
	(void)b;
	(void)err;
	*out = getenv("DTRAIN_FAR_APART") == NULL;
	return BETON_OK;
}

static int far_check_sharing(beton_error *err)
{
	return getenv("DTRAIN_FAR_SHARING") ? BETON_OK
					    : bt_fail(err, BETON_UNSUPPORTED, "set DTRAIN_FAR_SHARING to share one");
}

static int far_make_id(void *memory, beton_error *err)
{
	struct far_id *id = memory;
	dtrain_store_server_stop(&server);
	int status = dtrain_store_server_start(NULL, &server, err);
	if (status == BETON_OK)
		id->port = dtrain_store_server_port(server);
	return status;
}

static bool is_aborted(struct far_group *group)
{
	pthread_mutex_lock(&group->mutex);
	bool aborted = group->aborted;
	pthread_mutex_unlock(&group->mutex);
	return aborted;
}

static void left_key(int rank, char key[LEFT_KEY])
{
	snprintf(key, LEFT_KEY, "left/%d", rank);
}

/* Another rank may be joining still, the group or a part of it, when this rank has ended: the store must outlast that.
 * A group that failed does not wait. */
static void wait_for_others(struct far_group *group)
{
	uint64_t deadline = dtrain__deadline(LEAVE_TIMEOUT_MS);
	for (int rank = 1; rank < group->size && !is_aborted(group); rank++) {
		char key[LEFT_KEY];
		void *text = NULL;
		size_t size;
		left_key(rank, key);
		dtrain_store_get(group->store, key, dtrain__remaining_ms(deadline), &text, &size, NULL);
		free(text);
	}
}

static void far_group_close(void *memory)
{
	struct far_group *group = memory;
	if (!group)
		return;
	for (const struct far_window *window = windows; window; window = window->next)
		if (window->group == group)
			abort();
	if (group->gloo && !group->deaf)
		dtrain__group_gloo.close(group->gloo);
	if (group->will >= 0)
		close(group->will);
	if (group->server)
		wait_for_others(group);
	dtrain_store_close(&group->store);
	dtrain_store_server_stop(&group->server);
	/* Operations that cannot be aborted still run on it. */
	if (group->deaf)
		return;
	pthread_cond_destroy(&group->changed);
	pthread_mutex_destroy(&group->mutex);
	dtrain__sequence_free(&group->executed);
	free(group);
}

static int join(const dtrain_group_place *place, uint16_t port, void **out, beton_error *err)
{
	struct far_group *group = calloc(1, sizeof(*group));
	*out = NULL;
	if (!group || !dtrain__sequence_init(&group->executed, place->size)) {
		free(group);
		return bt_fail(err, BETON_NO_MEMORY, "far: out of memory");
	}
	pthread_mutex_init(&group->mutex, NULL);
	pthread_cond_init(&group->changed, NULL);
	group->port = port;
	group->size = place->size;
	group->will = -1;
	group->copy_engines = place->copy_engines;
	group->silent = getenv("DTRAIN_FAR_SILENT") != NULL;
	int status = dtrain_store_connect("127.0.0.1", port, NULL, place->join_timeout_ms, &group->store, err);
	group_membership member = {.store = group->store,
				   .name = place->name,
				   .rank = place->rank,
				   .size = place->size,
				   .timeout_ms = GLOO_TIMEOUT_MS,
				   .join_timeout_ms = place->join_timeout_ms,
				   .host = "127.0.0.1"};
	if (status == BETON_OK)
		status = dtrain__group_gloo.connect(&member, &group->gloo, err);
	if (status != BETON_OK) {
		far_group_close(group);
		return status;
	}
	group->deaf = getenv("DTRAIN_FAR_DEAF") != NULL;
	*out = group;
	return BETON_OK;
}

static int far_group_connect(const dtrain_group_place *place, const void *id, void **state, beton_error *err)
{
	int status = join(place, ((const struct far_id *)id)->port, state, err);
	if (status != BETON_OK)
		return status;
	struct far_group *group = *state;
	if (place->rank == 0) {
		group->server = server;
		server = NULL;
		return BETON_OK;
	}
	char key[LEFT_KEY];
	left_key(place->rank, key);
	status = dtrain__store_leave_will(group->store, key, "left", &group->will, err);
	if (status != BETON_OK) {
		far_group_close(group);
		*state = NULL;
	}
	return status;
}

static void note(char what)
{
	const char *path = getenv("DTRAIN_FAR_REGISTRATIONS");
	FILE *file = path ? fopen(path, "ab") : NULL;
	if (file && (fputc(what, file) == EOF) + fclose(file) != 0)
		abort();
}

static int far_group_split(void *parent, int color, const dtrain_group_place *place, int timeout_ms, void **state,
			   beton_error *err)
{
	(void)timeout_ms;
	*state = NULL;
	if (place && place->copy_engines)
		note('c');
	return color < 0 ? BETON_OK : join(place, ((struct far_group *)parent)->port, state, err);
}

/* Operations for a stream's thread. */
struct far_calls {
	int count;
	work_item items[];
};

/* Read for each call, so that a test may change it between two steps. */
static void wait_if_slow(const struct far_calls *calls)
{
	const char *slow = getenv("DTRAIN_FAR_SLOW");
	char *end = NULL;
	long long elements = slow ? strtoll(slow, &end, 10) : -1;
	for (int i = 0; i < calls->count; i++)
		if (calls->items[i].call.count == elements && *end == ':')
			usleep((useconds_t)strtoul(end + 1, NULL, 10));
}

/* On a stream's thread. */
static int execute(void *context, const void *copied, beton_error *err)
{
	struct far_group *group = context;
	const struct far_calls *calls = copied;
	work_item *items = malloc(((size_t)calls->count + 1) * sizeof(*items));
	beton_error failure = {0};
	bool messages = false;
	int status = items ? BETON_OK : bt_fail(&failure, BETON_NO_MEMORY, "far: out of memory");
	(void)err;
	wait_if_slow(calls);
	for (int i = 0; i < calls->count && items; i++) {
		items[i] = calls->items[i];
		items[i].call.sequence = dtrain__sequence_next(&group->executed, &items[i].call);
	}
	if (status == BETON_OK && !is_aborted(group))
		status = dtrain__backend_begin(&dtrain__group_gloo, group->gloo, items, calls->count, &messages,
					       &failure);
	if (status == BETON_OK && messages)
		status = dtrain__backend_finish(&dtrain__group_gloo, group->gloo, items, calls->count, &failure);
	free(items);
	if (status == BETON_OK)
		return BETON_OK;
	pthread_mutex_lock(&group->mutex);
	if (!group->silent)
		group->failure = failure;
	stuck = getenv("DTRAIN_FAR_STUCK") != NULL;
	while (!group->aborted)
		pthread_cond_wait(&group->changed, &group->mutex);
	pthread_mutex_unlock(&group->mutex);
	return BETON_OK;
}

static int far_group_poll(void *state, beton_error *err)
{
	struct far_group *group = state;
	pthread_mutex_lock(&group->mutex);
	int status = group->failure.code ? bt_fail(err, group->failure.code, "%s", group->failure.message) : BETON_OK;
	pthread_mutex_unlock(&group->mutex);
	return status;
}

static int place_call(const dtrain_group_call *call, work_item *item, beton_error *err)
{
	if ((call->output && !far_is_device(call->output)) || (call->input && !far_is_device(call->input)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "far: an operation on host memory");
	*item = (work_item){.call = *call};
	/* NCCL has no tags. */
	item->call.tag = 0;
	item->call.output = call->output ? far_to_host(call->output) : NULL;
	item->call.input = call->input ? far_to_host(call->input) : NULL;
	return BETON_OK;
}

static bool in_window(const struct far_group *group, const void *memory, size_t bytes)
{
	const struct far_window *window = windows;
	while (window && !(window->group == group && (uintptr_t)memory >= (uintptr_t)window->memory &&
			   (uintptr_t)memory + bytes <= (uintptr_t)window->memory + window->bytes))
		window = window->next;
	return window != NULL;
}

/* Whether NCCL would have its fast ways for the operation. */
static void note_windows(const struct far_group *group, const dtrain_group_call *call)
{
	bool gathers = call->op == DTRAIN_GROUP_ALL_GATHER && group->copy_engines;
	size_t part = (size_t)call->count * dtrain_dtype_size(call->dtype), all = part * (size_t)group->size;
	/* Bytes are what ranks compare. */
	if ((!gathers && call->op != DTRAIN_GROUP_REDUCE_SCATTER) || call->dtype == DTRAIN_U8)
		return;
	bool both = in_window(group, call->output, gathers ? all : part) &&
		    in_window(group, call->input, gathers ? part : all);
	note(gathers ? (both ? 'g' : 'G') : both ? 's' : 'S');
}

static int far_group_enqueue(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream,
			     beton_error *err)
{
	struct far_group *group = state;
	size_t bytes = sizeof(struct far_calls) + (size_t)count * sizeof(work_item);
	struct far_calls *copied = malloc(bytes);
	int status = BETON_OK;
	if (!copied)
		return bt_fail(err, BETON_NO_MEMORY, "far: out of memory");
	*copied = (struct far_calls){count};
	if (is_aborted(group))
		status = bt_fail(err, BETON_CANCELLED, "far: aborted");
	for (int i = 0; i < count && status == BETON_OK; i++) {
		note_windows(group, &calls[i]);
		status = place_call(&calls[i], &copied->items[i], err);
	}
	if (status == BETON_OK)
		status = far_enqueue(stream,
				     &(struct far_task){.kind = FAR_FUNCTION,
							.function = execute,
							.context = group,
							.call = copied,
							.bytes = bytes},
				     err);
	free(copied);
	return status;
}

static int far_group_abort(void *const *states, int count, beton_error *err)
{
	const char *slow = getenv("DTRAIN_FAR_ABORT_US");
	if (slow)
		usleep((useconds_t)strtoul(slow, NULL, 10));
	bool deaf = false;
	for (int i = 0; i < count; i++) {
		struct far_group *group = states[i];
		deaf = deaf || group->deaf;
		if (group->deaf)
			continue;
		pthread_mutex_lock(&group->mutex);
		group->aborted = true;
		pthread_cond_broadcast(&group->changed);
		pthread_mutex_unlock(&group->mutex);
		dtrain__group_gloo.abort(group->gloo);
	}
	return deaf ? bt_fail(err, BETON_TIMEOUT, "far: aborting did not end") : BETON_OK;
}

static int far_memory_alloc(dtrain_device *device, size_t bytes, void **memory, beton_error *err)
{
	*memory = NULL;
	if (getenv("DTRAIN_FAR_OTHER_MEMORY"))
		return bt_fail(err, BETON_SYSTEM, "far: no memory for groups");
	return far_alloc(device, bytes, memory, err);
}

static void far_memory_free(dtrain_device *device, void *memory)
{
	for (const struct far_window *window = windows; window; window = window->next)
		if (window->memory == memory)
			abort();
	note('f');
	far_free(device, memory);
}

static int far_window_open(void *state, void *memory, size_t bytes, int timeout_ms, void **out, beton_error *err)
{
	(void)timeout_ms;
	*out = NULL;
	if (getenv("DTRAIN_FAR_APART"))
		return BETON_OK;
	struct far_window *window = malloc(sizeof(*window));
	if (!window)
		return bt_fail(err, BETON_NO_MEMORY, "far: out of memory");
	*window = (struct far_window){windows, state, memory, bytes};
	windows = *out = window;
	note(((struct far_group *)state)->copy_engines ? 'W' : 'w');
	return BETON_OK;
}

static void far_window_close(void *state, void *window)
{
	struct far_window **link = &windows;
	while (*link != window)
		link = &(*link)->next;
	if ((*link)->group != state)
		abort();
	*link = (*link)->next;
	free(window);
	note('u');
}

const dtrain_group_backend far_group = {
	.name = "far",
	.id_bytes = sizeof(struct far_id),
	.dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F64 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 | 1u << DTRAIN_I64 |
		  1u << DTRAIN_U8,
	/* But one: what a backend does not take is refused. */
	.reductions = 1u << DTRAIN_F32 | 1u << DTRAIN_F64 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 | 1u << DTRAIN_I64,
	.stream_create = far_stream_create,
	.stream_capturing = far_stream_capturing,
	.event_query = far_event_query,
	.identify = far_identify,
	.can_reach = far_can_reach,
	.check_sharing = far_check_sharing,
	.make_id = far_make_id,
	.connect = far_group_connect,
	.split = far_group_split,
	.enqueue = far_group_enqueue,
	.poll = far_group_poll,
	.abort = far_group_abort,
	.close = far_group_close,
	.memory_alloc = far_memory_alloc,
	.memory_free = far_memory_free,
	.window_open = far_window_open,
	.window_close = far_window_close,
};
