/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the store's client for process groups, besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_STORE_H
#define DTRAIN_COMM_STORE_H

#include <dtrain/comm.h>

/* This machine's address on the connection to the store, as text. */
const char *dtrain__store_local_host(const dtrain_store *store);
/* The address at which this process reached the store. */
const char *dtrain__store_peer_host(const dtrain_store *store);

/* Leaves a last will: the server sets the key to the text, unless the key has a value, when *fd is closed, by the
 * caller, who owns it, or by the end of the process. At most STORE_MAX_WILL bytes. *fd is -1 on failure. */
int dtrain__store_leave_will(dtrain_store *store, const char *key, const char *text, int *fd, beton_error *err);

/* Calls of <dtrain/comm.h> with a limit: after answer_ms without an answer the connection is dropped, so that a late
 * answer is lost. TIMEOUT: it is not known whether the store carried out the call. */
int dtrain__store_set(dtrain_store *store, const char *key, const void *value, size_t size, int answer_ms,
		      beton_error *err);
int dtrain__store_add(dtrain_store *store, const char *key, int64_t delta, int answer_ms, int64_t *sum,
		      beton_error *err);
/* NOT_FOUND, without filling err: the key is not set. The caller frees *value, which is NULL on failure. */
int dtrain__store_look_up(dtrain_store *store, const char *key, int answer_ms, void **value, size_t *size,
			  beton_error *err);

/* dtrain_store_get that also ends with TIMEOUT when until_fd becomes readable (-1: none). */
int dtrain__store_get_until(dtrain_store *store, const char *key, int timeout_ms, int until_fd, void **value,
			    size_t *size, beton_error *err);

#endif
