/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <string.h>

#include <xxhash.h>

#include "common/error.h"

enum { MAGIC = 0x734c7442, WITHOUT_CONTENT = 1, VERSION = 2, SUMMED = 40 };

_Static_assert(sizeof(beton_loader_state) == SUMMED + 8, "the state's size is part of the ABI");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the loader is written for little-endian machines");

typedef struct head {
	uint32_t magic;
	uint16_t version;
	uint16_t size;
} head;

void bt_place_pack(beton_loader_state *out, const bt_place *place)
{
	head front = {MAGIC, VERSION, sizeof(*out)};
	uint64_t numbers[] = {place->epoch, place->position, place->dataset, place->order};
	memcpy(out->bytes, &front, sizeof(front));
	memcpy(out->bytes + sizeof(front), numbers, sizeof(numbers));
	uint64_t sum = XXH3_64bits(out->bytes, SUMMED);
	memcpy(out->bytes + SUMMED, &sum, sizeof(sum));
}

int bt_place_unpack(bt_place *out, const beton_loader_state *state, beton_error *err)
{
	head front;
	uint64_t numbers[4], sum;
	memcpy(&front, state->bytes, sizeof(front));
	memcpy(numbers, state->bytes + sizeof(front), sizeof(numbers));
	memcpy(&sum, state->bytes + SUMMED, sizeof(sum));
	if (front.magic != MAGIC)
		return bt_fail(err, BETON_FORMAT, "these bytes are not a state of a loader");
	bool whole = front.size == sizeof(*state) && sum == XXH3_64bits(state->bytes, SUMMED);
	if (whole && front.version == WITHOUT_CONTENT)
		return bt_fail(
			err, BETON_UNSUPPORTED_VERSION,
			"the state of a loader has version %u, which any data set of the same sizes fits; it is at "
			"position %llu of epoch %llu, where beton_iterator_open can begin",
			front.version, (unsigned long long)numbers[1], (unsigned long long)numbers[0]);
	if (front.version != VERSION)
		return bt_fail(err, BETON_UNSUPPORTED_VERSION, "the state of a loader has version %u, not %d",
			       front.version, VERSION);
	if (!whole)
		return bt_fail(err, BETON_FORMAT, "the state of a loader does not match its checksum");
	*out = (bt_place){numbers[0], numbers[1], numbers[2], numbers[3]};
	return BETON_OK;
}
