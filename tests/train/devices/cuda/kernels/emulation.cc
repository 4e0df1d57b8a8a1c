/* SPDX-License-Identifier: Apache-2.0 */
/* A checked longjmp takes a jump to another stack for an error. */
#undef _FORTIFY_SOURCE

#include "emulation.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#elif __has_feature(thread_sanitizer)
#define WITH_TSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#elif defined(__SANITIZE_THREAD__)
#define WITH_TSAN
#endif

/* A sanitizer has to be told that the stack is another one. */
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

constexpr size_t STACK_BYTES = 128 << 10;
constexpr int MULTIPROCESSORS = 3;
/* Few, so that small tests have rows that do not fit. */
constexpr int SHARED_BYTES = 48 << 10;
/* A block's shared memory on the smallest GPUs with tensor cores. */
constexpr int LARGEST_SHARED_BYTES = 99 << 10;
constexpr int CAPABILITY = 8;
constexpr unsigned WARP = 32;
constexpr int UNKNOWN = 0xff; /* NaN in each type */

enum class place { ENDED, AT_BARRIER, IN_WARP };

/* Values that the threads of a warp exchange, and the values before: some threads have yet to read them. */
struct slots {
	alignas(16) unsigned char of[2][WARP][EMULATED_SLOT];
};

struct later_copy {
	void *to;
	const void *from;
	size_t bytes;
};

/* How to go on with a stack. swapcontext asks the kernel for the signal mask each time; longjmp does not. In
 * AddressSanitizer's swapcontext the whole stack is valid memory again, which takes long and hides faults, and so is a
 * part of it in its longjmp. It does not see the compiler's own. ThreadSanitizer needs swapcontext. */
struct continuation {
	ucontext_t context;
#ifdef WITH_ASAN
	void *jump[5];
#else
	jmp_buf jump;
#endif
};

#ifdef WITH_ASAN
#define save_place(place) __builtin_setjmp(place)
#define go_to(place) __builtin_longjmp(place, 1)
#else
#define save_place(place) _setjmp(place)
#define go_to(place) _longjmp(place, 1)
#endif

struct fiber {
	continuation self;
	bool started = false;
	std::unique_ptr<char[]> stack;
	place where = place::ENDED;
	uint3 index;
	unsigned number = 0, exchanges = 0;
	std::vector<later_copy> copies;
	void *fake_stack = nullptr, *tsan = nullptr;
};

struct scheduler {
	continuation self;
	std::vector<std::unique_ptr<fiber>> fibers;
	std::vector<slots> warps;
	fiber *running = nullptr;
	const std::function<void()> *body = nullptr;
	char *shared = nullptr;
	const void *stack = nullptr;
	size_t stack_bytes = 0;
	void *fake_stack = nullptr, *tsan = nullptr;
};

scheduler now;

[[noreturn]] void give_up(const char *what)
{
	fprintf(stderr, "emulation: block %u: %s\n", blockIdx.x, what);
	abort();
}

/* Leaves for another stack until somebody comes back to this one. started: that one was left so itself. */
__attribute__((noinline, no_sanitize("address"))) void switch_to(continuation *from, continuation *to, bool started)
{
#ifndef WITH_TSAN
	if (save_place(from->jump) != 0)
		return;
	if (started)
		go_to(to->jump);
#endif
	(void)started;
	if (swapcontext(&from->context, &to->context) != 0)
		give_up("swapcontext");
}

/* From the running fiber back to the scheduler, until it is resumed. */
void pause(place where)
{
	fiber *self = now.running;
	self->where = where;
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(&self->fake_stack, now.stack, now.stack_bytes);
#endif
#ifdef WITH_TSAN
	__tsan_switch_to_fiber(now.tsan, 0);
#endif
	switch_to(&self->self, &now.self, true);
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
#endif
}

void fiber_main()
{
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(nullptr, &now.stack, &now.stack_bytes);
#endif
	for (;;) {
		(*now.body)();
		pause(place::ENDED);
	}
}

std::unique_ptr<fiber> make_fiber()
{
	std::unique_ptr<fiber> out(new fiber);
	out->stack.reset(new char[STACK_BYTES]);
	if (getcontext(&out->self.context) != 0)
		give_up("getcontext");
	out->self.context.uc_stack.ss_sp = out->stack.get();
	out->self.context.uc_stack.ss_size = STACK_BYTES;
	out->self.context.uc_link = nullptr;
	makecontext(&out->self.context, fiber_main, 0);
#ifdef WITH_TSAN
	out->tsan = __tsan_create_fiber(0);
#endif
	return out;
}

void resume(fiber *f)
{
	now.running = f;
	threadIdx = f->index;
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(&now.fake_stack, f->stack.get(), STACK_BYTES);
#endif
#ifdef WITH_TSAN
	now.tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->tsan, 0);
#endif
	const bool started = f->started;
	f->started = true;
	switch_to(&now.self, &f->self, started);
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(now.fake_stack, nullptr, nullptr);
#endif
}

