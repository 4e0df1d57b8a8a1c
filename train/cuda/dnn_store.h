/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of cuDNN's that were compiled, as text (cuDNN's JSON, which holds the compiled kernel): a second of compiling
 * becomes some hundredths of loading.
 *
 * A plan is a file of its own, below the folder of cache.h, or below the module's own folder, where plans that were
 * made ahead are (see dnn_ahead.c). Its first line has a checksum of the rest: a damaged file counts as none. Files are
 * replaced as a whole, so that processes may write the same one.
 */
#ifndef DTRAIN_CUDA_DNN_STORE_H
#define DTRAIN_CUDA_DNN_STORE_H

#include <stddef.h>

#include <beton/error.h>

typedef struct dnn_store dnn_store;

/* What plans depend on besides graph, engine and settings, as a name of a folder: to be freed; NULL: no memory. */
char *dnn_store_name(int capability, int multiprocessors, size_t cudnn_version);

/* folder: where plans are written; NULL: nowhere. shipped: where they are looked for, too; NULL: nowhere. Errors:
 * NO_MEMORY. */
int dnn_store_open(const char *folder, const char *shipped, dnn_store **out, beton_error *err);
void dnn_store_close(dnn_store *store); /* NULL allowed */

/* Both may be called by several threads. id: the text that names a plan. To be freed, with a 0 behind it; NULL: it is
 * not there, or not sound. */
char *dnn_store_read(dnn_store *store, const char *id, size_t *length);
/* What cannot be written to a file is kept for this process; the newest of an id is found. Errors: NO_MEMORY, which may
 * be ignored: the plan is compiled again. */
int dnn_store_write(dnn_store *store, const char *id, const char *text, size_t length, beton_error *err);
/* Why the first plan that could not be written to the folder was not; OK: all were, or there is no folder. Any thread.
 */
int dnn_store_failure(dnn_store *store, beton_error *err);

#endif
