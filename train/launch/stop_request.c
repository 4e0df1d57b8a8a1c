/* SPDX-License-Identifier: Apache-2.0 */
#include "stop_request.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/net.h"
#include "common/system.h"
#include "signals.h"
#include "status_line.h"

/* Value: the signal's number, or 0 for an output that cannot be written, a space, and the text. */
#define KEY "told"
#define CONNECT_MS 2000
/* The store may be in a rank that hangs. */
#define ANSWER_MS 2000

/* "from pid 4711 (bash)"; the name only if the process still exists. */
static void describe_sender(pid_t pid, char *text, size_t size)
{
	char path[64], name[64] = "";
	FILE *file;
	if (!pid) {
		snprintf(text, size, "from the kernel, or from outside of this container");
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file && fgets(name, sizeof(name), file))
		name[strcspn(name, "\n")] = '\0';
	if (file)
		fclose(file);
	snprintf(text, size, *name ? "from pid %d (%s)" : "from pid %d", (int)pid, name);
}

static bool is_first(dtrain_store *store)
{
	int64_t count = 1;
	/* If the store is gone, every rank reports its own signal. */
	if (store)
		dtrain_store_add_within(store, KEY, 1, ANSWER_MS, &count, NULL);
	return count == 1;
}

void dtrain__stop_request_note(dtrain_store *store, int rank, pid_t launcher)
{
	static bool noted;
	int number = run_signals_caught();
	char sender[128], *text;
	if (noted || !run_signals_asked())
		return;
	noted = true;
	if ((number && launcher && run_signals_sender() == launcher) || !is_first(store))
		return;
	describe_sender(run_signals_sender(), sender, sizeof(sender));
	text = number ? bt_format("%d rank %d was asked to stop by SIG%s %s", number, rank, sigabbrev_np(number),
				  sender)
		      : bt_format("0 rank %d cannot write its output", rank);
	if (!text)
		return;
	if (number)
		status_line_warn("dtrain-ffcv: %s", strchr(text, ' ') + 1);
	if (store)
		dtrain_store_set_within(store, KEY, text, strlen(text), ANSWER_MS, NULL);
	free(text);
}

/* The signal's number, or 0, and the text after it; -1 and NULL: nothing is recorded. */
static int read_note(dtrain_store *store, char **text)
{
	void *value = NULL;
	size_t size = 0;
	char *rest;
	int number = 0;
	*text = NULL;
	if (dtrain_store_get(store, KEY, 0, &value, &size, NULL) == BETON_OK) {
		number = (int)strtol(value, &rest, 10);
		if (number >= 0 && number < NSIG && *rest == ' ')
			*text = strdup(rest + 1);
	}
	free(value);
	return *text ? number : -1;
}

int dtrain__stop_request_signal(dtrain_store *store)
{
	char *text = NULL;
	int number = run_signals_caught();
	if (number || run_signals_asked())
		return number;
	number = store ? read_note(store, &text) : -1;
	free(text);
	return number >= 0 ? number : SIGTERM;
}

bool dtrain__stop_request_any(dtrain_store *store)
{
	char *text = NULL;
	bool any = read_note(store, &text) >= 0;
	free(text);
	return any;
}

bool dtrain__stop_request_look_up(uint16_t port, const char *token, char **text, int *number)
{
	dtrain_store *store = NULL;
	*text = NULL;
	if (dtrain_store_connect(bt_loopback_host(), port, token, CONNECT_MS, &store, NULL))
		return false;
	*number = read_note(store, text);
	dtrain_store_close(&store);
	if (*number > 0)
		return true;
	free(*text);
	*text = NULL;
	*number = 0;
	return false;
}
