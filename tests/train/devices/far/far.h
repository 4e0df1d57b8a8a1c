/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the test device "far": the kernels of `ref` with the manners of a GPU. A stream is a thread with a
 * queue; memory cannot be reached by the host; wrong use (a copy with host memory where it has to be the device's, a
 * wait for a captured event) is an error, as it is with CUDA.
 *
 * Environment variables:
 *   DTRAIN_FAR_DEVICES=N      devices that there are (default 1)
 *   DTRAIN_FAR_DELAY_US=N     each task waits 0 .. 2 N microseconds first, drawn anew
 *   DTRAIN_FAR_ACTIVITY=A,B,...  memory used and whole, power, its limit, clock, the highest one, temperature,
 *                             dtrain_throttle bits (default: not known)
 *   DTRAIN_FAR_UUID=TEXT      the device's identity, for groups (default: each process has its own)
 *   DTRAIN_FAR_PCI=A,B,...    PCI addresses of the devices (default: none)
 *   DTRAIN_FAR_APART=1        devices do not reach each other's memory
 *   DTRAIN_FAR_OTHER_MEMORY=1 groups have no memory of their own
 *   DTRAIN_FAR_REGISTRATIONS=FILE  gets a letter for each window of a group that is opened (w; W: of a part with copy
 *                             engines) or closed (u), for memory of a group that is freed (f), for a rank's part with
 *                             copy engines (c), for its gathers (g), and for reduce-scatters (s); gathers and
 *                             reduce-scatters whose buffers are not both in windows of the group are G and S
 *   DTRAIN_FAR_SHARING=1      ranks may share a device
 *   DTRAIN_FAR_SILENT=1       a failed operation of a group just hangs, and is not reported
 *   DTRAIN_FAR_DEAF=1         nor can it be aborted
 *   DTRAIN_FAR_SLOW=COUNT:US  a group's operations on COUNT elements begin US microseconds late
 *   DTRAIN_FAR_STUCK=1        after a failed operation of a group questions about events do not return
 *   DTRAIN_FAR_FAIL=WHAT:N    the Nth call of WHAT fails: alloc, host_alloc, op, copy, capture, launch, or an op's name
 *   DTRAIN_FAR_TUNE=N         opened with tune_later, the device knows no algorithm of an op with weights at first, and
 *                             finds N of them each time that it is lent; ops that are created when it has found all
 *                             have longer results and need more workspace
 */
#ifndef TESTS_TRAIN_DEVICES_FAR_FAR_H
#define TESTS_TRAIN_DEVICES_FAR_FAR_H

#include <pthread.h>
#include <stdatomic.h>

#include <dtrain/module.h>

struct far_capture;

enum far_call { FAR_ALLOC, FAR_HOST_ALLOC, FAR_OP_RUN, FAR_COPY_CALL, FAR_CAPTURE, FAR_LAUNCH, FAR_CALLS };

struct dtrain_device {
	const dtrain_device_api *api;
	int index;
	uint32_t delay_us;
	atomic_uint_fast64_t allocated; /* bytes of device memory */
	int failing;                    /* enum far_call; -1: none */
	char failing_op[32];            /* which ops' runs; "": all */
	uint64_t failing_at;            /* which call, from 1 */
	atomic_uint_fast64_t made;      /* calls of that kind so far */
	pthread_mutex_t mutex;          /* guards what follows */
	dtrain_stream *streams;
	struct far_capture *capture; /* being recorded; one at a time */
	uint64_t captures;           /* so far */
	int32_t tune_step;           /* DTRAIN_FAR_TUNE; 0: all algorithms are known */
	int32_t untuned, found;      /* ops */
};

enum far_kind { FAR_OP, FAR_COPY, FAR_ZERO, FAR_RECORD, FAR_MARK, FAR_WAIT, FAR_FUNCTION };

