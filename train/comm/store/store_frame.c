/* SPDX-License-Identifier: Apache-2.0 */
#include "store_frame.h"

#include <endian.h>
#include <string.h>

#include "common/error.h"

static const uint8_t magic[4] = {'D', 'T', 'K', 'V'};

void dtrain__store_pack(const store_header *header, uint8_t out[STORE_HEADER_SIZE])
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

bool dtrain__store_unpack(const uint8_t in[STORE_HEADER_SIZE], store_header *out)
{
	if (memcmp(in, magic, sizeof(magic)) != 0 || in[4] != STORE_VERSION)
		return false;
	uint16_t status;
	memcpy(&status, in + 6, sizeof(status));
	uint32_t key_size;
	memcpy(&key_size, in + 8, sizeof(key_size));
	uint32_t value_size;
	memcpy(&value_size, in + 12, sizeof(value_size));
	*out = (store_header){.kind = in[5],
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
	case STORE_LEASE:
		return out->key_size == 0 && out->value_size == sizeof(int64_t);
	case STORE_HELLO:
		return out->key_size == 0 && out->value_size == STORE_TOKEN_SIZE;
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

static int digit_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

int dtrain__store_parse_token(const char *text, uint8_t out[STORE_TOKEN_SIZE], beton_error *err)
{
	bool valid = !text || strlen(text) == 2 * STORE_TOKEN_SIZE;
	memset(out, 0, STORE_TOKEN_SIZE);
	for (int i = 0; valid && text && i < STORE_TOKEN_SIZE; i++) {
		int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
		valid = high >= 0 && low >= 0;
		out[i] = (uint8_t)(high * 16 + low);
	}
	if (valid && (!text || dtrain__store_has_token(out)))
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "store: a token has to be %d hexadecimal digits that are not all 0; this one has %zu characters",
		       2 * STORE_TOKEN_SIZE, strlen(text));
}

bool dtrain__store_has_token(const uint8_t token[STORE_TOKEN_SIZE])
{
	static const uint8_t none[STORE_TOKEN_SIZE];
	return !dtrain__store_same_token(token, none);
}

bool dtrain__store_same_token(const uint8_t a[STORE_TOKEN_SIZE], const uint8_t b[STORE_TOKEN_SIZE])
{
	volatile uint8_t difference = 0; /* volatile, so that no compiler stops at the first difference */
	for (int i = 0; i < STORE_TOKEN_SIZE; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}
