/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that need the whole file.
 */
#ifndef BETON_STRUCTURE_H
#define BETON_STRUCTURE_H

#include <stdbool.h>

#include <beton/beton.h>

/* Called for one fault: in `section`, at a file offset, of a sample or -1; err describes it. Returns whether to
 * continue. */
typedef bool (*structure_report)(void *context, const char *section, uint64_t offset, int64_t sample,
				 const beton_error *err);

/* Checks the field descriptors, the extension block's sections, the checksums of metadata and table, every allocation
 * entry, that no entries overlap, that zeros follow the metadata, and, without faults so far, that each entry belongs
 * to one value. samples: also check each sample's values; faults may then be SAMPLE_CORRUPT. Every fault goes to
 * report. Returns FORMAT if report stopped the check, else BETON_OK. Errors besides the faults: IO, FILE_CHANGED,
 * NO_MEMORY. */
int bt_structure_check(const beton_reader *reader, bool samples, structure_report report, void *context,
		       beton_error *err);

#endif
