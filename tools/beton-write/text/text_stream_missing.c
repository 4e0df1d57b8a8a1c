/* SPDX-License-Identifier: Apache-2.0
 *
 * Text streams in a build without PCRE2 or nettle. */
#include "common/error.h"
#include "text_stream.h"

int text_stream_write(const text_request *request, int fd, const char *name, text_stream *out, beton_error *err)
{
	(void)fd, (void)name, (void)out;
	return bt_fail(err, BETON_UNSUPPORTED, "%s: this build has no tokenizers (it needs PCRE2 and nettle)",
		       request->source);
}

int text_stream_write_file(const text_request *request, const char *path, text_stream *out, beton_error *err)
{
	return text_stream_write(request, -1, path, out, err);
}

void text_stream_unicode(char version[24])
{
	*version = 0;
}
