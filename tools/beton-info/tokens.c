/* SPDX-License-Identifier: Apache-2.0
 *
 * A file as a stream of tokens. */
#include <inttypes.h>
#include <stdio.h>

#include <beton/tokens.h>
#include <jansson.h>

#include "common/error.h"
#include "info.h"
#include "tools/common/text.h"

static const char *format_name(beton_tokens_format format)
{
	return format == BETON_TOKENS_RAW ? "raw" : format == BETON_TOKENS_LLMC ? "llm.c" : "beton";
}

/* Windows of T + 1 tokens that share one token with the next, as the loader makes them. */
static uint64_t count_windows(const beton_tokens_info *info, uint64_t window, uint64_t *rest)
{
	uint64_t targets = info->num_tokens > 0 ? info->num_tokens - 1 : 0;
	*rest = targets < window ? info->num_tokens : targets % window;
	return targets / window;
}

static int print_json(const beton_tokens_info *info, uint64_t window, beton_error *err)
{
	json_t *root = json_pack("{s:s, s:i, s:I, s:I}", "format", format_name(info->format), "token_size",
				 (int)info->token_size, "tokens", (json_int_t)info->num_tokens, "file_size",
				 (json_int_t)info->file_size);
	uint64_t rest, windows = window ? count_windows(info, window, &rest) : 0;
	if (info->chunk_tokens)
		json_object_set_new(root, "chunk_tokens", json_integer((json_int_t)info->chunk_tokens));
	if (window) {
		json_object_set_new(root, "window", json_integer((json_int_t)window));
		json_object_set_new(root, "windows", json_integer((json_int_t)windows));
		json_object_set_new(root, "rest", json_integer((json_int_t)rest));
	}
	int result = BETON_OK;
	if (!root || json_dumpf(root, stdout, JSON_INDENT(1)) != 0)
		result = bt_fail(err, BETON_IO, "cannot write the facts");
	else
		puts("");
	json_decref(root);
	return result;
}

static void print_text(const beton_tokens *tokens, uint64_t window)
{
	const beton_tokens_info *info = beton_tokens_get_info(tokens);
	text_buffer size, count;
	printf("%s: a stream of tokens (%s)\n", beton_tokens_path(tokens), format_name(info->format));
	printf("  size %s, %s of %u bits", text_size(size, info->file_size),
	       text_count(count, info->num_tokens, "token", "tokens"), 8 * info->token_size);
	if (info->chunk_tokens)
		printf(" in chunks of %" PRIu64, info->chunk_tokens);
	putchar('\n');
	if (window) {
		uint64_t rest, windows = count_windows(info, window, &rest);
		printf("  %s of %" PRIu64 " tokens and the next token; %s at the end in no window\n",
		       text_count(size, windows, "window", "windows"), window,
		       text_count(count, rest, "token", "tokens"));
	}
}

int info_print_tokens(const char *path, const info_options *options, bool json, beton_error *err)
{
	beton_tokens *tokens;
	int result = beton_tokens_open(&tokens, path, NULL, err);
	if (result != BETON_OK)
		return result;
	if (json)
		result = print_json(beton_tokens_get_info(tokens), options->window, err);
	else
		print_text(tokens, options->window);
	beton_tokens_close(&tokens);
	return result;
}
