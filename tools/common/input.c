/* SPDX-License-Identifier: Apache-2.0 */
#include "input.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/error.h"
#include "dataset.h"
#include "facts.h"
#include "output.h"
#include "program.h"

static int no_memory(const dataset_input *self, beton_error *err)
{
	return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
}

/* Takes what is known of file i. */
static int take_file(dataset_input *self, size_t i, const beton_reader *reader, beton_error *err)
{
	const beton_file_info *info = beton_reader_info(reader);
	struct stat facts;
	if (fstat(beton_reader_fd(reader), &facts) == 0)
		self->identities[i] = (input_identity){facts.st_dev, facts.st_ino};
	self->page_size = info->page_size > self->page_size ? info->page_size : self->page_size;
	/* No overflow: a set has fewer than 2^63 samples. */
	self->first[i + 1] = self->first[i] + info->num_samples;
	int result = dataset_check_same_schema(self->schema, reader, err);
	return result == BETON_OK && self->files.list[i].set ? merged_add(&self->facts, reader, err) : result;
}

static int open_files(dataset_input *self, beton_error *err)
{
	int result = BETON_OK;
	for (size_t i = 0; i < self->files.count && result == BETON_OK; i++) {
		beton_reader *reader;
		result = program_check_signals(err);
		if (result == BETON_OK)
			result = bt_shard_input_open(&self->files.list[i], &reader, err);
		if (result != BETON_OK)
			break;
		if (!self->own)
			self->schema = self->own = reader;
		result = take_file(self, i, reader, err);
		if (reader != self->own)
			beton_reader_close(&reader);
	}
	self->num_samples = self->first[self->files.count];
	return result;
}

int input_open(dataset_input *self, const char *path, beton_error *err)
{
	*self = (dataset_input){.path = path};
	int result = bt_shard_inputs_add(&self->files, path, err);
	if (result == BETON_OK) {
		self->identities = calloc(self->files.count, sizeof(*self->identities));
		self->first = calloc(self->files.count + 1, sizeof(*self->first));
		result = self->identities && self->first ? open_files(self, err) : no_memory(self, err);
	}
	return result;
}

dataset_input input_of(const beton_reader *reader)
{
	const beton_file_info *info = beton_reader_info(reader);
	return (dataset_input){.path = beton_reader_path(reader),
			       .schema = reader,
			       .num_samples = info->num_samples,
			       .page_size = info->page_size};
}

void input_close(dataset_input *self)
{
	beton_reader_close(&self->own);
	beton_reader_close(&self->other);
	merged_free(&self->facts);
	bt_shard_inputs_free(&self->files);
	free(self->identities);
	free(self->first);
	*self = (dataset_input){0};
}

/* The last file that begins at or before a sample, and so none without samples. */
static size_t find_file(const dataset_input *self, uint64_t sample)
{
	size_t low = 0, high = self->files.count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (self->first[middle] <= sample)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int input_at(dataset_input *self, uint64_t sample, const beton_reader **reader, uint64_t *number, beton_error *err)
{
	size_t place = self->first ? find_file(self, sample) : 0;
	int result = BETON_OK;
	/* A file's reader says it itself. */
	if (bt_is_set(self->path) && sample >= self->num_samples)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu: the set has %llu", self->path,
			       (unsigned long long)sample, (unsigned long long)self->num_samples);
	*number = self->first ? sample - self->first[place] : sample;
	if (place > 0 && (place != self->place || !self->other)) {
		beton_reader_close(&self->other);
		result = bt_shard_input_open(&self->files.list[place], &self->other, err);
		if (result == BETON_OK)
			result = dataset_check_same_schema(self->schema, self->other, err);
	}
	self->place = place;
	*reader = input_reader(self);
	return result;
}

const beton_reader *input_reader(const dataset_input *self)
{
	return self->place > 0 ? self->other : self->schema;
}

int input_facts(const dataset_input *self, json_t **out, beton_error *err)
{
	if (!self->facts.common)
		return facts_load(out, self->schema, err);
	*out = merged_object(&self->facts);
	return *out ? BETON_OK : no_memory(self, err);
}

int input_facts_copy(const dataset_input *self, char **out, beton_error *err)
{
	if (!self->facts.common)
		return facts_copy(out, self->schema, err);
	*out = merged_text(&self->facts);
	return *out ? BETON_OK : no_memory(self, err);
}

int input_check_output(const dataset_input *self, const char *path, bool force, beton_error *err)
{
	struct stat there;
	bool found = stat(path, &there) == 0;
	for (size_t i = 0; i < self->files.count && found; i++)
		if (self->identities[i].device == there.st_dev && self->identities[i].inode == there.st_ino)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the output is an input too (%s)", path,
				       self->files.list[i].path);
	return output_check(path, NULL, force, err);
}
