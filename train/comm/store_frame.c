/* SPDX-License-Identifier: Apache-2.0 */
#include "store_frame.h"

#include <endian.h>
#include <string.h>

static const uint8_t magic[4] = {'D', 'T', 'K', 'V'};

void dtrain__store_pack(const struct store_header *header, uint8_t out[STORE_HEADER_SIZE])
{
	uint16_t status = htole16(header->status);
	uint32_t key_size = htole32(header->key_size), value_size = htole32(header->value_size);

	memcpy(out, magic, sizeof(magic));
	out[4] = STORE_VERSION;
	out[5] = header->kind;
	memcpy(out + 6, &status, sizeof(status));
	memcpy(out + 8, &key_size, sizeof(key_size));
	memcpy(out + 12, &value_size, sizeof(value_size));
}

bool dtrain__store_unpack(const uint8_t in[STORE_HEADER_SIZE], struct store_header *out)
{
	uint16_t status;
	uint32_t key_size, value_size;

	if (memcmp(in, magic, sizeof(magic)) != 0 || in[4] != STORE_VERSION)
		return false;
	memcpy(&status, in + 6, sizeof(status));
	memcpy(&key_size, in + 8, sizeof(key_size));
	memcpy(&value_size, in + 12, sizeof(value_size));
	*out = (struct store_header){.kind = in[5],
				     .status = le16toh(status),
				     .key_size = le32toh(key_size),
				     .value_size = le32toh(value_size)};
	if (out->value_size > STORE_MAX_VALUE)
		return false;
	switch (out->kind) {
	case STORE_SET:
		return out->key_size >= 1 && out->key_size <= STORE_MAX_KEY;
	case STORE_GET:
	case STORE_WAIT:
		return out->key_size >= 1 && out->key_size <= STORE_MAX_KEY && out->value_size == 0;
	case STORE_ADD:
		return out->key_size >= 1 && out->key_size <= STORE_MAX_KEY && out->value_size == sizeof(int64_t);
	case STORE_WILL:
		return out->key_size >= 1 && out->key_size <= STORE_MAX_KEY && out->value_size <= STORE_MAX_WILL;
	case STORE_REPLY:
		return out->key_size == 0;
	default:
		return false;
	}
}

void dtrain__store_pack_i64(int64_t value, uint8_t out[8])
{
	uint64_t bits = htole64((uint64_t)value);

	memcpy(out, &bits, sizeof(bits));
}

int64_t dtrain__store_unpack_i64(const uint8_t in[8])
{
	uint64_t bits;

	memcpy(&bits, in, sizeof(bits));
	return (int64_t)le64toh(bits);
}
