/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of a file that become one of the model by more than their name. */
#ifndef ENGINE_PRETRAINED_FIT_H
#define ENGINE_PRETRAINED_FIT_H

#include "common/tensor_names.h"
#include "weight_source.h"

/* Whether the numbers of dimensions are equal, and the dimensions from `first` on. */
bool run_shapes_equal(const dtrain_shape *a, const dtrain_shape *b, int first);

/* Joins parts of equal shapes along their first dimension: Hugging Face's ViT has query, key and value as three
 * tensors. out->values are malloc'ed; its name is the first part's. False: the shapes differ, or a part has no values.
 * Errors: NO_MEMORY. */
int run_fit_join(const run_source_tensor *const parts[BT_TENSOR_PARTS], run_source_tensor *out, bool *fits,
		 beton_error *err);

/* Whether `name` has a ViT's positions, of a class token and a square of patches, and the shapes differ in the size of
 * the square. */
bool run_fit_is_resized(const char *name, const dtrain_shape *from, const dtrain_shape *to);

/* Resizes such positions: timm's resample_abs_pos_embed, which is PyTorch's interpolate with mode bicubic and
 * antialias. out->values are malloc'ed. Errors: NO_MEMORY. */
int run_fit_resize(const run_source_tensor *from, const dtrain_shape *to, run_source_tensor *out, beton_error *err);

#endif
