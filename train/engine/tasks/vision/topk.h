/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TASKS_VISION_TOPK_H
#define ENGINE_TASKS_VISION_TOPK_H

#include <stdint.h>

/* The label's position, from 0, among the classes sorted by falling logit: as with torch.topk, NaN sorts above every
 * number; equal logits are sorted by class. A label whose own logit is NaN comes last. */
int64_t vision_label_rank(const float *logits, int64_t classes, int64_t label);

#endif