/* An entry of a stream's queue. Addresses are the memory's. */
struct far_task {
	struct far_task *next;
	enum far_kind kind;
	dtrain_op *op;
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
	void *to; /* of an op: its workspace */
	const void *from;
	size_t bytes;
	dtrain_event *event;
	uint64_t sequence; /* of the event's record that is made or waited for */
	int (*function)(void *context, const void *call, beton_error *err);
	void *context;
	void *call; /* owned; `bytes` of them */
	int lane;   /* of a capture: which of its streams */
};

struct dtrain_stream {
	dtrain_device *device;
	dtrain_stream *next; /* of the device */
	uint64_t random;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	struct far_task *head, *tail;
	bool busy, stopping;
	beton_error failure; /* until it is reported by a synchronization; tasks are skipped meanwhile */
	/* Used by the stream's thread: */
	struct far_capture *capture;
	int lane;
};

struct dtrain_event {
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	int references; /* the owner's and the tasks' */
	uint64_t recorded, completed;
	uint64_t time_ns;
	beton_error failure; /* of the stream that it was recorded on */
	/* Used by the event's thread: the capture that it was last recorded in, and its number among that capture's
	 * events. */
	atomic_uint_fast64_t capture; /* number; 0: none. Others may ask */
	int captured_as;
};

/* ---- device.c ---- */

extern const dtrain_device_api far_api;

/* Device memory has addresses that no host has: one bit is turned. */
void *far_to_host(const void *address);
bool far_is_device(const void *address);
/* True once, when the environment says that this call fails; err is filled. op: its name, in FAR_OP_RUN. */
bool far_fails(dtrain_device *device, enum far_call call, const char *op, beton_error *err);

int far_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err);
void far_free(dtrain_device *device, void *memory);

/* After the op was created. */
void far_tune_note(dtrain_device *device, dtrain_op_desc *desc);
void far_tune(dtrain_device *device, double milliseconds, dtrain_tuning *out);

/* ---- group.c: only where DTRAIN_HAVE_GLOO is defined ---- */

extern const dtrain_group_backend far_group;

/* ---- op.c ---- */

int far_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err);
void far_op_destroy(dtrain_op *op);
int far_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err);
int far_op_execute(const dtrain_op *op, void *const *operands, void *workspace, beton_error *err);

/* ---- stream.c ---- */

int far_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err);
void far_stream_destroy(dtrain_stream *stream);
int far_stream_synchronize(dtrain_stream *stream, beton_error *err);
/* Takes a copy of the task; into the capture if there is one. */
int far_enqueue(dtrain_stream *stream, const struct far_task *task, beton_error *err);
/* The same, never into a capture. */
int far_push(dtrain_stream *stream, const struct far_task *task, beton_error *err);
/* Until nothing is under way on any stream. */
void far_settle(dtrain_device *device);
int far_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
	     beton_error *err);
int far_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err);

int far_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err);

/* ---- event.c ---- */

int far_event_create(dtrain_device *device, dtrain_event **out, beton_error *err);
void far_event_destroy(dtrain_event *event);
void far_event_retain(dtrain_event *event);
int far_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err);
int far_event_mark(dtrain_event *event, dtrain_stream *stream, beton_error *err);
int far_event_synchronize(dtrain_event *event, beton_error *err);
int far_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err);
int far_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err);
/* On the stream's thread. failure of code 0: none. */
void far_event_complete(dtrain_event *event, uint64_t sequence, const beton_error *failure);
void far_event_await(dtrain_event *event, uint64_t sequence);
/* The sequence number of one more record. */
uint64_t far_event_next(dtrain_event *event);
uint64_t far_event_recorded(dtrain_event *event);

/* ---- capture.c ---- */

int far_capture_begin(dtrain_stream *stream, beton_error *err);
int far_capture_end(dtrain_stream *stream, void **captured, beton_error *err);
int far_capture_launch(void *captured, dtrain_stream *stream, beton_error *err);
void far_capture_destroy(void *captured);
/* Adds to a stream that is being captured. */
int far_capture_add(struct far_capture *capture, const struct far_task *task, beton_error *err);
int far_capture_record(dtrain_stream *stream, dtrain_event *event, beton_error *err);
/* Waits for an event that was recorded in a capture: the stream becomes part of it. */
int far_capture_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err);

#endif
