/* SPDX-License-Identifier: Apache-2.0
 *
 * What process groups need of the store's client besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_STORE_H
#define DTRAIN_COMM_STORE_H

#include <dtrain/comm.h>

/* The address of this machine on the way to the store, as text. */
const char *dtrain__store_local_host(const dtrain_store *store);

#endif
