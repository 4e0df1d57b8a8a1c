/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_OPTIONS_H
#define BETON_WRITE_OPTIONS_H

#include "tools/beton-write/images/image.h"
#include "tools/beton-write/sources/selection.h"

typedef struct write_options {
	const char *source;
	const char *output;
	const char *format;  /* NULL: what source looks like */
	const char *fields;  /* NULL: the source's default */
	const char *root;    /* NULL: the folder of the manifest */
	const char *columns; /* NULL: the first row of a table has the names */
	selection_options selected;
	image_settings image;
	uint32_t page_size;
	uint64_t chunk_tokens;  /* of a stream of tokens */
	const char *tokenizer;  /* NULL: the source is not text */
	const char *text_field; /* of JSON lines */
	bool llmc_header;
	int threads;
	double val_fraction; /* 0: hold nothing out */
	uint64_t val_seed;
	bool has_val_seed;
	bool no_sources; /* do not store where samples come from */
	bool skip_bad;
	const char *error_list; /* NULL: standard error */
	bool compress;          /* bytes, JSON and array fields, with zstd */
	int compression_level;  /* 0: zstd's default */
	bool resume;
	const char *append;     /* the set that gets the output; NULL: none */
	const char *of_dataset; /* a given option that files of tokens do not have; NULL: none */
	bool force;
	bool quiet;
} write_options;

typedef enum options_outcome {
	OPTIONS_RUN,
	OPTIONS_DONE,  /* --help or --version was printed */
	OPTIONS_WRONG, /* the message was printed */
} options_outcome;

options_outcome options_parse(write_options *options, int argc, char **argv);

#endif
