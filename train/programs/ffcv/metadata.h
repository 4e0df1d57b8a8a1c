/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts that users of a trained model need, as texts in the metadata of safetensors files. */
#ifndef PROGRAMS_FFCV_METADATA_H
#define PROGRAMS_FFCV_METADATA_H

#include "preflight.h"

/* Makes a JSON object of texts, malloc'ed: "format" ("pt"), "producer", "class_names" (a JSON array, if the data has
 * names, of at most 8 MiB), "recipe" (its name, if any), "outputs" (what the model computes: classes, probabilities,
 * labels or numbers), and the options of the task whose rows name a fact, such as "task", "model", "classes",
 * "label_field" (if it is not given, the field in use, unless that has classes), "loss", "image_size", "val_ratio",
 * "mean" and "std" (as given to --mean and --std: of pixels 0 .. 255). Errors: NO_MEMORY, and errors of reading the
 * names. */
int run_metadata_make(const run_options *options, const run_info *info, char **out, beton_error *err);

#endif
