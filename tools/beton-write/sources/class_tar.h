/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_CLASS_TAR_H
#define BETON_WRITE_CLASS_TAR_H

#include "source.h"

/* Whether all shards are files, which can be read twice. */
bool class_tar_can_read(const name_list *shards);

/* Opens the shards as tar files of class folders, if they are such: regular files whose pictures are in folders, and no
 * picture forms a WebDataset sample with another member. *train then takes over the content of shards; otherwise both
 * stay unchanged. Errors: INVALID_ARGUMENT (pictures in folders that do not stand beside each other; an empty class
 * without spec->skip_bad; without spec->has_fields, a single class, or several shards with one class of its own each),
 * and errors of reading archives. */
int class_tar_open(const source_spec *spec, name_list *shards, source **train, beton_error *err);

#endif
