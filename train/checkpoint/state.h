/* SPDX-License-Identifier: Apache-2.0
 *
 * state.json: the caller's state, and what the other files must be. */
#ifndef DTRAIN_CHECKPOINT_STATE_H
#define DTRAIN_CHECKPOINT_STATE_H

#include <jansson.h>
#include <stdbool.h>

#include "digest.h"

/* A file whose digest is a single hash. */
typedef struct checkpoint_listed {
	const char *name;
	const checkpoint_digest *digest;
} checkpoint_listed;

/* Parses a JSON object; NULL counts as an empty one. */
int dtrain__state_parse(const char *text, json_t **out, beton_error *err);

/* FORMAT: the state's member "metadata" is not an object of texts. place: for messages. state may be NULL. */
int dtrain__state_check_metadata(const char *place, const json_t *state, beton_error *err);

/* Sets the library's members in state, and writes it to folder/state.json. sharded: there is a manifest. */
int dtrain__state_write(const char *folder, json_t *state, bool sharded, const checkpoint_listed *files, size_t count,
			beton_error *err);

/* Reads and checks folder/state.json; hash: of its content. Errors: NOT_FOUND, FORMAT, UNSUPPORTED_VERSION, ... */
int dtrain__state_read(const char *folder, json_t **out, bool *sharded, uint64_t *hash, beton_error *err);

/* Reads the state's entry of a file into a zeroed digest. FORMAT: the entry is invalid. */
int dtrain__state_digest(const char *folder, const json_t *state, const char *name, checkpoint_digest *out,
			 beton_error *err);

/* A hash as 16 hexadecimal digits; NULL: no memory. The reverse returns false if the text is not a hash. */
json_t *dtrain__hash_to_json(uint64_t hash);
bool dtrain__hash_from_json(const json_t *text, uint64_t *out);

#endif
