/* SPDX-License-Identifier: Apache-2.0 */
#include "split.h"

#include <stdlib.h>
#include <string.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/common/dataset.h"
#include "tools/common/program.h"
#include "tools/common/shares.h"
#include "tools/common/text.h"

enum {
	HEADER_BYTES = 24,
	FIELD_BYTES = 1041,
	TABLE_ENTRY_BYTES = 24,
	CHECKSUM_BYTES = 8,     /* of each blob, and of each piece of metadata and table */
	EXTENSION_BYTES = 4096, /* directory, footer and alignment: less than that */
	CHECKSUM_PIECE = 65536, /* the smaller of the two kinds of pieces that have a checksum */
};

/* The file that the samples of one shard would take, as the writer lays it out: metadata up to a multiple of the page
 * size, pages that hold whole samples, then the table and its checksums. */
typedef struct file_size {
	const beton_file_info *info;
	uint32_t page_size;
	uint32_t blobs;       /* of a sample */
	uint64_t every_shard; /* bytes of facts and dictionaries that each shard has */
	uint64_t samples;
	uint64_t pages;
	uint64_t page_used;
} file_size;

static uint64_t bytes_of(const file_size *size)
{
	uint64_t metadata = size->samples * size->info->record_size;
	uint64_t head = HEADER_BYTES + (uint64_t)size->info->num_fields * FIELD_BYTES + metadata;
	uint64_t table = size->samples * size->blobs * TABLE_ENTRY_BYTES;
	uint64_t sums = size->samples * size->blobs + (metadata + table) / CHECKSUM_PIECE + 2;
	return (head + size->page_size - 1) / size->page_size * size->page_size + size->pages * size->page_size +
	       table + sums * CHECKSUM_BYTES + size->every_shard + EXTENSION_BYTES;
}

/* The size with one more sample that takes `used` bytes of a page. */
static file_size with_sample(const file_size *size, uint64_t used)
{
	file_size more = *size;
	more.samples++;
	if (used > more.page_size - more.page_used || more.pages == 0) {
		more.pages += used > 0;
		more.page_used = 0;
	}
	more.page_used += used;
	return more;
}

static int page_bytes(dataset_input *in, uint64_t sample, uint64_t *used, beton_error *err)
{
	const beton_reader *reader;
	uint64_t number;
	int found = input_at(in, sample, &reader, &number, err);
	*used = 0;
	if (found != BETON_OK)
		return found;
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		beton_value value;
		int result = beton_reader_value(reader, number, i, &value, err);
		if (result != BETON_OK)
			return result;
		if (bt_type_has_blob(value.type))
			*used += value.blob.size ? value.blob.size : 1;
	}
	return BETON_OK;
}

static int add_cut(split_plan *plan, uint64_t first, beton_error *err)
{
	if (plan->shards == plan->capacity) {
		uint64_t capacity = plan->capacity * 2 + 64;
		uint64_t *grown = realloc(plan->first, (size_t)(capacity + 1) * sizeof(*grown));
		if (!grown)
			return bt_fail(err, BETON_NO_MEMORY, "no memory for %llu shards", (unsigned long long)capacity);
		plan->first = grown;
		plan->capacity = capacity;
	}
	if (plan->shards == SPLIT_SHARDS_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "more than %d shards", SPLIT_SHARDS_MAX);
	plan->first[plan->shards++] = first;
	return BETON_OK;
}

static int refuse_size(const dataset_input *in, uint64_t sample, uint64_t bytes, uint32_t page_size, uint64_t limit,
		       beton_error *err)
{
	text_buffer needed, page, given;
	return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)sample,
			      "%s: sample %llu alone needs a file of %s with pages of %s; --size is %s: raise it%s",
			      in->path, (unsigned long long)sample, text_size(needed, bytes),
			      text_page_size(page, page_size), text_size(given, limit),
			      page_size > BETON_PAGE_SIZE_MIN ? ", or make the pages smaller with --page-size" : "");
}

static int cut_by_bytes(split_plan *plan, dataset_input *in, uint64_t limit, uint64_t facts_size, uint32_t page_size,
			beton_error *err)
{
	file_size empty = {.info = beton_reader_info(in->schema), .page_size = page_size};
	for (uint32_t i = 0; i < empty.info->num_fields; i++)
		empty.blobs += bt_type_has_blob(beton_reader_field(in->schema, i)->type);
	void *dictionaries;
	int result = beton_reader_dictionaries(in->schema, &dictionaries, &empty.every_shard, err);
	beton_free(dictionaries);
	empty.every_shard += facts_size;
	file_size size = empty;
	if (result == BETON_OK)
		result = add_cut(plan, 0, err);
	for (uint64_t i = 0; i < in->num_samples && result == BETON_OK; i++) {
		uint64_t used;
		result = program_check_signals(err);
		if (result == BETON_OK)
			result = page_bytes(in, i, &used, err);
		if (result != BETON_OK)
			return result;
		file_size more = with_sample(&size, used);
		if (bytes_of(&more) > limit && size.samples > 0) {
			result = add_cut(plan, i, err);
			more = with_sample(&empty, used);
		}
		if (bytes_of(&more) > limit && result == BETON_OK)
			result = refuse_size(in, i, bytes_of(&more), page_size, limit, err);
		size = more;
	}
	return result;
}

