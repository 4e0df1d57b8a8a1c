/* SPDX-License-Identifier: Apache-2.0
 *
 * The on-disk structures of a .beton file, and how to load and store their little-endian integers at any address.
 *
 *   header | field descriptors | metadata records | zeros | pages ... | allocation table (to the end of the file)
 *
 * Source: FFCV 1.0.1, ffcv/types.py. */
#ifndef BETON_FORMAT_H
#define BETON_FORMAT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define HEADER_SIZE 24 /* u16 version, u16 num_fields, u32 page_size, u64 num_samples, u64 alloc_table_ptr */
#define HEADER_VERSION 0
#define HEADER_NUM_FIELDS 2
#define HEADER_PAGE_SIZE 4
#define HEADER_NUM_SAMPLES 8
#define HEADER_ALLOC_TABLE 16

#define FIELD_SIZE 1041 /* u8 type, 16 bytes of name, 1024 bytes of arguments */
#define FIELD_NAME 1
#define FIELD_ARGUMENTS 17
#define ARGUMENTS_SIZE 1024

#define ARRAY_TYPE_LENGTH 256 /* arguments of an array field: u64 shape[32], u64 type_length, type as JSON */
#define ARRAY_TYPE 264

#define ALLOC_ENTRY_SIZE 24 /* u64 sample_id, u64 pointer, u64 size */

#define IMAGE_RECORD_SIZE 13 /* u8 mode, u16 width, u16 height, u64 pointer */
#define BYTES_RECORD_SIZE 16 /* u64 pointer, u64 size */

static inline uint16_t load_u16(const void *from)
{
	uint16_t value;
	memcpy(&value, from, sizeof(value));
	return le16toh(value);
}

static inline uint32_t load_u32(const void *from)
{
	uint32_t value;
	memcpy(&value, from, sizeof(value));
	return le32toh(value);
}

static inline uint64_t load_u64(const void *from)
{
	uint64_t value;
	memcpy(&value, from, sizeof(value));
	return le64toh(value);
}

static inline void store_u16(void *to, uint16_t value)
{
	value = htole16(value);
	memcpy(to, &value, sizeof(value));
}

static inline void store_u32(void *to, uint32_t value)
{
	value = htole32(value);
	memcpy(to, &value, sizeof(value));
}

static inline void store_u64(void *to, uint64_t value)
{
	value = htole64(value);
	memcpy(to, &value, sizeof(value));
}

#endif
