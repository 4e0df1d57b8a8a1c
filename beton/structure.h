/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that need the whole file. */
#ifndef BETON_STRUCTURE_H
#define BETON_STRUCTURE_H

#include <stdbool.h>

#include <beton/beton.h>

/* Hears of one fault: of `section`, at offset of the file, of a sample or -1. err says what it is.
 * Returns whether to go on. */
typedef bool (*structure_report)(void *context, const char *section, uint64_t offset, int64_t sample,
				 const beton_error *err);

/* Checks the field descriptors, the extension block's sections, the checksums of metadata and table, every allocation
 * entry, that none overlaps another, that zeros follow the metadata, and, if all of that is good, that each entry
 * belongs to one value. samples: the values of each sample too; then a fault may be SAMPLE_CORRUPT. Every fault goes to
 * report; returns FORMAT if it stopped the check, else BETON_OK. Errors that are no finding: IO, FILE_CHANGED,
 * NO_MEMORY. */
int beton_structure_check(const beton_reader *reader, bool samples, structure_report report, void *context,
			  beton_error *err);

#endif
