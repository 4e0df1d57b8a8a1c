/* SPDX-License-Identifier: Apache-2.0 */
#include "topk.h"

#include <math.h>

int64_t vision_label_rank(const float *logits, int64_t classes, int64_t label)
{
	float own = logits[label];
	int64_t rank = 0;
	if (isnan(own))
		return classes;
	for (int64_t i = 0; i < classes; i++)
		rank += isnan(logits[i]) || logits[i] > own || (logits[i] == own && i < label);
	return rank;
}
