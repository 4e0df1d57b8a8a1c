/* SPDX-License-Identifier: Apache-2.0
 *
 * The one symbol of the module: see <dtrain/module.h>.
 */
#include "devices/cuda/nccl/nccl_comm.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

BETON_API dtrain_module_entry_function dtrain_module_entry;

const dtrain_module *dtrain_module_entry(void)
{
	static const dtrain_module module = {
		.api_version = DTRAIN_MODULE_API_VERSION,
		.version = "CUDA " DTRAIN_CUDA_VERSION ", cuDNN " TEXT(CUDNN_MAJOR) "." TEXT(CUDNN_MINOR) "." TEXT(
			CUDNN_PATCHLEVEL) ", NCCL " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(NCCL_PATCH),
		.device = &cuda_device_api,
		.group = &cuda_group_nccl,
	};
	return &module;
}
