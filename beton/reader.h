/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_READER_H
#define BETON_READER_H

#include <beton/beton.h>

#include "alloc_table.h"

/* Nothing changes after open, so threads need no lock. */
struct beton_reader {
	int fd;
	char *path;
	beton_file_info info;
	beton_field *fields;
	uint8_t *metadata; /* num_samples records */
	alloc_table table;
};

#endif
