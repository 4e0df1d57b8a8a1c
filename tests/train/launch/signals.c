/* SPDX-License-Identifier: Apache-2.0
 *
 * A signal leaves the stack alone on which it comes: oneDNN's products use other memory as their stack for a while. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#include "train/launch/signals.h"

enum { STACK = 256 << 10, PAINT = 0xa5 };

static void send_term(void)
{
	raise(SIGTERM);
}

static void send_nothing(void)
{
	raise(SIGURG); /* ignored by default */
}

/* Bytes of a stack that the function used. */
static size_t depth_of(void (*function)(void))
{
	uint8_t *stack = malloc(STACK);
	ucontext_t here, there;
	size_t low = 0;
	assert_non_null(stack);
	memset(stack, PAINT, STACK);
	assert_int_equal(getcontext(&there), 0);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &here;
	makecontext(&there, function, 0);
	assert_int_equal(swapcontext(&here, &there), 0);
	while (low < STACK && stack[low] == PAINT)
		low++;
	free(stack);
	return STACK - low;
}

static void a_signal_has_a_stack_of_its_own(void **state)
{
	(void)state;
	/* The first call also binds the functions. */
	depth_of(send_nothing);
	size_t without = depth_of(send_nothing);
	run_signals_catch();
	size_t with = depth_of(send_term);
	assert_int_equal(run_signals_caught(), SIGTERM);
	/* The processor state that the kernel saves takes more than that. */
	assert_in_range(with, 1, without + 256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_signal_has_a_stack_of_its_own)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
