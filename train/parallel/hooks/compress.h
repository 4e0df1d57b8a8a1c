/* SPDX-License-Identifier: Apache-2.0
 *
 * Compression of gradients: what its methods have in common. A method is a hook (<dtrain/hook.h>) of a file of its own.
 */
#ifndef DTRAIN_PARALLEL_HOOKS_COMPRESS_H
#define DTRAIN_PARALLEL_HOOKS_COMPRESS_H

#include <dtrain/hook.h>

/* The context of a method: what its ranges share. */
typedef struct compression {
	dtrain_compression options;
	dtrain_device *device; /* NULL: no range yet */
	const dtrain_device_api *api;
	int32_t plan_ranks; /* above 0: ranges of so many ranks are only planned, without a group and without memory */
	void *workspace;    /* of all ops, which one stream runs */
	size_t workspace_bytes;
	int64_t steps; /* powersgd: completed steps of its `start` */
	bool plain;    /* powersgd: the present step is one of them */
} compression;

enum { COMPRESS_MEMORIES = 8 };

/* A range. Methods have structs that begin with it. */
typedef struct compress_range {
	compression *context;
	dtrain_hook_range range;
	const dtrain_device_api *api;
	int ranks, rank;
	bool feeds_back; /* there is an error */
	float *error;    /* what the steps so far have not sent */
	dtrain_op *add;  /* error += gradients */
	void *memories[COMPRESS_MEMORIES];
	int num_memories;
	uint64_t bytes; /* of them */
	char **names;   /* of tensors */
	int num_names;
} compress_range;

/* The methods: `rounds`, `create` and the rest; `context` is not set. */
extern const dtrain_hook dtrain__compress_f16, dtrain__compress_bf16, dtrain__compress_int8, dtrain__compress_topk,
	dtrain__compress_powersgd;

/* A hook with a context, which destroy frees; *out.create NULL for "none". INVALID_ARGUMENT names the option. */
int dtrain__compression_create(const dtrain_compression *options, dtrain_hook *out, beton_error *err);
void dtrain__compression_destroy(dtrain_hook *hook);

/* Whether a hook is one of the methods that only round gradients to a type. */
bool dtrain__compression_rounds(const dtrain_hook *hook, dtrain_dtype *out);

/* The ops of such a method: F32 divided by the number of ranks, so that the sum is as large as the mean, and rounded;
 * and back. Without the operands' bytes. */
dtrain_op_desc dtrain__compression_narrow(int64_t count, dtrain_dtype dtype, int ranks);
dtrain_op_desc dtrain__compression_widen(int64_t count, dtrain_dtype dtype, int ranks);

/* A struct of `size` bytes that begins with a compress_range. feeds_back: with memory for the error, if the options say
 * so. UNSUPPORTED: the gradients are not F32, or the device lacks an op. */
int dtrain__compress_open(void *context, const dtrain_hook_range *range, size_t size, bool feeds_back, void **out,
			  beton_error *err);
/* Frees the range and its memories; the ops of the method are gone by then. */
void dtrain__compress_close(compress_range *range);
uint64_t dtrain__compress_bytes(const void *state);

/* Zeroed memory of the device, which the range owns; NULL if it is only planned. */
int dtrain__compress_alloc(compress_range *range, size_t bytes, void *out, beton_error *err);

/* Makes an op. The operands' bytes are set here. */
int dtrain__compress_op(compress_range *range, const dtrain_op_desc *desc, dtrain_op **out, beton_error *err);
void dtrain__compress_destroy_op(compress_range *range, dtrain_op *op);
int dtrain__compress_run(compress_range *range, dtrain_op *op, dtrain_stream *stream, void *const *operands,
			 beton_error *err);
/* For descriptions: an array of dimensions that end with a 0. */
dtrain_operand dtrain__compress_operand(dtrain_dtype dtype, int64_t a, int64_t b, int64_t c);

/* Puts the gradients, with the error that is fed back, where the method may change them: *out. */
int dtrain__compress_take(compress_range *range, dtrain_stream *stream, float **out, beton_error *err);

/* dtrain_hook.tensors: the error of a compress_range. */
int dtrain__compress_error_tensors(void *state, dtrain_hook_tensor *out, int capacity);
/* NAME.suffix, which the range owns; NULL: out of memory. */
const char *dtrain__compress_name(compress_range *range, const char *name, const char *suffix);

#endif
