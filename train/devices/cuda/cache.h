/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of timed and compiled results: DTRAIN_CACHE (empty: none), else $XDG_CACHE_HOME/dtrain, else
 * ~/.cache/dtrain.
 */
#ifndef DTRAIN_CUDA_CACHE_H
#define DTRAIN_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

/* The caller frees it. NULL: no folder, or out of memory. */
char *cuda_cache_folder(void);
/* Replaces characters that are unsafe in a file name. */
void cuda_cache_make_harmless(char *name);
/* The content of a file of at most `most` bytes, which the caller frees; NULL: it does not exist, or cannot be read. */
char *cuda_cache_read(const char *path, size_t most, size_t *length);
/* Writes a whole file, and makes its folders. Readers see the old content or the new. */
int cuda_cache_write(const char *path, const char *text, size_t length, beton_error *err);
/* Locks a separate file until *fd is closed or the process ends. Gives up after `patience_ms`, because the holder may
 * be stopped, or its disk stuck. */
int cuda_cache_lock(const char *path, int patience_ms, int *fd, beton_error *err);

#endif
