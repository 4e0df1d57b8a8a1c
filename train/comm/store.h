/* SPDX-License-Identifier: Apache-2.0
 *
 * What process groups need of the store's client besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_STORE_H
#define DTRAIN_COMM_STORE_H

#include <dtrain/comm.h>

/* The address of this machine on the way to the store, as text. */
const char *dtrain__store_local_host(const dtrain_store *store);
/* The address by which this process reached the store. */
const char *dtrain__store_peer_host(const dtrain_store *store);

/* Leaves a text that the server sets under the key when *fd is closed, by the caller, who owns it, or by the end of the
 * process; not if the key has a value by then. At most STORE_MAX_WILL bytes. *fd is -1 where it fails. */
int dtrain__store_leave_will(dtrain_store *store, const char *key, const char *text, int *fd, beton_error *err);

/* The calls of <dtrain/comm.h> for threads that have to go on: the store gets answer_ms to answer, then its connection
 * is given up, so that an answer that comes late finds nobody. TIMEOUT: whether it was carried out is not known. */
int dtrain__store_set(dtrain_store *store, const char *key, const void *value, size_t size, int answer_ms,
		      beton_error *err);
int dtrain__store_add(dtrain_store *store, const char *key, int64_t delta, int answer_ms, int64_t *sum,
		      beton_error *err);
/* NOT_FOUND, without filling err: nobody has set it. The caller frees *value, which is NULL where it fails. */
int dtrain__store_look_up(dtrain_store *store, const char *key, int answer_ms, void **value, size_t *size,
			  beton_error *err);

/* dtrain_store_get that is also given up, with TIMEOUT, when until_fd can be read. -1: it is not. */
int dtrain__store_get_until(dtrain_store *store, const char *key, int timeout_ms, int until_fd, void **value,
			    size_t *size, beton_error *err);

#endif
