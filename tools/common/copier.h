/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies samples from datasets to a new one, as they are stored. Used by merge, split and subset.
 */
#ifndef TOOLS_COPIER_H
#define TOOLS_COPIER_H

#include <beton/beton.h>

#include "input.h"
#include "progress.h"

/* New numbers for the labels of an input. */
typedef struct label_map {
	const int64_t *to; /* label n becomes to[n]; borrowed. NULL: labels stay */
	uint64_t count;
	uint32_t field; /* that holds the label */
} label_map;

/* Zero-initialise; copier_close frees what it has. Memory: what the writer needs, and one sample. */
typedef struct copier {
	beton_writer *writer;
	beton_value *stored; /* one sample of an input */
	beton_input *values; /* the same for the writer */
	uint32_t num_fields;
	beton_jpeg_index *indexes; /* of the JPEGs among them */
	uint8_t **entries;         /* that these are in: NULL until one is needed */
	uint8_t *buffer;           /* the blobs of one sample */
	uint64_t capacity;
	uint32_t page_size;
	bool keep_packed;   /* compressed values are copied as they are stored */
	void *dictionaries; /* that these need */
	uint64_t dictionaries_size;
	size_t checked;                    /* the file of an input that copier_take has compared with like */
	char source[BETON_SOURCE_MAX + 1]; /* of the sample */
	label_map labels;                  /* set by the caller before copier_add */
} copier;

/* Starts the file path with the schema of like, for about `samples` samples. page_size: 0 takes like's. facts: a JSON
 * text, or NULL. recompress: values of compressed fields are compressed again, with new dictionaries, and not copied as
 * they are stored. Errors: as of beton_writer_open and beton_reader_dictionaries. */
int copier_open(copier *self, const char *path, const beton_reader *like, uint32_t page_size, uint64_t samples,
		const char *facts, bool recompress, beton_error *err);

/* UNSUPPORTED if compressed values of reader, whose schema equals like's, cannot be copied as they are stored, because
 * its dictionaries differ from like's. Other errors: beton_reader_dictionaries's. */
int copier_check(const copier *self, const beton_reader *reader, beton_error *err);

/* Copies one sample of reader, whose schema equals like's, and updates bar. Checksums are compared where the input has
 * them. Errors: INVALID_ARGUMENT (a label that the map lacks), CANCELLED after a signal, and errors of reading and of
 * beton_writer_append. */
int copier_add(copier *self, const beton_reader *reader, uint64_t sample, progress *bar, beton_error *err);

/* copier_add of a sample of the input whose schema is like. Further errors: UNSUPPORTED (see copier_check), and
 * input_at's. */
int copier_take(copier *self, dataset_input *in, uint64_t sample, progress *bar, beton_error *err);

/* Makes the file appear at its path. */
int copier_finish(copier *self, beton_error *err);

/* Without a successful finish the file does not appear. */
void copier_close(copier *self);

#endif
