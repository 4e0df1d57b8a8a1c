/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_INFO_INFO_H
#define BETON_INFO_INFO_H

#include <stdbool.h>

#include <beton/beton.h>

/* The names of the format's types and image modes. */
const char *info_type_name(beton_field_type type);
const char *info_mode_name(beton_image_mode mode);

/* Print the file to standard output, with one entry for each sample if samples is set. A damaged value is shown in its
 * place, and the print goes on; *damaged counts them, and err has the first. Errors: IO, FILE_CHANGED, NO_MEMORY. */
int info_print_json(const beton_reader *reader, bool samples, uint64_t *damaged, beton_error *err);
int info_print_text(const beton_reader *reader, bool samples, uint64_t *damaged, beton_error *err);

#endif
