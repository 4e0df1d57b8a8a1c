/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in's streams, events and captures. One thread at a time: it is what the tests of the host side do.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum node_kind { NODE_COPY, NODE_SET, NODE_RECORD, NODE_LAUNCH, NODE_CALL };

typedef struct event event;

typedef struct node {
	enum node_kind kind;
	void *to;
	const void *from;
	int value;
	size_t bytes;
	event *event;
	cudaHostFn_t function;
} node;

typedef struct stream stream;

/* While it is recorded, and, without members, as what a launch replays. */
typedef struct graph {
	node *nodes;
	size_t count;
	stream *members; /* the stream that it began on is the last */
	long number;
	bool invalid;
} graph;

struct stream {
	graph *capture;
	stream *next; /* of the capture's members */
	size_t nodes; /* it put into the capture */
	bool joined;  /* all of them are before work of another member */
};

struct event {
	bool recorded;
	long long when_ns;
	/* For a record in a capture, which may be over. */
	long capture; /* its number; 0: none */
	stream *stream;
	size_t nodes;
};

static _Thread_local graph *capturing; /* what began in this thread: one at a time */
static _Thread_local long captures;

bool standin_is_capturing(void)
{
	return capturing != NULL;
}

static cudaError_t out_of_memory(void)
{
	return standin_return(cudaErrorMemoryAllocation);
}

static void *made(size_t bytes)
{
	void *object = standin_enter(true) == cudaSuccess ? calloc(1, bytes) : NULL;
	standin_count(object ? 1 : 0);
	return object;
}

static void destroyed(void *object)
{
	free(object);
	standin_count(-1);
}

static void run(const node *n)
{
	if (n->kind == NODE_COPY)
		memmove(n->to, n->from, n->bytes);
	else if (n->kind == NODE_SET)
		memset(n->to, n->value, n->bytes);
	else if (n->kind == NODE_RECORD)
		*n->event = (event){.recorded = true, .when_ns = standin_now_ns()};
	else if (n->kind == NODE_CALL)
		n->function(n->to);
}

/* Does it, or adds it to the capture that the stream is part of. */
static cudaError_t put(stream *s, node n)
{
	if (!s || !s->capture) {
		run(&n);
		return cudaSuccess;
	}
	graph *g = s->capture;
	node *more = g->invalid ? NULL : realloc(g->nodes, (g->count + 1) * sizeof(*more));
	if (!more)
		return g->invalid ? standin_return(cudaErrorStreamCaptureInvalidated) : out_of_memory();
	g->nodes = more;
	g->nodes[g->count++] = n;
	s->nodes++;
	s->joined = false;
	return cudaSuccess;
}

/* A call that a capture does not allow ends it. */
static cudaError_t refuse_in(graph *g, cudaError_t status)
{
	g->invalid = true;
	return standin_return(status);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	(void)flags;
	*out = made(sizeof(stream));
	return *out ? cudaSuccess : standin_return(standin.failure);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	destroyed(s);
	return cudaSuccess;
}

/* The stream of each thread that cudaStreamPerThread names is never captured here. */
static stream *stream_of(cudaStream_t s)
{
	return s == cudaStreamPerThread ? NULL : (stream *)s;
}

