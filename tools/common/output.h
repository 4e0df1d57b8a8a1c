/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of output paths, the same for all tools.
 */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>

#include <beton/beton.h>

/* A hidden file of beton-extract's in a folder that it made: what was extracted. */
#define OUTPUT_EXTRACT_MARK ".beton-extract"

/* Checks whether a tool may write a file at path. INVALID_ARGUMENT: it is input's file, or something that a file must
 * not replace (a folder, a pipe). EXISTS, naming --force: there is a file, and force is not given. input NULL: skip the
 * first check. */
int output_check(const char *path, const beton_reader *input, bool force, beton_error *err);

/* INVALID_ARGUMENT if path is empty, is '-' (standard output in other programs), or ends like a source of samples or a
 * picture (.tar, .csv, .npy, .jpg, ...), since then it probably comes from a shell pattern. --force does not change
 * that. */
int output_check_dataset_name(const char *path, beton_error *err);

/* The same for a list of text, which may end with .txt, .csv or .tsv. */
int output_check_list_name(const char *path, beton_error *err);

#endif
