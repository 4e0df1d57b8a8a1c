/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define VECTOR cpu_vector_avx2
#include "vector.inc"
#else
typedef int cpu_vector_avx2_is_not_here;
#endif
