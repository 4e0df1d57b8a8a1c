/* SPDX-License-Identifier: Apache-2.0
 *
 * PCI devices, and the path from one to another, as sysfs describes them.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_link.h"

void link_describe_pci(const char *root, const char *address, char *text, size_t size)
{
	text[0] = '\0';
	char speed[64], width[32], most[32];
	if (!link_read_line(root, speed, sizeof(speed), "/sys/bus/pci/devices/%s/current_link_speed", address) ||
	    !link_read_line(root, width, sizeof(width), "/sys/bus/pci/devices/%s/current_link_width", address) ||
	    !link_read_line(root, most, sizeof(most), "/sys/bus/pci/devices/%s/max_link_width", address))
		return;
	char node[32];
	link_read_line(root, node, sizeof(node), "/sys/bus/pci/devices/%s/numa_node", address);
	snprintf(text, size, "%s x%s%s%s%s%s", speed, width, strcmp(width, most) != 0 ? " (could be x" : "",
		 strcmp(width, most) != 0 ? most : "", strcmp(width, most) != 0 ? ")" : "",
		 node[0] && node[0] != '-' ? ", NUMA node " : "");
	if (node[0] && node[0] != '-' && strlen(text) + strlen(node) < size)
		strcat(text, node);
}

/* Reads a device's path "/.../pci0000:00/BRIDGE/.../DEVICE" into path. Returns its root's folder, inside path; NULL:
 * the system does not report it. */
static char *find_root(const char *root, const char *address, char path[PATH_MAX])
{
	char *found = NULL;
	if (!address[0] || strchr(address, '/'))
		return NULL;
	char name[PATH_MAX];
	snprintf(name, sizeof(name), "%s/sys/bus/pci/devices/%s", root, address);
	if (!realpath(name, path))
		return NULL;
	/* The last one: a controller may have its own domain below another's device. */
	for (char *at = strstr(path, "/pci"); at; at = strstr(at + 1, "/pci"))
		found = isxdigit((unsigned char)at[4]) ? at : found;
	return found;
}

static int count_slashes(const char *text, size_t length)
{
	int count = 0;
	for (size_t i = 0; i < length; i++)
		count += text[i] == '/';
	return count;
}

static int numa_node(const char *root, const char *address)
{
	char line[32];
	return link_read_line(root, line, sizeof(line), "/sys/bus/pci/devices/%s/numa_node", address) ? atoi(line) : -1;
}

/* Two devices of one switch share its upstream bridge, and each has its own downstream bridge. */
const char *link_path(const char *root, const char *a, const char *b)
{
	char first[PATH_MAX], second[PATH_MAX];
	char *from = find_root(root, a, first), *to = find_root(root, b, second);
	size_t same = 0, shared = 0;
	if (!from || !to)
		return "-";
	/* Stops after the slash of the last common folder. */
	for (; from[same] && from[same] == to[same]; same++)
		shared = from[same] == '/' ? same : shared;
	if (shared == 0)
		return numa_node(root, a) == numa_node(root, b) ? "NODE" : "SYS";
	if (count_slashes(from, shared) < 2)
		return "PHB";
	int more = count_slashes(from + shared + 1, strlen(from + shared + 1));
	int other = count_slashes(to + shared + 1, strlen(to + shared + 1));
	return more <= 1 && other <= 1 ? "PIX" : "PXB";
}

bool link_print_matrix(const char *root, const link_matrix *matrix)
{
	bool written = printf("\n%-12s", "path, GB/s") > 0;
	for (int i = 0; i < matrix->count; i++)
		printf(" to device %-5d", i);
	for (int i = 0; i < matrix->count; i++) {
		printf("\ndevice %-5d", i);
		for (int k = 0; k < matrix->count; k++) {
			if (i == k)
				printf(" %-15s", "X");
			else
				printf(" %-4s %10.2f", link_path(root, matrix->pci[i], matrix->pci[k]),
				       matrix->gb_s[i][k]);
		}
	}
	return written && puts("\n\nPIX   below one PCIe switch, or on one bus\n"
			       "PXB   over several PCIe switches, below one root port\n"
			       "PHB   over a PCIe root, which is in the CPU\n"
			       "NODE  over several PCIe roots of one NUMA node\n"
			       "SYS   from one NUMA node to another, over the link between CPUs\n"
			       "-     the system does not say\n"
			       "These are ways over PCIe: of NVLink, which is used where it is, the GB/s tell.\n") >= 0;
}
