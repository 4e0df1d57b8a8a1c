/* SPDX-License-Identifier: Apache-2.0 */
#include "replace.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/sized.h"
#include "listed.h"

static bool is_output(const bt_outputs *outputs, uint32_t field)
{
	for (uint32_t i = 0; i < outputs->count; i++)
		if (outputs->list[i].field == field && outputs->list[i].kind == BT_OUTPUT_INT)
			return true;
	return false;
}

/* Checks replacement number i and finds its field. */
static int resolve(bt_replacements *replacements, uint32_t i, const beton_replacement *r, const bt_outputs *outputs,
		   const bt_schema *schema, beton_error *err)
{
	const char *path = schema->path;
	if (!r->field)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: replacements[%u].field is NULL", i);
	int field = bt_schema_find(schema, r->field);
	if (field < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s' (option replacements[%u].field)", path,
			       r->field, i);
	if (!is_output(outputs, (uint32_t)field))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: field '%s' (option replacements[%u].field) is not an output of integers", path,
			       r->field, i);
	if (!BT_RESERVED_IS_ZERO(r))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: replacements[%u].reserved is not 0", i);
	if (r->num_indices > 0 && !r->indices)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: replacements[%u].indices is NULL, but num_indices is %zu", i,
			       r->num_indices);
	size_t bad = bt_first_not_rising(r->indices, r->num_indices);
	if (bad > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: replacements[%u].indices[%zu] is %llu, not above the one before it", i,
			       bad, (unsigned long long)r->indices[bad]);
	replacements->list[i].field = (uint32_t)field;
	replacements->list[i].values = *r;
	replacements->list[i].values.field = NULL;
	replacements->count++;
	return BETON_OK;
}

int bt_replacements_open(bt_replacements *replacements, const beton_loader_options *options, const bt_outputs *outputs,
			 const bt_schema *schema, beton_error *err)
{
	uint32_t count = options->num_replacements;
	if (count == 0)
		return BETON_OK;
	if (count > BETON_REPLACEMENTS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: num_replacements is %u, more than %d",
			       count, BETON_REPLACEMENTS_MAX);
	if (!options->replacements)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "loader options: replacements is NULL, but num_replacements is %u", count);
	replacements->list = calloc(count, sizeof(*replacements->list));
	if (!replacements->list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u replacements", count);
	int result = BETON_OK;
	for (uint32_t i = 0; i < count && result == BETON_OK; i++)
		result = resolve(replacements, i, &options->replacements[i], outputs, schema, err);
	if (result)
		bt_replacements_close(replacements);
	return result;
}

void bt_replacements_close(bt_replacements *replacements)
{
	free(replacements->list);
	*replacements = (bt_replacements){0};
}

int64_t bt_replace(const bt_replacements *replacements, uint32_t field, uint64_t sample, int64_t value)
{
	for (uint32_t i = replacements->count; i > 0; i--) {
		const struct bt_field_replacement *r = &replacements->list[i - 1];
		if (r->field == field && bt_listed(r->values.indices, r->values.num_indices, sample))
			return r->values.value;
	}
	return value;
}
