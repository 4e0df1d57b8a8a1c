/* SPDX-License-Identifier: Apache-2.0 */
#include "weight_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"

/* Largest size of an index, which has one line per tensor. */
#define BYTES_MAX ((size_t)64 << 20)

/* ---- reading ---- */

static int compare_weights(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;
	int order = strcmp(x->file, y->file);
	return order ? order : strcmp(x->name, y->name);
}

static bool is_name(const char *file)
{
	return *file && !strchr(file, '/') && strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
}

static int take_weights(weight_map *map, const char *path, json_t *files, beton_error *err)
{
	const char *name;
	json_t *value;
	map->weights = calloc(json_object_size(files) + 1, sizeof(*map->weights));
	if (!map->weights)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	json_object_foreach(files, name, value)
	{
		const char *file = json_string_value(value);
		if (!file)
			return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has no file", path, name);
		if (!is_name(file))
			return bt_fail(err, BETON_FORMAT,
				       "%s: tensor '%s' is in '%s', which is not a file of its folder", path, name,
				       file);
		map->weights[map->count++] = (struct weight){name, file};
	}
	qsort(map->weights, map->count, sizeof(*map->weights), compare_weights);
	return BETON_OK;
}

int dtrain__weight_map_parse(weight_map *map, const char *path, const char *text, size_t size, beton_error *err)
{
	json_error_t problem;
	json_t *index = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
	json_t *files = json_object_get(index, "weight_map");
	int status = BETON_OK;
	*map = (weight_map){.names = json_incref(files)};
	if (!index)
		status = bt_fail(err, BETON_FORMAT, "%s: is not JSON: line %d: %s", path, problem.line, problem.text);
	else if (!json_is_object(files) || !json_object_size(files))
		status = bt_fail(err, BETON_FORMAT, "%s: has no weight_map, which tells the files of tensors", path);
	else
		status = take_weights(map, path, files, err);
	json_decref(index);
	if (status != BETON_OK)
		dtrain__weight_map_free(map);
	return status;
}

int dtrain__weight_map_read(weight_map *map, const char *path, beton_error *err)
{
	char *text = NULL;
	*map = (weight_map){0};
	int status = bt_read_text(path, BYTES_MAX, &text, err);
	if (status == BETON_OK)
		status = dtrain__weight_map_parse(map, path, text, strlen(text), err);
	free(text);
	return status;
}

void dtrain__weight_map_free(weight_map *map)
{
	json_decref(map->names);
	free(map->weights);
	*map = (weight_map){0};
}

/* ---- writing ---- */

static json_t *describe(const struct weight *weights, size_t count, uint64_t bytes)
{
	json_t *files = json_object();
	int failed = files ? 0 : -1;
	for (size_t i = 0; i < count && !failed; i++)
		failed = json_object_set_new(files, weights[i].name, json_string(weights[i].file));
	if (failed) {
		json_decref(files);
		return NULL;
	}
	return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", files);
}

int dtrain__weight_map_write(const char *path, const struct weight *weights, size_t count, uint64_t bytes,
			     beton_error *err)
{
	json_t *index = describe(weights, count, bytes);
	char *text = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
	bt_atomic_file file = {.fd = -1};
	json_decref(index);
	int status = text ? bt_atomic_open(&file, path, err) : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (status == BETON_OK &&
	    (bt_write_full(file.fd, text, strlen(text)) != 0 || bt_write_full(file.fd, "\n", 1) != 0))
		status = bt_fail_errno(err, errno, "%s: cannot write", file.temporary);
	if (status == BETON_OK)
		status = bt_atomic_commit(&file, err);
	else
		bt_atomic_abandon(&file);
	free(text);
	return status;
}
