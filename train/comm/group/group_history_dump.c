/* SPDX-License-Identifier: Apache-2.0
 *
 * A group's records as JSON lines, for tools that compare the ranks' files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "common/error.h"
#include "common/system.h"
#include "group_history.h"

static const char *const states[] = {
	[DTRAIN_RECORD_QUEUED] = "queued",       [DTRAIN_RECORD_STARTED] = "started",
	[DTRAIN_RECORD_COMPLETED] = "completed", [DTRAIN_RECORD_FAILED] = "failed",
	[DTRAIN_RECORD_CAPTURED] = "captured",
};

static json_t *text(const char *bytes)
{
	json_t *string = json_string(bytes);
	return string ? string : json_string("(not UTF-8)");
}

/* Wall clock minus CLOCK_MONOTONIC. */
static long long realtime_offset_ns(void)
{
	struct timespec real;
	clock_gettime(CLOCK_REALTIME, &real);
	return (long long)real.tv_sec * 1000000000 + real.tv_nsec - (long long)bt_now_ns();
}

static json_t *describe_group(const group_membership *member, const char *reason)
{
	return json_pack("{s:s, s:i, s:o, s:i, s:i, s:I, s:I, s:o}", "format", "dtrain-history", "version", 1, "group",
			 text(member->name), "rank", member->rank, "size", member->size, "now_ns",
			 (json_int_t)bt_now_ns(), "realtime_offset_ns", (json_int_t)realtime_offset_ns(), "reason",
			 text(reason));
}

static json_t *describe_record(const dtrain_record *record)
{
	return json_pack("{s:I, s:I, s:I, s:s, s:o, s:I, s:s, s:I, s:s?, s:i, s:i, s:s, s:I, s:I, s:I}", "number",
			 (json_int_t)record->number, "batch", (json_int_t)record->batch, "sequence",
			 (json_int_t)record->sequence, "kind", record->kind, "label", text(record->label), "count",
			 (json_int_t)record->count, "dtype", dtrain_dtype_name(record->dtype), "bytes",
			 (json_int_t)record->bytes, "reduce",
			 record->reduce < 0 ? NULL : dtrain__reduce_name((dtrain_reduce_op)record->reduce), "peer",
			 record->peer, "tag", record->tag, "state", states[record->state], "enqueued_ns",
			 (json_int_t)record->enqueued_ns, "started_ns", (json_int_t)record->started_ns, "ended_ns",
			 (json_int_t)record->ended_ns);
}

/* Writes a line, and frees the object. */
static bool write_line(FILE *file, json_t *object)
{
	bool written = object && json_dumpf(object, file, 0) == 0 && fputc('\n', file) != EOF;
	json_decref(object);
	return written;
}

static int write_file(const char *path, const group_membership *member, const char *reason,
		      const dtrain_record *records, int count, beton_error *err)
{
	FILE *file = fopen(path, "we");
	if (!file)
		return bt_fail_errno(err, errno, "%s", path);
	bool written = write_line(file, describe_group(member, reason));
	for (int i = 0; i < count && written; i++)
		written = write_line(file, describe_record(&records[i]));
	if (fclose(file) || !written)
		return bt_fail(err, BETON_IO, "%s: cannot be written: %s", path, strerror(errno));
	return BETON_OK;
}

void dtrain__history_keep(group_history *history, const group_membership *member, beton_error *err)
{
	const char *folder = getenv("DTRAIN_HISTORY");
	beton_error fault = {0};
	if (!folder || !*folder)
		return;
	dtrain_record *records = malloc(sizeof(*records) * DTRAIN_HISTORY_LENGTH);
	char *path = bt_format("%s/%s.%d.jsonl", folder, member->name, member->rank);
	/* The group's name may contain slashes, because it is a prefix of keys. */
	for (char *at = path ? path + strlen(folder) + 1 : NULL; at && *at; at++)
		if (*at == '/')
			*at = '_';
	int status;
	if (records && path)
		status = write_file(path, member, err->message, records,
				    dtrain__history_read(history, records, DTRAIN_HISTORY_LENGTH), &fault);
	else
		status = bt_fail(&fault, BETON_NO_MEMORY, "out of memory");
	if (status != BETON_OK)
		bt_append(err->message, sizeof(err->message), "; DTRAIN_HISTORY: %s", fault.message);
	free(path);
	free(records);
}
