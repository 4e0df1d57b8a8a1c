/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of libbeton and its tools. Functions fail the running test when the system refuses something. */
#ifndef TESTS_SUPPORT_BETON_FILES_H
#define TESTS_SUPPORT_BETON_FILES_H

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <beton/beton.h>

typedef struct file_content {
	uint8_t *data;
	size_t size;
} file_content;

/* A new folder for one test program, and its removal with all that is in it. */
const char *make_folder(void);
void remove_folder(void);

/* Name of a file in that folder; valid until the process ends. */
const char *in_folder(const char *name);

/* Unpacks tests/golden/NAME.beton.zst into the folder; returns its path. */
const char *unpack_golden(const char *name);

file_content read_file(const char *path);
void write_file(const char *path, const void *data, size_t size);

/* Overwrites bytes in the middle of a file. */
void patch_file(const char *path, uint64_t offset, const void *data, size_t size);

/* Opens path, which must fail with the code; returns the message, valid until the next call. */
const char *expect_refusal(const char *path, int code);

/* Opens path and checks its structure: one of the two must fail with the code. */
void expect_damage(const char *path, int code);

/* Opens a file that must be good. */
beton_reader *open_good(const char *path);

/* Reads all values and blobs of an open file; returns how many values were damaged. */
uint64_t read_everything(const beton_reader *reader);

#endif
