/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores compiled plans of cuDNN as text (cuDNN's JSON with the compiled kernel): loading takes hundredths of a second
 * instead of a second of compiling.
 *
 * Each plan is a file in the folder of cache.h, or in the module's folder for plans made ahead (see dnn_ahead.c). Its
 * first line has a checksum of the rest; a damaged file is ignored. Files are replaced as a whole, so several processes
 * may write the same one.
 */
#ifndef DTRAIN_CUDA_CUDNN_DNN_STORE_H
#define DTRAIN_CUDA_CUDNN_DNN_STORE_H

#include <stddef.h>

#include <beton/error.h>

typedef struct dnn_store dnn_store;

/* Everything that plans depend on, besides graph, engine and settings, as a folder's name, which the caller frees;
 * NULL: out of memory. */
char *dnn_store_name(int capability, int multiprocessors, size_t cudnn_version);

/* folder: where plans are written and read; NULL: none. shipped: where they are read too; NULL: none. Errors:
 * NO_MEMORY. */
int dnn_store_open(const char *folder, const char *shipped, dnn_store **out, beton_error *err);
void dnn_store_close(dnn_store *store); /* NULL allowed */

/* Both may be called by several threads. id: names a plan. Returns the NUL-terminated text, which the caller frees;
 * NULL: none, or damaged. */
char *dnn_store_read(dnn_store *store, const char *id, size_t *length);
/* A plan that cannot be written to a file is kept for this process; the newest plan of an id is found. Errors:
 * NO_MEMORY, which may be ignored: the plan is then compiled again. */
int dnn_store_write(dnn_store *store, const char *id, const char *text, size_t length, beton_error *err);
/* The error of the first plan that could not be written; OK: none, or no folder. Any thread. */
int dnn_store_failure(dnn_store *store, beton_error *err);

#endif
