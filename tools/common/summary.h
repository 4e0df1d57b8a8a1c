/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of a tool on standard output: one line for each file that it wrote, as text or as a JSON object.
 */
#ifndef TOOLS_SUMMARY_H
#define TOOLS_SUMMARY_H

#include <stdbool.h>

#include "progress.h"

/* The only file: its samples, bytes and the time it took. */
void summary_print(const char *output, const progress *bar, bool json);

/* One file of several. */
void summary_print_file(const char *output, uint64_t samples, bool json);

#endif
