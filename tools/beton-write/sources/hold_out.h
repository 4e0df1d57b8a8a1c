/* SPDX-License-Identifier: Apache-2.0
 *
 * A validation set that is made of a part of the training set: --val-fraction.
 */
#ifndef BETON_WRITE_HOLD_OUT_H
#define BETON_WRITE_HOLD_OUT_H

#include "selection.h"
#include "source.h"
#include "tools/beton-write/fields.h"

typedef struct hold_out_request {
	source *from; /* the training set; a source with next must not have been read beyond peek, and is used up */
	const field_plan *plan;
	const selection_options *selected; /* which items are divided */
	double fraction;
	uint64_t seed;
	const atomic_int *interrupt;
} hold_out_request;

/* Divides the items: a fraction of each class, drawn by chance, goes to val, but at least one item of each class of a
 * label stays in train; both keep the order of the selection. The class is the integer field `label`, else the first
 * integer field; without one all items are of one class. The result depends on the request alone. Memory: 24 bytes for
 * each item, 40 more during the call. Errors: INVALID_ARGUMENT (nothing is held out), NO_MEMORY, CANCELLED, and errors
 * of reading items. The caller frees both selections, on failure too. */
int hold_out(const hold_out_request *request, selection *train, selection *val, beton_error *err);

#endif
