/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of bt_axis_plan for AVX-512 (F, BW, VL). */
#ifndef BT_LOADER_PLAN_AVX512_H
#define BT_LOADER_PLAN_AVX512_H

#include "kernels.h"

/* The functions of bt_kernels with these names. */
bool bt_fill_avx512(bt_axis *axis, const bt_box *box);
bool bt_permute_avx512(bt_axis *axis);

#endif
