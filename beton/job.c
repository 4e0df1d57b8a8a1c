/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

/* Descriptors and levels of all fields. */
static XXH128_hash_t hash_fields(const beton_writer *writer, XXH3_state_t *state)
{
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, writer->descriptors, (size_t)writer->schema.num_fields * FIELD_SIZE);
	for (uint32_t i = 0; i < writer->schema.num_fields; i++) {
		uint8_t level[4];
		store_u32(level, (uint32_t)writer->schema.fields[i].compression_level);
		XXH3_128bits_update(state, level, sizeof(level));
	}
	return XXH3_128bits_digest(state);
}

int bt_job_describe(const beton_writer *writer, const beton_writer_options *options, char **text, beton_error *err)
{
	XXH3_state_t *state = XXH3_createState();
	*text = NULL;
	if (state) {
		XXH128_hash_t fields = hash_fields(writer, state);
		XXH3_freeState(state);
		*text = bt_format("%s\npage size: %u\nexpected samples: %llu\nflags: %u\nfields: %u (%016llx%016llx)\n"
				  "compressor: %llu\nlibbeton: %s",
				  options->job ? options->job : "", writer->schema.page_size,
				  (unsigned long long)options->expected_samples, options->flags,
				  writer->schema.num_fields, (unsigned long long)fields.high64,
				  (unsigned long long)fields.low64,
				  (unsigned long long)bt_compressor_version(writer->compressor), BETON_VERSION);
	}
	return *text ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", writer->path);
}

/* Whether the text has the line of that length. */
static bool has_line(const char *text, const char *line, size_t length)
{
	for (;;) {
		size_t own = strcspn(text, "\n");
		if (own == length && memcmp(text, line, length) == 0)
			return true;
		if (!text[own])
			return false;
		text += own + 1;
	}
}

/* The first line of a that b has not; *length is 0 if there is none. */
static const char *find_difference(const char *a, const char *b, size_t *length)
{
	for (*length = strcspn(a, "\n"); has_line(b, a, *length); *length = strcspn(a, "\n")) {
		a += *length;
		if (!*a++) {
			*length = 0;
			break;
		}
	}
	return a;
}

/* The line of the text that says the same thing as `line`; NULL: none does. */
static const char *find_same_thing(const char *text, const char *line, size_t length)
{
	const char *colon = memmem(line, length, ": ", 2);
	size_t name = colon ? (size_t)(colon + 2 - line) : 0;
	for (; name; text += strcspn(text, "\n") + 1) {
		if (strncmp(text, line, name) == 0)
			return text;
		if (!strchr(text, '\n'))
			return NULL;
	}
	return NULL;
}

/* Whether the line's value is a hash, which people cannot read. *name: bytes before it. */
static bool is_hash(const char *line, size_t length, size_t *name)
{
	const char *colon = memmem(line, length, ": ", 2);
	*name = colon ? (size_t)(colon - line) : 0;
	return colon && strspn(colon + 2, "0123456789abcdef") == 32 && *name + 2 + 32 == length;
}

int bt_job_refuse(const char *path, const char *theirs, const char *ours, beton_error *err)
{
	size_t length = 0;
	size_t other = 0;
	if (!theirs)
		return bt_fail(err, BETON_MISMATCH, "%s: an earlier version of this program left the unfinished file",
			       path);
	const char *line = find_difference(ours, theirs, &length);
	size_t name = 0;
	const char *old = NULL;
	if (length) {
		old = find_same_thing(theirs, line, length);
		other = old ? strcspn(old, "\n") : 0;
	} else {
		old = find_difference(theirs, ours, &other);
	}
	if (old && length && is_hash(line, length, &name))
		return bt_fail(err, BETON_MISMATCH, "%s: the unfinished file is of another job: %.*s differ", path,
			       (int)name, line);
	if (old && length)
		return bt_fail(err, BETON_MISMATCH,
			       "%s: the unfinished file is of another job: of '%.*s', not of '%.*s'", path, (int)other,
			       old, (int)length, line);
	return bt_fail(err, BETON_MISMATCH, "%s: the unfinished file is of another job: %s '%.*s'", path,
		       length ? "without" : "with", (int)(length ? length : other), length ? line : old);
}
