/* SPDX-License-Identifier: Apache-2.0 */
#include "digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "common/system.h"

#define READ_BYTES ((size_t)1 << 20)

void dtrain__digest_free(checkpoint_digest *digest)
{
	free(digest->hashes);
	XXH3_freeState(digest->state);
	*digest = (checkpoint_digest){0};
}

static int fail_memory(beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for checksums");
}

int dtrain__digest_begin(checkpoint_digest *digest, uint64_t chunk_bytes, beton_error *err)
{
	*digest = (checkpoint_digest){.chunk_bytes = chunk_bytes, .state = XXH3_createState()};
	if (!digest->state)
		return fail_memory(err);
	XXH3_64bits_reset(digest->state);
	return BETON_OK;
}

static int end_chunk(checkpoint_digest *digest, beton_error *err)
{
	uint64_t *grown = realloc(digest->hashes, (digest->count + 1) * sizeof(*grown));
	if (!grown)
		return fail_memory(err);
	digest->hashes = grown;
	grown[digest->count++] = XXH3_64bits_digest(digest->state);
	digest->filled = 0;
	XXH3_64bits_reset(digest->state);
	return BETON_OK;
}

int dtrain__digest_add(checkpoint_digest *digest, const void *data, size_t bytes, beton_error *err)
{
	const char *at = data;
	int status = BETON_OK;
	while (bytes && status == BETON_OK) {
		uint64_t room = digest->chunk_bytes - digest->filled;
		size_t part = bytes < room ? bytes : (size_t)room;
		XXH3_64bits_update(digest->state, at, part);
		digest->size += part;
		digest->filled += part;
		at += part;
		bytes -= part;
		if (digest->filled == digest->chunk_bytes)
			status = end_chunk(digest, err);
	}
	return status;
}

int dtrain__digest_end(checkpoint_digest *digest, beton_error *err)
{
	int status = digest->filled || !digest->count ? end_chunk(digest, err) : BETON_OK;
	XXH3_freeState(digest->state);
	digest->state = NULL;
	return status;
}

uint64_t dtrain__digest_chunks(uint64_t size, uint64_t chunk_bytes)
{
	return size ? (size - 1) / chunk_bytes + 1 : 1;
}

static int check_chunk(const checkpoint_digest *digest, const char *path, int fd, size_t chunk, XXH3_state_t *state,
		       void *buffer, beton_error *err)
{
	bool whole = digest->chunk_bytes == UINT64_MAX;
	uint64_t begin = whole ? 0 : chunk * digest->chunk_bytes, at = begin;
	uint64_t end = digest->size - begin < digest->chunk_bytes ? digest->size : begin + digest->chunk_bytes;
	XXH3_64bits_reset(state);
	while (at < end) {
		size_t part = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
		ssize_t got = bt_pread_full(fd, buffer, part, at);
		if (got < 0)
			return bt_fail_errno(err, errno, "%s: cannot read", path);
		if ((size_t)got != part)
			return bt_fail(err, BETON_TRUNCATED, "%s: became shorter while it was read", path);
		XXH3_64bits_update(state, buffer, part);
		at += part;
	}
	if (XXH3_64bits_digest(state) == digest->hashes[chunk])
		return BETON_OK;
	if (whole)
		return bt_fail(err, BETON_FORMAT, "%s: is damaged (its checksum is wrong)", path);
	return bt_fail(err, BETON_FORMAT,
		       "%s: is damaged from byte %" PRIu64 " to %" PRIu64 " (their checksum is wrong)", path, begin,
		       end);
}

int dtrain__digest_check(const checkpoint_digest *digest, const char *path, int fd, size_t first, size_t last,
			 beton_error *err)
{
	struct stat info;
	if (fstat(fd, &info) != 0)
		return bt_fail_errno(err, errno, "%s: cannot stat", path);
	uint64_t size = (uint64_t)info.st_size;
	if (size != digest->size)
		return bt_fail(err, size < digest->size ? BETON_TRUNCATED : BETON_FORMAT,
			       "%s: has %" PRIu64 " bytes, %" PRIu64 " were written", path, size, digest->size);
	XXH3_state_t *state = XXH3_createState();
	void *buffer = malloc(size < READ_BYTES ? (size_t)size + 1 : READ_BYTES);
	int status = state && buffer ? BETON_OK : fail_memory(err);
	for (size_t chunk = first; chunk < last && status == BETON_OK; chunk++)
		status = check_chunk(digest, path, fd, chunk, state, buffer, err);
	XXH3_freeState(state);
	free(buffer);
	return status;
}
