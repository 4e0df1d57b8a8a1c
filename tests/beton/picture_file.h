/* SPDX-License-Identifier: Apache-2.0
 *
 * A file with real pictures for the tests of beton_verify and beton_repair. */
#ifndef TESTS_BETON_PICTURE_FILE_H
#define TESTS_BETON_PICTURE_FILE_H

#include "tests/support/beton_files.h"

enum { SAMPLES = 90, FIELDS = 4, WIDTH = 40, HEIGHT = 30, PAGE = 2 << 20, RECORD = 56 };
/* Fields: a JPEG, an integer (three times the sample's number), {"n": number}, 2 x 2 raw pixels. */
enum { PICTURE, LABEL, TEXT, RAW };

/* Makes the JPEGs, in the folder of make_folder; free_pictures frees them. */
void make_pictures(void);
void free_pictures(void);
const file_content *picture_of(uint64_t sample);

/* flags: the writer's. */
void write_picture_file(const char *path, uint32_t flags);

beton_value value_of(const char *path, uint64_t sample, uint32_t field);

/* Writes a little-endian number into the file. */
void patch_number(const char *path, uint64_t offset, uint64_t value, size_t bytes);

/* Where a sample's record begins. */
uint64_t record_of(uint64_t sample);

#endif
