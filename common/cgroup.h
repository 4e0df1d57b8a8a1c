/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of a container.
 */
#ifndef BT_CGROUP_H
#define BT_CGROUP_H

#include <limits.h>
#include <stdint.h>

/* The processor time that a process's control groups allow, in cores, rounded up; INT_MAX: no limit. membership: the
 * list of its groups (/proc/self/cgroup); root: where groups are mounted (/sys/fs/cgroup). For versions 1 and 2; files
 * that cannot be read set no limit. */
int bt_cgroup_cores(const char *membership, const char *root);

/* The memory that these groups still allow, in bytes: what their limit leaves, and what they would give up of the page
 * cache; UINT64_MAX: no limit. For version 2. */
uint64_t bt_cgroup_memory(const char *membership, const char *root);

#endif
