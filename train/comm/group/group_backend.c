/* SPDX-License-Identifier: Apache-2.0 */
#include "group_backend.h"

#include <string.h>

static const group_backend *const backends[] = {
#ifdef DTRAIN_HAVE_GLOO
	&dtrain__group_gloo,
#endif
	NULL,
};

const group_backend *dtrain__group_backend_find(const char *name)
{
	for (size_t i = 0; backends[i]; i++) {
		if (!name || strcmp(backends[i]->name, name) == 0)
			return backends[i];
	}
	return NULL;
}

static void drop_messages(const group_backend *backend, void *state, work_item *items, int count)
{
	for (int i = 0; i < count; i++) {
		if (items[i].message)
			backend->drop(state, items[i].message);
		items[i].message = NULL;
	}
}

int dtrain__backend_begin(const group_backend *backend, void *state, work_item *items, int count, bool *messages,
			  beton_error *err)
{
	int status = BETON_OK;
	*messages = false;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		if (!dtrain__is_message(items[i].call.op) || items[i].call.count == 0)
			continue;
		status = backend->post(state, &items[i].call, &items[i].message, err);
		*messages = true;
	}
	for (int i = 0; i < count && status == BETON_OK; i++) {
		const dtrain_group_call *call = &items[i].call;
		if (!dtrain__is_message(call->op) && (call->count > 0 || call->op == DTRAIN_GROUP_BARRIER))
			status = backend->run(state, call, err);
	}
	if (status != BETON_OK)
		drop_messages(backend, state, items, count);
	return status;
}

int dtrain__backend_finish(const group_backend *backend, void *state, work_item *items, int count, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		void *message = items[i].message;
		items[i].message = NULL;
		if (message)
			status = backend->finish(state, message, err);
	}
	drop_messages(backend, state, items, count);
	return status;
}

static int local_connect(const group_membership *member, void **state, beton_error *err)
{
	(void)member;
	(void)err;
	*state = NULL;
	return BETON_OK;
}

/* In a group of one rank, every reduction and exchange is a copy. */
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

const group_backend dtrain__group_local = {
	.name = "local",
	.host_memory = true,
	.connect = local_connect,
	.run = local_run,
	.abort = local_abort,
	.close = local_abort,
};
