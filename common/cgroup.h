/* SPDX-License-Identifier: Apache-2.0
 *
 * What a container may use of the machine's processors. */
#ifndef BT_CGROUP_H
#define BT_CGROUP_H

#include <limits.h>

/* Cores' worth of processor time that the control groups of a process leave it, rounded up; INT_MAX: all. membership:
 * the list of its groups (/proc/self/cgroup); root: where they are mounted (/sys/fs/cgroup). Versions 1 and 2; what
 * cannot be read is no limit. */
int bt_cgroup_cores(const char *membership, const char *root);

#endif
