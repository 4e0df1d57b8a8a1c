/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at text (Unicode 15, table 3-7) if it is printable; 0: a control character,
 * or not UTF-8. */
static size_t printable_length(const unsigned char *text)
{
	static const struct {
		unsigned char first, first_most, second_least, second_most;
		size_t length;
	} forms[] = {
		{0x20, 0x7e, 0, 0, 1},       {0xc2, 0xc2, 0xa0, 0xbf, 2}, /* U+0080..U+009F are controls */
		{0xc3, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
		{0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		if (text[0] < forms[i].first || text[0] > forms[i].first_most)
			continue;
		if (forms[i].length > 1 && (text[1] < forms[i].second_least || text[1] > forms[i].second_most))
			return 0;
		for (size_t at = 2; at < forms[i].length; at++)
			if ((text[at] & 0xc0) != 0x80)
				return 0;
		return forms[i].length;
	}
	return 0;
}

void bt_sanitize(char *message)
{
	unsigned char *text = (unsigned char *)message;
	while (*text) {
		size_t length = printable_length(text);
		if (length == 0)
			*text = '?';
		text += length ? length : 1;
	}
}

BETON_PRINTF(4, 0)
static int fill(beton_error *err, int code, int64_t sample, const char *format, va_list arguments)
{
	if (err) {
		err->code = code;
		err->reserved = 0;
		err->sample = sample;
		vsnprintf(err->message, sizeof(err->message), format, arguments);
		bt_sanitize(err->message);
	}
	return code;
}

static void append(beton_error *err, const char *separator, const char *text)
{
	for (const char *const *part = (const char *const[]){separator, text, NULL}; *part; part++) {
		size_t used = strlen(err->message);
		size_t room = sizeof(err->message) - 1 - used;
		size_t length = strnlen(*part, room);
		memcpy(err->message + used, *part, length);
		err->message[used + length] = 0;
	}
}

int bt_fail(beton_error *err, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fill(err, code, -1, format, arguments);
	va_end(arguments);
	return code;
}

int bt_fail_sample(beton_error *err, int code, int64_t sample, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fill(err, code, sample, format, arguments);
	va_end(arguments);
	return code;
}

bool bt_names_url(const char *text)
{
	const char *mark = strstr(text, "://");
	return mark && mark > text && ((mark[-1] >= 'a' && mark[-1] <= 'z') || (mark[-1] >= '0' && mark[-1] <= '9'));
}

static int code_of_errno(int error_number)
{
	switch (error_number) {
	case ENOENT:
	case ENOTDIR:
		return BETON_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return BETON_ACCESS;
	case ENOSPC:
	case EFBIG:
	case EDQUOT:
		return BETON_NO_SPACE;
	case EEXIST:
	case EADDRINUSE:
		return BETON_EXISTS;
	case ENOMEM:
		return BETON_NO_MEMORY;
	case EINVAL:
		return BETON_INVALID_ARGUMENT;
	case EAGAIN:
	case EMFILE:
	case ENFILE:
		return BETON_SYSTEM;
	case ETIMEDOUT:
		return BETON_TIMEOUT;
	case EPIPE:
	case ECONNRESET:
	case ECONNREFUSED:
		return BETON_PEER_LOST;
	default:
		return BETON_IO;
	}
}

int bt_fail_errno(beton_error *err, int error_number, const char *format, ...)
{
	int code = code_of_errno(error_number);
	if (err) {
		va_list arguments;
		va_start(arguments, format);
		fill(err, code, -1, format, arguments);
		va_end(arguments);
		char buffer[128];
		bool url = code == BETON_NOT_FOUND && bt_names_url(err->message);
		append(err, ": ", url ? "URLs are not supported" : strerror_r(error_number, buffer, sizeof(buffer)));
	}
	return code;
}

void bt_prefix(beton_error *err, const char *format, ...)
{
	if (!err)
		return;
	beton_error context;
	va_list arguments;
	va_start(arguments, format);
	fill(&context, err->code, err->sample, format, arguments);
	va_end(arguments);
	append(&context, ": ", err->message);
	bt_sanitize(context.message); /* cutting may have split a character */
	*err = context;
}

bool bt_missing(beton_error *err, const char *function, const char *names, const void *const *given, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t length = strcspn(names, ",");
		if (!given[i]) {
			bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %.*s is NULL", function, (int)length, names);
			return true;
		}
		names += length;
		names += strspn(names, ", ");
	}
	return false;
}
