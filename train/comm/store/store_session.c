/* SPDX-License-Identifier: Apache-2.0 */
#include "store_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

void dtrain__store_content_init(store_content *content, const uint8_t token[STORE_TOKEN_SIZE], int most_members,
				const char *full)
{
	*content = (store_content){.most_members = most_members, .full = full};
	memcpy(content->token, token, STORE_TOKEN_SIZE);
	content->values.memory = content->counters.memory = &content->memory;
}

int dtrain__store_content_identify(store_content *content, const uint8_t identity[STORE_IDENTITY_SIZE])
{
	int status = BETON_OK;
	content->identity = dtrain__store_blob_create(&content->memory, identity, STORE_IDENTITY_SIZE, &status);
	return content->identity ? BETON_OK : status;
}

void dtrain__store_content_free(store_content *content)
{
	dtrain__store_blob_release(content->identity);
	dtrain__store_table_free(&content->values);
	dtrain__store_table_free(&content->counters);
}

store_session *dtrain__store_content_take_ready(store_content *content)
{
	store_session *session = content->ready;
	if (session) {
		content->ready = session->next_ready;
		session->ready = false;
	}
	return session;
}

static void wait_for_key(store_content *content, store_session *session)
{
	session->waiting = true;
	session->previous = NULL;
	session->next = content->waiting;
	if (session->next)
		session->next->previous = session;
	content->waiting = session;
}

static void stop_waiting(store_content *content, store_session *session)
{
	if (!session->waiting)
		return;
	session->waiting = false;
	if (session->next)
		session->next->previous = session->previous;
	if (session->previous)
		session->previous->next = session->next;
	else
		content->waiting = session->next;
}

/* Frees the frame; the next one begins. */
static void clear_input(store_content *content, store_session *session)
{
	content->input_bytes -= session->body_capacity;
	free(session->body);
	session->body = NULL;
	session->body_size = session->body_capacity = session->skipped = 0;
	session->head_size = 0;
	session->skipping = false;
}

/* Holds a reference to the value, which may be NULL. */
static void reply(store_session *session, int status, store_blob *value)
{
	store_header header = {
		.kind = STORE_REPLY, .status = (uint16_t)-status, .value_size = value ? (uint32_t)value->size : 0};
	dtrain__store_pack(&header, session->reply);
	session->reply_value = value ? dtrain__store_blob_hold(value) : NULL;
	session->reply_size = STORE_HEADER_SIZE + (value ? value->size : 0);
	session->sent = 0;
}

/* Answers all sessions that wait for this key. */
static void wake(store_content *content, const void *key, size_t key_size)
{
	const store_entry *entry = dtrain__store_table_find(&content->values, key, key_size);
	for (store_session *next, *s = entry ? content->waiting : NULL; s; s = next) {
		next = s->next;
		if (s->body_size != entry->key_size || memcmp(s->body, entry->key, entry->key_size) != 0)
			continue;
		stop_waiting(content, s);
		clear_input(content, s);
		reply(s, BETON_OK, entry->value);
		s->ready = true;
		s->next_ready = content->ready;
		content->ready = s;
	}
}

/* Refuses, with the reason if there is room for it, and ends the session. */
static void refuse(store_content *content, store_session *session, int status, const char *why)
{
	int ignored;
	store_blob *text = why ? dtrain__store_blob_create(&content->memory, why, strlen(why), &ignored) : NULL;
	reply(session, status, text);
	dtrain__store_blob_release(text);
	session->ending = true;
}

static void admit(store_content *content, store_session *session)
{
	const uint8_t *token = session->head + STORE_HEADER_SIZE;
	clear_input(content, session);
	if (!dtrain__store_same_token(token, content->token)) {
		content->refused_strangers++;
		refuse(content, session, BETON_ACCESS, NULL);
	} else if (session->no_room || content->members >= content->most_members) {
		content->refused_members++;
		refuse(content, session, BETON_NO_SPACE, content->full);
	} else {
		content->members++;
		session->member = true;
		reply(session, BETON_OK, content->identity);
	}
	explicit_bzero(session->head, sizeof(session->head));
}

static void serve_set(store_content *content, store_session *session)
{
	const uint8_t *key = session->body, *value = key + session->header.key_size;
	int status = dtrain__store_table_set(&content->values, key, session->header.key_size, value,
					     session->header.value_size);
	reply(session, status, NULL);
	if (status == BETON_OK)
		wake(content, key, session->header.key_size);
}

