/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

void reference_run(const dtrain_op_desc *desc, void *const *operands)
{
	dtrain_op_desc local = *desc;
	dtrain_device *device = NULL;
	dtrain_op *op = NULL;
	dtrain_stream *stream = NULL;
	beton_error err = {0};
	if (dtrain_device_open("ref", NULL, &device, &err) != BETON_OK)
		fail_msg("%s", err.message);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	if (api->op_create(device, &local, &op, &err) != BETON_OK ||
	    api->stream_create(device, &stream, &err) != BETON_OK)
		fail_msg("%s", err.message);
	void *workspace = calloc(1, local.workspace_bytes + 1);
	if (api->op_run(op, stream, operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(workspace);
	api->stream_destroy(stream);
	api->op_destroy(op);
	dtrain_device_close(&device);
}
