/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of progress is never wider than the terminal, or each redraw would leave a copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/common/progress.h"

/* The line on a terminal of that width after half of `total` samples; the caller frees it. */
static char *drawn(unsigned short columns, uint64_t total)
{
	int master;
	int terminal;
	struct winsize size = {.ws_row = 24, .ws_col = columns};
	struct termios raw = {0};
	cfmakeraw(&raw);
	assert_int_equal(openpty(&master, &terminal, NULL, &raw, &size), 0);
	int saved = dup(STDERR_FILENO);
	assert_int_equal(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
	progress bar;
	progress_start(&bar, total, false);
	bar.done = total ? total / 2 - 1 : 12345;
	bar.bytes = 123456789012;
	bar.started_ns -= 5000000000; /* as if time had passed, so that it is drawn */
	bar.drawn_ns -= 5000000000;
	progress_sample(&bar, 0);
	fflush(stderr);
	char *text = calloc(1, 4096);
	assert_true(text && read(master, text, 4095) > 0);
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	close(saved);
	close(terminal);
	close(master);
	return text;
}

static void test_width(void **state)
{
	(void)state;
	for (unsigned short columns = 1; columns < 200; columns++)
		for (uint64_t total = 0; total <= 1281167; total += 1281167) {
			char *text = drawn(columns, total);
			assert_int_equal(text[0], '\r');
			size_t length = strcspn(text + 1, "\033");
			assert_string_equal(text + 1 + length, "\033[K");
			assert_in_range(length, 0, columns - 1u);
			if (columns < 40 || columns > 120)
				assert_int_equal(strchr(text, '[') < text + 1 + length, total && columns > 120);
			free(text);
		}
}

static void test_wide(void **state)
{
	(void)state;
	char *text = drawn(120, 1000);
	assert_non_null(strstr(text, "\r[###############               ] 500/1000  "));
	assert_non_null(strstr(text, "123456.8 MB"));
	assert_non_null(strstr(text, " left"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_width), cmocka_unit_test(test_wide)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
