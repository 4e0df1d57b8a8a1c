/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts that describe how a dataset was made.
 */
#ifndef BETON_WRITE_DATASET_FACTS_H
#define BETON_WRITE_DATASET_FACTS_H

#include "options.h"
#include "tools/beton-write/sources/source.h"

/* JSON text for beton_writer_options.facts: program, kind and name of the source, names of its classes, and the options
 * that affect the stored data. It has no folders of this machine, so that the same input gives the same bytes anywhere,
 * and no text that is not UTF-8. NULL: no memory. The caller frees it. */
char *dataset_facts_make(const write_options *options, const source *from, const name_list *classes);

#endif
