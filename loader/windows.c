/* SPDX-License-Identifier: Apache-2.0 */
#include "windows.h"

#include "common/error.h"
#include "common/system.h"
#include "io/files.h"

/* Most chunks that hold one window: each is a read of its own. */
enum { PARTS_MAX = 4096 };

uint64_t bt_windows_in(uint64_t tokens, uint64_t window, uint64_t stride)
{
	return (tokens - 1 - window) / stride + 1;
}

uint64_t bt_windows_rest(uint64_t tokens, uint64_t window, uint64_t stride)
{
	return (tokens - 1 - window) % stride;
}

int bt_windows_open(bt_windows *windows, uint32_t file, const char *path, const beton_token_options *options,
		    beton_cache *cache, uint64_t cache_bytes, bt_file *metadata, beton_error *err)
{
	beton_tokens_options how;
	beton_tokens_options_init(&how);
	how.format = options->format;
	how.field = options->field;
	how.cache_bytes = cache_bytes;
	how.cache = cache;
	how.read = bt_metadata_read;
	how.borrow = bt_files_lend;
	how.give_back = bt_files_end_loan;
	how.context = metadata;
	beton_tokens **stream = &windows->streams[file];
	int result = beton_tokens_open(stream, path, &how, err);
	if (result)
		return result;
	const beton_tokens_info *info = beton_tokens_get_info(*stream);
	if (info->num_tokens <= windows->window)
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: has %llu token%s, and a window of %llu needs %llu (option tokens.window)", path,
				 (unsigned long long)info->num_tokens, bt_plural(info->num_tokens),
				 (unsigned long long)windows->window, (unsigned long long)windows->window + 1);
	uint64_t parts = beton_tokens_parts(*stream, windows->window + 1);
	if (result == BETON_OK && parts > PARTS_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: a window of %llu tokens needs %llu chunks of %llu tokens, more than %d; write "
				 "the file with larger chunks",
				 path, (unsigned long long)windows->window, (unsigned long long)parts,
				 (unsigned long long)info->chunk_tokens, PARTS_MAX);
	if (result)
		beton_tokens_close(stream);
	else if (parts > windows->parts)
		windows->parts = (uint32_t)parts;
	return result;
}
