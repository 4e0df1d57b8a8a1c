/* SPDX-License-Identifier: Apache-2.0
 *
 * Four connections to a store at once. The input is a list of steps, a byte each followed by its arguments: which
 * connection, and whether it sends bytes unchanged, a frame that is well-formed but for its content, reads a part of
 * its answer, or ends and begins anew. */
#include <stdlib.h>
#include <string.h>

#include "exercise.h"
#include "fuzz.h"
#include "train/comm/store/store_session.h"

enum { SESSIONS = 4, MOST_MEMBERS = 3 };

static const uint8_t token[STORE_TOKEN_SIZE] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

struct store {
	store_content content;
	store_session sessions[SESSIONS];
	store_header reply[SESSIONS]; /* of the answer that is being read */
	uint8_t head[SESSIONS][STORE_HEADER_SIZE];
	size_t received[SESSIONS];
};

struct input {
	const uint8_t *at, *end;
};

static uint8_t next(struct input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

static void begin_anew(struct store *store, int number, bool carry_out)
{
	/* As if it had sent nothing since. */
	store->sessions[number].expired = store->sessions[number].lease_ms > 0;
	dtrain__store_session_close(&store->content, &store->sessions[number], carry_out);
	store->sessions[number] = (store_session){0};
	store->received[number] = 0;
}

/* An answer is a whole reply and nothing else. */
static void check_answer(struct store *store, int number, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++, store->received[number]++)
		if (store->received[number] < STORE_HEADER_SIZE)
			store->head[number][store->received[number]] = bytes[i];
	if (store->received[number] >= STORE_HEADER_SIZE) {
		require(dtrain__store_unpack(store->head[number], &store->reply[number]), "an answer is a frame");
		require(store->reply[number].kind == STORE_REPLY, "an answer is a reply");
		require(store->received[number] <= STORE_HEADER_SIZE + (size_t)store->reply[number].value_size,
			"an answer has the size that it says");
	}
}

static void drain(struct store *store, int number, size_t most)
{
	store_session *session = &store->sessions[number];
	struct iovec parts[2];
	int count;

	while (most && (count = dtrain__store_session_pending(session, parts))) {
		size_t size = parts[0].iov_len < most ? parts[0].iov_len : most;

		require(count <= 2 && size > 0, "there is something to send");
		check_answer(store, number, parts[0].iov_base, size);
		most -= size;
		bool whole = count == 1 && size == parts[0].iov_len;
		if (!dtrain__store_session_sent(session, size)) {
			begin_anew(store, number, true);
			return;
		}
		if (whole) {
			require(store->received[number] == STORE_HEADER_SIZE + (size_t)store->reply[number].value_size,
				"an answer ends where it says");
			store->received[number] = 0;
		}
	}
}

static void send_bytes(struct store *store, int number, const uint8_t *bytes, size_t size)
{
	store_session *session = &store->sessions[number];

	while (size) {
		size_t wanted = dtrain__store_session_wanted(session), part = wanted < size ? wanted : size;
		uint8_t *copy = malloc(part ? part : 1);

		if (!wanted || !copy) {
			free(copy);
			return;
		}
		memcpy(copy, bytes, part);
		bool alive = dtrain__store_session_receive(&store->content, session, copy, part);
		free(copy);
		if (!alive) {
			begin_anew(store, number, true);
			return;
		}
		bytes += part;
		size -= part;
	}
}

static void send_hello(struct store *store, int number)
{
	store_header header = {.kind = STORE_HELLO, .value_size = STORE_TOKEN_SIZE};
	uint8_t bytes[STORE_HELLO_SIZE];

	dtrain__store_pack(&header, bytes);
	memcpy(bytes + STORE_HEADER_SIZE, token, STORE_TOKEN_SIZE);
	send_bytes(store, number, bytes, sizeof(bytes));
	drain(store, number, STORE_HEADER_SIZE + STORE_IDENTITY_SIZE);
}

static void send_frame(struct store *store, int number, struct input *input)
{
	uint8_t bytes[STORE_HEADER_SIZE + 4 + 255];
	store_header header = {.kind = (uint8_t)(1 + next(input) % 8), .key_size = 1 + next(input) % 3};
	uint8_t key = next(input), size = next(input);

	header.key_size *= header.kind != STORE_LEASE;
	header.value_size = header.kind == STORE_ADD || header.kind == STORE_LEASE  ? 8
			    : header.kind == STORE_GET || header.kind == STORE_WAIT ? 0
										    : size;
	memset(bytes, 'a' + key % 4, sizeof(bytes));
	dtrain__store_pack(&header, bytes);
	for (size_t i = 0; i < header.value_size && input->at < input->end; i++)
		bytes[STORE_HEADER_SIZE + header.key_size + i] = next(input);
	send_bytes(store, number, bytes, STORE_HEADER_SIZE + header.key_size + header.value_size);
}

static void step(struct store *store, struct input *input)
{
	uint8_t what = next(input), size;
	int number = what % SESSIONS;

	switch (what / SESSIONS % 8) {
	case 0:
		size = next(input);
		size = size < input->end - input->at ? size : (uint8_t)(input->end - input->at);
		send_bytes(store, number, input->at, size);
		input->at += size;
		break;
	case 1:
		send_hello(store, number);
		break;
	case 2:
		drain(store, number, next(input));
		break;
	case 3:
		begin_anew(store, number, what & 128);
		break;
	default:
		send_frame(store, number, input);
		if (what & 128)
			drain(store, number, SIZE_MAX);
		break;
	}
	while (dtrain__store_content_take_ready(&store->content))
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct store store;
	struct input input = {data, data + size};

	memset(&store, 0, sizeof(store));
	dtrain__store_content_init(&store.content, token, MOST_MEMBERS, "the store is full");
	require(dtrain__store_content_identify(&store.content, token) == BETON_OK, "there is room for it");
	while (input.at < input.end) {
		step(&store, &input);
		require(store.content.members >= 0 && store.content.members <= MOST_MEMBERS,
			"there are no more members than may be");
		require(store.content.memory.bytes <= STORE_MAX_BYTES, "the table keeps its bound");
	}
	for (int i = 0; i < SESSIONS; i++)
		begin_anew(&store, i, true);
	while (dtrain__store_content_take_ready(&store.content))
		;
	require(store.content.members == 0 && !store.content.waiting && !store.content.ready, "no member is left");
	require(store.content.input_bytes == 0, "no frame is left");
	dtrain__store_content_free(&store.content);
	require(store.content.memory.bytes == 0 && store.content.memory.keys == 0, "nothing is left");
	return 0;
}
