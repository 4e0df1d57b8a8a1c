/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the next token from logits. */
#ifndef PROGRAMS_GENERATE_SAMPLE_H
#define PROGRAMS_GENERATE_SAMPLE_H

#include <stdint.h>

#include <beton/error.h>

/* As in Hugging Face's generate: temperature first, then top_k, then top_p. */
typedef struct sample_options {
	double temperature; /* divides the logits; 0: the most likely token */
	int64_t top_k;      /* only the most likely ones, and those as likely as the last of them; 0: all */
	double top_p;       /* only the most likely tokens whose probabilities add up to it; 1: all */
} sample_options;

/* random: 0 <= random < 1. The index in logits [count], of equal ones the first with temperature 0. Errors: DIVERGED (a
 * logit is not finite), NO_MEMORY. */
int sample_token(const sample_options *options, const float *logits, int64_t count, double random, int64_t *out,
		 beton_error *err);

#endif