static int divide(split_plan *plan, dataset_input *in, const split_shares *random, beton_error *err)
{
	const selection all = {0};
	uint64_t count = in->num_samples;
	plan->part = calloc((size_t)count + 1, sizeof(*plan->part));
	plan->sizes = calloc(random->count, sizeof(*plan->sizes));
	plan->shards = random->count;
	if (!plan->part || !plan->sizes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu samples", in->path,
			       (unsigned long long)count);
	int result = shares_divide(in, &all, count, random->shares, random->count, random->seed, plan->part,
				   plan->sizes, err);
	for (uint32_t k = 0; k < random->count && result == BETON_OK; k++)
		if (plan->sizes[k] == 0)
			result = bt_fail(err, BETON_INVALID_ARGUMENT,
					 "%s: --random: %g of %llu samples is less than one", in->path,
					 random->shares[k], (unsigned long long)count);
	return result;
}

int split_plan_make(split_plan *plan, dataset_input *in, const split_rule *rule, uint64_t facts_size,
		    uint32_t page_size, beton_error *err)
{
	uint64_t count = in->num_samples;
	int result = BETON_OK;
	*plan = (split_plan){0};
	if (rule->random.count)
		return divide(plan, in, &rule->random, err);
	if (rule->bytes) {
		result = cut_by_bytes(plan, in, rule->bytes, facts_size, page_size, err);
	} else if (rule->samples) {
		uint64_t shards = count ? (count - 1) / rule->samples + 1 : 1;
		for (uint64_t k = 0; k < shards && result == BETON_OK; k++)
			result = add_cut(plan, k * rule->samples, err);
	} else {
		if (rule->shards > (count ? count : 1))
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %llu sample%s cannot fill %llu shards",
				       in->path, (unsigned long long)count, bt_plural(count),
				       (unsigned long long)rule->shards);
		/* count / shards each, and one more in the first count % shards. */
		uint64_t least = count / rule->shards;
		uint64_t more = count % rule->shards;
		for (uint64_t k = 0; k < rule->shards && result == BETON_OK; k++)
			result = add_cut(plan, k * least + (k < more ? k : more), err);
	}
	if (result == BETON_OK)
		plan->first[plan->shards] = count;
	return result;
}

uint64_t split_plan_samples(const split_plan *plan, uint64_t k)
{
	return plan->part ? plan->sizes[k] : plan->first[k + 1] - plan->first[k];
}

uint64_t split_plan_next(const split_plan *plan, uint64_t k, uint64_t sample, uint64_t count)
{
	if (!plan->part)
		return sample < plan->first[k] ? plan->first[k] : sample < plan->first[k + 1] ? sample : count;
	while (sample < count && plan->part[sample] != k)
		sample++;
	return sample;
}

static int add_share(split_shares *self, char *text, beton_error *err)
{
	double share;
	char *number = strchr(text, '=');
	if (number)
		*number++ = 0;
	if (number && (!*text || strchr(text, '/')))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--random: '%s' does not name a part", text);
	int result = bt_parse_double("--random", number ? number : text, 1e-9, 1, &share, err);
	for (uint32_t i = 0; i < self->count && result == BETON_OK; i++)
		if (number ? !self->names[i] || strcmp(self->names[i], text) == 0 : self->names[i] != NULL)
			result = bt_fail(err, BETON_INVALID_ARGUMENT,
					 "--random: '%s': all parts have names, each its own, or none", text);
	if (result != BETON_OK)
		return result;
	double *shares = reallocarray(self->shares, self->count + 1, sizeof(*shares));
	if (shares)
		self->shares = shares;
	char **names = reallocarray(self->names, self->count + 1, sizeof(*names));
	if (names)
		self->names = names;
	char *name = number ? strdup(text) : NULL;
	if (!shares || !names || (number && !name)) {
		free(name);
		return bt_fail(err, BETON_NO_MEMORY, "--random: out of memory");
	}
	shares[self->count] = share;
	names[self->count++] = name;
	return BETON_OK;
}

int split_shares_parse(split_shares *self, const char *text, beton_error *err)
{
	char *copy = strdup(text);
	char *rest = copy;
	double sum = 0;
	int result = copy ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "--random: out of memory");
	split_shares_free(self);
	while (rest && result == BETON_OK)
		result = add_share(self, strsep(&rest, ","), err);
	free(copy);
	for (uint32_t i = 0; i < self->count; i++)
		sum += self->shares[i];
	if (result == BETON_OK && (sum < 1 - 1e-6 || sum > 1 + 1e-6))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "--random: '%s' adds up to %g, not to 1", text, sum);
	return result;
}

void split_shares_free(split_shares *self)
{
	for (uint32_t i = 0; i < self->count; i++)
		free(self->names[i]);
	free(self->names);
	free(self->shares);
	*self = (split_shares){.seed = self->seed};
}

void split_plan_free(split_plan *plan)
{
	free(plan->part);
	free(plan->sizes);
	free(plan->first);
	*plan = (split_plan){0};
}
