/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES 16
#define VECTOR cpu_vector_avx512
#include "vector.inc"
#else
typedef int cpu_vector_avx512_is_not_here;
#endif
