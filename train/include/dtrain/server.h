/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter server, for training without a worker that waits for all others. The server has the parameters and the
 * optimizer. A worker pulls the parameters, computes gradients with them, and pushes these; the gradients of one worker
 * are a step of the optimizer, whatever the others do meanwhile. They may have been computed with parameters that other
 * workers' gradients have changed since: staleness is the number of such steps.
 *
 * The bound (stale synchronous parallel, Ho et al. 2013): a worker's clock is the number of gradients that it has
 * pushed. A worker pulls only while its clock is at most `bound` ahead of that of the slowest worker. With a bound of 0
 * the gradients of a clock are one step, with the mean over the workers: that is synchronous training.
 *
 * Messages number the processes as ranks: the server is rank 0, worker n rank n + 1.
 *
 * A worker that is lost, or that does not push for as long as the timeout, is dropped: the others go on without it.
 * Parameters and gradients go through host memory and a group of two for each worker, over Gloo.
 *
 * Server and workers have the same parameters (names, shapes, order). Buffers (batch norm's statistics) are the
 * workers' own, and sent with the gradients; they begin with the server's.
 */
#ifndef DTRAIN_SERVER_H
#define DTRAIN_SERVER_H

#include <dtrain/comm.h>
#include <dtrain/params.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dtrain_server_options {
	size_t struct_size;
	int workers;           /* 1 to DTRAIN_MAX_RANKS - 1 */
	int64_t bound;         /* at least 0; default 8 */
	int64_t clock;         /* of the workers at the beginning; default 0 */
	const char *interface; /* see dtrain_group_options */
	int timeout_ms;        /* of a worker from pull to push, and of the server's answers; default 30,000 */
	int join_timeout_ms;   /* of each worker's joining; default 180,000 */
	/* A worker calls it five times a second while it waits for the server; true ends the wait. NULL (default):
	 * never. */
	bool (*gives_up)(void *context);
	void *context;
} dtrain_server_options;

BETON_API void dtrain_server_options_init_sized(dtrain_server_options *options, size_t size);
static inline void dtrain_server_options_init(dtrain_server_options *options)
{
	dtrain_server_options_init_sized(options, sizeof(*options));
}

typedef struct dtrain_server dtrain_server;

/* Waits for all workers, and gives them all buffers as they are. params must be allocated, and with the store outlive
 * the server. Errors: as for dtrain_group_create (a worker that does not come, or declines), MISMATCH (another number
 * of elements; the message names the worker), UNSUPPORTED (parameters that are not F32), INVALID_ARGUMENT, SYSTEM,
 * NO_MEMORY. */
BETON_API int dtrain_server_create(dtrain_params *params, dtrain_store *store, const dtrain_server_options *options,
				   dtrain_server **out, beton_error *err);
/* Tells the workers to stop, and waits until each has been told or is lost. NULL allowed. */
BETON_API void dtrain_server_destroy(dtrain_server **server);

/* Input of the next step of the optimizer. */
typedef struct dtrain_update {
	int worker;        /* from 0; with a bound of 0 the first of them */
	int workers;       /* whose gradients they are */
	int64_t staleness; /* steps since the worker's pull */
	int64_t lead;      /* clocks that the worker was ahead of the slowest when it pulled: at most the bound */
	float step_metrics[DTRAIN_STEP_METRICS]; /* of a run: the mean over these workers */
} dtrain_update;

/* Puts values on the stream to the workers: waiting workers get these. Call it before the first take, and after each
 * step. */
BETON_API int dtrain_server_publish(dtrain_server *server, dtrain_stream *stream, beton_error *err);
/* Waits for gradients, and puts the oldest on the stream into the parameters' gradients. The worker waits until the
 * next publish. PEER_LOST: all workers are gone. TIMEOUT: none within timeout_ms; call it again. */
BETON_API int dtrain_server_take(dtrain_server *server, int timeout_ms, dtrain_stream *stream, dtrain_update *out,
				 beton_error *err);

/* Puts on the stream: the buffers that are not fixed become the mean of the workers' latest. */
BETON_API int dtrain_server_buffers(dtrain_server *server, dtrain_stream *stream, beton_error *err);

/* Whether a worker was dropped that no earlier call has reported: its number, and why. */
BETON_API bool dtrain_server_lost(dtrain_server *server, int *worker, beton_error *why);

typedef struct dtrain_worker dtrain_worker;

/* number: of this worker, from 0. options: interface, timeout_ms, join_timeout_ms and gives_up count. Errors: as
 * dtrain_server_create. */
BETON_API int dtrain_worker_create(dtrain_params *params, dtrain_store *store, int number,
				   const dtrain_server_options *options, dtrain_worker **out, beton_error *err);
BETON_API void dtrain_worker_destroy(dtrain_worker **worker); /* NULL allowed */

/* Waits for the server's parameters, and puts them on the stream. The wait may take as long as the server says that it
 * is there, which waits for slower workers and for its caller. *stop: there are no more, and nothing is to be pushed.
 * Errors: TIMEOUT, PEER_LOST (the server is lost, or has given this worker up), CANCELLED (gives_up; only destroy
 * the worker then). */
BETON_API int dtrain_worker_pull(dtrain_worker *worker, dtrain_stream *stream, bool *stop, beton_error *err);
/* Sends step metrics, gradients and buffers, after the work on the stream. Waits, and fails, as dtrain_worker_pull. */
BETON_API int dtrain_worker_push(dtrain_worker *worker, dtrain_stream *stream, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
