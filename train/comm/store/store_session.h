/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's protocol as a state machine without sockets and clock, for one thread.
 *
 * A session is the state of one connection. It accepts no bytes while it has something to send or waits for a key, so
 * it holds at most one frame and one reply; a reply shares the stored value. Buffers grow with the bytes that arrive,
 * not with the sizes in headers. The buffers of all sessions together have a limit: beyond it a frame is read but not
 * kept, and the answer is NO_SPACE.
 */
#ifndef DTRAIN_COMM_STORE_STORE_SESSION_H
#define DTRAIN_COMM_STORE_STORE_SESSION_H

#include <stdbool.h>
#include <sys/uio.h>

#include "store_frame.h"
#include "store_table.h"

/* Limit of frames being received, of all sessions together. Each session may have STORE_SMALL_INPUT bytes regardless.
 */
#define STORE_MAX_INPUT (64u << 20)
#define STORE_SMALL_INPUT 4096

/* Last wills of one session. */
#define STORE_MAX_WILLS 2

typedef struct store_session store_session;

typedef struct store_will {
	store_blob *blob; /* key and value; NULL: none */
	size_t key_size;
} store_will;

typedef struct store_content {
	uint8_t token[STORE_TOKEN_SIZE];
	store_blob *identity; /* NULL: empty */
	int most_members;     /* most sessions past their HELLO */
	const char *full;     /* the answer to sessions beyond them */
	int members;
	uint64_t refused_members;
	uint64_t refused_strangers; /* for a wrong token */
	store_memory memory;
	store_table values, counters;
	size_t input_bytes;
	store_session *waiting; /* sessions that wait for a key; linked by next and previous */
	store_session *ready;   /* sessions that got something to send; linked by next_ready */
} store_content;

struct store_session {
	uint8_t head[STORE_HELLO_SIZE]; /* a header, or the HELLO */
	uint8_t head_size;
	bool member;   /* past its HELLO */
	bool waiting;  /* for the key in body */
	bool ready;    /* in the content's list */
	bool ending;   /* closes after its last bytes are sent */
	bool no_room;  /* refused because the store is full, whatever its token */
	bool skipping; /* the frame is not kept; the answer is `refusal` */
	int refusal;
	store_header header; /* of the frame being received, once the head is complete */
	uint8_t *body;       /* key and value */
	size_t body_size, body_capacity;
	size_t skipped;

	uint8_t reply[STORE_HEADER_SIZE];
	store_blob *reply_value; /* NULL: empty */
	size_t reply_size, sent; /* bytes including the header; 0: nothing to send */

	store_will wills[STORE_MAX_WILLS]; /* the first takes effect first */
	int lease_ms;                      /* 0: none */
	bool expired;                      /* its lease has ended */

	struct store_session *next, *previous, *next_ready;
};

/* token: all zero for none. */
void dtrain__store_content_init(store_content *content, const uint8_t token[STORE_TOKEN_SIZE], int most_members,
				const char *full);
/* The answer to each HELLO. Returns BETON_OK, NO_MEMORY or NO_SPACE. */
int dtrain__store_content_identify(store_content *content, const uint8_t identity[STORE_IDENTITY_SIZE]);
/* After all sessions are closed. */
void dtrain__store_content_free(store_content *content);
/* A session to which another session's request gave something to send; NULL: no more. */
store_session *dtrain__store_content_take_ready(store_content *content);

/* Zero-initialise sessions. */

/* Number of bytes the session accepts now; 0: it must send first, or waits for a key. */
size_t dtrain__store_session_wanted(const store_session *session);
/* Takes received bytes, at most the wanted number. False: the session broke a rule; close it. */
bool dtrain__store_session_receive(store_content *content, store_session *session, const uint8_t *bytes, size_t size);
/* The bytes to send, in up to two parts; returns the number of parts. */
int dtrain__store_session_pending(const store_session *session, struct iovec parts[2]);
/* Tells that `size` of them were sent. False: they were the last; close the session. */
bool dtrain__store_session_sent(store_session *session, size_t size);
/* Whether a frame is partly received or sent. If that lasts long, the client hangs. */
bool dtrain__store_session_is_busy(const store_session *session);
/* Closes the session. carries_out: its last wills take effect; false when the whole store ends. */
void dtrain__store_session_close(store_content *content, store_session *session, bool carries_out);

#endif
