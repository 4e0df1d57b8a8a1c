/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_JPEG_MARKER_H
#define BT_JPEG_MARKER_H

#include <stdbool.h>
#include <stdint.h>

/* The first 0xff whose next byte is neither 0 nor 0xff; end if there is none. */
const uint8_t *bt_find_marker(const uint8_t *bytes, const uint8_t *end);

/* Moves past the marker that has to follow segment `number` of a scan; after the last segment it ends the picture.
 * False: another marker follows, or none. */
bool bt_pass_marker(const uint8_t **at, const uint8_t *end, uint32_t number, bool last);

#endif
