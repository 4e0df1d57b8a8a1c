/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a program's plan, beside what the graph says.
 */
#include <stdio.h>

#include "core/program.h"
#include "tests/train/support/net.h"

/* From the nodes alone: what has been written by then and will be read from then on, and what stays. */
static size_t alive_at(const dtrain_program *program, int32_t at)
{
	const dtrain_graph *graph = program->graph;
	size_t bytes = 0;
	for (int32_t t = 0; t < graph->num_tensors; t++) {
		const dtrain__tensor *tensor = &graph->tensors[t];
		bool read = tensor->keep || tensor->producer == at;
		for (int32_t n = at; n < graph->num_nodes && !read; n++)
			for (int i = 0; i < graph->nodes[n].num_inputs; i++)
				read = read || graph->nodes[n].inputs[i] == t;
		if (tensor->role == DTRAIN__INPUT ||
		    (tensor->role == DTRAIN__ACTIVATION && tensor->producer <= at && read))
			bytes += program->operands[t].bytes;
	}
	return bytes;
}

static void plan_says_what_is_alive(void **state)
{
	(void)state;
	net n;
	beton_error err = {0};
	char *text;
	net_open(&n, "auto", DTRAIN_F32, "resnet20", 2, 8, 3);
	expect_ok(dtrain_program_plan(n.program, &text, &err), &err);
	const dtrain_graph *graph = n.program->graph;
	size_t most = 0, listed = 0, peak, bytes;
	int32_t node, lines = 0;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		most = alive_at(n.program, i) > most ? alive_at(n.program, i) : most;
	const char *line = strstr(text, "peak: ");
	assert_non_null(line);
	assert_int_equal(sscanf(line, "peak: %zu bytes are alive at step %d,", &peak, &node), 2);
	assert_int_equal(peak, most);
	assert_int_equal(alive_at(n.program, node), most);
	assert_true(peak <= n.program->info.arena_bytes);
	for (line = strchr(line, '\n') + 1; *line != '\n'; line = strchr(line, '\n') + 1) {
		assert_int_equal(sscanf(line, "%zu", &bytes), 1);
		listed += bytes;
	}
	assert_int_equal(listed, peak);
	line = strchr(line + 1, '\n') + 1;
	for (; *line; line = strchr(line, '\n') + 1, lines++) {
		int32_t number, block;
		char direction, op[64];
		assert_int_equal(sscanf(line, "%d %c %zu %d, %63s", &block, &direction, &bytes, &number, op), 5);
		assert_int_equal(number, lines);
		assert_int_equal(block, graph->nodes[lines].block);
		assert_int_equal(direction, graph->nodes[lines].is_backward ? 'b' : 'f');
		assert_int_equal(bytes, alive_at(n.program, lines));
		assert_string_equal(op, dtrain__op_name(graph->nodes[lines].kind));
	}
	assert_int_equal(lines, graph->num_nodes);
	free(text);
	net_close(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(plan_says_what_is_alive)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
