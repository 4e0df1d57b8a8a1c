/* SPDX-License-Identifier: Apache-2.0
 *
 * The on-disk structures of a .beton file, and how to load and store their little-endian integers at any address.
 *
 *   header | field descriptors | metadata records | zeros | pages ... | extension block | allocation table
 *
 * The table reaches to the end of the file. Source: FFCV 1.0.1, ffcv/types.py; the extension block and compressed
 * fields are ours. See docs/format.md.
 */
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

/* Compressed fields have a type of their own, with the inner type's arguments, followed by this mark. */
#define FIELD_TYPE_CUSTOM 255
#define COMPRESSED_MARK 960 /* u8 magic[8], u32 inner type, u32 codec */
#define COMPRESSED_MAGIC "BETONZST"
#define COMPRESSED_INNER_TYPE (COMPRESSED_MARK + 8)
#define COMPRESSED_CODEC (COMPRESSED_MARK + 12)
#define CODEC_ZSTD 1
#define COMPRESSED_RECORD_SIZE 24 /* u64 pointer, u64 stored size, u64 size when decompressed */
/* A zstd block takes at least 4 bytes and gives at most 128 KiB, so a higher ratio is not valid zstd. */
#define COMPRESSED_RATIO_MAX 32768
#define COMPRESSED_VALUE_MAX (UINT64_C(1) << 32) /* bytes when decompressed */

/* Rasters are of that type, too; their arguments begin with this mark, also where the values are compressed. */
#define RASTER_CHANNELS 8
#define RASTER_ITEM_SIZE 12 /* bytes of a sample: 1 or 2 */
#define RASTER_ARGUMENTS 16
#define RASTER_SIDES 8        /* where these two are */
#define RASTER_SIDE_MAX 65535 /* pixels */

/* The extension block: sections, directory, and this footer directly before the allocation table. */
#define FOOTER_SIZE 64
#define FOOTER_MAGIC "BETONEXT" /* u8[8] at 0 */
#define FOOTER_VERSION 8
#define FOOTER_ENTRIES 12
#define FOOTER_DIRECTORY 16
#define FOOTER_DIRECTORY_SUM 24
#define FOOTER_FLAGS 32
#define FOOTER_HEADER_SUM 40 /* of header and field descriptors */
#define FOOTER_SUM 56        /* of the bytes before it */

#define EXTENSION_VERSION 1
#define EXTENSION_APART 2 /* version: sections and directory may be in any free place, not only after the pages */
#define EXTENSION_ENTRIES_MAX 64
#define EXTENSION_TABLE_IN_ORDER 1 /* flag: blob b of sample i is entry i * blobs + b of the allocation table */

#define DIRECTORY_ENTRY_SIZE 40 /* u32 kind, u32 0, u64 offset, u64 size, u64 checksum, u64 0 */
#define DIRECTORY_OFFSET 8
#define DIRECTORY_SIZE 16
#define DIRECTORY_SUM 24

#define SECTION_BLOB_SUMS 1
#define SECTION_METADATA_SUMS 2
#define SECTION_TABLE_SUMS 3
#define SECTION_FACTS 4
#define SECTION_DICTIONARIES 5
#define SECTION_SOURCES 6
#define SECTION_JPEG_PLACES 7
#define SECTION_JPEG_INDEXES 8
#define SECTION_KINDS 9 /* kinds from here on are ignored */

#define METADATA_SUM_PIECE 65536 /* bytes of metadata for each checksum */
#define TABLE_SUM_ENTRIES 4096   /* allocation entries for each checksum */
#define TABLE_SUM_PIECE (TABLE_SUM_ENTRIES * ALLOC_ENTRY_SIZE)
#define FACTS_SIZE_MAX (16u << 20)

/* A side file, NAME.index beside NAME: this header, the places of JPEG indexes, and the indexes. */
#define SIDE_SIZE 80
#define SIDE_MAGIC "BETONIDX" /* u8[8] at 0 */
#define SIDE_VERSION 8        /* u32 1, u32 0 */
#define SIDE_FILE_SIZE 16     /* of NAME */
#define SIDE_FINGERPRINT 24   /* of NAME */
#define SIDE_PLACES_SIZE 32
#define SIDE_PLACES_SUM 40
#define SIDE_ENTRIES_SIZE 48
#define SIDE_ENTRIES_SUM 56 /* u64 0 follows */
#define SIDE_SUM 72         /* of the bytes before it */

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
