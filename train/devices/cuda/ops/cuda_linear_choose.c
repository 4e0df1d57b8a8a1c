/* SPDX-License-Identifier: Apache-2.0
 *
 * The form and the algorithm of a product: cuBLASLt's heuristics propose, and whole ops are timed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/op.h"
#include "cuda_linear.h"
#include "devices/cuda/algorithms.h"
#include "devices/cuda/algorithms_bench.h"
#include "devices/cuda/kernels/kernels.h"

enum { MAX_CANDIDATES = 64 }; /* of each form */
/* NVIDIA recommends 32 MiB for the H100; weights' gradients whose sums are split may use more. */
static const uint64_t WORKSPACE_LIMIT = 128 << 20;

/* ---- algorithms ---- */

/* Split sums are added in F32: in the workspace, or in the output if that is F32 and the order may vary. */
static uint32_t reductions(const cuda_linear *self)
{
	bool f32_output = self->result == DTRAIN_F32;
	uint32_t mask = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	return f32_output && !self->deterministic ? mask | CUBLASLT_REDUCTION_SCHEME_INPLACE : mask;
}

static int set_preferences(const cuda_linear *self, cublasLtMatmulPreference_t preference, beton_error *err)
{
	const uint32_t mask = reductions(self), alignment = CUDA_LINEAR_ALIGNMENT;
	const struct {
		cublasLtMatmulPreferenceAttributes_t name;
		const void *value;
		size_t bytes;
	} values[] = {
		{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_LIMIT, sizeof(WORKSPACE_LIMIT)},
		{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof(mask)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment)},
	};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]) && status == BETON_OK; i++)
		status = cuda_linear_check(cublasLtMatmulPreferenceSetAttribute(preference, values[i].name,
										values[i].value, values[i].bytes),
					   err, "preference");
	return status;
}

/* Finds algorithms, best first. UNSUPPORTED: none. */
static int find_algorithms(const cuda_linear *self, cublasLtMatmulHeuristicResult_t *out, int *count, beton_error *err)
{
	cublasLtMatmulPreference_t preference = NULL;
	*count = 0;
	int status = cuda_linear_check(cublasLtMatmulPreferenceCreate(&preference), err, "preference");
	if (status == BETON_OK)
		status = set_preferences(self, preference, err);
	if (status == BETON_OK)
		status = cuda_linear_check(cublasLtMatmulAlgoGetHeuristic(self->device->blas, self->product,
									  self->layouts[A], self->layouts[B],
									  self->layouts[D], self->layouts[D],
									  preference, MAX_CANDIDATES, out, count),
					   err, "heuristics");
	if (preference)
		cublasLtMatmulPreferenceDestroy(preference);
	if (status != BETON_OK)
		return status;
	int works = 0;
	for (int i = 0; i < *count; i++)
		if (out[i].state == CUBLAS_STATUS_SUCCESS)
			out[works++] = out[i];
	*count = works;
	return works ? BETON_OK : bt_fail(err, BETON_UNSUPPORTED, "cuBLASLt has no algorithm");
}

typedef struct candidate {
	cuda_linear_form form;
	cublasLtMatmulHeuristicResult_t result;
} candidate;

typedef struct timing {
	cuda_linear *self;
	const candidate *candidates;
	cuda_bench bench;
	size_t offsets[PARTS], workspace, sums;
	int index;
	bool tried[2 * MAX_CANDIDATES];
	bool lacks_memory; /* a candidate failed for lack of memory, so nothing is known about it */
	beton_error error; /* of the last candidate that failed */
} timing;

static int run_candidate(void *context, cudaStream_t stream, beton_error *err)
{
	timing *t = context;
	char *memory = t->bench.memory;
	void *parts[PARTS];
	for (int i = 0; i < PARTS; i++)
		parts[i] = t->self->operands[i] >= 0 ? memory + t->offsets[i] : NULL;
	const candidate *c = &t->candidates[t->index];
	int status = c->form == t->self->form ? BETON_OK : cuda_linear_set_form(t->self, c->form, err);
	return status == BETON_OK ? cuda_linear_compute(t->self, stream, &c->result.algo, c->result.workspaceSize,
							parts, memory + t->workspace, memory + t->sums, err)
				  : status;
}

static int try_candidate(timing *t, int index)
{
	t->index = index;
	t->tried[index] = true;
	int status = cuda_bench_try(&t->bench, run_candidate, t, &t->error);
	t->lacks_memory |= status == BETON_NO_MEMORY;
	return status;
}

static int time_candidate(void *context, int index, int runs, double *ms)
{
	timing *t = context;
	int status = t->tried[index] ? BETON_OK : try_candidate(t, index);
	t->index = index;
	if (status == BETON_OK)
		status = cuda_bench_time_runs(&t->bench, runs, run_candidate, t, ms, &t->error);
	t->lacks_memory |= status == BETON_NO_MEMORY;
	return status;
}

/* The first that works. */
static int first_of(timing *t, int count)
{
	for (int i = 0; i < count; i++)
		if (try_candidate(t, i) == BETON_OK)
			return i;
	return -1;
}

