/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store does with the bytes of its connections, and what it answers: no sockets, no clock, one thread.
 *
 * A session is a connection's side of that. It takes no further bytes while it has something to send or waits for a
 * key, so that what it can make the store hold is one frame and one reply; a reply shares the stored value. Buffers
 * grow with the bytes that arrive, never by what a header promises, and those of all sessions together have a limit,
 * beyond which a frame is read but not kept, and answered by NO_SPACE.
 */
#ifndef DTRAIN_COMM_STORE_SESSION_H
#define DTRAIN_COMM_STORE_SESSION_H

#include <stdbool.h>
#include <sys/uio.h>

#include "store_frame.h"
#include "store_table.h"

/* Frames that have begun to arrive, of all sessions together; each may have the small part whatever the others have. */
#define STORE_MAX_INPUT (64u << 20)
#define STORE_SMALL_INPUT 4096

typedef struct store_session store_session;

typedef struct store_content {
	uint8_t token[STORE_TOKEN_SIZE];
	int most_members; /* sessions that may be past their HELLO */
	const char *full; /* what those beyond them are told */
	int members;
	uint64_t refused_members;
	uint64_t refused_strangers; /* their token was another one */
	store_memory memory;
	store_table values, counters;
	size_t input_bytes;
	store_session *waiting; /* for a key; linked by next and previous */
	store_session *ready;   /* have something to send that they did not have; linked by next_ready */
} store_content;

struct store_session {
	uint8_t head[STORE_HELLO_SIZE]; /* a header, or the HELLO */
	uint8_t head_size;
	bool member;   /* past its HELLO */
	bool waiting;  /* for the key in body */
	bool ready;    /* in the content's list */
	bool ending;   /* when it has sent what it has to */
	bool no_room;  /* whatever its token, it is told that the store is full */
	bool skipping; /* the frame is not kept: `refusal` is the answer */
	int refusal;
	store_header header; /* of the frame that is being received, when the head is whole */
	uint8_t *body;       /* key and value */
	size_t body_size, body_capacity;
	size_t skipped;

	uint8_t reply[STORE_HEADER_SIZE];
	store_blob *reply_value; /* NULL: empty */
	size_t reply_size, sent; /* bytes, with the header; 0: nothing to send */

	store_blob *will; /* key and value */
	size_t will_key_size;

	struct store_session *next, *previous, *next_ready;
};

/* The token is all zero for none. */
void dtrain__store_content_init(store_content *content, const uint8_t token[STORE_TOKEN_SIZE], int most_members,
				const char *full);
/* When all sessions are closed. */
void dtrain__store_content_free(store_content *content);
/* A session that got something to send by what another one did; NULL: no more. */
store_session *dtrain__store_content_take_ready(store_content *content);

/* A session begins zeroed. */

/* How many bytes it takes now; 0: none, before it has sent what it has, or has got the key that it waits for. */
size_t dtrain__store_session_wanted(const store_session *session);
/* At most so many have come. False: it has broken a rule and is to be closed. */
bool dtrain__store_session_receive(store_content *content, store_session *session, const uint8_t *bytes, size_t size);
/* What it has to send, in up to two parts; returns how many. */
int dtrain__store_session_pending(const store_session *session, struct iovec parts[2]);
/* So many bytes of it have been sent. False: it is to be closed, having said its last. */
bool dtrain__store_session_sent(store_session *session, size_t size);
/* Is a frame under way, either way? If that takes long, the other side hangs. */
bool dtrain__store_session_is_busy(const store_session *session);
/* Its last will comes into force, unless the whole store ends. */
void dtrain__store_session_close(store_content *content, store_session *session, bool carry_out);

#endif
