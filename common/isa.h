/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of a function's versions for several instruction sets runs. All code that has such versions asks here.
 */
#ifndef BT_ISA_H
#define BT_ISA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "error.h"

/* The variable of the environment that caps the level: sse2, avx2 or avx512. It is read when the library is loaded. */
#define BT_ISA_VARIABLE "BETON_MAX_CPU_ISA"

/* A processor of one level runs code for the lower ones, too. */
typedef enum bt_isa {
	BT_ISA_BASE,   /* what every processor of the kind has: SSE2, or NEON */
	BT_ISA_AVX2,   /* with FMA and F16C */
	BT_ISA_AVX512, /* with the extensions BW, DQ and VL */
} bt_isa;

/* The processor's level, or the variable's, if that is lower. */
bt_isa bt_isa_level(void);

/* INVALID_ARGUMENT: the variable has another value, which caps nothing. Call it where a library begins its work. */
int bt_isa_check(beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
