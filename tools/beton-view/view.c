/* SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/common/dataset.h"
#include "tools/common/facts.h"
#include "tools/common/sources.h"

/* number: the sample's in its file. */
static int make_caption(const view_job *job, view_sample *sample, uint64_t number, beton_error *err)
{
	beton_value label;
	beton_error line; /* a message is one line, harmless and not too long */
	bt_fail(&line, BETON_OK, "%" PRIu64, sample->sample);
	sample->source = source_text(sample->reader, number);
	if (!sample->source)
		return bt_fail(err, BETON_NO_MEMORY, "no memory for a label");
	if (job->sources && *sample->source) {
		bt_fail(&line, BETON_OK, "%" PRIu64 " %s", sample->sample, sample->source);
	} else if (job->label >= 0) {
		int result = beton_reader_value(sample->reader, number, (uint32_t)job->label, &label, err);
		if (result != BETON_OK)
			return result;
		const char *name = facts_class_name(job->facts, label.integer);
		if (name)
			bt_fail(&line, BETON_OK, "%" PRIu64 " %s", sample->sample, name);
		else
			bt_fail(&line, BETON_OK, "%" PRIu64 " (%" PRId64 ")", sample->sample, label.integer);
	}
	sample->caption = bt_format("%s", line.message);
	return sample->caption ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "no memory for a label");
}

static int load(const view_job *job, view_sample *sample, beton_error *err)
{
	uint64_t number;
	int result = input_at(job->in, sample->sample, &sample->reader, &number, err);
	if (result == BETON_OK)
		result = make_caption(job, sample, number, err);
	if (result == BETON_OK)
		result = beton_reader_value(sample->reader, number, job->picture, &sample->value, err);
	if (result == BETON_OK)
		result = dataset_read(sample->reader, &sample->value, &sample->stored, &sample->capacity, err);
	return result == BETON_OK ? beton_reader_check(sample->reader, &sample->value, sample->stored, err) : result;
}

int view_next(const view_job *job, view_walk *walk, view_sample *sample, bool *found, beton_error *err)
{
	free(sample->caption);
	free(sample->source);
	sample->caption = sample->source = NULL;
	*found = false;
	if (walk->shown == job->shown)
		return BETON_OK;
	/* shown <= chosen_count <= INT64_MAX; the product may need more than 64 bits. */
	uint64_t wanted = (uint64_t)((unsigned __int128)walk->shown * job->chosen_count / job->shown);
	do {
		int result = selection_next(job->chosen, job->in, &walk->cursor, &sample->sample, found, err);
		if (result != BETON_OK || !*found)
			return result;
	} while (walk->passed++ < wanted);
	walk->shown++;
	return load(job, sample, err);
}

void view_sample_free(view_sample *sample)
{
	free(sample->stored);
	free(sample->caption);
	free(sample->source);
	*sample = (view_sample){0};
}

void view_note_damage(view_job *job, const beton_error *fault)
{
	if (job->damaged++ == 0)
		job->first_damage = *fault;
}
