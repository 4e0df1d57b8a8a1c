/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of sources. Each function opens what spec->argument names, as source_open does, which closes what was made
 * when it fails. */
#ifndef BETON_WRITE_SOURCES_H
#define BETON_WRITE_SOURCES_H

#include "source.h"

/* A folder of class folders (folder.h): columns image and label. */
int folder_source_open(const source_spec *spec, source **train, source **val, beton_error *err);

#endif
