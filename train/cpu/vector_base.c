/* SPDX-License-Identifier: Apache-2.0 */
#define TARGET
#define LANES 4
#define VECTOR cpu_vector_base
#include "vector.inc"

const cpu_vector *cpu_vector_find(void)
{
#ifdef __x86_64__
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return &cpu_vector_avx512;
	if (avx2)
		return &cpu_vector_avx2;
#endif
	return &cpu_vector_base;
}
