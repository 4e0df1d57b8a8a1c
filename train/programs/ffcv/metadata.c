/* SPDX-License-Identifier: Apache-2.0 */
#include "metadata.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "options/options_table.h"
#include "options/tasks.h"

#define NAMES_BYTES_MAX (8 << 20) /* the state of a checkpoint has room for twice that */

static int add_option(json_t *metadata, const char *key, const option_row *row, const run_options *options,
		      beton_error *err)
{
	char *text = NULL;
	int status = run_row_text(row, options, &text, err);
	/* A recipe's or model's path is reduced to the name: a path that is not UTF-8 would be left out. */
	const char *name = text && row->kind == OPTION_NAME ? strrchr(text, '/') : NULL;
	if (status == BETON_OK && text)
		json_object_set_new(metadata, key, json_string(name ? name + 1 : text));
	free(text);
	return status;
}

/* Adds the kind of the model's outputs, and the fields of its targets, whose defaults depend on the file. */
static void add_outputs(json_t *metadata, const run_options *options, const engine_data *data)
{
	int field = run_options_job(options).task->class_field;
	if (!data->outputs->key)
		return;
	json_object_set_new(metadata, "outputs", json_string(data->outputs->key));
	if (strcmp(data->outputs->key, "classes") != 0 && !json_object_get(metadata, "label_field"))
		json_object_set_new(metadata, "label_field", json_string(data->train.fields[field]));
}

static int add_names(json_t *metadata, const run_options *options, beton_error *err)
{
	const engine_job job = run_options_job(options);
	char *names = NULL;
	int status = job.task->class_names
			     ? job.task->class_names(&job, options->data.paths, options->data.count, &names, err)
			     : BETON_OK;
	if (status == BETON_OK && names && strlen(names) <= NAMES_BYTES_MAX)
		json_object_set_new(metadata, "class_names", json_string(names));
	free(names);
	return status;
}

int run_metadata_make(const run_options *options, const run_info *info, char **out, beton_error *err)
{
	*out = NULL;
	json_t *metadata = json_pack("{s:s, s:s, s:o}", "format", "pt", "producer", "dtrain-ffcv " DTRAIN_VERSION,
				     "classes", json_sprintf("%" PRId64, info->data.classes));
	int status = metadata ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the metadata");
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		int of = run_task_of(&run_rows[i]);
		bool own = of < 0 || of == options->task;
		if (run_rows[i].fact && own && !json_object_get(metadata, run_rows[i].fact))
			status = add_option(metadata, run_rows[i].fact, &run_rows[i], options, err);
	}
	add_outputs(metadata, options, &info->data);
	if (status == BETON_OK)
		status = add_option(metadata, "recipe", &run_rows[run_row_find("recipe")], options, err);
	if (status == BETON_OK && options->description)
		json_object_set_new(metadata, "description", json_string(options->description));
	if (status == BETON_OK)
		status = add_names(metadata, options, err);
	*out = status == BETON_OK ? json_dumps(metadata, JSON_COMPACT) : NULL;
	json_decref(metadata);
	if (status == BETON_OK && !*out)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for the metadata");
	return status;
}
