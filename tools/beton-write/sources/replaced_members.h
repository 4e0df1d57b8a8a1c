/* SPDX-License-Identifier: Apache-2.0
 *
 * Members that a later member with the same name replaces in the same archive, as tar -r adds them. The last one
 * counts, as after tar -x.
 */
#ifndef BETON_WRITE_REPLACED_MEMBERS_H
#define BETON_WRITE_REPLACED_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

struct name_digest;

/* Zero-initialise; replaced_members_free. 24 bytes for each member of one archive while that is read. */
typedef struct replaced_members {
	uint64_t *numbers; /* of the replaced members, ascending */
	size_t count;
	size_t capacity;
	struct name_digest *names; /* of the archive that is read */
	size_t num_names;
	size_t names_capacity;
} replaced_members;

/* Notes the member; its number counts through all archives. Errors: NO_MEMORY. */
int replaced_members_note(replaced_members *self, const char *path, uint64_t number, beton_error *err);

/* Ends an archive: finds which of its members are replaced. Errors: NO_MEMORY. */
int replaced_members_end_archive(replaced_members *self, beton_error *err);

/* After the last archive. */
bool replaced_members_has(const replaced_members *self, uint64_t number);

void replaced_members_free(replaced_members *self);

#endif
