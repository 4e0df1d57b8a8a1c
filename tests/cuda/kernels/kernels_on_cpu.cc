/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the cuda device, compiled for the CPU.
 */
#include "emulation.h"

#include "train/cuda/elementwise.cu"
#include "train/cuda/transpose.cu"
