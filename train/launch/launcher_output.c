/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/system.h"

bool dtrain__output_open(struct output *output, int from, int rank, status_line *status, struct merge *merge)
{
	*output = (struct output){.from = -1, .rank = rank, .status = status, .merge = merge};
	/* Rank 0 speaks for the job. */
	if (rank)
		snprintf(output->prefix, sizeof(output->prefix), "[rank %d] ", rank);
	output->line = malloc(OUTPUT_PREFIX_SIZE + OUTPUT_LINE_BYTES + 1);
	if (!output->line)
		return false;
	output->from = from;
	return true;
}

static void remember(struct output *output, const char *line, size_t size)
{
	char *slot = output->last[output->last_count++ % OUTPUT_LAST_LINES];
	if (size >= OUTPUT_LAST_BYTES)
		size = OUTPUT_LAST_BYTES - 1;
	memcpy(slot, line, size);
	slot[size] = '\0';
}

/* Writes prefix, line and newline in one call, so that the line stays whole even if others write to the same file. The
 * text is built at the start of output->line; line lies after the space for the prefix, so the text after line is not
 * changed. */
static int write_line(struct output *output, const char *line, size_t size)
{
	size_t prefix = strlen(output->prefix);
	char *start = output->line;
	if (output->merge) {
		remember(output, line, size);
		output->last_place = output->merge->printed + (unsigned long)output->merge->count;
		return dtrain__merge_add(output->merge, output->rank, line, size);
	}
	if (output->status && size && *line == STATUS_LINE_MARK)
		return status_line_show(output->status, line + 1, size - 1);
	int failure = output->status ? status_line_clear(output->status) : 0;
	memcpy(start, output->prefix, prefix);
	memmove(start + prefix, line, size);
	start[prefix + size] = '\n';
	return bt_write_full(STDOUT_FILENO, start, prefix + size + 1) ? errno : failure;
}

static int take_bytes(struct output *output)
{
	size_t size = output->size;
	output->size = 0;
	return bt_write_full(STDOUT_FILENO, output->line + OUTPUT_PREFIX_SIZE, size) ? errno : 0;
}

static int take_lines(struct output *output)
{
	char *data = output->line + OUTPUT_PREFIX_SIZE, *next = data, *end = data + output->size, *newline;
	int failure = 0, result;
	while ((newline = memchr(next, '\n', (size_t)(end - next)))) {
		result = write_line(output, next, (size_t)(newline - next));
		failure = failure ? failure : result;
		next = newline + 1;
	}
	output->size = (size_t)(end - next);
	memmove(data, next, output->size);
	if (output->size == OUTPUT_LINE_BYTES) {
		result = write_line(output, data, output->size);
		failure = failure ? failure : result;
		output->size = 0;
	}
	return failure;
}

int dtrain__output_pump(struct output *output, size_t most)
{
	int failure = 0, result;
	/* Bounded, so that a rank that never stops printing cannot keep the launcher from its other work. */
	for (int rounds = 0; rounds < 16 && output->from >= 0 && most > 0; rounds++) {
		size_t room = OUTPUT_LINE_BYTES - output->size;
		ssize_t got =
			read(output->from, output->line + OUTPUT_PREFIX_SIZE + output->size, room < most ? room : most);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (got <= 0) {
			result = dtrain__output_finish(output);
			return failure ? failure : result;
		}
		output->size += (size_t)got;
		most -= (size_t)got;
		result = output->raw ? take_bytes(output) : take_lines(output);
		failure = failure ? failure : result;
	}
	return failure;
}

int dtrain__output_finish(struct output *output)
{
	int failure = 0;
	if (output->from >= 0)
		close(output->from);
	output->from = -1;
	if (output->size)
		failure = write_line(output, output->line + OUTPUT_PREFIX_SIZE, output->size);
	output->size = 0;
	return failure;
}

void dtrain__output_free(struct output *output)
{
	if (output->from >= 0)
		close(output->from);
	output->from = -1;
	free(output->line);
	output->line = NULL;
}
