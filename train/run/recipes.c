/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes.h"

#include <stddef.h>

/* Of FFCV's examples/cifar: train_cifar.py and its default_config.yaml. */
static const run_recipe_option ffcv_cifar[] = {
	{"model", "resnet9"},
	{"image-size", "32"},
	{"epochs", "24"},
	{"batch-size", "512"},
	{"lr", "0.5"},
	{"schedule", "linear"},
	{"final-lr", "0"},
	{"warmup-epochs", "5"},
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
	{"ffcv-cifar", "CIFAR-10 as FFCV's example", ffcv_cifar},
};

const run_recipe *run_recipe_at(int index)
{
	return index >= 0 && index < (int)(sizeof(recipes) / sizeof(recipes[0])) ? &recipes[index] : NULL;
}
