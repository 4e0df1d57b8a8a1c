/* SPDX-License-Identifier: Apache-2.0
 *
 * A .beton file with the extension block and compressed fields, put together byte by byte after docs/format.md and
 * without libbeton: what the reader is tested with does not come from the writer beside it. */
#ifndef TESTS_SUPPORT_MADE_FILE_H
#define TESTS_SUPPORT_MADE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MADE_HEADER = 24,
	MADE_FIELD = 1041,
	MADE_FIELDS = 5, /* picture: image; label: int; note: bytes; text: JSON, zstd; vector: <f4[64], zstd */
	MADE_METADATA = MADE_HEADER + MADE_FIELDS * MADE_FIELD,
	MADE_RECORD = 88,
	MADE_BLOBS = 4,
	MADE_ENTRY = 24,
	MADE_PAGE = 2 << 20,
	MADE_VECTOR = 64,
	MADE_TEXT_MAX = 64,
	MADE_RASTER_WIDTH = 5,
	MADE_RASTER_HEIGHT = 2,
	MADE_DIRECTORY_ENTRY = 40,
	MADE_FOOTER = 64,
};

/* Where a sample's values stand in its record. */
enum { MADE_PICTURE = 0, MADE_LABEL = 16, MADE_NOTE = 24, MADE_TEXT = 40, MADE_VECTOR_SLOT = 64 };

typedef struct made_options {
	uint64_t samples;
	bool dictionary; /* of text */
	bool unordered;  /* the table backwards, and the flag not set */
	bool plain;      /* no extension block, and text without a dictionary */
	bool raster;     /* note is a raster of MADE_RASTER_WIDTH x MADE_RASTER_HEIGHT pixels, 16 bits, 3 channels */
	bool compact;    /* blobs right after the metadata, the rest right after them: small, and legal to read */
	const char *facts;
} made_options;

/* Sections stand in the order of their kinds, 1 to 5, in the file and in the directory. */
typedef struct made_file {
	uint8_t *data; /* free it */
	size_t size;
	uint64_t samples;
	uint64_t sections[6]; /* offsets by kind */
	uint64_t directory;
	uint64_t footer;
	uint64_t table;
} made_file;

made_file make_file(const made_options *options);

/* Computes checksums anew after an edit. */
enum {
	SEAL_SUMS = 1,      /* the three sections of checksums */
	SEAL_SECTIONS = 2,  /* the sections', in the directory */
	SEAL_DIRECTORY = 4, /* the directory's and the header's, in the footer */
	SEAL_FOOTER = 8,
	SEAL_ALL = 15,
};
void seal_file(made_file *file, int what);

/* Little-endian numbers in the file. */
void poke(made_file *file, uint64_t offset, uint64_t value, size_t bytes);
uint64_t peek(const made_file *file, uint64_t offset, size_t bytes);

/* Values put in: a sample's text (with its NUL; its size is returned), element i of its vector. */
size_t made_text(uint64_t sample, char *text);
float made_element(uint64_t sample, uint32_t i);

#endif
