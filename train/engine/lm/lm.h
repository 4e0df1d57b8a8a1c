/* SPDX-License-Identifier: Apache-2.0
 *
 * The task of predicting the next token. A sample is a window of context_length + 1 tokens. */
#ifndef LM_LM_H
#define LM_LM_H

#include "../task.h"

typedef struct lm_options {
	int64_t context_length;  /* tokens of a window; 0: the model's longest sequence */
	int64_t window_stride;   /* tokens from one training window to the next; 0: context_length */
	int64_t end_of_text;     /* the token behind each document: documents do not see each other; -1: none */
	const char *token_field; /* of .beton files; NULL: the first one that holds tokens */
	double dropout;          /* in place of the model's; below 0: the model's */
} lm_options;

extern const engine_task lm_task;

#endif
