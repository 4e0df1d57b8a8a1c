/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_DEVICE_H
#define TESTS_TRAIN_DEVICES_CUDA_DEVICE_H

/* The tests of the device "cuda" below its ops, on what opens as GPU 0. Returns how many failed. */
int cuda_run_device_tests(void);

#endif
