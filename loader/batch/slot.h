/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches and their memory: a pool of slots, which outlives the loader while the consumer holds a batch or an iterator.
 */
#ifndef BT_LOADER_SLOT_H
#define BT_LOADER_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <beton/loader.h>

#include "lent.h"
#include "order/order.h"
#include "outputs.h"
#include "order/shard.h"

typedef enum bt_slot_state {
	BT_SLOT_FREE = 0,
	BT_SLOT_FILLING,    /* workers fill its rows, or will */
	BT_SLOT_COMPLETING, /* all samples are done, and a worker processes the batch as a whole */
	BT_SLOT_READY,      /* waits for the consumer */
	BT_SLOT_LEASED,     /* the consumer holds it */
} bt_slot_state;

/* The id of a sample that was left out. */
#define BT_NO_SAMPLE UINT64_MAX

/* The pool's lock guards all members but those marked. */
typedef struct bt_slot {
	beton_batch batch; /* first, because the consumer's pointer is the slot's too; constant while FILLING */
	struct bt_pool *pool;
	struct bt_slot *next; /* list of free slots */
	bt_slot_state state;
	_Atomic uint32_t references; /* while LEASED */
	beton_iterator *iterator;    /* that the batch is for; NULL: none any more */
	atomic_bool abandoned;       /* its iterator was closed: the remaining work is pointless */
	bt_order order;              /* own reference; constant while FILLING; so the next three */
	struct bt_views *views;      /* of the iterator; own reference */
	bt_shard shard;
	uint64_t index;    /* of the batch, counted from the start of the iterator */
	uint32_t claimed;  /* samples that workers have taken */
	uint32_t finished; /* samples that are done, good or bad */
	uint32_t failed;   /* row of the sample that `error` is about */
	bool lost;         /* the batch is lost: `error` says why */
	beton_error error; /* the first that makes the batch lost, else of a sample left out; code BETON_OK: none */
	beton_tensor *tensors;
	uint64_t *ids; /* written by the worker that claimed the sample, like the rows of tensors */
	void *memory;
} bt_slot;

typedef struct bt_pool {
	/* Constant. */
	pid_t owner;
	bt_outputs outputs;
	beton_allocator allocator;

	pthread_mutex_t lock; /* also the loader's */
	pthread_cond_t work;  /* signals workers: a batch can be begun or claimed, or stop */
	pthread_cond_t ended; /* between the thread that closes the loader and its last thread: see close.c */
	bt_lent lent;
	/* Guarded by lock. */
	bt_slot *free;
	uint32_t count;      /* number of slots */
	uint32_t leased;     /* of these, held by the consumer */
	uint32_t references; /* one for the loader, and one for each iterator and leased batch */
	bool closed;         /* the loader is closed, or is about to be */
	bool loader_gone;    /* the loader is freed */
	bool orphaned;       /* no thread waits for that */
	pthread_t last;      /* the thread that freed it; joined unless orphaned */
} bt_pool;

/* Opens a pool without slots, and takes over the outputs. Errors: NO_MEMORY; then the outputs still belong to the
 * caller. */
int bt_pool_open(bt_pool **out, bt_outputs *outputs, const beton_allocator *allocator, beton_error *err);

/* Frees the free slots of a loader that is about to be closed. Leased slots are freed at their release, and slots being
 * filled by another call of this function. */
void bt_pool_empty(bt_pool *pool);

/* Adds a reference, with the lock held; drops one, without the lock. The last one frees the pool. Opening gives the
 * first reference. */
void bt_pool_retain(bt_pool *pool);
void bt_pool_release(bt_pool *pool);

/* Fails in the child of a fork, where the loader's threads do not exist, although one of them may have held the lock.
 * Errors: STATE. */
int bt_refuse_child(const bt_pool *pool, beton_error *err);

/* Makes slots until there are `count`. Takes the lock. Errors: NO_MEMORY. */
int bt_pool_grow(bt_pool *pool, uint32_t count, beton_error *err);

/* With the lock held. Takes a free slot, or NULL; and gives one back. */
bt_slot *bt_pool_take(bt_pool *pool);
void bt_pool_give(bt_pool *pool, bt_slot *slot);

/* Makes a slot hold batch `index` of an epoch, which is to be filled; and ends its references to order and views. */
void bt_slot_begin(bt_slot *slot, const bt_order *order, const bt_shard *shard, struct bt_views *views, uint64_t epoch,
		   uint64_t index);
void bt_slot_end(bt_slot *slot);

/* Bytes of an output's row, of a slot that is FILLING or COMPLETING. */
size_t bt_slot_row_bytes(const bt_slot *slot, const bt_output *output);

/* Removes the rows of left-out samples. Called without the lock, after all samples are finished and before the slot is
 * READY. */
void bt_slot_complete(bt_slot *slot);

#endif