/* The index of the fastest candidate that works or, without `times`, of the first one; 0, the heuristics' first,
 * without memory to try them. UNSUPPORTED: none works. */
static int best_of(cuda_linear *self, const candidate *candidates, int count, bool times, int *best, beton_error *err)
{
	timing t = {
		.self = self, .candidates = candidates, .bench = {.gate = self->device->gate}, .lacks_memory = true};
	size_t total = 0, workspace = 0;
	for (int i = 0; i < count; i++)
		if (candidates[i].result.workspaceSize > workspace)
			workspace = candidates[i].result.workspaceSize;
	for (int i = 0; i < PARTS; i++)
		t.offsets[i] = cuda_reserve(&total, self->most_bytes[i]);
	t.sums = cuda_reserve(&total, cuda_linear_bytes_of_sums(self));
	t.workspace = cuda_reserve(&total, workspace);
	*best = -1;
	if (cuda_bench_open(&t.bench, total, NULL) == BETON_OK) {
		if (cuda_bench_fill(&t.bench, 0, t.sums, self->dtype, false, NULL) == BETON_OK) {
			t.lacks_memory = false;
			/* With a gate each timing waits for its turn. */
			*best = times ? cuda_fastest_of_many(count, !t.bench.gate, time_candidate, &t)
				      : first_of(&t, count);
		}
		cuda_bench_close(&t.bench);
	}
	if (*best < 0 && !t.lacks_memory)
		return bt_fail(err, BETON_UNSUPPORTED, "none of %d algorithms works: %.200s", count, t.error.message);
	self->untried = *best < 0;
	if (self->untried)
		*best = 0;
	return BETON_OK;
}

/* ---- forms ---- */

/* The form that is asked for first: the other one needs more launches. */
static cuda_linear_form first_form(const cuda_linear *self)
{
	bool biased = self->relu || (cuda_linear_has_bias(self) && self->kind != DTRAIN_OP_LINEAR_BWD_DATA);
	return biased ? CUDA_LINEAR_BIASED : CUDA_LINEAR_PLAIN;
}

/* Whether another form is timed against the first, and which: an activation's epilogue, or the gradient of a bias by a
 * kernel of ours. */
static bool find_rival(const cuda_linear *self, cuda_linear_form *out)
{
	bool sums = self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT && cuda_linear_has_bias(self);
	*out = sums ? CUDA_LINEAR_PLAIN : CUDA_LINEAR_ACTIVATED;
	return sums || self->activates;
}

/* ---- from the store, and to it: [form, the words of the algorithm], which NVIDIA lets be kept ---- */

enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* Changes when the stored numbers get another meaning, or when more candidates are tried. */
#define VERSION "2"

static void signature_of(const cuda_linear *self, char *out, size_t size)
{
	bool forward = self->kind == DTRAIN_OP_LINEAR, matmul = self->kind == DTRAIN_OP_MATMUL;
	bool no_bias = (forward || self->kind == DTRAIN_OP_LINEAR_BWD_WEIGHT) && !cuda_linear_has_bias(self);
	cuda_linear_form rival;
	int length = snprintf(out, size, "%s " VERSION "%s%s%s%s%s%s%s%s %s n%lld in%lld out%lld",
			      dtrain__op_name(self->kind), self->relu ? " relu" : "", no_bias ? " no-bias" : "",
			      self->in_out ? " in-out" : "", matmul && self->turned[A] ? " turned-b" : "",
			      matmul && self->turned[B] ? " turned-a" : "",
			      !self->activates                   ? ""
			      : self->device->gelu == CUDA_FUSED ? " gelu-fused"
								 : " gelu",
			      cuda_linear_is_half(self) && !matmul && self->kind != DTRAIN_OP_LINEAR_BWD_WEIGHT &&
					      self->result == DTRAIN_F32
				      ? " to-f32"
				      : "",
			      self->device->tf32 ? " tf32" : "", dtrain_dtype_name(self->dtype), (long long)self->n,
			      (long long)self->in, (long long)self->out);
	if (self->batch > 1)
		snprintf(out + length, size - (size_t)length, " batch%lld", (long long)self->batch);
	else if (find_rival(self, &rival))
		snprintf(out + length, size - (size_t)length, " build%016" PRIx64, self->device->build);
}

static bool is_possible(const cuda_linear *self, int64_t form)
{
	cuda_linear_form rival;
	return form == CUDA_LINEAR_PLAIN || form == (int64_t)first_form(self) ||
	       (find_rival(self, &rival) && form == (int64_t)rival);
}

static bool recall(cuda_linear *self, const char *signature)
{
	cuda_algorithm known;
	cublasLtMatmulHeuristicResult_t result;
	if (!cuda_algorithms_find(self->device->algorithms, signature, &known) || known.count != 1 + WORDS ||
	    !is_possible(self, known.numbers[0]))
		return false;
	memcpy(&self->algorithm, &known.numbers[1], sizeof(self->algorithm));
	if (cuda_linear_set_form(self, (cuda_linear_form)known.numbers[0], NULL) != BETON_OK ||
	    cublasLtMatmulAlgoCheck(self->device->blas, self->product, self->layouts[A], self->layouts[B],
				    self->layouts[D], self->layouts[D], &self->algorithm,
				    &result) != CUBLAS_STATUS_SUCCESS ||
	    result.workspaceSize > WORKSPACE_LIMIT)
		return false;
	self->algorithm_bytes = result.workspaceSize;
	return true;
}

