/* SPDX-License-Identifier: Apache-2.0
 *
 * The ref device, which gives what is right, for tests whose operands are plain.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_CUDNN_REFERENCE_H
#define TESTS_TRAIN_DEVICES_CUDA_CUDNN_REFERENCE_H

#include <dtrain/device.h>

/* Runs an op of a device that is opened for it, on operands in host memory, inputs first. The test fails if the device
 * does. */
void reference_run(const dtrain_op_desc *desc, void *const *operands);

#endif
