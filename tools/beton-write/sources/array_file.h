/* SPDX-License-Identifier: Apache-2.0
 *
 * An array in a file; its first axis counts the samples. */
#ifndef BETON_WRITE_ARRAY_FILE_H
#define BETON_WRITE_ARRAY_FILE_H

#include "archive_input.h"
#include "source.h"

typedef struct array_file {
	int fd;
	char *name;        /* for messages */
	array_type item;   /* without the first axis */
	uint64_t count;    /* items */
	uint64_t offset;   /* of the first item in the file, in bytes */
	size_t item_bytes; /* at most FILE_BYTES_MAX */
} array_file;

/* Reads the header of the array that a file begins with: *whole its type, first axis included, *offset where the
 * elements begin. Errors: SAMPLE_CORRUPT. */
typedef int (*array_header_function)(const uint8_t *data, size_t size, const char *name, array_type *whole,
				     size_t *offset, beton_error *err);

/* Most bytes that are read to find a header. */
#define ARRAY_HEADER_MAX 65547

/* Opens the file at path; with an empty file, *self stays closed. Errors: FORMAT (header or size are wrong, or no axis
 * could count samples), and errors of opening and reading a file. */
int array_file_open(array_file *self, const char *path, array_header_function header, beton_error *err);

/* The same for a member of an archive, whose elements are unpacked into an unnamed file in folder. */
int array_file_unpack(array_file *self, const char *name, archive_input *input, const char *folder,
		      array_header_function header, beton_error *err);

void array_file_close(array_file *self);

/* Reads item index (below count) into value, as RAW_ARRAY. Any thread. Errors: IO, FILE_CHANGED, NO_MEMORY. */
int array_file_read(const array_file *self, uint64_t index, raw_value *value, beton_error *err);

/* Adds a column for the array, with its natural type: numbers for single ones, else an array. */
int array_file_add_column(const array_file *self, source *to, const char *name, const char *field, beton_error *err);

/* Whether an item is a picture: uint8, height x width, or height x width x 3. */
bool array_file_has_pictures(const array_file *self);

#endif
