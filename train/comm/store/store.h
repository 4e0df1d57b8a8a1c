/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the store's client for process groups, besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_STORE_STORE_H
#define DTRAIN_COMM_STORE_STORE_H

#include <dtrain/comm.h>

/* This machine's address on the connection to the store, as text. */
const char *dtrain__store_local_host(const dtrain_store *store);
/* The address at which this process reached the store. */
const char *dtrain__store_peer_host(const dtrain_store *store);

/* Leaves a last will: the server sets the key to the text, unless the key has a value, when *fd is closed: by the
 * caller, which owns it, or by the end of the process. At most STORE_MAX_WILL bytes. *fd is -1 on failure. */
int dtrain__store_leave_will(dtrain_store *store, const char *key, const char *text, int *fd, beton_error *err);
/* Adds a will to that connection, or changes the text of one; an empty text takes it back. The first will takes effect
 * first. */
int dtrain__store_change_will(dtrain_store *store, int fd, const char *key, const char *text, int answer_ms,
			      beton_error *err);

/* Opens a connection, owned by the caller, that becomes readable when the key has a value, or the store is gone. */
int dtrain__store_watch(dtrain_store *store, const char *key, int *fd, beton_error *err);
/* The value, once the connection is readable. PEER_LOST: the connection has ended. */
int dtrain__store_watched(dtrain_store *store, int fd, const char *key, void **value, size_t *size, beton_error *err);
/* Asks the server to end the connection of a will unless it is asked again within lease_ms; or to take the will back.
 * The answer follows. All return errors without a message: TIMEOUT or PEER_LOST. */
int dtrain__store_renew(int fd, int lease_ms);
int dtrain__store_take_back(int fd, const char *key);
int dtrain__store_answered(int fd, int answer_ms);
/* Whether nothing, or another server, listens at the store's address; from then on every call fails at once. */
bool dtrain__store_is_gone(dtrain_store *store);
/* Whether this process runs the server. */
bool dtrain__store_is_own(const dtrain_store *store);

/* The failed groups that use this client and are not destroyed: while there is one, the descriptor is readable, and no
 * group waits for its ranks to join. */
void dtrain__store_note_failure(dtrain_store *store, const beton_error *failure);
void dtrain__store_forget_failure(dtrain_store *store);
int dtrain__store_failed_fd(const dtrain_store *store);
/* The code, and the first failure; BETON_OK: none. */
int dtrain__store_failure(dtrain_store *store, beton_error *err);

/* A lost rank of the job, as the presence learns of it. */
typedef struct store_loss {
	int rank;      /* -1: none is lost */
	int silent_ms; /* it gave no sign for so long; 0: its process has ended */
	bool is_store; /* it runs the store, so that every call fails at once */
	beton_error err;
} store_loss;

/* The first counts. */
void dtrain__store_note_loss(dtrain_store *store, const store_loss *loss);
/* Readable once a rank is lost. */
int dtrain__store_lost_fd(const dtrain_store *store);
store_loss dtrain__store_loss(dtrain_store *store);
/* Whether the store is known to be gone, without a call. */
bool dtrain__store_was_gone(dtrain_store *store);

/* NOT_FOUND, without filling err: the key is not set. The caller frees *value, which is NULL on failure. */
int dtrain__store_look_up(dtrain_store *store, const char *key, int answer_ms, void **value, size_t *size,
			  beton_error *err);

/* dtrain_store_get that also ends with TIMEOUT when until_fd becomes readable (-1: none). */
int dtrain__store_get_until(dtrain_store *store, const char *key, int timeout_ms, int until_fd, void **value,
			    size_t *size, beton_error *err);

#endif
