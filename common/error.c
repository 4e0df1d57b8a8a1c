/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages can hold names that come from a file: keep them on one line and harmless for a terminal. */
static void sanitize(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

BETON_PRINTF(4, 0)
static int fill(beton_error *err, int code, int64_t sample, const char *format, va_list arguments)
{
	if (err) {
		err->code = code;
		err->reserved = 0;
		err->sample = sample;
		vsnprintf(err->message, sizeof(err->message), format, arguments);
		sanitize(err->message);
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
		append(err, ": ", strerror_r(error_number, buffer, sizeof(buffer)));
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
	*err = context;
}
