/* SPDX-License-Identifier: Apache-2.0 */
#include "joined.h"

#include "numbers.h"

static double element(const beton_tensor *tensor, int64_t i)
{
	return bt_number(tensor->dtype, tensor->data, (size_t)i);
}

static int64_t row_elements(const beton_tensor *tensor)
{
	int64_t count = 1;
	for (uint32_t i = 1; i < tensor->ndim; i++)
		count *= tensor->shape[i];
	return count;
}

/* Copies a tensor to columns of the rows. lambda NULL: nothing is mixed. */
static void add_part(const beton_tensor *part, uint32_t rows, const float *lambda, const int64_t *partner, float *to,
		     int64_t step)
{
	int64_t count = row_elements(part);
	for (uint32_t row = 0; row < rows; row++, to += step)
		for (int64_t i = 0; i < count; i++) {
			double value = element(part, row * count + i);
			if (lambda && lambda[row] < 1)
				value = (double)lambda[row] * value +
					(1 - (double)lambda[row]) * element(part, partner[row] * count + i);
			to[i] = (float)value;
		}
}

void bt_joined_fill(const bt_slot *slot)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	if (outputs->joined < 0)
		return;
	const beton_tensor *joined = &slot->tensors[outputs->joined];
	const float *lambda = outputs->lambda < 0 ? NULL : slot->tensors[outputs->lambda].data;
	const int64_t *partner = outputs->lambda < 0 ? NULL : slot->tensors[outputs->partner].data;
	float *to = joined->data;
	for (uint32_t i = 0; i < outputs->num_parts; i++) {
		const beton_tensor *part = &slot->tensors[outputs->parts[i]];
		add_part(part, slot->batch.count, lambda, partner, to, joined->shape[1]);
		to += row_elements(part);
	}
}