/* If the file cannot be written, the next process only loses time. */
static void remember(const cuda_linear *self, const char *signature)
{
	cuda_algorithm algorithm = {.count = 1 + WORDS, .numbers = {self->form}};
	memcpy(&algorithm.numbers[1], &self->algorithm, sizeof(self->algorithm));
	(void)cuda_algorithms_put(self->device->algorithms, signature, &algorithm, NULL);
}

/* ---- the choice ---- */

/* Appends the heuristics' candidates of a form; count: of all. UNSUPPORTED: none. */
static int propose(cuda_linear *self, cuda_linear_form form, candidate *list, int *count, beton_error *err)
{
	cublasLtMatmulHeuristicResult_t results[MAX_CANDIDATES];
	int more = 0, status = cuda_linear_set_form(self, form, err);
	if (status == BETON_OK)
		status = find_algorithms(self, results, &more, err);
	for (int i = 0; i < more && status == BETON_OK; i++)
		list[(*count)++] = (candidate){.form = form, .result = results[i]};
	return status;
}

/* Alternates between the candidates of two forms, as far as both exist: timing may end before it reaches the last one.
 * first: of the form that comes first. */
static void interleave(candidate *list, int first, int count)
{
	candidate other[2 * MAX_CANDIDATES];
	memcpy(other, list, (size_t)count * sizeof(*list));
	for (int i = 0, k = 0; k < count; i++) {
		if (i < first)
			list[k++] = other[i];
		if (first + i < count)
			list[k++] = other[first + i];
	}
}

static int decide(cuda_linear *self, const candidate *list, int count, bool times, beton_error *err)
{
	int best = 0, status = best_of(self, list, count, times, &best, err);
	if (status == BETON_OK)
		status = cuda_linear_set_form(self, list[best].form, err);
	if (status != BETON_OK)
		return status;
	self->algorithm = list[best].result.algo;
	self->algorithm_bytes = list[best].result.workspaceSize;
	return BETON_OK;
}

static int choose_of(cuda_linear *self, cuda_linear_form form, candidate *list, bool times, beton_error *err)
{
	int count = 0, status = propose(self, form, list, &count, err);
	return status == BETON_OK ? decide(self, list, count, times, err) : status;
}

static int choose_of_both(cuda_linear *self, cuda_linear_form rival, candidate *list, beton_error *err)
{
	int count = 0, status = propose(self, first_form(self), list, &count, err), first = count;
	if (status != BETON_OK && status != BETON_UNSUPPORTED)
		return status;
	int second = propose(self, rival, list, &count, err);
	if (second != BETON_OK && (status != BETON_OK || second != BETON_UNSUPPORTED))
		return second;
	interleave(list, first, count);
	return decide(self, list, count, true, err);
}

/* The plain form works if no other does. */
static int choose_from(cuda_linear *self, candidate *list, bool times, beton_error *err)
{
	cuda_linear_form first = first_form(self), rival;
	bool contest = find_rival(self, &rival) && times;
	bool forced = contest && rival == CUDA_LINEAR_ACTIVATED && self->device->gelu == CUDA_FUSED;
	int status = forced    ? choose_of(self, rival, list, times, err)
		     : contest ? choose_of_both(self, rival, list, err)
			       : choose_of(self, first, list, times, err);
	if (status == BETON_UNSUPPORTED && forced)
		status = choose_of(self, first, list, times, err);
	bool tried = contest && !forced && rival == CUDA_LINEAR_PLAIN;
	return status == BETON_UNSUPPORTED && first != CUDA_LINEAR_PLAIN && !tried
		       ? choose_of(self, CUDA_LINEAR_PLAIN, list, times, err)
		       : status;
}

static int choose_new(cuda_linear *self, bool times, beton_error *err)
{
	candidate *list = malloc(2 * MAX_CANDIDATES * sizeof(*list));
	if (!list)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for algorithms");
	int status = choose_from(self, list, times, err);
	free(list);
	return status;
}

int cuda_linear_choose(cuda_linear *self, beton_error *err)
{
	char signature[160];
	cuda_algorithms *algorithms = self->device->algorithms;
	/* Timed choices vary. */
	if (!algorithms || self->deterministic)
		return choose_new(self, false, err);
	signature_of(self, signature, sizeof(signature));
	if (recall(self, signature))
		return BETON_OK;
	if (self->device->tuner) {
		self->device->untuned = true;
		return choose_new(self, false, err);
	}
	/* Another process may have chosen during the wait. */
	int status = BETON_OK;
	cuda_algorithms_begin(algorithms, &self->device->lock);
	if (!recall(self, signature)) {
		status = choose_new(self, true, err);
		/* The next start may have memory to try more. */
		if (status == BETON_OK && !self->untried)
			remember(self, signature);
	}
	cuda_algorithms_end(algorithms);
	return status;
}
