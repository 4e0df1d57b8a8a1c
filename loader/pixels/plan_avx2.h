/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_PLAN_AVX2_H
#define BT_LOADER_PLAN_AVX2_H

#include "kernels.h"

/* The fill of bt_kernels for processors with AVX2. */
bool bt_fill_avx2(bt_axis *axis, const bt_box *box);

#endif
