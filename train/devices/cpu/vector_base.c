/* SPDX-License-Identifier: Apache-2.0 */
#define TARGET
#define LANES 4
#define VECTOR cpu_vector_base
#include "vector.inc"

#include "common/isa.h"

const cpu_vector *cpu_vector_find(void)
{
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX512)
		return &cpu_vector_avx512;
	if (bt_isa_level() >= BT_ISA_AVX2)
		return &cpu_vector_avx2;
#endif
	return &cpu_vector_base;
}
