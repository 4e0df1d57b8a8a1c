/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards what the caller lent until the loader is closed: functions, their contexts, and arrays of operations and
 * replacements. A thread whose read ends after the close must not use them.
 */
#ifndef BT_LOADER_LENT_H
#define BT_LOADER_LENT_H

#include <stdatomic.h>
#include <stdbool.h>

/* Zero-initialise. */
typedef struct bt_lent {
	atomic_uint users;
	atomic_bool returned;
} bt_lent;

/* Whether the caller's things may be used, until bt_lent_end. Any thread. */
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

/* Ends the loan: waits for the threads that use the caller's things, and lets no others begin. Must not be called with
 * a lock that those threads may take. */
void bt_lent_return(bt_lent *lent);

#endif
