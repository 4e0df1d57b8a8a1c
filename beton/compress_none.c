/* SPDX-License-Identifier: Apache-2.0
 *
 * A build without zstd refuses compressed fields at open, so the other functions have nothing to do.
 */
#include "common/error.h"
#include "compress.h"

int bt_compressor_open(compressor **out, const sample_schema *schema, beton_error *err)
{
	*out = NULL;
	for (uint32_t i = 0; i < schema->num_fields; i++)
		if (schema->fields[i].compression != BETON_COMPRESSION_NONE)
			return bt_fail(err, BETON_UNSUPPORTED, "%s: field '%s': this build cannot compress",
				       schema->path, schema->fields[i].name);
	return BETON_OK;
}

void bt_compressor_close(compressor **self)
{
	(void)self;
}

uint32_t bt_compressor_version(const compressor *self)
{
	(void)self;
	return 0;
}

bool bt_compressor_trained(const compressor *self)
{
	(void)self;
	return true;
}

bool bt_compressed_fits(const sample_schema *schema, const sample *one)
{
	return one->used <= schema->page_size;
}

int bt_compress_sample(compressor *self, sample *one, beton_error *err)
{
	(void)self;
	return bt_fail_sample(err, BETON_UNSUPPORTED, (int64_t)one->index, "this build cannot compress");
}

int bt_compressor_train(compressor *self, beton_error *err)
{
	(void)self;
	return bt_fail(err, BETON_UNSUPPORTED, "this build cannot compress");
}

uint32_t bt_compressor_fields(const compressor *self)
{
	(void)self;
	return 0;
}

const void *bt_compressor_dictionary(const compressor *self, uint32_t number, size_t *size)
{
	(void)self;
	(void)number;
	*size = 0;
	return NULL;
}

int bt_compressor_set(compressor *self, uint32_t number, const void *bytes, size_t size, beton_error *err)
{
	(void)self;
	(void)number;
	(void)bytes;
	(void)size;
	return bt_fail(err, BETON_UNSUPPORTED, "this build cannot compress");
}

void bt_compressor_ready(compressor *self)
{
	(void)self;
}

int bt_compressor_section(const compressor *self, uint8_t **out, size_t *size, beton_error *err)
{
	(void)self;
	(void)err;
	*out = NULL;
	*size = 0;
	return BETON_OK;
}
