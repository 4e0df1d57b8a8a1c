/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench link: what the machine's settings mean for groups of ranks, and how its devices are connected.
 */
#ifndef PROGRAMS_BENCH_BENCH_LINK_H
#define PROGRAMS_BENCH_BENCH_LINK_H

#include <stdbool.h>
#include <stddef.h>

#define LINK_MAX_FINDINGS 64

typedef enum link_state { LINK_GOOD, LINK_BAD, LINK_UNKNOWN } link_state;

typedef struct link_finding {
	link_state state;
	char what[200];
	char fix[240]; /* "": nothing to do */
} link_finding;

typedef struct link_findings {
	link_finding list[LINK_MAX_FINDINGS];
	int count;
} link_findings;

/* Checks shared memory, locked memory, IOMMU, PCIe bridges, network interfaces and visible devices. root: prefix of
 * /proc, /sys and /dev; "" for this machine. Facts that cannot be read are left out. */
void link_find(const char *root, link_findings *out);

/* Adds a finding, if there is room: what was found, and how to fix it if it is not good. */
__attribute__((format(printf, 4, 5))) void link_add(link_findings *out, link_state state, const char *fix,
						    const char *format, ...);

/* Reads the first line of a file below root; false, and "", if there is none. */
__attribute__((format(printf, 4, 5))) bool link_read_line(const char *root, char *line, size_t size, const char *format,
							  ...);

/* Describes a PCI device ("0000:18:00.0"): speed, width, NUMA node; "" if the system does not report them. */
void link_describe_pci(const char *root, const char *address, char *text, size_t size);

#define LINK_MAX_DEVICES 16

typedef struct link_matrix {
	int count;
	const char *pci[LINK_MAX_DEVICES]; /* addresses; "": not known */
	double gb_s[LINK_MAX_DEVICES][LINK_MAX_DEVICES];
} link_matrix;

/* The path between two PCI devices, in the terms of `nvidia-smi topo -m`: PIX, PXB, PHB, NODE or SYS; "-" if the system
 * does not report it. */
const char *link_path(const char *root, const char *a, const char *b);

/* Prints all paths with the measured figures, and explains the terms. False: the output cannot be written. */
bool link_print_matrix(const char *root, const link_matrix *matrix);

#endif
