/* SPDX-License-Identifier: Apache-2.0
 *
 * The task of predicting the next token, or with a BERT the masked ones. A sample is a window of context_length + 1
 * tokens; a BERT does not see the last. */
#ifndef ENGINE_TASKS_LM_LM_H
#define ENGINE_TASKS_LM_LM_H

#include "engine/task.h"

enum { LM_TOKENS_MAX = BETON_SPECIAL_TOKENS_MAX };

typedef struct lm_tokens {
	int32_t count;
	uint32_t list[LM_TOKENS_MAX];
} lm_tokens;

typedef struct lm_options {
	int64_t context_length;  /* tokens of a window; 0: the model's longest sequence */
	int64_t window_stride;   /* tokens from one training window to the next; 0: context_length */
	int64_t end_of_text;     /* the token after each document: documents do not see each other; -1: none */
	const char *token_field; /* of .beton files; NULL: the first one that holds tokens */
	int64_t mask_token;      /* of a BERT, like the next two; -1: not given */
	double mask_probability; /* of a token, to be masked; below 0: 0.15 */
	lm_tokens special;       /* which are never masked */
} lm_options;

extern const engine_task lm_task;

#endif