static void serve_add(store_content *content, store_session *session)
{
	const uint8_t *key = session->body, *delta = key + session->header.key_size;
	const store_entry *entry = dtrain__store_table_find(&content->counters, key, session->header.key_size);
	int64_t sum = entry ? dtrain__store_unpack_i64(entry->value->data) : 0;
	if (__builtin_add_overflow(sum, dtrain__store_unpack_i64(delta), &sum)) {
		reply(session, BETON_INVALID_ARGUMENT, NULL);
		return;
	}
	uint8_t bytes[8];
	dtrain__store_pack_i64(sum, bytes);
	int status = dtrain__store_table_set(&content->counters, key, session->header.key_size, bytes, sizeof(bytes));
	entry = status != BETON_OK ? NULL : dtrain__store_table_find(&content->counters, key, session->header.key_size);
	reply(session, status, entry ? entry->value : NULL);
}

/* The session's will for this key, or room for another one; NULL: there is neither. */
static store_will *find_will(store_session *session, const uint8_t *key, size_t key_size)
{
	for (int i = 0; i < STORE_MAX_WILLS; i++) {
		store_will *will = &session->wills[i];
		if (!will->blob || (will->key_size == key_size && memcmp(will->blob->data, key, key_size) == 0))
			return will;
	}
	return NULL;
}

static void serve_will(store_content *content, store_session *session)
{
	int status = BETON_NO_SPACE;
	store_will *will = find_will(session, session->body, session->header.key_size);
	store_blob *blob =
		will ? dtrain__store_blob_create(&content->memory, session->body, session->body_size, &status) : NULL;
	if (blob) {
		status = BETON_OK;
		dtrain__store_blob_release(will->blob);
		*will = (store_will){blob, session->header.key_size};
	}
	reply(session, status, NULL);
}

static void serve_lease(store_session *session)
{
	int64_t lease_ms = dtrain__store_unpack_i64(session->body);
	bool valid = lease_ms > 0 && lease_ms <= INT32_MAX;
	if (valid)
		session->lease_ms = (int)lease_ms;
	reply(session, valid ? BETON_OK : BETON_INVALID_ARGUMENT, NULL);
}

/* Serves one complete request. */
static void serve(store_content *content, store_session *session)
{
	const store_entry *entry;
	switch (session->header.kind) {
	case STORE_SET:
		serve_set(content, session);
		break;
	case STORE_WILL:
		serve_will(content, session);
		break;
	case STORE_LEASE:
		serve_lease(session);
		break;
	case STORE_ADD:
		serve_add(content, session);
		break;
	case STORE_GET:
	case STORE_WAIT:
		entry = dtrain__store_table_find(&content->values, session->body, session->header.key_size);
		if (!entry && session->header.kind == STORE_WAIT) {
			wait_for_key(content, session);
			return;
		}
		reply(session, entry ? BETON_OK : BETON_NOT_FOUND, entry ? entry->value : NULL);
		break;
	}
	clear_input(content, session);
}

static size_t body_wanted(const store_session *session)
{
	return (size_t)session->header.key_size + session->header.value_size;
}

static size_t head_wanted(const store_session *session)
{
	/* The header of a HELLO is checked before its token is received. */
	return session->member || session->head_size < STORE_HEADER_SIZE ? STORE_HEADER_SIZE : STORE_HELLO_SIZE;
}

size_t dtrain__store_session_wanted(const store_session *session)
{
	if (session->waiting || session->reply_size || session->ending)
		return 0;
	if (session->head_size < head_wanted(session))
		return head_wanted(session) - session->head_size;
	return body_wanted(session) - (session->skipping ? session->skipped : session->body_size);
}

/* False: the frame cannot be kept. */
static bool make_room(store_content *content, store_session *session, size_t size)
{
	size_t capacity = session->body_capacity ? session->body_capacity : FIRST_CAPACITY;
	if (session->body_size + size <= session->body_capacity)
		return true;
	while (capacity < session->body_size + size)
		capacity *= 2;
	if (capacity > body_wanted(session))
		capacity = body_wanted(session);
	session->refusal = BETON_NO_SPACE;
	if (capacity > STORE_SMALL_INPUT &&
	    content->input_bytes + (capacity - session->body_capacity) > STORE_MAX_INPUT)
		return false;
	session->refusal = BETON_NO_MEMORY;
	uint8_t *grown = realloc(session->body, capacity);
	if (!grown)
		return false;
	content->input_bytes += capacity - session->body_capacity;
	session->body = grown;
	session->body_capacity = capacity;
	return true;
}

