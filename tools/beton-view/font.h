/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters of 5 x 7 dots for captions: they need no installed font, and the same text always gives the same pixels.
 */
#ifndef BETON_VIEW_FONT_H
#define BETON_VIEW_FONT_H

#include <stdint.h>

enum { FONT_WIDTH = 5, FONT_HEIGHT = 7, FONT_ADVANCE = 6 };

/* The seven rows of a character, bit 4 being the leftmost dot. Lower-case letters look like capitals; characters that
 * are not ASCII like a question mark. */
const uint8_t *font_glyph(char character);

#endif
