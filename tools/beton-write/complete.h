/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether --resume finds its output complete.
 */
#ifndef BETON_WRITE_COMPLETE_H
#define BETON_WRITE_COMPLETE_H

#include "options.h"
#include "tools/beton-write/sources/selection.h"
#include "tools/beton-write/sources/source.h"

/* *there: whether there is a file at path. It must be what a run with these facts and options writes of the selected
 * items: in a folder their names are compared, and a file must not be younger than the output. Errors: EXISTS (it is
 * something else), NO_MEMORY. */
int complete_check(const char *path, const char *facts, const write_options *options, source *from,
		   const selection *selected, bool *there, beton_error *err);

#endif
