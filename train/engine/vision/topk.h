/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VISION_TOPK_H
#define VISION_TOPK_H

#include <stdint.h>

/* Where the label stands among the classes when their logits fall, from 0: as torch.topk sorts, NaN above every number;
 * equal logits by class. A label whose own logit is NaN stands last. */
int64_t vision_label_rank(const float *logits, int64_t classes, int64_t label);

#endif
