/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN planning for a GPU that is only described, under the stand-in.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_STANDIN_DESCRIBED_H
#define TESTS_TRAIN_DEVICES_CUDA_STANDIN_DESCRIBED_H

/* Loads the driver, or `driver` (dnn_driver.c) in its place where there is none, and reads cuDNN's description of a GPU
 * for standin.gpu. 0, or what main returns, after it was said why. */
int standin_describe(const char *driver, const char *description, void **gpu);

#endif
