/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's C API: that of version 3. On version 2 (Debian 12) onednn_v2.c has the functions that came with version 3.
 * A layout that is made has the type onednn_md and is destroyed by its owner; const_dnnl_memory_desc_t is any layout.
 */
#ifndef DTRAIN_CPU_ONEDNN_H
#define DTRAIN_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t onednn_md;

/* Whether batch normalization's backward has the shift as an argument, on which no gradient depends: version 2 requires
 * it, version 3 refuses it. */
enum { ONEDNN_NORM_BACKWARD_HAS_SHIFT = 0 };
#else
#include "onednn_v2.h"
#endif

#endif
