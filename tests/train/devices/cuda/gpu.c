/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of device.c on a GPU. Exits with 77 where there is none.
 */
#include <stdio.h>

#include <dtrain/device.h>

#include "device.h"

int main(void)
{
	dtrain_device *device = NULL;
	beton_error err = {0};
	if (dtrain_device_open("cuda", NULL, &device, &err) != BETON_OK) {
		fprintf(stderr, "no GPU: %s\n", err.message);
		return 77;
	}
	dtrain_device_close(&device);
	return cuda_run_device_tests();
}
