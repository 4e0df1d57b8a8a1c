/* SPDX-License-Identifier: Apache-2.0 */
#define REAL float
#define KERNELS dtrain__ref_kernels_f32
#include "kernels.inc"
