/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on from a checkpoint. */
#ifndef RUN_RESUME_H
#define RUN_RESUME_H

#include <stdbool.h>

#include <beton/error.h>

struct run_session;

/* Of what reading a checkpoint returned: is the checkpoint itself at fault, so that an older one may do? */
static inline bool run_is_damage(int code)
{
	return code == BETON_FORMAT || code == BETON_TRUNCATED || code == BETON_NOT_FOUND;
}

/* Rank 0 loads the newest good checkpoint of --checkpoint and sets position and resumed; says what it found. Damaged
 * ones are set aside. Errors: NOT_FOUND (there is none), MISMATCH (another model, batch or data, or options that are
 * not the checkpoint's), those of the damaged one if none is good. */
int run_resume(struct run_session *session, beton_error *err);

#endif
