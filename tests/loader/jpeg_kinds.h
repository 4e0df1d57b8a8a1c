/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEGs of many kinds, all that libjpeg can write, and damage of them. A number makes a kind and its JPEG, the same on
 * every machine. */
#ifndef TESTS_LOADER_JPEG_KINDS_H
#define TESTS_LOADER_JPEG_KINDS_H

#include "tests/support/jpegs.h"

enum { KIND_SCANS_MAX = 160 };

typedef enum kind_script {
	SCRIPT_ONE_SCAN,
	SCRIPT_SEPARATE,
	SCRIPT_LUMA_AND_COLOUR,
	SCRIPT_PROGRESSIVE,        /* libjpeg's */
	SCRIPT_PROGRESSIVE_RANDOM, /* any bands and bits, all of them */
	SCRIPT_PROGRESSIVE_PARTIAL /* bands, or the last bits, are missing */
} kind_script;

typedef enum kind_tables { TABLES_STANDARD, TABLES_ODD, TABLES_WIDE, TABLES_ONES } kind_tables;
typedef enum kind_codes { CODES_STANDARD, CODES_OPTIMAL, CODES_ODD } kind_codes;

typedef enum kind_damage {
	DAMAGE_NONE,
	DAMAGE_CUT,
	DAMAGE_NO_END,      /* no EOI */
	DAMAGE_BYTE,        /* one is changed */
	DAMAGE_FEWER_SCANS, /* the last ones are left out; no damage for libjpeg */
	DAMAGE_MORE         /* bytes follow the end; likewise */
} kind_damage;

typedef struct jpeg_kind {
	uint32_t number;
	uint64_t random; /* state */
	uint32_t width, height;
	J_COLOR_SPACE colour;
	int components;
	int h[4], v[4]; /* sampling factors */
	kind_script script;
	bool arithmetic;
	bool jfif, adobe; /* markers, where the colour has them */
	int restart;      /* MCUs; 0: none */
	kind_tables tables;
	int quality; /* of TABLES_STANDARD */
	kind_codes codes;
	kind_damage damage;
	jpeg_scan_info scans[KIND_SCANS_MAX];
	int num_scans;
} jpeg_kind;

void jpeg_kind_choose(jpeg_kind *kind, uint32_t number);

/* One line, valid until the next call. */
const char *jpeg_kind_text(const jpeg_kind *kind);

/* data is the caller's to free. */
jpeg_bytes jpeg_kind_make(jpeg_kind *kind);

#endif
