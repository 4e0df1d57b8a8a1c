/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels beside cuDNN, compiled for the CPU.
 */
#include "../kernels/emulation.h"

#include "train/cuda/dnn_kernels.cu"
