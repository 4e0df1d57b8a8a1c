/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol between the key-value store and its clients. A frame is a header of 16 bytes, then the key, then the
 * value. All numbers are little-endian:
 *
 * 	0  u32  magic "DTKV"
 * 	4  u8   version
 * 	5  u8   kind (store_kind)
 * 	6  u16  status of a reply: a beton_status, negated; 0 in a request
 * 	8  u32  bytes of the key, at most STORE_MAX_KEY; 0 in a reply
 * 	12 u32  bytes of the value, at most STORE_MAX_VALUE
 *
 * The first frame of a connection is a HELLO. Until its token is accepted, the server reads and keeps nothing else of
 * the connection. A connection has one request and its reply at a time. A frame that breaks a limit ends the
 * connection.
 */
#ifndef DTRAIN_COMM_STORE_STORE_FRAME_H
#define DTRAIN_COMM_STORE_STORE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#define STORE_VERSION 4
#define STORE_HEADER_SIZE 16
#define STORE_TOKEN_SIZE 16
#define STORE_IDENTITY_SIZE 16
#define STORE_HELLO_SIZE (STORE_HEADER_SIZE + STORE_TOKEN_SIZE)
#define STORE_MAX_KEY 1024
#define STORE_MAX_VALUE (16u << 20)
#define STORE_MAX_WILL 1024 /* bytes of a last will's value, which is kept besides the content */

typedef enum store_kind {
	STORE_SET = 1,  /* key, value -> nothing */
	STORE_GET = 2,  /* key -> value, or NOT_FOUND at once */
	STORE_WAIT = 3, /* key -> value, as soon as it is set; the client gives up by closing the connection */
	STORE_ADD = 4,  /* key, i64 -> the sum, i64; counters and values have separate keys */
	STORE_WILL = 5, /* key, value -> nothing. At the end of this connection the key is set, unless it has a value.
			   No value: it will not be set */
	STORE_REPLY = 6,
	STORE_HELLO = 7, /* token, all zero for none -> the store's identity, drawn when it starts; or ACCESS, or
			    NO_SPACE with the reason as text, and the connection ends */
	STORE_LEASE = 8, /* no key, i64 of 1 to INT32_MAX ms -> nothing. If the client then sends nothing for so long,
			    the connection ends, and each of its wills sets "VALUE MS" */
} store_kind;

typedef struct store_header {
	uint8_t kind;
	uint16_t status;
	uint32_t key_size;
	uint32_t value_size;
} store_header;

void dtrain__store_pack(const store_header *header, uint8_t out[STORE_HEADER_SIZE]);

/* Returns false if the bytes are not a header or the header breaks a limit. */
bool dtrain__store_unpack(const uint8_t in[STORE_HEADER_SIZE], store_header *out);

void dtrain__store_pack_i64(int64_t value, uint8_t out[8]);
int64_t dtrain__store_unpack_i64(const uint8_t in[8]);

/* 32 hexadecimal digits; NULL: no token, which is all zero. INVALID_ARGUMENT, without the text, which is a secret. */
int dtrain__store_parse_token(const char *text, uint8_t out[STORE_TOKEN_SIZE], beton_error *err);
bool dtrain__store_has_token(const uint8_t token[STORE_TOKEN_SIZE]);
/* Takes the same time for any two tokens. */
bool dtrain__store_same_token(const uint8_t a[STORE_TOKEN_SIZE], const uint8_t b[STORE_TOKEN_SIZE]);

#endif
