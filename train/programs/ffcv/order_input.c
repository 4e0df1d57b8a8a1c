/* SPDX-License-Identifier: Apache-2.0 */
#include "order_input.h"

#include <beton/beton.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "shards/shards.h"

/* ---- files of numbers ---- */

/* 8-byte numbers, integers or reals. */
struct numbers {
	void *values;
	uint64_t count;
	uint64_t room;
};

static void *add_number(struct numbers *numbers)
{
	if (numbers->count == numbers->room) {
		uint64_t room = numbers->room ? 2 * numbers->room : 1024;
		void *larger = reallocarray(numbers->values, room, sizeof(uint64_t));
		if (!larger)
			return NULL;
		numbers->values = larger;
		numbers->room = room;
	}
	return (char *)numbers->values + sizeof(uint64_t) * numbers->count++;
}

static int parse_line(const char *what, char *line, bool whole, struct numbers *out, beton_error *err)
{
	line += strspn(line, " \t\r\n");
	for (size_t length = strlen(line); length > 0 && strchr(" \t\r\n", line[length - 1]); length--)
		line[length - 1] = 0;
	if (!*line || *line == '#')
		return BETON_OK;
	void *number = add_number(out);
	if (!number)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", what);
	int status = whole ? bt_parse_u64(what, line, 0, UINT64_MAX, number, err)
			   : bt_parse_double(what, line, 0, DBL_MAX, number, err);
	/* The file is wrong, not the command line. */
	return status == BETON_INVALID_ARGUMENT ? err->code = BETON_FORMAT : status;
}

/* Every process of the run reads the file, so it must be one that can be read again; opening a pipe would also wait. */
static int open_numbers(const char *option, const char *path, FILE **out, beton_error *err)
{
	struct stat info;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	*out = NULL;
	if (fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
		close(fd);
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not a regular file", option, path);
	}
	*out = fd < 0 ? NULL : fdopen(fd, "r");
	if (*out)
		return BETON_OK;
	int status = bt_fail_errno(err, errno, "%s: cannot read '%s'", option, path);
	if (fd >= 0)
		close(fd);
	return status;
}

/* Reads one number a line, and skips empty lines and lines that begin with #. */
static int read_numbers(const char *option, const char *path, bool whole, struct numbers *out, beton_error *err)
{
	char *line = NULL;
	size_t room = 0;
	int status = BETON_OK;
	FILE *file;
	status = open_numbers(option, path, &file, err);
	if (status != BETON_OK)
		return status;
	for (uint64_t number = 1; status == BETON_OK && getline(&line, &room, file) >= 0; number++) {
		char *what = bt_format("%s: %s:%" PRIu64, option, path, number);
		size_t mark = number == 1 ? bt_byte_order_mark(line, strlen(line)) : 0;
		status = what ? parse_line(what, line + mark, whole, out, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", option);
		free(what);
	}
	if (status == BETON_OK && ferror(file))
		status = bt_fail_errno(err, errno, "%s: cannot read '%s'", option, path);
	if (status == BETON_OK && out->count == 0)
		status = bt_fail(err, BETON_FORMAT, "%s: '%s' holds no numbers", option, path);
	free(line);
	fclose(file);
	return status;
}

/* ---- fields ---- */

static int read_field_of(const bt_shard_input *input, const char *name, struct numbers *out, beton_error *err)
{
	const char *path = input->path;
	beton_reader *reader = NULL;
	int status = bt_shard_input_open(input, &reader, err);
	if (status != BETON_OK)
		return status;
	int field = beton_reader_find_field(reader, name);
	if (field < 0 || !bt_type_is_number(beton_reader_field(reader, (uint32_t)field)->type))
		status = bt_fail(err, BETON_INVALID_ARGUMENT,
				 "--weights: %s has no numeric field '%s'; the name of a file needs a slash, as in "
				 "./weights",
				 path, name);
	uint64_t samples = status == BETON_OK ? beton_reader_info(reader)->num_samples : 0;
	for (uint64_t sample = 0; sample < samples && status == BETON_OK; sample++) {
		beton_value value;
		double *weight = add_number(out);
		if (!weight)
			status = bt_fail(err, BETON_NO_MEMORY, "--weights: out of memory");
		else
			status = beton_reader_value(reader, sample, (uint32_t)field, &value, err);
		if (status != BETON_OK)
			break;
		*weight = bt_form_of(value.type) == BT_FORM_INTEGER ? (double)value.integer : value.real;
		if (!(*weight >= 0 && *weight <= DBL_MAX))
			status = bt_fail(err, BETON_FORMAT,
					 "--weights: %s: sample %" PRIu64 " has %s %g, which is not a weight", path,
					 sample, name, *weight);
	}
	beton_reader_close(&reader);
	return status;
}

static int read_field(const run_options *options, struct numbers *out, beton_error *err)
{
	bt_shard_inputs inputs = {0};
	int status = BETON_OK;
	for (int i = 0; i < options->data.count && status == BETON_OK; i++)
		status = bt_shard_inputs_add(&inputs, options->data.paths[i], err);
	for (size_t i = 0; i < inputs.count && status == BETON_OK; i++)
		status = read_field_of(&inputs.list[i], options->weights, out, err);
	bt_shard_inputs_free(&inputs);
	return status;
}

/* Replaces the values of all samples by the values of the samples in indices. */
static int pick(run_order_input *input, beton_error *err)
{
	double *picked = input->indices ? malloc((size_t)input->num_indices * sizeof(*picked)) : NULL;
	if (!input->indices)
		return BETON_OK;
	if (!picked)
		return bt_fail(err, BETON_NO_MEMORY, "--weights: out of memory");
	for (uint64_t i = 0; i < input->num_indices; i++) {
		if (input->indices[i] >= input->num_weights) {
			free(picked);
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "--indices: no sample %" PRIu64 "; samples are 0 to %" PRIu64, input->indices[i],
				       input->num_weights - 1);
		}
		picked[i] = input->weights[input->indices[i]];
	}
	free(input->weights);
	input->weights = picked;
	input->num_weights = input->num_indices;
	return BETON_OK;
}

int run_order_input_read(const run_options *options, run_order_input *out, beton_error *err)
{
	struct numbers indices = {0}, weights = {0};
	int status = BETON_OK;
	bool field = options->weights && !strchr(options->weights, '/');
	if (options->indices)
		status = read_numbers("--indices", options->indices, true, &indices, err);
	if (status == BETON_OK && field)
		status = read_field(options, &weights, err);
	else if (status == BETON_OK && options->weights)
		status = read_numbers("--weights", options->weights, false, &weights, err);
	*out = (run_order_input){.indices = indices.values,
				 .num_indices = indices.count,
				 .weights = weights.values,
				 .num_weights = weights.count};
	return status == BETON_OK && field ? pick(out, err) : status;
}

void run_order_input_free(run_order_input *input)
{
	free(input->indices);
	free(input->weights);
	*input = (run_order_input){0};
}

uint64_t run_order_input_hash(const run_order_input *input, uint64_t data)
{
	if (input->indices)
		data = XXH3_64bits_withSeed(input->indices, (size_t)input->num_indices * sizeof(uint64_t), data);
	if (input->weights)
		data = XXH3_64bits_withSeed(input->weights, (size_t)input->num_weights * sizeof(double), ~data);
	return data;
}
