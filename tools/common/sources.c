/* SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"

#include <string.h>

#include "text.h"

char *source_text(const beton_reader *reader, uint64_t sample)
{
	char source[BETON_SOURCE_MAX + 1];
	if (beton_reader_source(reader, sample, source, NULL) != BETON_OK)
		return strdup("");
	for (char *at = source; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	return text_utf8(source);
}

char *source_lookup_text(source_lookup *self, const char *path, uint64_t sample)
{
	if (!self->tried)
		beton_reader_open(&self->reader, path, NULL);
	self->tried = true;
	return self->reader ? source_text(self->reader, sample) : strdup("");
}

void source_lookup_close(source_lookup *self)
{
	beton_reader_close(&self->reader);
}

const char *source_last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}
