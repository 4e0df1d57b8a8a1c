/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define WINOGRAD cpu_winograd_avx2
#include "winograd.inc"
#else
typedef int cpu_winograd_avx2_is_not_here;
#endif
