/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that other programs give the tensors of the same model: torchvision's and Hugging Face's of vision
 * transformers, whose names here are timm's, Hugging Face's of residual networks, whose names here are torchvision's,
 * and Hugging Face's of a model of tokens that was saved without its head.
 */
#ifndef RUN_ALIAS_H
#define RUN_ALIAS_H

#include <stdbool.h>
#include <stddef.h>

/* The index-th other name of a tensor, from 0; false: there are no more. A + in it stands for query, key and value: the
 * tensor is those three, joined. */
bool run_alias(const char *name, int index, char *out, size_t size);

#endif
