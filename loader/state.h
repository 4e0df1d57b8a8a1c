/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader's state: what is constant after open, and what the lock guards. */
#ifndef BT_LOADER_STATE_H
#define BT_LOADER_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include <beton/beton.h>
#include <beton/loader.h>

#include "slot.h"
#include "dataset.h"
#include "engine.h"
#include "order.h"
#include "sample.h"

/* What reads a file. The engine that was asked for may work for one file and not for another. */
typedef struct bt_file_engine {
	const bt_engine_api *api;
	bt_engine *engine;
} bt_file_engine;

/* An epoch, or the rest of one, that is being delivered. Batches are numbered from 0 at its start:
 * delivered <= claimable <= begun <= batches. */
typedef struct bt_run {
	bool started;
	uint64_t epoch;
	bt_order order;
	bt_shard shard;
	uint64_t batches;
	uint64_t begun;     /* batches that have a slot, or had one */
	uint64_t claimable; /* the earliest batch that may have unclaimed samples */
	uint64_t delivered; /* the next batch for the consumer */
} bt_run;

struct beton_loader {
	/* Constant after open. */
	pid_t owner;
	beton_loader_options options;
	bt_dataset dataset;
	beton_reader *reader; /* of the first file: fields and names */
	bt_orders *orders;
	uint64_t fingerprint;    /* of the data set */
	bt_file_engine *engines; /* of each file */
	bt_outputs outputs;
	bt_image_format image_format;
	bt_image_format pixel_format; /* of what operations work on: bytes, NHWC */
	beton_operation *operations;  /* options.image.operations; owned */
	uint32_t num_slots;
	uint32_t num_workers; /* threads that were started */
	struct bt_worker *workers;
	bool locks_made;

	pthread_mutex_t lock;
	pthread_cond_t work;  /* for workers: a batch may be begun or claimed, or stop */
	pthread_cond_t ready; /* for the consumer: the next batch is ready */

	/* Guarded by lock. */
	bool stop;
	bt_run run;
	bt_slot *slots;
	bt_slot **in_flight; /* slot of batch i at [i % batches_ahead], for delivered <= i < begun */
	uint32_t leased;
	beton_loader_stats stats;
};

#endif
