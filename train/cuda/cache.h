/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder in which the device keeps what it found out or compiled: the one that DTRAIN_CACHE names (empty: none),
 * else $XDG_CACHE_HOME/dtrain, else ~/.cache/dtrain.
 */
#ifndef DTRAIN_CUDA_CACHE_H
#define DTRAIN_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

/* To be freed; NULL: there is none, or no memory. */
char *cuda_cache_folder(void);
/* Replaces what could be harmful in the name of a file. */
void cuda_cache_make_harmless(char *name);
/* Makes the folder of a file, and those above it. */
int cuda_cache_make_folders(const char *path, beton_error *err);
/* The bytes of a file of at most `most` bytes, to be freed; NULL: there is no such file, or it cannot be read. */
char *cuda_cache_read(const char *path, size_t most, size_t *length);
/* Writes a file as a whole, and makes its folders: who reads it sees the old bytes or the new ones. */
int cuda_cache_write(const char *path, const char *text, size_t length, beton_error *err);
/* Takes a lock that lasts until *fd is closed or the process ends, on a file of its own. Gives up after `patience_ms`:
 * its holder may be stopped, or its disk stuck. */
int cuda_cache_lock(const char *path, int patience_ms, int *fd, beton_error *err);

#endif
