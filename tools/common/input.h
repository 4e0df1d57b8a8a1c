/* SPDX-License-Identifier: Apache-2.0
 *
 * The dataset that a tool reads: a .beton file, or a set of shards, whose samples are numbered through.
 */
#ifndef TOOLS_INPUT_H
#define TOOLS_INPUT_H

#include <sys/types.h>

#include "merged.h"
#include "shards/shards.h"

/* Which file a path led to. */
typedef struct input_identity {
	dev_t device;
	ino_t inode;
} input_identity;

/* Zero-initialise; input_close. */
typedef struct dataset_input {
	const char *path;           /* as it was given; borrowed */
	const beton_reader *schema; /* the first file: all files have its fields */
	uint64_t num_samples;
	uint32_t page_size; /* the largest */

	/* The rest is input.c's. */
	bt_shard_inputs files;
	input_identity *identities; /* of the files */
	uint64_t *first;            /* [files.count + 1]: the first sample of each */
	merged_facts facts;         /* of a set */
	beton_reader *own;          /* of the first file; NULL: schema is borrowed */
	beton_reader *other;        /* of another one, or NULL */
	size_t place;               /* of the file that input_at opened last */
} dataset_input;

/* Opens the file or the set at path. All files of a set are looked at, two open at a time, since a set may have more
 * files than a process may open. They must match their index, and agree in fields and compression. Errors:
 * INVALID_ARGUMENT naming a field that differs, CANCELLED, and errors of beton_reader_open, beton_set_open and
 * beton_set_check. */
int input_open(dataset_input *self, const char *path, beton_error *err);

/* An open file, which is borrowed. */
dataset_input input_of(const beton_reader *reader);

void input_close(dataset_input *self);

/* The file with a sample < num_samples, and the sample's number in it. The reader is valid until the next call. Errors:
 * input_open's. */
int input_at(dataset_input *self, uint64_t sample, const beton_reader **reader, uint64_t *number, beton_error *err);

/* The file that input_at gave last. */
const beton_reader *input_reader(const dataset_input *self);

/* facts_load and facts_copy; of a set, what the facts of all shards have in common, with the names of the classes. */
int input_facts(const dataset_input *self, json_t **out, beton_error *err);
int input_facts_copy(const dataset_input *self, char **out, beton_error *err);

/* output_check, of an output that must be none of the files. */
int input_check_output(const dataset_input *self, const char *path, bool force, beton_error *err);

#endif
