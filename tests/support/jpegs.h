/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEGs of every sort, and the pixels in them. */
#ifndef TESTS_SUPPORT_JPEGS_H
#define TESTS_SUPPORT_JPEGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct jpeg_sort {
	const char *name;
	J_COLOR_SPACE colour; /* JCS_GRAYSCALE, JCS_YCbCr, JCS_RGB, JCS_CMYK; JCS_UNKNOWN: two components */
	int h, v;             /* sampling factors of the first component */
	bool progressive;
	bool arithmetic;
	bool separate_scans;
	const jpeg_scan_info *scans; /* what each scan sends; NULL: the encoder's choice */
	int num_scans;
	int restart;     /* MCUs; 0: none */
	int orientation; /* of EXIF; 0: no EXIF */
	bool comment;
	bool optimized; /* Huffman tables of its own instead of the standard's */
} jpeg_sort;

typedef struct jpeg_bytes {
	uint8_t *data;
	unsigned long size;
} jpeg_bytes;

/* rgb: width * height pixels; other colours are made of it. data is the caller's to free. */
jpeg_bytes jpeg_make(const jpeg_sort *sort, uint32_t width, uint32_t height, const uint8_t *rgb, int quality);

/* Takes the segments of a kind out of a JPEG, wherever they stand: a DHT is 0xc4, a DQT 0xdb. */
void jpeg_remove(jpeg_bytes *jpeg, uint8_t marker);

/* RGB (CMYK: 4 bytes a pixel); the caller's to free. */
uint8_t *jpeg_pixels(const uint8_t *data, size_t size, uint32_t *width, uint32_t *height);

/* A picture with smooth parts, edges and noise; the caller's to free. */
uint8_t *textured_pixels(uint32_t width, uint32_t height);

/* Writes anew with libjpeg's own optimal tables and a restart marker every `interval` MCUs; returns the size. */
size_t jpeg_optimized_size(const uint8_t *data, size_t size, unsigned int interval);

/* The bytes after the first marker of that kind; NULL: none. Only what precedes the first scan counts. */
const uint8_t *jpeg_find_marker(const uint8_t *data, size_t size, uint8_t marker);

#endif
