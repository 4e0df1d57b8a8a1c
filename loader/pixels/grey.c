/* SPDX-License-Identifier: Apache-2.0 */
#include "grey.h"

#include "common/isa.h"
#include "kernels.h"

enum {
	GREEN = 38470,
	SHIFT = 16,
	PART = 512, /* pixels that stay in the first cache */
};

/* The loop is compiled for two instruction sets. */
static inline __attribute__((always_inline)) void weigh(const uint8_t *restrict red, const uint8_t *restrict green,
							const uint8_t *restrict blue, size_t count,
							bt_grey_weights weights, uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = (uint8_t)((red[i] * weights.red + green[i] * (uint32_t)GREEN + blue[i] * weights.blue +
				    (1u << (SHIFT - 1))) >>
				   SHIFT);
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) void weigh_wide(uint8_t planes[3][PART], size_t count, bt_grey_weights weights,
						       uint8_t *out)
{
	weigh(planes[0], planes[1], planes[2], count, weights, out);
}
#endif

static void weigh_plain(uint8_t planes[3][PART], size_t count, bt_grey_weights weights, uint8_t *out)
{
	weigh(planes[0], planes[1], planes[2], count, weights, out);
}

void bt_grey(const uint8_t *rgb, size_t count, bt_grey_weights weights, uint8_t *out)
{
	const bt_kernels *kernels = bt_kernels_best();
	void (*weigh_part)(uint8_t[3][PART], size_t, bt_grey_weights, uint8_t *) = weigh_plain;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2)
		weigh_part = weigh_wide;
#endif
	uint8_t planes[3][PART];
	uint8_t *const places[3] = {planes[0], planes[1], planes[2]};
	for (size_t at = 0; at < count; at += PART) {
		size_t part = count - at < PART ? count - at : PART;
		kernels->split(rgb + 3 * at, part, places);
		weigh_part(planes, part, weights, out + at);
	}
}
