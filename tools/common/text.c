/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <beton/beton.h>

#include "common/error.h"
#include "common/system.h"

static bool is_plain(unsigned char byte)
{
	return byte >= 0x20 && byte < 0x7f;
}

void text_print(FILE *stream, const char *bytes, int width)
{
	int printed = 0;
	for (; *bytes; bytes++)
		printed += fprintf(stream, is_plain((unsigned char)*bytes) ? "%c" : "\\x%02x", (unsigned char)*bytes);
	fprintf(stream, "%*s", printed < width ? width - printed : 0, "");
}

void text_print_utf8(FILE *stream, const char *text, int width)
{
	beton_error harmless; /* as every message is */
	bt_fail(&harmless, BETON_OK, "%s", text);
	fprintf(stream, "%-*s", width, harmless.message);
}

const char *text_count(text_buffer buffer, uint64_t count, const char *one, const char *many)
{
	snprintf(buffer, sizeof(text_buffer), "%llu %s", (unsigned long long)count, count == 1 ? one : many);
	return buffer;
}

const char *text_size(text_buffer buffer, uint64_t bytes)
{
	if (bytes < 1000)
		return text_count(buffer, bytes, "byte", "bytes");
	bool small = bytes < 999950; /* 1000.0 kB would be a MB */
	snprintf(buffer, sizeof(text_buffer), "%.1f %s", (double)bytes / (small ? 1e3 : 1e6), small ? "kB" : "MB");
	return buffer;
}

const char *text_page_size(text_buffer buffer, uint64_t bytes)
{
	bool whole = bytes % (UINT64_C(1) << 30) == 0;
	snprintf(buffer, sizeof(text_buffer), "%llu%s", (unsigned long long)(bytes >> (whole ? 30 : 20)),
		 whole ? "GiB" : "MiB");
	return buffer;
}

/* Replaces each byte for which `bad` says so by the mark and two digits. */
static char *escape(const char *bytes, const char *mark, bool (*bad)(const char *bytes, size_t at))
{
	size_t length = strlen(bytes);
	char *text = malloc(4 * length + 1);
	size_t used = 0;
	for (size_t i = 0; text && i < length; i++) {
		if (bad(bytes, i))
			used += (size_t)sprintf(text + used, "%s%02X", mark, (unsigned char)bytes[i]);
		else
			text[used++] = bytes[i];
	}
	if (text)
		text[used] = 0;
	return text;
}

static bool is_foreign(const char *bytes, size_t at)
{
	return !is_plain((unsigned char)bytes[at]);
}

char *text_utf8(const char *bytes)
{
	json_t *string = json_string(bytes);
	char *text = string ? strdup(bytes) : escape(bytes, "\\x", is_foreign);
	json_decref(string);
	return text;
}

static bool is_unsafe(const char *bytes, size_t at)
{
	unsigned char byte = (unsigned char)bytes[at];
	return byte < 0x20 || byte == 0x7f || byte == '/' || byte == '%' || (byte == '.' && at == 0);
}

char *text_file_name(const char *bytes)
{
	return *bytes ? escape(bytes, "%", is_unsafe) : strdup("%");
}

/* Reads the next word, NUL terminated; *end: the byte after it, or EOF. False: it is invalid. */
static bool read_word(FILE *file, char word[TEXT_WORD_MAX + 1], int *end)
{
	size_t length = 0;
	while ((*end = getc(file)) > 0 && !strchr(", \t\r\n", *end)) {
		if (length == TEXT_WORD_MAX)
			return false;
		word[length++] = (char)*end;
	}
	word[length] = 0;
	return *end != 0;
}

int text_each_word(FILE *file, const char *name, text_word_function function, void *context, beton_error *err)
{
	char word[TEXT_WORD_MAX + 1];
	int end = 0;
	int result = BETON_OK;
	uint64_t line = 1;
	while (result == BETON_OK && end != EOF) {
		if (!read_word(file, word, &end))
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "not a text, or a word of more than %d bytes",
					 TEXT_WORD_MAX);
		else if (*word)
			result = function(context, word, err);
		if (result != BETON_OK)
			bt_prefix(err, "%s: line %llu", name, (unsigned long long)line);
		line += end == '\n';
	}
	if (result == BETON_OK && ferror(file))
		result = bt_fail_errno(err, errno, "%s: cannot read", name);
	return result;
}

int text_parse_page_size(const char *what, const char *text, uint32_t *out, beton_error *err)
{
	uint64_t size = 0;
	int result = bt_parse_size(what, text, 1, &size, NULL);
	if (result == BETON_OK && size >= BETON_PAGE_SIZE_MIN && size <= UINT32_MAX && !(size & (size - 1))) {
		*out = (uint32_t)size;
		return BETON_OK;
	}
	/* 8MB are 8000000 bytes. */
	bool decimal = result == BETON_OK && strspn(text, "0123456789") + 2 == strlen(text) && strstr(text, "MB");
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not a power of two from 2MiB to 2GiB%s", what, text,
		       decimal ? "; MB counts in thousands, MiB in powers of two" : "");
}
