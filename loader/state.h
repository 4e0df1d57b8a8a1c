/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader's state: members that are constant after open, and members that the lock guards.
 */
#ifndef BT_LOADER_STATE_H
#define BT_LOADER_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include <beton/beton.h>
#include <beton/loader.h>

#include "dataset.h"
#include "io/engine.h"
#include "order/epochs.h"
#include "order/order.h"
#include "batch/replace.h"
#include "resources.h"
#include "batch/slot.h"
#include "batch/views.h"

/* The thread that announces pages: see pages.h. */
typedef struct bt_pages {
	bool is_running;
	pthread_t thread;
	pthread_cond_t due;  /* signals the thread: a batch was begun, or stop */
	beton_value *values; /* the thread's, of one sample: [num_values] */
} bt_pages;

/* Samples tried as substitutes of a bad one. */
enum { BT_SUBSTITUTES = 16 };

/* Most bad samples that are listed. */
enum { BT_BAD_MAX = 65536 };

/* An epoch of an iterator whose order is at hand. */
typedef struct bt_epoch {
	uint64_t index; /* among the iterator's epochs */
	bt_order order;
	uint64_t announced; /* runs of the order that were announced: see pages.h */
} bt_epoch;

/* Batches are numbered from 0 through all epochs: delivered <= claimable <= begun <= batches. */
struct beton_iterator {
	/* Constant. */
	bt_pool *pool; /* a reference; it has the lock */
	bt_epochs epochs;
	bt_views *views; /* own reference; NULL: the loader is closed */
	uint64_t batches;
	pthread_cond_t ready; /* signals the consumer: the next batch is ready */

	/* Guarded by the lock. */
	beton_loader *loader; /* NULL: the loader is closed */
	uint32_t references;  /* of the consumer, and of the worker that draws an order */
	bool cancelled;
	int descriptor;          /* beton_iterator_descriptor; -1: it was not asked for */
	bool is_readable;        /* the descriptor */
	beton_iterator *next;    /* in the loader's list */
	uint64_t begun;          /* batches that have a slot, or had one */
	uint64_t claimable;      /* the earliest batch that may have unclaimed samples */
	uint64_t delivered;      /* the next batch for the consumer */
	uint64_t current;        /* index of the consumer's epoch: those before have ended */
	bt_epoch filling;        /* whose batches are begun; the order is valid until the loader is closed */
	bt_epoch following;      /* once its order is drawn; order.orders is NULL before */
	bool is_drawing;         /* a worker draws it, or will */
	beton_error order_error; /* it could not; code BETON_OK: none */
	uint64_t late_ns;        /* since when the consumer waits for the next batch; 0: it does not */
	uint64_t tell_ns;        /* when the wait is reported to the log */
	uint64_t began_ns;       /* when it was opened, or next was first called in this epoch; 0: it was not yet */
	uint64_t earlier_ns;     /* run_ns of earlier epochs */
	uint64_t run_ns;         /* time from the beginnings of epochs to the last delivery in each */
	bt_slot *in_flight[];    /* slot of batch i at [i % batches_ahead], for delivered <= i < begun */
};

struct beton_loader {
	/* Constant after open. */
	pid_t owner;
	beton_loader_options options;
	bt_dataset dataset;
	bt_orders *orders;
	uint64_t fingerprint;   /* of the data set */
	const struct bt_io *io; /* of the engines; NULL: the system's */
	const bt_engine_api *api;
	bt_engine *engine; /* NULL: it is not open */
	bt_pool *pool;
	const bt_outputs *outputs; /* the pool's */
	bt_views *views;
	beton_batch_operation *batch_operations; /* options.batch_operations; owned */
	bt_replacements replacements;
	bt_resources resources;
	const int *cpus; /* the option's; valid while the threads start */
	uint32_t num_cpus;
	uint32_t num_workers; /* threads that were started */
	struct bt_worker *workers;
	bt_pages pages;

	/* Guarded by pool->lock. */
	bool stop;
	bool handed_over;          /* the closing thread has left the loader to its last thread */
	uint32_t running;          /* threads that have not ended: workers, and the thread for pages */
	beton_iterator *iterators; /* open iterators */
	uint32_t num_iterators;
	uint64_t *bad; /* samples, each once, rising; room for BT_BAD_MAX */
	size_t num_bad;
	uint64_t ahead; /* samples that all workers together read ahead now */
	beton_loader_stats stats;
};

/* beton_loader_open_many with another table of system calls for its engines; the table must outlive the loader. */
int bt_loader_open(beton_loader **out, const beton_source *sources, uint32_t num_sources,
		   const beton_loader_options *options, const struct bt_io *io, beton_error *err);

/* The last call of each thread of a loader (a worker, or the announcer of pages). The loader may be gone afterwards:
 * see close.c. */
void bt_thread_end(beton_loader *loader);

/* Counts a bad sample and lists it. Takes the lock. */
void bt_note_bad(const beton_loader *loader, uint64_t sample);

#endif
