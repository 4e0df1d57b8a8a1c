/* SPDX-License-Identifier: Apache-2.0 */
#include "recompute_option.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/suggest.h"
#include "common/system.h"
#include "engine/network.h"

static const char *const names[] = {
	[DTRAIN_RECOMPUTE_NONE] = "none",
	[DTRAIN_RECOMPUTE_SELECTIVE] = "selective",
	[DTRAIN_RECOMPUTE_FULL] = "full",
	NULL,
};

enum { NAMES = sizeof(names) / sizeof(names[0]) - 1 };

const char *engine_recompute_name(int index)
{
	return index < NAMES ? names[index] : NULL;
}

int engine_recompute_parse(const char *option, const char *text, engine_recompute *out, beton_error *err)
{
	uint64_t blocks;
	for (int i = 0; i < NAMES; i++)
		if (strcmp(names[i], text) == 0) {
			*out = (engine_recompute){(dtrain_recompute)i, INT64_MAX};
			return BETON_OK;
		}
	if (bt_parse_u64(option, text, 1, INT32_MAX, &blocks, NULL) == BETON_OK) {
		*out = (engine_recompute){DTRAIN_RECOMPUTE_FULL, (int64_t)blocks};
		return BETON_OK;
	}
	bt_suggestion like;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "%s: '%s' is not one of none, selective, full, or a number of blocks from 1 on%s", option, text,
		       bt_suggest_of(&like, text, names));
}

int engine_recompute_measure(engine_rank *engine, engine_recompute how, dtrain_program_info *out, beton_error *err)
{
	engine_recompute wanted = engine->job.recompute;
	engine->job.recompute = how;
	size_t batches;
	int status = engine_measure(engine, true, out, &batches, err);
	engine->job.recompute = wanted;
	return status;
}

static bool is_same(engine_recompute a, engine_recompute b)
{
	return a.what == b.what && (a.what != DTRAIN_RECOMPUTE_FULL || a.blocks == b.blocks);
}

static int add_row(FILE *table, engine_rank *engine, const char *name, engine_recompute how, beton_error *err)
{
	dtrain_program_info info = {.struct_size = sizeof(info)};
	int status = engine_recompute_measure(engine, how, &info, err);
	if (status == BETON_OK)
		fprintf(table, "%c %-10s %14.3f %12.3f %14" PRId32 " %12.1f %%\n",
			is_same(how, engine->job.recompute) ? '*' : ' ', name, (double)info.arena_bytes / 1e6,
			(double)info.workspace_bytes / 1e6, info.repeated,
			info.flops > 0 ? 100 * info.repeated_flops / info.flops : 0);
	return status;
}

static int add_rows(FILE *table, engine_rank *engine, beton_error *err)
{
	int64_t blocks = engine->job.recompute.blocks;
	int status = BETON_OK;
	fprintf(table, "--recompute  activations MB   scratch MB   repeated ops   products again\n");
	for (int i = 0; i < NAMES && status == BETON_OK; i++)
		status = add_row(table, engine, names[i], (engine_recompute){(dtrain_recompute)i, INT64_MAX}, err);
	if (status == BETON_OK && engine->job.recompute.what == DTRAIN_RECOMPUTE_FULL && blocks != INT64_MAX) {
		char name[24];
		snprintf(name, sizeof(name), "%" PRId64, blocks);
		status = add_row(table, engine, name, engine->job.recompute, err);
	}
	return status;
}

int engine_recompute_table(engine_rank *engine, char **out, beton_error *err)
{
	size_t size;
	*out = NULL;
	FILE *table = open_memstream(out, &size);
	int status = table ? add_rows(table, engine, err) : BETON_OK;
	if (!table || fclose(table) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a table");
	return status;
}
