/* SPDX-License-Identifier: Apache-2.0
 *
 * What the caller lent until the loader is closed: functions, their contexts, and arrays of operations and
 * replacements. A thread that a read holds up until after that must not use them any more. */
#ifndef BT_LOADER_LENT_H
#define BT_LOADER_LENT_H

#include <stdatomic.h>
#include <stdbool.h>

/* Zero-initialise. */
typedef struct bt_lent {
	atomic_uint users;
	atomic_bool returned;
} bt_lent;

/* Whether it may be used, until bt_lent_end. Any thread. */
static inline bool bt_lent_begin(bt_lent *lent)
{
	atomic_fetch_add(&lent->users, 1);
	if (!atomic_load(&lent->returned))
		return true;
	atomic_fetch_sub(&lent->users, 1);
	return false;
}

static inline void bt_lent_end(bt_lent *lent)
{
	atomic_fetch_sub(&lent->users, 1);
}

/* Nobody uses it from here on: waits for those who do. Not with a lock held that they may want. */
void bt_lent_return(bt_lent *lent);

#endif
