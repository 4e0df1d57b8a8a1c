/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of files that follow from the sources of samples. A source is any text; what is made of it leads out of no
 * folder.
 */
#ifndef BETON_EXTRACT_NAMING_H
#define BETON_EXTRACT_NAMING_H

#include <stdbool.h>

/* The path of a source below its archive or folder, each part of it made harmless: "a.tar/cat/../1.jpg" becomes
 * "cat/%2E./1.jpg". New memory; NULL: out of memory. "": no part of it is a name that a file system takes. */
char *naming_path(const char *source);

/* The name of the picture's file: that of the path's last part, with `ending` (jpg or png) in place of another kind's.
 * New memory, or NULL. */
char *naming_picture(const char *path, const char *ending);

/* WebDataset's key: the path without the ending of a picture, and without dots in its last part. New memory, or NULL.
 */
char *naming_key(const char *path);

#endif
