/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that a mesh is planned for, and the times of transfers between its ranks: a latency and a rate within a
 * host, and between hosts. */
#ifndef PROGRAMS_PLAN_MACHINE_H
#define PROGRAMS_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* A message of n bytes takes latency + n / rate. */
typedef struct plan_link {
	double latency; /* seconds */
	double rate;    /* bytes a second */
} plan_link;

typedef struct plan_machine {
	double flops, bandwidth; /* that operations reach: products, and bytes of memory, a second */
	double peak;             /* products a second, for the utilization */
	plan_link within, between;
	int32_t host_ranks;
	double memory; /* bytes of a rank; 0: no limit */
	bool hides;    /* transfers go on beside computation; false: the same cores do both */
} plan_machine;

/* Ranks of an axis: their distance in the world is `stride`. */
typedef struct plan_line {
	int32_t ranks, stride;
} plan_line;

/* Neighbouring ranks of a line that are on one host; the others are on other hosts. */
int32_t plan_line_inside(const plan_machine *machine, plan_line line);

/* Seconds. An all-reduce halves and doubles its array (Rabenseifner): 2 ceil(log2 n) latencies, and 2 (n - 1) / n of
 * the bytes. A gather, or a reduction to shards, takes half of that. Over several hosts with g neighbours in each:
 * reduction to shards within the host, all-reduce of the g-th part between hosts, gather within the host. bytes: of the
 * whole array. One rank: 0. */
double plan_all_reduce(const plan_machine *machine, plan_line line, double bytes);
double plan_gather(const plan_machine *machine, plan_line line, double bytes);
/* A message to the next rank of the line. */
double plan_send(const plan_machine *machine, plan_line line, double bytes);

#endif
