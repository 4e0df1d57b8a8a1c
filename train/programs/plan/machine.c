/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <math.h>

int32_t plan_line_inside(const plan_machine *machine, plan_line line)
{
	int32_t most = (machine->host_ranks - 1) / line.stride + 1;
	return most < line.ranks ? most : line.ranks;
}

/* A gather over n ranks that are linked alike. */
static double gather(const plan_link *link, double ranks, double bytes)
{
	return ranks > 1 ? ceil(log2(ranks)) * link->latency + (ranks - 1) / ranks * bytes / link->rate : 0;
}

double plan_gather(const plan_machine *machine, plan_line line, double bytes)
{
	double inside = plan_line_inside(machine, line), hosts = line.ranks / inside;
	return gather(&machine->within, inside, bytes) + gather(&machine->between, hosts, bytes / inside);
}

double plan_all_reduce(const plan_machine *machine, plan_line line, double bytes)
{
	return 2 * plan_gather(machine, line, bytes);
}

double plan_send(const plan_machine *machine, plan_line line, double bytes)
{
	bool within = plan_line_inside(machine, line) == line.ranks;
	const plan_link *link = within ? &machine->within : &machine->between;
	return line.ranks > 1 ? link->latency + bytes / link->rate : 0;
}
