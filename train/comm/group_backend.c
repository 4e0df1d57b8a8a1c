/* SPDX-License-Identifier: Apache-2.0 */
#include "group_backend.h"

#include <string.h>

static const struct group_backend *const backends[] = {
#ifdef DTRAIN_HAVE_GLOO
	&dtrain__group_gloo,
#endif
	NULL,
};

const struct group_backend *dtrain__group_backend_find(const char *name)
{
	for (size_t i = 0; backends[i]; i++) {
		if (!name || strcmp(backends[i]->name, name) == 0)
			return backends[i];
	}
	return NULL;
}

static int local_connect(const struct group_member *member, void **state, beton_error *err)
{
	(void)member;
	(void)err;
	*state = NULL;
	return BETON_OK;
}

/* Alone, every reduction and exchange is a copy. */
static int local_run(void *state, const dtrain_group_call *call, beton_error *err)
{
	(void)state;
	(void)err;
	if (call->op != DTRAIN_GROUP_BARRIER && call->output != call->input)
		memmove(call->output, call->input, (size_t)call->count * dtrain_dtype_size(call->dtype));
	return BETON_OK;
}

static void local_abort(void *state)
{
	(void)state;
}

const struct group_backend dtrain__group_local = {
	.name = "local",
	.host_memory = true,
	.connect = local_connect,
	.run = local_run,
	.abort = local_abort,
	.close = local_abort,
};