static void keep(store_content *content, store_session *session, const uint8_t *bytes, size_t size)
{
	if (!session->skipping && !make_room(content, session, size)) {
		size_t had = session->body_size;
		content->input_bytes -= session->body_capacity;
		free(session->body);
		session->body = NULL;
		session->body_size = session->body_capacity = 0;
		session->skipping = true;
		session->skipped = had;
	}
	if (session->skipping) {
		session->skipped += size;
	} else if (size) {
		memcpy(session->body + session->body_size, bytes, size);
		session->body_size += size;
	}
}

static bool receive_head(store_content *content, store_session *session)
{
	if (session->head_size < STORE_HEADER_SIZE)
		return true;
	/* Clients must not send replies, nor a second HELLO. */
	if (session->head_size == STORE_HEADER_SIZE)
		return dtrain__store_unpack(session->head, &session->header) && session->header.kind != STORE_REPLY &&
		       (session->header.kind == STORE_HELLO) == !session->member;
	if (session->head_size == STORE_HELLO_SIZE)
		admit(content, session);
	return true;
}

bool dtrain__store_session_receive(store_content *content, store_session *session, const uint8_t *bytes, size_t size)
{
	if (session->head_size < head_wanted(session)) {
		memcpy(session->head + session->head_size, bytes, size);
		session->head_size += (uint8_t)size;
		return receive_head(content, session);
	}
	keep(content, session, bytes, size);
	if (dtrain__store_session_wanted(session))
		return true;
	if (session->skipping) {
		clear_input(content, session);
		reply(session, session->refusal, NULL);
	} else {
		serve(content, session);
	}
	return true;
}

int dtrain__store_session_pending(const store_session *session, struct iovec parts[2])
{
	size_t in_header = session->sent < STORE_HEADER_SIZE ? STORE_HEADER_SIZE - session->sent : 0;
	size_t in_value = session->reply_size - session->sent - in_header, of_value = session->sent + in_header;
	int count = 0;
	if (!session->reply_size)
		return 0;
	if (in_header)
		parts[count++] = (struct iovec){(uint8_t *)(uintptr_t)session->reply + session->sent, in_header};
	if (in_value)
		parts[count++] = (struct iovec){session->reply_value->data + of_value - STORE_HEADER_SIZE, in_value};
	return count;
}

bool dtrain__store_session_sent(store_session *session, size_t size)
{
	session->sent += size;
	if (session->sent < session->reply_size)
		return true;
	dtrain__store_blob_release(session->reply_value);
	session->reply_value = NULL;
	session->reply_size = session->sent = 0;
	return !session->ending;
}

bool dtrain__store_session_is_busy(const store_session *session)
{
	return session->reply_size || (session->head_size && !session->waiting);
}

static void carry_out(store_content *content, const store_session *session, const store_will *will)
{
	char value[STORE_MAX_WILL + 32];
	const uint8_t *key = will->blob->data;
	size_t key_size = will->key_size, value_size = will->blob->size - key_size;
	memcpy(value, key + key_size, value_size);
	if (session->expired)
		value_size +=
			(size_t)snprintf(value + value_size, sizeof(value) - value_size, " %d", session->lease_ms);
	/* Without memory for it, waiting ranks reach their deadlines. */
	if (!dtrain__store_table_find(&content->values, key, key_size) &&
	    dtrain__store_table_set(&content->values, key, key_size, value, value_size) == BETON_OK)
		wake(content, key, key_size);
}

void dtrain__store_session_close(store_content *content, store_session *session, bool carries_out)
{
	store_session **link = &content->ready;
	stop_waiting(content, session);
	while (session->ready && *link != session)
		link = &(*link)->next_ready;
	if (session->ready)
		*link = session->next_ready;
	clear_input(content, session);
	dtrain__store_blob_release(session->reply_value);
	for (int i = 0; i < STORE_MAX_WILLS && session->wills[i].blob; i++) {
		/* An empty one was taken back. */
		if (carries_out && session->wills[i].blob->size > session->wills[i].key_size)
			carry_out(content, session, &session->wills[i]);
		dtrain__store_blob_release(session->wills[i].blob);
	}
	content->members -= session->member;
}
