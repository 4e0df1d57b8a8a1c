/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_READER_H
#define BETON_READER_H

#include <pthread.h>

#include <beton/beton.h>

#include "alloc_table.h"
#include "decompress.h"
#include "extension.h"
#include "sums.h"

/* Constant after open but for what is made at first need: atomic members are read without the lock, and set with it. */
struct beton_reader {
	int fd;
	char *path;
	beton_file_info info;
	beton_field *fields;
	uint32_t *blob_index; /* [num_fields]: which of a sample's blobs the field is */
	uint32_t num_blobs;   /* of a sample */
	extension_block extension;
	summed_part metadata;
	summed_part table;

	pthread_mutex_t lock;
	_Atomic(alloc_index *) index; /* NULL until it is needed */
	dictionary_cache dictionaries;
	char *facts;
};

/* Reads size bytes that the file had when it was opened. section: for the message. Errors: IO, FILE_CHANGED. */
int beton_read_section(const beton_reader *reader, const char *section, void *destination, size_t size, uint64_t offset,
		       beton_error *err);

#endif
