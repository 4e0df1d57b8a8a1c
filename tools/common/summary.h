/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tool says on standard output at its end: a line for each file it wrote, as text or as a JSON object. */
#ifndef TOOLS_SUMMARY_H
#define TOOLS_SUMMARY_H

#include <stdbool.h>

#include "progress.h"

/* The only file: its samples, bytes and the time it took. */
void summary_print(const char *output, const progress *bar, bool json);

/* One file of several. */
void summary_print_file(const char *output, uint64_t samples, bool json);

#endif
