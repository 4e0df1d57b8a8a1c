/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/system.h"
#include "folder.h"

/* Programs that only support the first version refuse the second. */
#define VERSION_WHOLE 1
#define VERSION_SHARDED 2
#define STATE_BYTES_MAX (16 << 20)
#define HEX_DIGITS 16

json_t *dtrain__hash_to_json(uint64_t hash)
{
	char text[HEX_DIGITS + 1];
	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	return json_string(text);
}

bool dtrain__hash_from_json(const json_t *text, uint64_t *out)
{
	const char *digits = json_string_value(text);
	if (!digits || strlen(digits) != HEX_DIGITS || strspn(digits, "0123456789abcdef") != HEX_DIGITS)
		return false;
	*out = strtoull(digits, NULL, 16);
	return true;
}

int dtrain__state_parse(const char *text, json_t **out, beton_error *err)
{
	json_error_t problem;
	*out = text ? json_loads(text, JSON_REJECT_DUPLICATES, &problem) : json_object();
	if (json_is_object(*out))
		return BETON_OK;
	json_decref(*out);
	*out = NULL;
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the state of a checkpoint");
	return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: the state is not a JSON object: %.100s", text);
}

int dtrain__state_check_metadata(const char *place, const json_t *state, beton_error *err)
{
	json_t *metadata = json_object_get(state, "metadata");
	const char *key;
	json_t *value;
	bool good = !metadata || json_is_object(metadata);
	json_object_foreach(metadata, key, value) good = good && json_is_string(value);
	return good ? BETON_OK : bt_fail(err, BETON_FORMAT, "%s: its metadata are not an object of texts", place);
}

/* The hash of the state's members, sorted, without "xxh3". 0: out of memory; no saved state has this hash. */
static uint64_t hash_of_state(const json_t *state)
{
	json_t *rest = json_copy((json_t *)state);
	if (rest)
		json_object_del(rest, "xxh3");
	char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
	free(text);
	json_decref(rest);
	return hash;
}

static json_t *files_to_json(const checkpoint_listed *files, size_t count)
{
	json_t *all = json_object();
	for (size_t i = 0; i < count && all; i++) {
		json_t *one = json_pack("{s:I, s:o}", "size", (json_int_t)files[i].digest->size, "xxh3",
					dtrain__hash_to_json(files[i].digest->hashes[0]));
		if (json_object_set_new(all, files[i].name, one) != 0) {
			json_decref(all);
			all = NULL;
		}
	}
	return all;
}

static int write_text(const char *path, const char *text, beton_error *err)
{
	int status = BETON_OK;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || bt_write_full(fd, text, strlen(text)) != 0 || bt_write_full(fd, "\n", 1) != 0 || fsync(fd) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot write", path);
	if (fd >= 0 && close(fd) != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s: cannot close", path);
	return status;
}

int dtrain__state_write(const char *folder, json_t *state, bool sharded, const checkpoint_listed *files, size_t count,
			beton_error *err)
{
	int version = sharded ? VERSION_SHARDED : VERSION_WHOLE;
	char *path = bt_format("%s/" CHECKPOINT_STATE_FILE, folder);
	bool complete = path && json_object_set_new(state, "version", json_integer(version)) == 0 &&
			json_object_set_new(state, "files", files_to_json(files, count)) == 0 &&
			json_object_set_new(state, "xxh3", dtrain__hash_to_json(hash_of_state(state))) == 0;
	char *text = complete ? json_dumps(state, JSON_INDENT(2)) : NULL;
	int status;
	if (!text)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for its state", folder);
	else if (strlen(text) + 1 >= STATE_BYTES_MAX)
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: %zu bytes, most of them the caller's; %d are possible", path, strlen(text) + 1,
				 STATE_BYTES_MAX - 1);
	else
		status = write_text(path, text, err);
	free(text);
	free(path);
	return status;
}

static int read_file(const char *path, json_t **out, beton_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	struct stat info;
	char *text = NULL;
	ssize_t size = 0;
	int status = BETON_OK;
	json_error_t problem;
	if (fstat(fd, &info) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot read", path);
	else if (info.st_size > STATE_BYTES_MAX)
		status = bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", path);
	else if (!(text = malloc((size_t)info.st_size + 1)))
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if ((size = bt_pread_full(fd, text, (size_t)info.st_size, 0)) < 0)
		status = bt_fail_errno(err, errno, "%s: cannot read", path);
	else if (!(*out = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &problem)))
		status = bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", path);
	close(fd);
	free(text);
	return status;
}

int dtrain__state_read(const char *folder, json_t **out, bool *sharded, uint64_t *hash, beton_error *err)
{
	char *path = bt_format("%s/" CHECKPOINT_STATE_FILE, folder);
	json_t *state = NULL;
	uint64_t stored;
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	int status = read_file(path, &state, err);
	const json_t *version = json_object_get(state, "version");
	*hash = status == BETON_OK ? hash_of_state(state) : 0;
	if (status == BETON_OK && (!dtrain__hash_from_json(json_object_get(state, "xxh3"), &stored) || stored != *hash))
		status = bt_fail(err, BETON_FORMAT, "%s: is damaged (its checksum is wrong)", path);
	else if (status == BETON_OK && !json_is_integer(version))
		status = bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", path);
	else if (status == BETON_OK && json_integer_value(version) != VERSION_WHOLE &&
		 json_integer_value(version) != VERSION_SHARDED)
		status = bt_fail(err, BETON_UNSUPPORTED_VERSION,
				 "%s: version %" JSON_INTEGER_FORMAT ", this program reads %d and %d", path,
				 json_integer_value(version), VERSION_WHOLE, VERSION_SHARDED);
	*sharded = json_integer_value(version) == VERSION_SHARDED;
	if (status == BETON_OK)
		*out = state;
	else
		json_decref(state);
	free(path);
	return status;
}

int dtrain__state_digest(const char *folder, const json_t *state, const char *name, checkpoint_digest *out,
			 beton_error *err)
{
	const json_t *stored = json_object_get(json_object_get(state, "files"), name);
	json_int_t size = json_integer_value(json_object_get(stored, "size"));
	uint64_t hash;
	if (size < 0 || !dtrain__hash_from_json(json_object_get(stored, "xxh3"), &hash))
		return bt_fail(err, BETON_FORMAT, "%s/" CHECKPOINT_STATE_FILE ": does not tell what %s is", folder,
			       name);
	uint64_t *hashes = malloc(sizeof(*hashes));
	if (!hashes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	hashes[0] = hash;
	*out = (checkpoint_digest){.size = (uint64_t)size, .chunk_bytes = UINT64_MAX, .hashes = hashes, .count = 1};
	return BETON_OK;
}
