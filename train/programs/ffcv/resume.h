/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on from a checkpoint. */
#ifndef PROGRAMS_FFCV_RESUME_H
#define PROGRAMS_FFCV_RESUME_H

#include <stdbool.h>

#include <beton/error.h>

struct run_session;

/* True if the code of a failed read means that the checkpoint itself is damaged, so that an older one may be good. */
static inline bool run_is_damage(int code)
{
	return code == BETON_FORMAT || code == BETON_TRUNCATED || code == BETON_NOT_FOUND;
}

/* Makes the error of the oldest checkpoint in the folder one of them all, and says what can be done. */
void run_explain_damage(const char *dir, beton_error *err);

/* Rank 0 loads the newest good checkpoint of --checkpoint, sets position and resumed, and reports what it found.
 * Damaged ones are set aside. Errors: NOT_FOUND (no checkpoint), MISMATCH (another model, batch or data, or options
 * that differ from the checkpoint's), and a damaged checkpoint's error if none is good. */
int run_resume(struct run_session *session, beton_error *err);

#endif
