/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of NumPy's .npy files. Source of the format: numpy/lib/format.py, versions 1.0, 2.0 and 3.0. */
#ifndef BETON_WRITE_NPY_H
#define BETON_WRITE_NPY_H

#include "source.h"

/* A header is at most this long: magic, version, length, and a text of 65,535 bytes. Longer ones, which version 2.0
 * allows, belong to structured types, which are refused anyway. */
#define NPY_HEADER_MAX (12 + 65535)

/* Reads the header that data (at least the header, or the whole file) begins with; *offset: where the elements begin.
 * Only plain numbers in C order (or with one dimension) are taken. Errors: SAMPLE_CORRUPT, naming `name`. */
int npy_parse(const uint8_t *data, size_t size, const char *name, array_type *type, size_t *offset, beton_error *err);

/* Bytes of all elements; false: more than 2^63. */
bool array_bytes(const array_type *type, uint64_t *bytes);

/* One element, in either byte order. False: not of a type that fits (integers: not unsigned beyond int64). */
bool array_read_int(const array_type *type, const void *element, int64_t *out);
bool array_read_real(const array_type *type, const void *element, double *out);

#endif
