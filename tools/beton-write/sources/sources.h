/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of sources. Each function opens spec->argument like source_open, which closes the result after a failure.
 */
#ifndef BETON_WRITE_SOURCES_H
#define BETON_WRITE_SOURCES_H

#include "source.h"

/* A folder of class folders (folder.h): columns image and label. */
int folder_source_open(const source_spec *spec, source *sets[], beton_error *err);

/* WebDataset's tar shards: a column for each ending, and `image` for any picture. */
int tar_source_open(const source_spec *spec, source **train, beton_error *err);

/* Manifests. CSV needs libcsv. */
int csv_source_open(const source_spec *spec, source **train, beton_error *err);
int jsonl_source_open(const source_spec *spec, source **train, beton_error *err);

/* NumPy's files: the column `data`, or one for each array. */
int npy_source_open(const source_spec *spec, source **train, beton_error *err);
int npz_source_open(const source_spec *spec, source **train, beton_error *err);

/* CIFAR-10's binary batches, files or a folder with data_batch_1.bin and test_batch.bin: columns image and label. */
int cifar_source_open(const source_spec *spec, source *sets[], beton_error *err);
bool cifar_source_is_folder(const char *folder);

/* MNIST's idx files, the pictures' file or a folder with train- and t10k-images: columns image (or data) and label. */
int idx_source_open(const source_spec *spec, source *sets[], beton_error *err);
bool idx_source_is_folder(const char *folder);

/* A stream of tokens, as <beton/tokens.h> knows them: columns tokens and length. */
int tokens_source_open(const source_spec *spec, source **train, beton_error *err);

/* The stream of tokens that spec->text makes of text files, in an unnamed file in the folder of the output. */
int text_source_open(const source_spec *spec, source **train, beton_error *err);

#endif
