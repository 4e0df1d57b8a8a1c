/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of a device that a machine may not have.
 */
#ifndef TESTS_TRAIN_SUPPORT_MISSING_H
#define TESTS_TRAIN_SUPPORT_MISSING_H

#include <stdio.h>

#include <dtrain/device.h>

/* A module that is not there, cannot be loaded for want of its libraries, or finds no hardware: says so. Anything else
 * that is wrong with it is for the test to find. */
static inline bool is_missing(const char *name)
{
	beton_error err = {0};
	dtrain_device *device;
	int status = dtrain_device_open(name, NULL, &device, &err);
	bool missing = status == BETON_NOT_FOUND || status == BETON_DEVICE;
	if (missing)
		fprintf(stderr, "no GPU: %s\n", err.message);
	dtrain_device_close(&device);
	return missing;
}

#endif
