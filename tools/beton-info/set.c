/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a set of shards, without a look at the shards. */
#include <inttypes.h>
#include <stdio.h>

#include <beton/set.h>

#include "common/error.h"
#include "common/system.h"
#include "info.h"
#include "tools/common/text.h"

static void print_field(const beton_field *field)
{
	fputs("  ", stdout);
	text_print(stdout, field->name, BETON_NAME_MAX + 1);
	printf("%s", beton_field_type_name(field->type));
	if (field->ndim)
		printf(" %s", field->dtype);
	for (uint32_t i = 0; i < field->ndim; i++)
		printf("%s%" PRIu64, i ? "x" : " ", field->shape[i]);
	putchar('\n');
}

static void print_text(const beton_set *set)
{
	enum { NAMES_SHOWN = 5 };
	const beton_set_info *info = beton_set_get_info(set);
	text_buffer shards, samples, size, count;
	text_print_utf8(stdout, beton_set_path(set), 0);
	printf(": a set of shards, version %u\n  %s, %s, %s\n", info->version,
	       text_count(shards, info->num_shards, "shard", "shards"),
	       text_count(samples, info->num_samples, "sample", "samples"), text_size(size, info->bytes));
	if (info->num_classes)
		printf("  %s: ", text_count(count, info->num_classes, "class", "classes"));
	for (uint32_t i = 0; i < info->num_classes && i < NAMES_SHOWN; i++) {
		fputs(i ? ", " : "", stdout);
		text_print_utf8(stdout, beton_set_class(set, i), 0);
	}
	if (info->num_classes)
		puts(info->num_classes > NAMES_SHOWN ? ", ..." : "");
	printf("%u field%s:\n", info->num_fields, bt_plural(info->num_fields));
	for (uint32_t i = 0; i < info->num_fields; i++)
		print_field(beton_set_field(set, i));
}

/* NULL: out of memory. */
static json_t *make_root(const beton_set *set)
{
	const beton_set_info *info = beton_set_get_info(set);
	json_t *root = json_pack("{s:i, s:i, s:I, s:I, s:[], s:[], s:[]}", "version", (int)info->version, "num_shards",
				 (int)info->num_shards, "num_samples", (json_int_t)info->num_samples, "bytes",
				 (json_int_t)info->bytes, "fields", "classes", "shards");
	int failed = !root;
	for (uint32_t i = 0; i < info->num_fields; i++)
		failed |= json_array_append_new(json_object_get(root, "fields"),
						info_field_json(beton_set_field(set, i)));
	for (uint32_t i = 0; i < info->num_classes; i++)
		failed |= json_array_append_new(json_object_get(root, "classes"), json_string(beton_set_class(set, i)));
	for (uint32_t i = 0; i < info->num_shards; i++) {
		const beton_shard *shard = beton_set_shard(set, i);
		failed |=
			json_array_append_new(json_object_get(root, "shards"),
					      json_pack("{s:s, s:I, s:I}", "path", shard->name, "samples",
							(json_int_t)shard->samples, "bytes", (json_int_t)shard->bytes));
	}
	if (!failed)
		return root;
	json_decref(root);
	return NULL;
}

static int print_json(const beton_set *set, beton_error *err)
{
	json_t *root = make_root(set);
	int result = root ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", beton_set_path(set));
	if (root && json_dumpf(root, stdout, JSON_INDENT(1)) != 0)
		result = bt_fail(err, BETON_IO, "cannot write the facts");
	if (result == BETON_OK)
		puts("");
	json_decref(root);
	return result;
}

int info_print_set(const char *path, bool json, beton_error *err)
{
	beton_set *set;
	int result = beton_set_open(&set, path, err);
	if (result == BETON_OK && json)
		result = print_json(set, err);
	else if (result == BETON_OK)
		print_text(set);
	beton_set_close(&set);
	return result;
}
