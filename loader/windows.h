/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of token streams as samples: the seam between streams and the rest of the loader. A look-up turns the number
 * of a window into the values that hold its tokens, which are read like any sample's; window_fill.h turns their bytes
 * into the row of a batch.
 */
#ifndef BT_LOADER_WINDOWS_H
#define BT_LOADER_WINDOWS_H

#include <stdint.h>

#include <beton/loader.h>
#include <beton/tokens.h>

/* The streams of a data set. Constant after open. */
typedef struct bt_windows {
	beton_tokens **streams; /* [one for each file]; NULL: the files hold samples */
	uint64_t window;        /* T */
	uint64_t stride;
	uint32_t parts;                             /* most values that hold a window */
	uint32_t special[BETON_SPECIAL_TOKENS_MAX]; /* tokens that are never masked */
} bt_windows;

/* The number of windows of a stream, which has more than `window` tokens. */
uint64_t bt_windows_in(uint64_t tokens, uint64_t window, uint64_t stride);

/* The tokens after the last window of a stream, which no window has. */
uint64_t bt_windows_rest(uint64_t tokens, uint64_t window, uint64_t stride);

/* Opens the stream of file `file`, and adapts windows->parts to it. metadata: how to read it. cache: NULL: one of its
 * own, of cache_bytes. Errors: INVALID_ARGUMENT (no window, or chunks that are too small for the window), and
 * beton_tokens_open's. */
struct bt_file;
int bt_windows_open(bt_windows *windows, uint32_t file, const char *path, const beton_token_options *options,
		    beton_cache *cache, uint64_t cache_bytes, struct bt_file *metadata, beton_error *err);

#endif