cudaError_t cudaStreamSynchronize(cudaStream_t given)
{
	cudaError_t status = standin_enter(true);
	stream *s = stream_of(given);
	return status == cudaSuccess && s && s->capture ? refuse_in(s->capture, cudaErrorStreamCaptureUnsupported)
							: status;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t awaited, unsigned int flags)
{
	(void)flags;
	cudaError_t status = standin_enter(true);
	stream *s = (stream *)given;
	event *e = (event *)awaited;
	if (status != cudaSuccess)
		return status;
	if (!e->capture)
		return s->capture && e->recorded ? refuse_in(s->capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
	if (!capturing || e->capture != capturing->number)
		return standin_return(cudaErrorCapturedEvent);
	if (!s->capture) {
		*s = (stream){.capture = capturing, .next = capturing->members, .joined = true};
		capturing->members = s;
	}
	if (e->stream != s && e->nodes == e->stream->nodes)
		e->stream->joined = true;
	return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	(void)flags;
	*out = made(sizeof(event));
	return *out ? cudaSuccess : standin_return(standin.failure);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	destroyed(e);
	return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t recorded, cudaStream_t given, unsigned int flags)
{
	cudaError_t status = standin_enter(true);
	stream *s = (stream *)given;
	event *e = (event *)recorded;
	if (status != cudaSuccess)
		return status;
	if (flags == cudaEventRecordExternal && !s->capture)
		return standin_return(cudaErrorIllegalState);
	if (s->capture && flags != cudaEventRecordExternal) {
		*e = (event){.recorded = true, .capture = s->capture->number, .stream = s, .nodes = s->nodes};
		return s->capture->invalid ? standin_return(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
	}
	return put(s, (node){.kind = NODE_RECORD, .event = e});
}

cudaError_t cudaEventRecord(cudaEvent_t recorded, cudaStream_t given)
{
	return cudaEventRecordWithFlags(recorded, given, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t given)
{
	cudaError_t status = standin_enter(true);
	return status == cudaSuccess && ((event *)given)->capture ? standin_return(cudaErrorCapturedEvent) : status;
}

cudaError_t cudaEventQuery(cudaEvent_t given)
{
	return cudaEventSynchronize(given);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
	cudaError_t status = standin_enter(true);
	const event *first = (const event *)start, *second = (const event *)end;
	if (status == cudaSuccess && (!first->when_ns || !second->when_ns))
		status = standin_return(cudaErrorInvalidResourceHandle);
	if (status == cudaSuccess)
		*milliseconds = (float)(second->when_ns - first->when_ns) * 1e-6f;
	return status;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	cudaError_t status = standin_enter(true);
	if (status == cudaSuccess && capturing)
		status = refuse_in(capturing, cudaErrorStreamCaptureUnsupported);
	return status == cudaSuccess ? standin_allocate(out, bytes, true) : status;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	(void)flags;
	cudaError_t status = standin_enter(true);
	if (status == cudaSuccess && capturing)
		status = refuse_in(capturing, cudaErrorStreamCaptureUnsupported);
	return status == cudaSuccess ? standin_allocate(out, bytes, false) : status;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t given)
{
	cudaError_t status = standin_enter(true);
	bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
	bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	if (status == cudaSuccess &&
	    (standin_is_inside(to, bytes) != to_device || standin_is_inside(from, bytes) != from_device))
		status = standin_return(cudaErrorInvalidValue);
	if (status == cudaSuccess && to_device && from_device) {
		int owner = standin_owner(to), other = standin_owner(from);
		standin.staged += !standin_reaches(owner, other) || !standin_reaches(other, owner);
	}
	if (status == cudaSuccess)
		status = put(stream_of(given), (node){.kind = NODE_COPY, .to = to, .from = from, .bytes = bytes});
	return status;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t given)
{
	cudaError_t status = standin_enter(true);
	if (status == cudaSuccess && !standin_is_inside(to, bytes))
		status = standin_return(cudaErrorInvalidValue);
	if (status == cudaSuccess)
		status = put(stream_of(given), (node){.kind = NODE_SET, .to = to, .value = value, .bytes = bytes});
	return status;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t given, cudaHostFn_t function, void *context)
{
	cudaError_t status = standin_enter(true);
	return status == cudaSuccess
		       ? put(stream_of(given), (node){.kind = NODE_CALL, .function = function, .to = context})
		       : status;
}

/* ---- captures ---- */

cudaError_t cudaStreamIsCapturing(cudaStream_t given, enum cudaStreamCaptureStatus *out)
{
	cudaError_t status = standin_enter(true);
	const stream *s = (const stream *)given;
	*out = !s->capture           ? cudaStreamCaptureStatusNone
	       : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
				     : cudaStreamCaptureStatusActive;
	return status;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t given, enum cudaStreamCaptureMode mode)
{
	(void)mode;
	stream *s = (stream *)given;
	if (s->capture)
		return refuse_in(s->capture, cudaErrorIllegalState);
	graph *g = made(sizeof(*g));
	if (!g)
		return standin_return(standin.failure);
	*s = (stream){.capture = g, .joined = true};
	g->members = s;
	g->number = ++captures;
	capturing = g;
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t given)
{
	free(((graph *)given)->nodes);
	destroyed(given);
	return cudaSuccess;
}

/* All of the capture's streams are free again, whatever came of it. */
cudaError_t cudaStreamEndCapture(cudaStream_t given, cudaGraph_t *out)
{
	graph *g = ((stream *)given)->capture;
	*out = NULL;
	if (!g)
		return standin_return(cudaErrorIllegalState);
	cudaError_t status = standin_enter(true);
	bool joined = true;
	for (stream *s = g->members, *next; s; s = next) {
		next = s->next;
		joined = joined && (s->joined || !next);
		*s = (stream){0};
	}
	g->members = NULL;
	capturing = NULL;
	if (status == cudaSuccess && g->invalid)
		status = standin_return(cudaErrorStreamCaptureInvalidated);
	else if (status == cudaSuccess && !joined)
		status = standin_return(cudaErrorStreamCaptureUnjoined);
	if (status == cudaSuccess)
		*out = (cudaGraph_t)g;
	else
		cudaGraphDestroy((cudaGraph_t)g);
	return status;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t given, unsigned long long flags)
{
	standin.flags = (long)flags;
	const graph *g = (const graph *)given;
	graph *copy = made(sizeof(*copy));
	*out = (cudaGraphExec_t)copy;
	if (!copy)
		return standin_return(standin.failure);
	copy->count = g->count;
	copy->nodes = calloc(g->count + 1, sizeof(*copy->nodes));
	if (!copy->nodes) {
		destroyed(copy);
		return out_of_memory();
	}
	if (g->count)
		memcpy(copy->nodes, g->nodes, g->count * sizeof(*copy->nodes));
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t given, cudaStream_t s)
{
	(void)s;
	const graph *g = (const graph *)given;
	cudaError_t status = standin_enter(true);
	for (size_t i = 0; status == cudaSuccess && i < g->count; i++)
		run(&g->nodes[i]);
	return status;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t given)
{
	return cudaGraphDestroy((cudaGraph_t)given);
}

/* ---- kernels: only that they are launched; nvcc's own calls come first ---- */

static cudaError_t launch(cudaStream_t given)
{
	cudaError_t status = standin_enter(true);
	if (status == cudaSuccess)
		status = put(stream_of(given), (node){.kind = NODE_LAUNCH});
	standin.launches += status == cudaSuccess;
	return status;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
			     cudaStream_t given)
{
	(void)function;
	(void)grid;
	(void)block;
	(void)arguments;
	(void)shared;
	return launch(given);
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
			       cudaStream_t given);

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function)
{
	memcpy(out, &function, sizeof(*out));
	return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
			       cudaStream_t given)
{
	return cudaLaunchKernel(kernel, grid, block, arguments, shared, given);
}
