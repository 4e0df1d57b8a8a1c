/* SPDX-License-Identifier: Apache-2.0 */
#include "failure.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "rank_meet.h"

/* Counters: ranks that failed by themselves, and ranks that have asked; value: "RANK MESSAGE" of the first. */
#define COUNT "failure/count"
#define ASKED "failure/asked"
#define TEXT "failure/text"

static void tell(dtrain_store *store, int rank, const beton_error *err)
{
	int64_t count = 0;
	if (dtrain_store_add(store, COUNT, 1, &count, NULL) != BETON_OK || count != 1)
		return;
	char *text = bt_format("%d %s", rank, err->message);
	if (text)
		dtrain_store_set(store, TEXT, text, strlen(text), NULL);
	free(text);
}

static bool ask(dtrain_store *store, int rank, beton_error *err)
{
	void *value = NULL;
	size_t size;
	int64_t count;
	if (dtrain_store_get(store, TEXT, 0, &value, &size, NULL) != BETON_OK)
		return false;
	char *message;
	long other = strtol(value, &message, 10);
	if (message != value && *message == ' ' && other != rank)
		bt_fail(err, BETON_PEER_LOST, "rank %ld failed: %s", other, message + 1);
	free(value);
	dtrain_store_add(store, ASKED, 1, &count, NULL);
	return true;
}

bool run_failure_share(dtrain_store *store, int rank, beton_error *err)
{
	if (!store || err->code == BETON_TIMEOUT)
		return false;
	if (err->code == BETON_PEER_LOST)
		return ask(store, rank, err);
	tell(store, rank, err);
	return true;
}

void run_failure_wait(dtrain_store *store, int world_size)
{
	dtrain__rank_linger(store, ASKED, world_size - 1);
}
