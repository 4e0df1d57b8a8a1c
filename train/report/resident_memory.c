/* SPDX-License-Identifier: Apache-2.0 */
#include "resident_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

run_memory run_memory_read(void)
{
	run_memory memory = {0};
	struct rusage usage;
	uint64_t pages;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file && fscanf(file, "%*u %" SCNu64, &pages) == 1)
		memory.now_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	if (file)
		fclose(file);
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		memory.peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
	/* The kernel updates the peak less often than the other number. */
	if (memory.peak_bytes < memory.now_bytes)
		memory.peak_bytes = memory.now_bytes;
	return memory;
}
