/* SPDX-License-Identifier: Apache-2.0
 *
 * window-loss CHECKPOINT TOKEN...: the mean cross-entropy of each token after the tokens before it, from the logits of
 * which dtrain-generate draws. An evaluation of these tokens as one window has the same. A text that differs from these
 * tokens in each document is computed with them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "programs/generate/text_model.h"

enum { TOKENS_MAX = 256, TEXTS = 2 };

static double loss_of(const float *logits, int64_t vocabulary, int64_t token)
{
	double largest = (double)logits[0], sum = 0;
	for (int64_t i = 1; i < vocabulary; i++)
		largest = fmax(largest, (double)logits[i]);
	for (int64_t i = 0; i < vocabulary; i++)
		sum += exp((double)logits[i] - largest);
	return log(sum) + largest - (double)logits[token];
}

static int print_loss(generate_model *model, const int64_t *tokens, int64_t count, beton_error *err)
{
	int64_t vocabulary = model->description.vocabulary, other[TOKENS_MAX];
	float *logits = malloc((size_t)(TEXTS * vocabulary) * sizeof(*logits));
	for (int64_t i = 0; i < count; i++)
		other[i] = tokens[i] > 0 && i % 3 == 2 ? tokens[i] % (vocabulary - 1) + 1 : tokens[i];
	int status = logits ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the logits");
	double sum = 0;
	for (int64_t i = 1; i < count && status == BETON_OK; i++) {
		status = generate_model_logits(model, (const int64_t *[TEXTS]){other, tokens}, i, logits, err);
		sum += status == BETON_OK ? loss_of(logits + vocabulary, vocabulary, tokens[i]) : 0;
	}
	if (status == BETON_OK)
		printf("%.9f\n", sum / (double)(count - 1));
	free(logits);
	return status;
}

int main(int argc, char **argv)
{
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	int64_t tokens[TOKENS_MAX];
	generate_model model = {0};
	beton_error err = {0};
	int64_t count = argc - 2;
	if (count < 2 || count > TOKENS_MAX)
		return 2;
	for (int64_t i = 0; i < count; i++)
		tokens[i] = strtoll(argv[2 + i], NULL, 10);
	dtrain_device *device = NULL;
	int status = generate_model_open(&model, argv[1], NULL, &err);
	if (status == BETON_OK)
		status = dtrain_device_open("ref", &options, &device, &err);
	if (status == BETON_OK)
		status = generate_model_load(&model, device, NULL, TEXTS, &err);
	if (status == BETON_OK)
		status = print_loss(&model, tokens, count, &err);
	generate_model_close(&model);
	if (status != BETON_OK)
		fprintf(stderr, "window-loss: %s\n", err.message);
	return status == BETON_OK ? 0 : 1;
}
