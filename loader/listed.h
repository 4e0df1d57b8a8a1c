/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_LISTED_H
#define BT_LOADER_LISTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the rising numbers contain one. */
static inline bool bt_listed(const uint64_t *numbers, size_t count, uint64_t wanted)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (numbers[middle] == wanted)
			return true;
		if (numbers[middle] < wanted)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* Index of the first number that is not above the number before it; 0: all rise. */
static inline size_t bt_first_not_rising(const uint64_t *numbers, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (numbers[i] <= numbers[i - 1])
			return i;
	return 0;
}

#endif
