/* SPDX-License-Identifier: Apache-2.0 */
#define REAL double
#define KERNELS dtrain__ref_kernels_f64
#include "kernels.inc"
