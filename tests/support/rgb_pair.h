/* SPDX-License-Identifier: Apache-2.0
 *
 * RGB of our own decoder beside libjpeg's, for tests and for the fuzzer. */
#ifndef TESTS_SUPPORT_RGB_PAIR_H
#define TESTS_SUPPORT_RGB_PAIR_H

#include <stddef.h>
#include <stdint.h>

typedef enum rgb_verdict {
	RGB_LEFT, /* to libjpeg, or no JPEG */
	RGB_SAME,
	RGB_DIFFERS, /* or libjpeg finds a fault */
} rgb_verdict;

/* Decodes a JPEG at 1 / divisor of its size. A picture of more than max_pixels is left. */
rgb_verdict compare_rgb(const uint8_t *data, size_t size, unsigned int divisor, uint64_t max_pixels);

#endif
