/* SPDX-License-Identifier: Apache-2.0 */
#include "stratify.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/hash.h"

typedef struct drawn_sample {
	int64_t label;
	uint64_t draw;
	uint64_t number;
} drawn_sample;

/* The samples of a class that no part has yet: `left` from `next` on. */
typedef struct class_share {
	uint64_t next;
	uint64_t left;
	uint64_t take;      /* for the part that is filled now */
	uint64_t remainder; /* of its exact share, as a fraction of all samples that are left */
	uint64_t draw;      /* decides between equal remainders */
} class_share;

static uint64_t draw(uint64_t seed, uint64_t what, uint64_t number)
{
	uint8_t bytes[16];
	for (int i = 0; i < 8; i++) {
		bytes[i] = (uint8_t)(what >> 8 * i);
		bytes[8 + i] = (uint8_t)(number >> 8 * i);
	}
	return XXH3_64bits_withSeed(bytes, sizeof(bytes), seed);
}

static int compare_samples(const void *a, const void *b)
{
	const drawn_sample *one = a;
	const drawn_sample *other = b;
	if (one->label != other->label)
		return one->label < other->label ? -1 : 1;
	if (one->draw != other->draw)
		return one->draw < other->draw ? -1 : 1;
	return one->number < other->number ? -1 : one->number > other->number;
}

static int compare_shares(const void *a, const void *b)
{
	const class_share *one = a;
	const class_share *other = b;
	if (one->remainder != other->remainder)
		return one->remainder > other->remainder ? -1 : 1;
	if (one->draw != other->draw)
		return one->draw < other->draw ? -1 : 1;
	return one->next < other->next ? -1 : one->next > other->next;
}

/* Sets `take` of each class; all of them together are `total` of the `left` samples, as far as `spare` allows, which of
 * each class stay. */
static void share(class_share *classes, uint64_t count, uint64_t total, uint64_t left, uint64_t spare)
{
	uint64_t taken = 0;
	for (uint64_t c = 0; c < count; c++) {
		class_share *one = &classes[c];
		unsigned __int128 exact = (unsigned __int128)one->left * total;
		uint64_t most = one->left > spare ? one->left - spare : 0;
		one->take = left ? (uint64_t)(exact / left) : 0;
		one->remainder = left ? (uint64_t)(exact % left) : 0;
		one->take = one->take < most ? one->take : most;
		taken += one->take;
	}
	qsort(classes, (size_t)count, sizeof(*classes), compare_shares);
	for (bool more = true; more && taken < total;) {
		more = false;
		for (uint64_t c = 0; c < count && taken < total; c++)
			if (classes[c].take + spare < classes[c].left) {
				classes[c].take++;
				taken++;
				more = true;
			}
	}
}

static uint64_t find_classes(const drawn_sample *samples, uint64_t count, class_share *classes)
{
	uint64_t found = 0;
	for (uint64_t i = 0; i < count; i++) {
		if (i == 0 || samples[i].label != samples[i - 1].label)
			classes[found++] = (class_share){.next = i};
		classes[found - 1].left++;
	}
	return found;
}

static void fill_part(uint32_t *part, uint32_t number, const drawn_sample *samples, class_share *classes,
		      uint64_t count, uint64_t *left)
{
	for (uint64_t c = 0; c < count; c++) {
		class_share *one = &classes[c];
		for (uint64_t i = 0; i < one->take; i++)
			part[samples[one->next + i].number] = number;
		one->next += one->take;
		one->left -= one->take;
		*left -= one->take;
	}
}

int stratify(uint32_t *part, const int64_t *labels, uint64_t count, const uint64_t *totals, uint32_t parts,
	     uint64_t seed, bool keep_one, beton_error *err)
{
	drawn_sample *samples = calloc((size_t)count + 1, sizeof(*samples));
	class_share *classes = NULL;
	uint64_t num_classes = 0;
	for (uint64_t i = 0; samples && i < count; i++)
		samples[i] = (drawn_sample){labels ? labels[i] : 0, draw(seed, 0, i), i};
	if (samples) {
		qsort(samples, (size_t)count, sizeof(*samples), compare_samples);
		for (uint64_t i = 0; i < count; i++)
			num_classes += i == 0 || samples[i].label != samples[i - 1].label;
		classes = calloc((size_t)num_classes + 1, sizeof(*classes));
	}
	int result =
		classes ? BETON_OK
			: bt_fail(err, BETON_NO_MEMORY, "no memory to divide %llu samples", (unsigned long long)count);
	uint64_t left = count;
	if (result == BETON_OK)
		find_classes(samples, count, classes);
	for (uint32_t p = 0; p + 1 < parts && result == BETON_OK; p++) {
		for (uint64_t c = 0; c < num_classes; c++)
			classes[c].draw = draw(seed, p + 1, (uint64_t)samples[classes[c].next].label);
		share(classes, num_classes, totals[p], left, keep_one);
		fill_part(part, p, samples, classes, num_classes, &left);
	}
	for (uint64_t c = 0; c < num_classes && result == BETON_OK; c++)
		classes[c].take = classes[c].left;
	if (result == BETON_OK)
		fill_part(part, parts - 1, samples, classes, num_classes, &left);
	free(classes);
	free(samples);
	return result;
}

void stratify_totals(uint64_t *totals, const double *shares, uint32_t parts, uint64_t count)
{
	uint64_t given = 0;
	for (uint32_t p = 0; p < parts; p++) {
		/* 0.29 * 100 is a little less than 29. */
		totals[p] = (uint64_t)floor(shares[p] * (double)count + 1e-12 * (double)count);
		totals[p] = totals[p] < count - given ? totals[p] : count - given;
		given += totals[p];
	}
	while (given < count) {
		uint32_t best = 0;
		for (uint32_t p = 1; p < parts; p++)
			if (shares[p] * (double)count - (double)totals[p] >
			    shares[best] * (double)count - (double)totals[best])
				best = p;
		totals[best]++;
		given++;
	}
}
