/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of text in the fonts of the system, in any script that these have.
 */
#ifndef BETON_VIEW_CAPTION_H
#define BETON_VIEW_CAPTION_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct caption_painter caption_painter;

/* Paints lines of width x height pixels. *out is the caller's, NULL on failure. Errors: NO_MEMORY. */
int caption_open(caption_painter **out, uint32_t width, uint32_t height, beton_error *err);

/* Paints UTF-8 text black on white over width x height pixels at rgb, whose rows are stride bytes apart; what does not
 * fit ends with dots. */
void caption_paint(caption_painter *self, const char *text, uint8_t *rgb, size_t stride);

void caption_close(caption_painter **self);

#endif
