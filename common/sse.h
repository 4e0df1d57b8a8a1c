/* SPDX-License-Identifier: Apache-2.0
 *
 * SSE2's vectors where BT_SSE2 is defined. On AArch64 they are NEON's, by way of SIMDe.
 */
#ifndef BT_COMMON_SSE_H
#define BT_COMMON_SSE_H

#if defined(__SSE2__)
#include <emmintrin.h>
#define BT_SSE2
#elif defined(HAVE_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/sse2.h>
#define BT_SSE2
#endif

#endif