/* The rest of a block, once one thread has ended without a barrier: no fibers, which are slow. */
void run_without_barriers(unsigned threads, bool backwards)
{
	now.running = nullptr;
	for (unsigned i = 1; i < threads; i++) {
		threadIdx = now.fibers[backwards ? threads - 1 - i : i]->index;
		(*now.body)();
	}
}

/* One warp until its threads wait at the block's barrier or have ended. Returns how many have. skipped: a thread that
 * did so before, or NULL. */
unsigned run_warp(unsigned first, unsigned end, bool backwards, const fiber *skipped)
{
	for (;; backwards = !backwards, skipped = nullptr) {
		unsigned ended = 0, waiting = 0;
		for (unsigned i = 0; i < end - first; i++) {
			fiber *f = now.fibers[backwards ? end - 1 - i : first + i].get();
			if (f != skipped)
				resume(f);
			ended += f->where == place::ENDED;
			waiting += f->where == place::IN_WARP;
		}
		if (waiting == 0)
			return ended;
		if (waiting != end - first)
			give_up("some threads of a warp wait for the others, which do not");
	}
}

/* One block, from barrier to barrier. */
void run_block(unsigned threads, bool backwards)
{
	const fiber *first = now.fibers[backwards ? threads - 1 : 0].get();
	const unsigned warps = (threads + WARP - 1) / WARP;
	unsigned ended = 0;
	resume(now.fibers[backwards ? threads - 1 : 0].get());
	if (first->where == place::ENDED)
		return run_without_barriers(threads, backwards);
	for (; ended == 0; first = nullptr, backwards = !backwards)
		for (unsigned i = 0; i < warps; i++) {
			const unsigned warp = (backwards ? warps - 1 - i : i) * WARP;
			ended += run_warp(warp, warp + WARP < threads ? warp + WARP : threads, backwards, first);
		}
	if (ended != threads)
		give_up("some threads wait at a barrier, others have ended");
}

void copy_now(const later_copy &c)
{
	if (c.from)
		memcpy(c.to, c.from, c.bytes);
	else
		memset(c.to, 0, c.bytes);
}

} // namespace

void __syncthreads()
{
	if (!now.running)
		give_up("some threads wait at a barrier, others have ended");
	pause(place::AT_BARRIER);
}

namespace cuda_kernels
{

void *dynamic_shared()
{
	return now.shared;
}

/* With barriers of the block. */
float sum_warp(float x)
{
	static float values[1024];
	const unsigned self = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	for (unsigned mask = 16; mask > 0; mask /= 2) {
		values[self] = x;
		__syncthreads();
		x += values[self ^ mask];
		__syncthreads();
	}
	return x;
}

} // namespace cuda_kernels

const unsigned char *emulate_exchange(const void *mine, size_t bytes)
{
	fiber *self = now.running;
	if (!self || bytes > EMULATED_SLOT)
		give_up("a warp cannot exchange this");
	const unsigned turn = self->exchanges++ % 2;
	slots &warp = now.warps[self->number / WARP];
	memcpy(warp.of[turn][self->number % WARP], mine, bytes);
	pause(place::IN_WARP);
	return warp.of[turn][0];
}

void emulate_copy_later(void *to, const void *from, size_t bytes)
{
	const later_copy copy = {to, from, bytes};
	if (!now.running)
		give_up("some threads wait at a barrier, others have ended");
	if (blockIdx.x % 2)
		copy_now(copy);
	else
		now.running->copies.push_back(copy);
}

void cuda_kernels::wait_for_copies()
{
	for (const later_copy &copy : now.running->copies)
		copy_now(copy);
	now.running->copies.clear();
}

void emulate_launch(int64_t blocks, dim3 threads, size_t shared, const std::function<void()> &body)
{
	const unsigned count = threads.x * threads.y * threads.z;
	if (count < 1 || count > 1024 || shared > LARGEST_SHARED_BYTES)
		give_up("no such block");
	const std::unique_ptr<char[]> memory(new char[shared]);
	now.shared = memory.get();
	while (now.fibers.size() < count)
		now.fibers.push_back(make_fiber());
	now.warps.resize((count + WARP - 1) / WARP);
	now.body = &body;
	blockDim = threads;
	gridDim = dim3((unsigned)blocks);
	for (unsigned i = 0; i < count; i++) {
		now.fibers[i]->index = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
		now.fibers[i]->number = i;
		now.fibers[i]->exchanges = 0;
	}
	for (unsigned block = 0; block < gridDim.x; block++) {
		blockIdx = {block, 0, 0};
		memset(now.shared, UNKNOWN, shared);
		run_block(count, block % 2 != 0);
	}
}

/* The runtime library's functions that launchers call. */
extern "C" {

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
	*value = attribute == cudaDevAttrMultiProcessorCount      ? MULTIPROCESSORS
		 : attribute == cudaDevAttrComputeCapabilityMajor ? CAPABILITY
								  : SHARED_BYTES;
	return attribute == cudaDevAttrMultiProcessorCount || attribute == cudaDevAttrComputeCapabilityMajor ||
			       attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
		       ? cudaSuccess
		       : cudaErrorInvalidValue;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t)
{
	memset(memory, value, bytes);
	return cudaSuccess;
}
}
