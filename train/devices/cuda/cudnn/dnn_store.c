/* SPDX-License-Identifier: Apache-2.0 */
#include "dnn_store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "devices/cuda/cache.h"

/* In the file, and in the text that we give cuDNN for a signature. */
#define FORMAT "dtrain-plan-1"
/* Plans have up to 200 KB. */
#define MAX_FILE_BYTES ((size_t)16 << 20)

/* A plan that could not be written; used by this process only. */
typedef struct held {
	struct held *next;
	char *bytes; /* content of the file */
	size_t length;
} held;

struct dnn_store {
	char *folders[2]; /* NULL: none; plans are written to the first */
	pthread_mutex_t mutex;
	held *held;  /* guarded by the mutex; so is what follows */
	int failure; /* status of the first failed write */
	beton_error error;
};

char *dnn_store_name(int capability, int multiprocessors, size_t cudnn_version)
{
	return bt_format("plans-sm%d-%d-cudnn%zu", capability, multiprocessors, cudnn_version);
}

int dnn_store_open(const char *folder, const char *shipped, dnn_store **out, beton_error *err)
{
	dnn_store *store = calloc(1, sizeof(*store));
	*out = store;
	if (store) {
		pthread_mutex_init(&store->mutex, NULL);
		store->folders[0] = folder ? strdup(folder) : NULL;
		store->folders[1] = shipped ? strdup(shipped) : NULL;
	}
	if (store && !store->folders[0] == !folder && !store->folders[1] == !shipped)
		return BETON_OK;
	dnn_store_close(store);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for the folder of cuDNN's plans");
}

void dnn_store_close(dnn_store *store)
{
	if (!store)
		return;
	for (held *next; store->held; store->held = next) {
		next = store->held->next;
		free(store->held->bytes);
		free(store->held);
	}
	pthread_mutex_destroy(&store->mutex);
	free(store->folders[0]);
	free(store->folders[1]);
	free(store);
}

static char *path_of(const char *folder, const char *id)
{
	return folder ? bt_format("%s/%016" PRIx64, folder, (uint64_t)XXH3_64bits(id, strlen(id))) : NULL;
}

/* "FORMAT CHECKSUM
 * ", then "ID
 * " and the text; the checksum covers the latter two. NULL: out of memory. */
static char *pack(const char *id, const char *text, size_t length, size_t *packed)
{
	size_t head = strlen(FORMAT) + 1 + 16 + 1, body = strlen(id) + 1 + length;
	char *out = malloc(head + body + 1);
	if (!out)
		return NULL;
	memcpy(out + head, id, strlen(id));
	out[head + strlen(id)] = '\n';
	memcpy(out + head + strlen(id) + 1, text, length);
	char line[64];
	snprintf(line, sizeof(line), FORMAT " %016" PRIx64 "\n", (uint64_t)XXH3_64bits(out + head, body));
	memcpy(out, line, head);
	*packed = head + body;
	return out;
}

/* The length of the text at its end; 0: not an intact result of pack() for this id. */
static size_t check(const char *packed, size_t length, const char *id)
{
	size_t head = strlen(FORMAT) + 1 + 16 + 1, name = strlen(id);
	char line[64];
	if (length <= head + name + 1)
		return 0;
	snprintf(line, sizeof(line), FORMAT " %016" PRIx64 "\n", (uint64_t)XXH3_64bits(packed + head, length - head));
	bool sound =
		memcmp(packed, line, head) == 0 && memcmp(packed + head, id, name) == 0 && packed[head + name] == '\n';
	return sound ? length - head - name - 1 : 0;
}

/* The text of an id in a file's bytes; NULL: it has none. */
static char *unpack(const char *bytes, size_t packed, const char *id, size_t *length)
{
	*length = check(bytes, packed, id);
	char *text = *length ? malloc(*length + 1) : NULL;
	if (text) {
		memcpy(text, bytes + packed - *length, *length);
		text[*length] = 0;
	}
	return text;
}

static char *read_held(dnn_store *store, const char *id, size_t *length)
{
	char *text = NULL;
	pthread_mutex_lock(&store->mutex);
	for (const held *h = store->held; h && !text; h = h->next)
		text = unpack(h->bytes, h->length, id, length);
	pthread_mutex_unlock(&store->mutex);
	return text;
}

char *dnn_store_read(dnn_store *store, const char *id, size_t *length)
{
	char *text = read_held(store, id, length);
	for (int i = 0; i < 2 && !text; i++) {
		size_t packed = 0;
		char *path = path_of(store->folders[i], id);
		char *bytes = path ? cuda_cache_read(path, MAX_FILE_BYTES, &packed) : NULL;
		if (bytes)
			text = unpack(bytes, packed, id, length);
		free(bytes);
		free(path);
	}
	return text;
}

/* Takes ownership of the bytes. */
static int hold(dnn_store *store, char *bytes, size_t length, beton_error *err)
{
	held *h = malloc(sizeof(*h));
	if (!h) {
		free(bytes);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a plan of cuDNN's");
	}
	pthread_mutex_lock(&store->mutex);
	*h = (held){.next = store->held, .bytes = bytes, .length = length};
	store->held = h;
	pthread_mutex_unlock(&store->mutex);
	return BETON_OK;
}

/* Drops the held plan, because the file has it now. */
static void forget(dnn_store *store, const char *id)
{
	pthread_mutex_lock(&store->mutex);
	for (held **at = &store->held; *at;) {
		held *h = *at;
		if (check(h->bytes, h->length, id) == 0) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		free(h->bytes);
		free(h);
	}
	pthread_mutex_unlock(&store->mutex);
}

static void note_failure(dnn_store *store, int status, const beton_error *error)
{
	pthread_mutex_lock(&store->mutex);
	if (store->failure == BETON_OK) {
		store->failure = status;
		store->error = *error;
	}
	pthread_mutex_unlock(&store->mutex);
}

int dnn_store_write(dnn_store *store, const char *id, const char *text, size_t length, beton_error *err)
{
	size_t packed = 0;
	char *path = path_of(store->folders[0], id), *bytes = pack(id, text, length, &packed);
	if (!bytes) {
		free(path);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a plan of cuDNN's");
	}
	beton_error error = {0};
	int status = path ? cuda_cache_write(path, bytes, packed, &error) : BETON_IO;
	if (path && status != BETON_OK)
		note_failure(store, status, &error);
	free(path);
	if (status != BETON_OK)
		return hold(store, bytes, packed, err);
	forget(store, id);
	free(bytes);
	return BETON_OK;
}

int dnn_store_failure(dnn_store *store, beton_error *err)
{
	pthread_mutex_lock(&store->mutex);
	int status = store->failure;
	if (status != BETON_OK && err)
		*err = store->error;
	pthread_mutex_unlock(&store->mutex);
	return status;
}
