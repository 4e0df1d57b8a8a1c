/* SPDX-License-Identifier: Apache-2.0
 *
 * State and builders of the cpu device. An op is a list of oneDNN primitives (steps) that is made once; running the op
 * sets their addresses and executes them. If an operand's layout is not the primitive's, or the output must be plain, a
 * reorder is added as a step.
 */
#ifndef DTRAIN_CPU_CPU_H
#define DTRAIN_CPU_CPU_H

#include <dtrain/device.h>

#include "onednn.h"
#include "vector.h"
#include "winograd.h"

struct dtrain_device {
	const dtrain_device_api *api;
	int threads;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dtrain_device *ref; /* runs small ops that have no primitive */
	const cpu_vector *vector;
	const cpu_winograd *winograd; /* NULL: convolutions are oneDNN's */
	bool has_bf16;                /* oneDNN computes in it */
	bool has_fast_bf16;           /* products in BF16 have instructions */
	bool tf32;                    /* convolutions in F32 may have the errors of TF32 */
};

/* The target of dtrain_operand.layout; belongs to the op. */
typedef struct cpu_layout {
	onednn_md md;
	onednn_md pool_x, pool_y; /* of a max pool's index: layouts of the ops that made it */
} cpu_layout;

/* Where a tensor is while the op runs. */
typedef struct cpu_place {
	int operand;   /* index among inputs and outputs, or one of the constants below */
	size_t offset; /* in the workspace */
} cpu_place;

/* Values of cpu_place.operand for memory other than operands. */
enum { CPU_WORKSPACE = -1, CPU_SCRATCHPAD = -2 };

/* A tensor while the op is built: its place, and its layout, which belongs to the build, to a primitive's description
 * or to the op that made the input. */
typedef struct cpu_view {
	const_dnnl_memory_desc_t md;
	cpu_place place;
} cpu_view;

#define CPU_STEP_MAX_ARGS 12
#define CPU_OP_MAX_STEPS 6
#define CPU_OP_MAX_TILINGS 6
#define CPU_BUILD_MAX_MDS 128

typedef struct cpu_step {
	dnnl_primitive_t primitive;
	int count;
	dnnl_exec_arg_t args[CPU_STEP_MAX_ARGS];
	cpu_place places[CPU_STEP_MAX_ARGS];
	void *addresses[CPU_STEP_MAX_ARGS]; /* present addresses of the memory objects */
} cpu_step;

/* The product of one tile in BF16, on one thread. */
typedef struct cpu_tile {
	dnnl_primitive_t primitive; /* NULL: no tile has the size */
	dnnl_memory_t *memories;    /* each thread's a, b, c, scratchpad, and bias */
} cpu_tile;

/* The tiles of a product in BF16: those inside, in the last row, in the last column, and in the corner. */
typedef struct cpu_tiling {
	cpu_tile tiles[2][2];
	int threads;
} cpu_tiling;

enum { CPU_OPERANDS_MAX = 2 * DTRAIN_OP_MAX_OPERANDS };

/* An op of half.c: the same op in F32 on copies of the operands. */
typedef struct cpu_half {
	dtrain_op *wide;       /* NULL: the op itself computes */
	dtrain_op *activation; /* of a linear layer, as an op in the op's type; NULL: none */
	/* Inputs and outputs: the elements of a copy with the layout's padding (0: the op in F32 gets the operand
	 * itself), and its place in the workspace. */
	int64_t counts[CPU_OPERANDS_MAX];
	size_t places[CPU_OPERANDS_MAX];
	size_t workspace; /* of the op in F32: its place */
	uint32_t updates; /* bits of inputs that are written */
} cpu_half;

/* How the numbers of a tensor's channels lie in memory: `pieces` times `blocks` times `rows` times `width` numbers, of
 * which the last are neighbouring channels. The last piece has fewer rows. */
