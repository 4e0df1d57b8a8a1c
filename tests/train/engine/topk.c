/* SPDX-License-Identifier: Apache-2.0
 *
 * A label's rank among the logits, with ties and what is not a number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/tasks/vision/topk.h"

static void distinct_logits(void **state)
{
	(void)state;
	const float logits[] = {0.5f, -1, 3, 2, -INFINITY, INFINITY};
	const int64_t ranks[] = {3, 4, 1, 2, 5, 0};
	for (int64_t label = 0; label < 6; label++)
		assert_int_equal(vision_label_rank(logits, 6, label), ranks[label]);
}

/* Equal logits have places of their own: exactly k of n labels are among the first k. */
static void ties(void **state)
{
	(void)state;
	const float logits[] = {1, 2, 2, 0.f, -0.f, 2};
	const int64_t ranks[] = {3, 0, 1, 4, 5, 2};
	for (int64_t label = 0; label < 6; label++)
		assert_int_equal(vision_label_rank(logits, 6, label), ranks[label]);
}

static void not_a_number(void **state)
{
	(void)state;
	const float logits[] = {1, NAN, 2};
	assert_int_equal(vision_label_rank(logits, 3, 1), 3);
	assert_int_equal(vision_label_rank(logits, 3, 2), 1);
	assert_int_equal(vision_label_rank(logits, 3, 0), 2);
	assert_int_equal(vision_label_rank(logits, 1, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(distinct_logits),
		cmocka_unit_test(ties),
		cmocka_unit_test(not_a_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
