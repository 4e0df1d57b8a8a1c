/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that other programs give the tensors of the same model: torchvision's and Hugging Face's of vision
 * transformers, whose names here are timm's; Hugging Face's of residual networks, whose names here are torchvision's
 * and timm's; and Hugging Face's of a model of tokens that was saved without its head.
 */
#ifndef BETON_COMMON_TENSOR_NAMES_H
#define BETON_COMMON_TENSOR_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Each value is an index of bt_name_givers. */
typedef enum bt_name_giver {
	BT_NAMES_TIMM = 0,
	BT_NAMES_TORCHVISION = 1,
	BT_NAMES_HUGGING_FACE = 2,
} bt_name_giver;

/* "timm", "torchvision" and "huggingface"; then NULL. */
extern const char *const bt_name_givers[];

/* A name with a + stands for three tensors, query, key and value; ours joins them in dimension 0. */
enum { BT_TENSOR_PARTS = 3, BT_TENSOR_NAME_SIZE = 256 };

/* The index-th other name of a tensor, from 0; false: there are no more. It may have a +. */
bool bt_tensor_alias(const char *name, int index, char out[BT_TENSOR_NAME_SIZE]);

/* The name that a program has for a tensor, which may have a +; false: it has none. */
bool bt_tensor_name(const char *name, bt_name_giver giver, char out[BT_TENSOR_NAME_SIZE]);

/* The name of a part, from 0, of a name with a +. */
void bt_tensor_part(const char *name, int part, char out[BT_TENSOR_NAME_SIZE]);

#endif