typedef struct cpu_channels {
	int64_t width, blocks, pieces, rows, last;
} cpu_channels;

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_attrs attrs;
	dtrain_dtype dtype;   /* that it computes in: F32, BF16, or F16 */
	size_t element;       /* bytes of one of that type */
	const cpu_rows *rows; /* for that type */
	int num_inputs, num_outputs;
	int64_t count; /* elements of input 0 */
	int64_t batch, channels;
	bool drops;        /* attention with dropout */
	cpu_channels grid; /* of batch norm over ranks, as the next */
	int64_t ranks;
	int64_t pieces; /* of an update with norms of parameters */
	cpu_step steps[CPU_OP_MAX_STEPS];
	int num_steps;
	int late_steps;        /* so many of them, the last ones, come after finish */
	cpu_layout layouts[2]; /* of the output that is not plain, and of the private output */
	/* Called after the first steps, on the host; NULL: nothing. */
	int (*finish)(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err);
	dtrain_op *ref;
	cpu_half half;
	cpu_place plain[DTRAIN_OP_MAX_OPERANDS];     /* inputs for ref, or for finish */
	dtrain_shape shapes[DTRAIN_OP_MAX_OPERANDS]; /* of the inputs */
	dtrain_dtype dtypes[DTRAIN_OP_MAX_OPERANDS]; /* of the inputs */
	cpu_place scratch;                           /* of finish: so many bytes for each thread, or for all */
	cpu_place result;                            /* of a convolution by finish */
	size_t scratch_bytes;
	void *table; /* what a run reads, made with the op; NULL: nothing */
	cpu_tiling tilings[CPU_OP_MAX_TILINGS];
	int num_tilings;
	size_t tile_bytes; /* scratchpad of a tile, at the beginning of the workspace for each thread */
};

/* An op while it is built. The first failure stays in status, and later calls do nothing. */
typedef struct cpu_build {
	dtrain_device *device;
	dtrain_op_desc *desc;
	dtrain_op *op;
	dnnl_primitive_attr_t attr; /* takes scratchpads from the workspace */
	dnnl_primitive_desc_t made[CPU_OP_MAX_STEPS + 2];
	int num_made;
	onednn_md mds[CPU_BUILD_MAX_MDS];
	int num_mds;
	size_t workspace, scratchpad;
	int status;
	beton_error *err;
} cpu_build;

/* Layouts of an operand's type and shape: row-major, or by a tag of oneDNN (dnnl_format_tag_any: any). The build owns
 * all objects that these functions return; NULL after a failure. */
const_dnnl_memory_desc_t cpu_plain_md(cpu_build *build, const dtrain_operand *operand);
const_dnnl_memory_desc_t cpu_tag_md(cpu_build *build, const dtrain_operand *operand, dnnl_format_tag_t tag);
const_dnnl_memory_desc_t cpu_strided_md(cpu_build *build, const dtrain_operand *operand, const dnnl_dims_t strides);
const_dnnl_memory_desc_t cpu_any_md(cpu_build *build, const dtrain_operand *operand);
/* The layout that this processor's convolutions use, if the number of channels allows it. */
const_dnnl_memory_desc_t cpu_blocked_md(cpu_build *build, const dtrain_operand *operand);
/* The operand in another type. */
dtrain_operand cpu_in_type(const dtrain_operand *operand, dtrain_dtype dtype);

/* Takes a layout that oneDNN made with that status. */
const_dnnl_memory_desc_t cpu_own_md(cpu_build *build, onednn_md md, dnnl_status_t status);

/* Records a failure of oneDNN. */
void cpu_check(cpu_build *build, dnnl_status_t status, const char *what);

cpu_view cpu_input(cpu_build *build, int index);
cpu_view cpu_scratch(cpu_build *build, const_dnnl_memory_desc_t md);
void cpu_reorder(cpu_build *build, cpu_view from, cpu_view to);
/* The view itself, or its copy in layout md in the workspace. */
cpu_view cpu_convert(cpu_build *build, cpu_view view, const_dnnl_memory_desc_t md);

/* The place where a primitive writes output `index` in layout md: the operand, or scratch memory if the output must be
 * plain and md is not; then call cpu_store after that step. At most one output of an op is not plain. */
cpu_view cpu_output(cpu_build *build, int index, const_dnnl_memory_desc_t md);
void cpu_store(cpu_build *build, int index, cpu_view view);
/* An output that only another op of this device reads: a workspace of oneDNN. */
cpu_view cpu_private_output(cpu_build *build, int index, const_dnnl_memory_desc_t md, const_dnnl_memory_desc_t pool_x,
			    const_dnnl_memory_desc_t pool_y);
