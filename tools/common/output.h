/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tool may write to: the same rule for all of them. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>

#include <beton/beton.h>

/* Whether a tool may put a file at path: INVALID_ARGUMENT if it is the very file that input has open, or what no file
 * takes the place of (a folder, a pipe); EXISTS, naming --force, if there is a file and force is not given. input: NULL
 * leaves the first test out. */
int output_check(const char *path, const beton_reader *input, bool force, beton_error *err);

/* INVALID_ARGUMENT if path is empty or '-', a stream elsewhere, or ends as a source of samples or a picture does (.tar,
 * .csv, .npy, .jpg, ...): the shell has made it of a pattern. No --force changes that. */
int output_check_dataset_name(const char *path, beton_error *err);

/* The same for a list of text, which may end with .txt, .csv or .tsv. */
int output_check_list_name(const char *path, beton_error *err);

#endif
