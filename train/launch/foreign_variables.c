/* SPDX-License-Identifier: Apache-2.0 */
#include "foreign_variables.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"

#define ALWAYS "a rank that fails or falls silent always ends the others"
#define HISTORY "the last operations of each group are always kept, and reported with a failure"

/* The first line that fits counts. NCCL's own variables are read by NCCL. */
static const struct {
	const char *name; /* "TORCH_NCCL_*": all that begin so */
	const char *answer;
} answers[] = {
	{"NCCL_TIMEOUT", "--timeout is the time limit of a step's communication"},
	{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "--timeout is the time limit of a step's communication"},
	{"NCCL_ASYNC_ERROR_HANDLING", ALWAYS},
	{"NCCL_BLOCKING_WAIT", ALWAYS},
	{"TORCH_NCCL_ASYNC_ERROR_HANDLING", ALWAYS},
	{"TORCH_NCCL_BLOCKING_WAIT", ALWAYS},
	{"TORCH_NCCL_ENABLE_MONITORING", ALWAYS},
	{"TORCH_NCCL_PROPAGATE_ERROR", ALWAYS},
	{"NCCL_DESYNC_DEBUG", HISTORY},
	{"TORCH_NCCL_DESYNC_DEBUG", HISTORY},
	{"TORCH_NCCL_TRACE_BUFFER_SIZE", HISTORY},
	{"TORCH_NCCL_DUMP_ON_TIMEOUT", HISTORY},
	{"TORCH_FR_*", HISTORY},
	{"TORCH_DISTRIBUTED_DEBUG", HISTORY},
	{"GLOO_SOCKET_IFNAME", "--interface names the network interface"},
	{"TP_SOCKET_IFNAME", "--interface names the network interface"},
	{"TORCH_NCCL_*", "these are PyTorch's"},
};
#define ANSWERS (sizeof(answers) / sizeof(answers[0]))

static bool fits(const char *pattern, const char *entry)
{
	size_t length = strlen(pattern);
	return pattern[length - 1] == '*' ? strncmp(entry, pattern, length - 1) == 0
					  : strncmp(entry, pattern, length) == 0 && entry[length] == '=';
}

/* ANSWERS: none. */
static size_t find(const char *entry)
{
	size_t i = 0;
	while (i < ANSWERS && !fits(answers[i].name, entry))
		i++;
	return i;
}

void run_foreign_tell(bool several, void (*say)(const char *line))
{
	for (size_t i = 0; i < ANSWERS && several; i++) {
		bool first = true;
		for (size_t j = 0; j < i; j++)
			first = first && strcmp(answers[j].answer, answers[i].answer) != 0;
		char names[200] = "", line[400];
		for (char **entry = environ; *entry && first; entry++) {
			size_t found = find(*entry);
			if (found < ANSWERS && strcmp(answers[found].answer, answers[i].answer) == 0)
				bt_append(names, sizeof(names), "%s%.*s", *names ? ", " : "", (int)strcspn(*entry, "="),
					  *entry);
		}
		snprintf(line, sizeof(line), "%s: no effect here: %s", names, answers[i].answer);
		if (*names)
			say(line);
	}
}
