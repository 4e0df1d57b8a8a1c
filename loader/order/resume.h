/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs a loader state: epoch, position, and fingerprints of data set and order.
 *
 * Little-endian: u32 magic "BtLs", u16 version 2, u16 size 48, u64 epoch, u64 position, u64 fingerprint of the data
 * set, u64 fingerprint of the order, u64 XXH3 of the bytes before it. In version 1 the data set's fingerprint did not
 * cover the samples' content.
 */
#ifndef BT_LOADER_RESUME_H
#define BT_LOADER_RESUME_H

#include <beton/loader.h>

typedef struct bt_place {
	uint64_t epoch;
	uint64_t position; /* in the global order: of the next sample of all ranks */
	uint64_t dataset;
	uint64_t order;
} bt_place;

void bt_place_pack(beton_loader_state *out, const bt_place *place);

/* Errors: FORMAT (no state, or a damaged one), UNSUPPORTED_VERSION. */
int bt_place_unpack(bt_place *out, const beton_loader_state *state, beton_error *err);

#endif
