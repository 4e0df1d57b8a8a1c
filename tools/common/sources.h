/* SPDX-License-Identifier: Apache-2.0
 *
 * Where samples come from, for messages and lists.
 */
#ifndef TOOLS_SOURCES_H
#define TOOLS_SOURCES_H

#include <stdint.h>

#include <beton/beton.h>

/* The sample's source as UTF-8 text without control characters, "" if there is none or it is damaged; new memory, or
 * NULL. */
char *source_text(const beton_reader *reader, uint64_t sample);

/* The sources of a file that another part has open, which may be damaged: zero-initialise, source_lookup_close. */
typedef struct source_lookup {
	beton_reader *reader; /* NULL: not tried, or it cannot be opened */
	bool tried;
} source_lookup;

/* source_text of the sample of the file at path. */
char *source_lookup_text(source_lookup *self, const char *path, uint64_t sample);
void source_lookup_close(source_lookup *self);

/* The last part of a path: the name of a file. */
const char *source_last_part(const char *path);

#endif
