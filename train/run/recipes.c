/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes.h"

#include <stddef.h>

/* Of airbench94 (legacy/airbench94.py of KellerJordan/cifar10-airbench), in these terms: its loss is a sum over the
 * batch of 1024 and its rate and decay are given for that many pictures, so that with a mean the rate is
 * 11.5 / (1 + 1 / (1 - 0.85)) and the decay 0.0153 / 11.5. It begins at 0.2 of the rate and ends at 0.07. Its mean and
 * deviation are on the scale 0 to 1. */
static const run_recipe_option airbench94[] = {
	{"model", "airbench94"},
	{"image-size", "32"},
	{"epochs", "9.9"},
	{"batch-size", "1024"},
	{"lr", "1.5"},
	{"schedule", "linear"},
	{"initial-lr", "0.3"},
	{"final-lr", "0.105"},
	{"warmup-share", "0.23"},
	{"momentum", "0.85"},
	{"nesterov", NULL},
	{"weight-decay", "0.0013304348"},
	{"bias-lr-scale", "64"},
	{"label-smoothing", "0.2"},
	{"lookahead", "5"},
	{"whiten-bias-epochs", "3"},
	{"crop", "none"},
	{"flip", "0.5"},
	{"flip-mode", "alternate"},
	{"translate", "2"},
	{"translate-fill", "reflect"},
	{"val-ratio", "1"},
	{"tta", "flip-shift"},
	{"mean", "125.307,122.961,113.8575"},
	{"std", "62.985,62.0925,66.708"},
	{"val-every", "10"},
	{NULL, NULL},
};

/* Of FFCV's examples/cifar: train_cifar.py and its default_config.yaml. Its peak is at 5 of 24 epochs. */
static const run_recipe_option ffcv_cifar[] = {
	{"model", "resnet9"},
	{"image-size", "32"},
	{"epochs", "24"},
	{"batch-size", "512"},
	{"lr", "0.5"},
	{"schedule", "linear"},
	{"final-lr", "0"},
	{"warmup-share", "0.2083333333333"},
	{"momentum", "0.9"},
	{"weight-decay", "0.0005"},
	{"label-smoothing", "0.1"},
	{"crop", "none"},
	{"flip", "0.5"},
	{"translate", "2"},
	{"cutout", "4"},
	{"val-ratio", "1"},
	{"tta", "flip"},
	{"mean", "125.307,122.961,113.8575"},
	{"std", "51.5865,50.847,51.255"},
	{NULL, NULL},
};

static const run_recipe recipes[] = {
	{"airbench94", "CIFAR-10 to 94 %, as airbench94", airbench94},
	{"ffcv-cifar", "CIFAR-10 as FFCV's example", ffcv_cifar},
};

const run_recipe *run_recipe_at(int index)
{
	return index >= 0 && index < (int)(sizeof(recipes) / sizeof(recipes[0])) ? &recipes[index] : NULL;
}
