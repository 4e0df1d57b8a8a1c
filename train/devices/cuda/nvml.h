/* SPDX-License-Identifier: Apache-2.0
 *
 * The activity of a GPU, from the driver's management library, NVML.
 */
#ifndef DTRAIN_CUDA_NVML_H
#define DTRAIN_CUDA_NVML_H

#include <dtrain/device.h>

/* Asks for the GPU with that PCI bus id ("0000:1b:00.0"). UNSUPPORTED: the library, or the GPU in it, is missing. */
int cuda_nvml_read(const char *bus_id, dtrain_device_activity *out, beton_error *err);

#endif
