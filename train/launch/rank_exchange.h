/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks exchange rank 0's address by their launcher before they have a store.
 */
#ifndef LAUNCH_RANK_EXCHANGE_H
#define LAUNCH_RANK_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dtrain/comm.h>

/* Size of the value with its NUL: launchers allow 1,024 bytes. */
#define RANK_EXCHANGE_SIZE 768
/* How often a rank that waits says for whom. */
#define RANK_WAIT_TELL_MS 10000

struct rank_exchange_job {
	bool gives;                     /* rank 0: value is its own */
	char value[RANK_EXCHANGE_SIZE]; /* without spaces and '=' */
	uint64_t deadline;              /* of bt_now_ns */
	/* Called every RANK_WAIT_TELL_MS while other ranks have not come. */
	void (*waits)(const void *context);
	const void *context;
};

#endif
