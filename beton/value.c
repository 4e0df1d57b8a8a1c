/* SPDX-License-Identifier: Apache-2.0
 *
 * One value of one sample: what its record says, checked against the allocation table. */
#include <errno.h>

#include "common/error.h"
#include "common/system.h"
#include "fields.h"
#include "format.h"
#include "layout.h"
#include "reader.h"

static int corrupt(const beton_reader *reader, uint64_t sample, const beton_field *field, const char *what,
		   uint64_t found, uint64_t expected, beton_error *err)
{
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
			      "%s: sample %llu, field '%s': %s is %llu, expected %llu", reader->path,
			      (unsigned long long)sample, field->name, what, (unsigned long long)found,
			      (unsigned long long)expected);
}

/* Finds the blob at pointer. expected: its size in bytes; 0 with any_size: whatever the table says. */
static int find_blob(const beton_reader *reader, uint64_t sample, const beton_field *field, uint64_t pointer,
		     bool any_size, uint64_t expected, beton_blob *blob, beton_error *err)
{
	bool has_empty = false;
	const alloc_entry *entry = beton_alloc_table_find(&reader->table, pointer, sample, &has_empty);
	if (!entry)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu, field '%s': no allocation of it starts at offset %llu",
				      reader->path, (unsigned long long)sample, field->name,
				      (unsigned long long)pointer);
	*blob = (beton_blob){pointer, any_size ? entry->size : expected};
	if (any_size || expected == entry->size || (expected == 0 && has_empty))
		return BETON_OK;
	return corrupt(reader, sample, field, "its allocated size", entry->size, expected, err);
}

static int image_value(const beton_reader *reader, uint64_t sample, const beton_field *field, const uint8_t *slot,
		       beton_value *out, beton_error *err)
{
	uint8_t mode = slot[0];
	out->width = load_u16(slot + 1);
	out->height = load_u16(slot + 3);
	if (mode != BETON_IMAGE_JPEG && mode != BETON_IMAGE_RAW)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu, field '%s': unknown image mode %u", reader->path,
				      (unsigned long long)sample, field->name, mode);
	if (out->width == 0 || out->height == 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu, field '%s': an image of %u x %u pixels", reader->path,
				      (unsigned long long)sample, field->name, out->width, out->height);
	out->mode = (beton_image_mode)mode;
	bool jpeg = out->mode == BETON_IMAGE_JPEG;
	uint64_t raw_size = (uint64_t)out->width * out->height * 3;
	int result = find_blob(reader, sample, field, load_u64(slot + 5), jpeg, raw_size, &out->blob, err);
	if (result == BETON_OK && out->blob.size == 0)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)sample,
				      "%s: sample %llu, field '%s': an image without bytes", reader->path,
				      (unsigned long long)sample, field->name);
	return result;
}

int beton_reader_value(const beton_reader *reader, uint64_t sample, uint32_t field_index, beton_value *out,
		       beton_error *err)
{
	if (sample >= reader->info.num_samples || field_index >= reader->info.num_fields)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: no sample %llu, field %u: the file has %llu samples of %u fields", reader->path,
			       (unsigned long long)sample, field_index, (unsigned long long)reader->info.num_samples,
			       reader->info.num_fields);
	const beton_field *field = &reader->fields[field_index];
	const uint8_t *slot = reader->metadata + sample * reader->info.record_size + field->record_offset;
	*out = (beton_value){.type = field->type};
	switch (field->type) {
	case BETON_FIELD_INT:
		out->integer = (int64_t)load_u64(slot);
		return BETON_OK;
	case BETON_FIELD_FLOAT: {
		uint64_t bits = load_u64(slot);
		memcpy(&out->real, &bits, sizeof(bits));
		return BETON_OK;
	}
	case BETON_FIELD_IMAGE:
		return image_value(reader, sample, field, slot, out, err);
	case BETON_FIELD_BYTES:
	case BETON_FIELD_JSON:
		return find_blob(reader, sample, field, load_u64(slot), false, load_u64(slot + 8), &out->blob, err);
	case BETON_FIELD_NDARRAY:
	case BETON_FIELD_TORCH_TENSOR:
		break;
	}
	return find_blob(reader, sample, field, load_u64(slot), false, beton_array_bytes(field), &out->blob, err);
}

int beton_reader_read(const beton_reader *reader, const beton_blob *blob, void *destination, beton_error *err)
{
	if (blob->size == 0)
		return BETON_OK;
	ssize_t got = bt_pread_full(reader->fd, destination, (size_t)blob->size, blob->offset);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read %llu bytes at offset %llu", reader->path,
				     (unsigned long long)blob->size, (unsigned long long)blob->offset);
	if ((uint64_t)got != blob->size)
		return bt_fail(err, BETON_FILE_CHANGED,
			       "%s: the file became shorter while it was open (%lld of %llu bytes at offset %llu)",
			       reader->path, (long long)got, (unsigned long long)blob->size,
			       (unsigned long long)blob->offset);
	return BETON_OK;
}
