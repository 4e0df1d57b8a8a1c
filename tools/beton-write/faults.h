/* SPDX-License-Identifier: Apache-2.0
 *
 * The treatment of bad items of a source: --on-error and --error-list.
 */
#ifndef BETON_WRITE_FAULTS_H
#define BETON_WRITE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <beton/error.h>

typedef struct fault_policy {
	bool skip;        /* leave a bad item out; else it ends the program */
	const char *path; /* of the list, or NULL */
	FILE *list;       /* receives a line for each item: the file at path, or standard error */
	uint64_t skipped;
} fault_policy;

/* Opens the list, if path is not NULL. append: after an earlier run's lines. Errors: as for creating a file. */
int fault_policy_open(fault_policy *self, bool skip, const char *path, bool append, beton_error *err);

/* Whether an item with that error may be left out: the fault is the item's, not the disk's or the memory's. */
bool fault_is_of_item(int code);

/* Appends to err's message the option that leaves out such items. */
void fault_name_option(beton_error *err);

#define FAULT_OF_NO_ITEM UINT64_MAX

/* Notes that item index of the source was left out: index ('-' for FAULT_OF_NO_ITEM), code and message, separated by
 * tabs. Errors: IO. */
int fault_policy_note(fault_policy *self, uint64_t index, const beton_error *fault, beton_error *err);

/* Closes the list. Errors: IO, NO_SPACE. */
int fault_policy_close(fault_policy *self, beton_error *err);

#endif
