/* SPDX-License-Identifier: Apache-2.0 */
#include "class_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

int vision_class_names_load(const beton_reader *reader, json_t **out, beton_error *err)
{
	json_error_t where;
	*out = NULL;
	if (!beton_reader_info(reader)->has_facts)
		return BETON_OK;
	const char *text = beton_reader_facts(reader, err);
	if (!text)
		return err->code;
	json_t *info = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (!info)
		return bt_fail(err, BETON_FORMAT, "%s: the facts: %s", beton_reader_path(reader), where.text);
	json_t *names = json_object_get(info, "classes");
	/* Another writer may store something else under this key; ignore it. */
	if (json_is_array(names) && json_array_size(names) > 0)
		*out = json_incref(names);
	json_decref(info);
	return BETON_OK;
}

int vision_class_names_hash(const json_t *names, uint64_t *out, beton_error *err)
{
	char *text = names ? json_dumps(names, JSON_COMPACT) : NULL;
	if (names && !text)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the names of classes");
	*out = text ? XXH3_64bits(text, strlen(text)) : 0;
	free(text);
	return BETON_OK;
}

int vision_class_names_compare(const char *data_path, const json_t *data, const char *val_path, const json_t *val,
			       const bool *used, int64_t limit, beton_error *err)
{
	for (int64_t label = 0; data && val && label < limit; label++) {
		const char *ours = json_string_value(json_array_get(data, (size_t)label));
		const char *theirs = json_string_value(json_array_get(val, (size_t)label));
		if (!used[label] || (!ours && !theirs) || (ours && theirs && strcmp(ours, theirs) == 0))
			continue;
		return bt_fail(err, BETON_MISMATCH,
			       "--val: label %" PRId64
			       " is %s%.60s%s in %s and %s%.60s%s in %s: the two files number their "
			       "classes differently (--ignore-classes takes labels as they are)",
			       label, theirs ? "'" : "", theirs ? theirs : "no class", theirs ? "'" : "", val_path,
			       ours ? "'" : "", ours ? ours : "no class", ours ? "'" : "", data_path);
	}
	return BETON_OK;
}
