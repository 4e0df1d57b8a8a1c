/* SPDX-License-Identifier: Apache-2.0 */
#include "shares.h"

#include <stdlib.h>

#include "common/error.h"
#include "dataset.h"
#include "stratify.h"

static int read_labels(dataset_input *in, const selection *chosen, uint64_t count, uint32_t field, int64_t *labels,
		       beton_error *err)
{
	selection_cursor cursor = {0};
	int result = BETON_OK;
	for (uint64_t i = 0; i < count && result == BETON_OK; i++) {
		const beton_reader *reader;
		uint64_t sample, number;
		bool found = false;
		beton_value value;
		result = selection_next(chosen, in, &cursor, &sample, &found, err);
		if (result == BETON_OK && !found)
			result = bt_fail(err, BETON_FILE_CHANGED, "%s: it changed while it was read", in->path);
		if (result == BETON_OK)
			result = input_at(in, sample, &reader, &number, err);
		if (result == BETON_OK)
			result = beton_reader_value(reader, number, field, &value, err);
		if (result == BETON_OK)
			labels[i] = value.integer;
	}
	return result;
}

int shares_divide(dataset_input *in, const selection *chosen, uint64_t count, const double *shares, uint32_t parts,
		  uint64_t seed, uint32_t *part, uint64_t *totals, beton_error *err)
{
	int field = dataset_label_field(in->schema);
	int64_t *labels = calloc((size_t)count + 1, sizeof(*labels));
	int result = labels ? BETON_OK
			    : bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu classes", in->path,
				      (unsigned long long)count);
	if (result == BETON_OK && field >= 0)
		result = read_labels(in, chosen, count, (uint32_t)field, labels, err);
	stratify_totals(totals, shares, parts, count);
	if (result == BETON_OK)
		result = stratify(part, labels, count, totals, parts, seed, false, err);
	free(labels);
	return result;
}
