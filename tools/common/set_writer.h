/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_SET_WRITER_H
#define TOOLS_SET_WRITER_H

#include <beton/set.h>

/* beton_set_write, which ends with CANCELLED after a signal. */
int set_write(const char *path, beton_set_mode mode, const char *const *shards, uint32_t count, beton_error *err);

#endif
