/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures for trying things out: one shape of a known kind at a random place, size and angle, in random colours, in
 * front of a random background with noise. Colour, place and size tell nothing about the kind; only form does. */
#ifndef TOOLS_PICTURE_H
#define TOOLS_PICTURE_H

#include <stdint.h>

enum { PICTURE_KINDS = 10 };

/* The names in sorted order; 0 <= kind < PICTURE_KINDS. */
const char *picture_kind_name(int kind);

/* Draws into size x size x 3 bytes of RGB. The same key and kind give the same picture; different keys give
 * independent ones. */
void picture_draw(uint64_t key, int kind, int size, uint8_t *rgb);

#endif