/* An output or input seen with layout md. */
cpu_view cpu_operand_as(const_dnnl_memory_desc_t md, int operand);

/* Takes a primitive's description, or oneDNN's failure to make it; NULL after a failure. */
dnnl_primitive_desc_t cpu_made(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_status_t status, const char *what);
/* y = a + b; b may have dimensions of 1 where a and y have more. */
dnnl_primitive_desc_t cpu_add_pd(cpu_build *build, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b,
				 const_dnnl_memory_desc_t y, const_dnnl_primitive_attr_t attr);
/* Attributes of a primitive followed by a relu; the caller destroys them. */
dnnl_primitive_attr_t cpu_relu_attr(cpu_build *build);
const_dnnl_memory_desc_t cpu_query(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

typedef struct cpu_argument {
	int arg; /* DNNL_ARG_... */
	cpu_view view;
} cpu_argument;
void cpu_step_add(cpu_build *build, dnnl_primitive_desc_t pd, int count, const cpu_argument *arguments);

/* Sets op->plain to the inputs, or to row-major copies of them. */
void cpu_place_plain_inputs(cpu_build *build);

/* For ops that are functions on plain operands, without primitives: places the inputs, a scratch memory of so many
 * bytes for each of `threads` threads, and sets op->finish. */
void cpu_build_function(cpu_build *build, size_t bytes, int threads,
			int (*finish)(const struct dtrain_op *op, void *const *operands, void *workspace,
				      beton_error *err));
/* Has an F32 weight rounded to the type that the op computes in, before that function runs. */
void cpu_round_weight(cpu_build *build, int input);
/* For that function: an input, which is plain; the scratch memory of a thread. */
void *cpu_plain(const struct dtrain_op *op, int input, void *const *operands, void *workspace);
void *cpu_own_scratch(const struct dtrain_op *op, int thread, void *workspace);

/* Element `index` of an array of the type that the op computes in. */
static inline void *cpu_to(const struct dtrain_op *op, void *array, int64_t index)
{
	return (char *)array + index * (int64_t)op->element;
}

static inline const void *cpu_from(const struct dtrain_op *op, const void *array, int64_t index)
{
	return (const char *)array + index * (int64_t)op->element;
}

/* The product c [m, n] = alpha a b of matrices whose rows are so many elements apart; of_a, of_b: 'T' for a matrix that
 * is stored transposed, else 'N'. a and b have the type that the op computes in, c that or F32. bias [n] (NULL: none)
 * is added to each row of c; with an activation, activated, which may be c, is that of c, rounded before in BF16. */
typedef struct cpu_product {
	char of_a, of_b;
	bool adds;       /* c += alpha a b, without bias and activation */
	bool wide;       /* c is F32, whatever the type */
	int tiling;      /* in BF16: index of the op's */
	int32_t tile[2]; /* rows and columns of a tile; 0: as fits most products */
	int64_t m, n, k;
	float alpha;
	const void *a, *b;
	int64_t a_step, b_step;
	int64_t c_step; /* of cpu_plan_tile; elsewhere it is n */
	void *c;
	const float *bias;
	cpu_activation activation;
	void *activated;
} cpu_product;

/* Prepares the op for a product of these sizes, and sets p->tiling. Its addresses are not read, but bias is compared
 * with NULL. Call it after cpu_build_function. */
void cpu_plan_product(cpu_build *build, cpu_product *p);

/* For ops with products of their own sizes in BF16: a new tiling without tiles, and the product of these sizes as one
 * of its tiles. Call them after cpu_build_function. NULL after a failure. */
cpu_tiling *cpu_add_tiling(cpu_build *build);
void cpu_plan_tile(cpu_build *build, cpu_tiling *tiling, cpu_tile *tile, const cpu_product *p);
/* That product, on the calling thread, which is one of a parallel region. */
dnnl_status_t cpu_tile_product(const struct dtrain_op *op, const cpu_tile *tile, const void *a, const void *b, void *c,
			       void *workspace);

void cpu_destroy_tiling(cpu_tiling *tiling);

/* Threads share tiles of fixed size, each one a oneDNN product on one thread, so that the result does not depend on the
 * number of threads. */
int64_t cpu_product_tiles(const cpu_product *p);
/* One tile, in a parallel region: outside of one oneDNN would divide its sums among threads. */
dnnl_status_t cpu_product_tile(const struct dtrain_op *op, const cpu_product *p, int64_t tile, void *workspace);

/* `count` products of equal sizes; their factors are a_step and b_step elements apart, their results follow each other.
 */
int cpu_products(const struct dtrain_op *op, const cpu_product *first, int64_t count, int64_t a_step, int64_t b_step,
		 void *workspace, beton_error *err);
/* The error of a product. */
int cpu_product_failed(int status, beton_error *err);

/* OpenMP's number of the calling thread in its team; only one of the compilers has omp.h. */
extern int omp_get_thread_num(void);

extern void omp_set_num_threads(int count);

/* The address of a place while the op runs. */
void *cpu_address(cpu_place place, void *const *operands, void *workspace);

/* Builders of the families of ops. */
void cpu_build_conv(cpu_build *build);
void cpu_build_linear(cpu_build *build);
void cpu_build_batch_norm(cpu_build *build);
void cpu_build_batch_norm_sync(cpu_build *build);
void cpu_build_elementwise(cpu_build *build);
void cpu_build_pool(cpu_build *build);
void cpu_build_flatten(cpu_build *build);
void cpu_build_channel_bias(cpu_build *build);
void cpu_build_optimizer(cpu_build *build);
void cpu_build_grad_norm(cpu_build *build);
void cpu_build_attention(cpu_build *build);
void cpu_build_row_norm(cpu_build *build);
void cpu_build_gated(cpu_build *build);
void cpu_build_linear_loss(cpu_build *build);
void cpu_build_xent_part(cpu_build *build);
void cpu_build_embedding(cpu_build *build);
void cpu_build_dropout(cpu_build *build);
void cpu_build_rotary(cpu_build *build);
void cpu_build_matmul(cpu_build *build);
void cpu_build_parts(cpu_build *build);
void cpu_build_chunks(cpu_build *build);
void cpu_build_permute(cpu_build *build);
void cpu_build_prepend(cpu_build *build);
void cpu_build_cast(cpu_build *build);
void cpu_build_adaptive(cpu_build *build);
void cpu_build_trust(cpu_build *build);
void cpu_build_muon(cpu_build *build);
void cpu_build_compress(cpu_build *build);

/* ---- convolutions by Winograd's algorithm (winograd.c) ---- */

/* NULL: oneDNN's convolutions are faster, or loops have no threads here. */
const cpu_winograd *cpu_winograd_find(void);
bool cpu_winograd_fits(const cpu_build *build, const dtrain_operand *w, const dtrain_operand *y);
void cpu_build_winograd(cpu_build *build, const dtrain_operand *x, const dtrain_operand *w, const dtrain_operand *y);

/* ---- the peak (peak.c) ---- */

/* See dtrain_device_api.measure_flops; OpenMP's number of threads must be the device's. */
int cpu_time_product(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err);

/* ---- 16 bits in memory, F32 in computations (half.c) ---- */

/* Whether an op of that type needs one in F32: all do but the ops that only round and move elements. */
bool cpu_half_widens(const dtrain_device *device, dtrain_op_kind kind, dtrain_dtype dtype);
void cpu_build_half(cpu_build *build);
int cpu_run_half(const struct dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace,
		 beton_error *err);

/* ---- updates (optimizer.c) ---- */

/* A multiple of DTRAIN_PARAM_ALIGN. */
enum { CPU_UPDATE_PIECE = 16384 };

/* Updates `count` elements of one group. context: what the kind of update needs. */
typedef void cpu_update(const void *context, int64_t begin, int64_t count, float lr, float decay);
/* Calls update for all elements of the op, on its threads. */
void cpu_update_all(const struct dtrain_op *op, cpu_update *update, const void *context, const float *scalars,
		    const uint8_t *group);
/* The sum of the squares of x * factor. */
double cpu_squares(const float *x, int64_t count, float factor);

#endif
