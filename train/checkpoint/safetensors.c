/* SPDX-License-Identifier: Apache-2.0 */
#include "safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_kind.h"
#include "common/system.h"

#define HEADER_MAX UINT64_C(100000000)
#define LENGTH_BYTES 8

/* The format's element types; -1: dtrain does not have it. */
static const struct {
	const char *name;
	uint32_t bits;
	int dtype;
} types[] = {
	{"F32", 32, DTRAIN_F32}, {"F64", 64, DTRAIN_F64}, {"F16", 16, DTRAIN_F16}, {"BF16", 16, DTRAIN_BF16},
	{"I64", 64, DTRAIN_I64}, {"U8", 8, DTRAIN_U8},    {"BOOL", 8, -1},         {"I8", 8, -1},
	{"F8_E5M2", 8, -1},      {"F8_E4M3", 8, -1},      {"F8_E8M0", 8, -1},      {"I16", 16, -1},
	{"U16", 16, -1},         {"I32", 32, -1},         {"U32", 32, -1},         {"U64", 64, -1},
	{"C64", 64, -1},         {"F4", 4, -1},           {"F6_E2M3", 6, -1},      {"F6_E3M2", 6, -1},
};

/* ---- writing ---- */

static int compare_for_writing(const void *a, const void *b)
{
	const safetensors_entry *x = *(const safetensors_entry *const *)a;
	const safetensors_entry *y = *(const safetensors_entry *const *)b;
	size_t x_size = dtrain_dtype_size(x->dtype);
	size_t y_size = dtrain_dtype_size(y->dtype);
	if (x_size != y_size)
		return x_size < y_size ? 1 : -1;
	return strcmp(x->name, y->name);
}

uint64_t dtrain__safetensors_bytes(const safetensors_entry *entry)
{
	return (uint64_t)dtrain_shape_count(&entry->shape) * dtrain_dtype_size(entry->dtype);
}

const char *dtrain__safetensors_type(dtrain_dtype dtype)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].dtype == (int)dtype)
			return types[i].name;
	return NULL;
}

int dtrain__safetensors_dtype(const char *type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, type) == 0)
			return types[i].dtype;
	return -1;
}

static json_t *describe(const safetensors_entry *entry, uint64_t begin)
{
	json_t *shape = json_array();
	for (int i = 0; shape && i < entry->shape.ndim; i++)
		if (json_array_append_new(shape, json_integer(entry->shape.dim[i])) != 0) {
			json_decref(shape);
			shape = NULL;
		}
	return json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtrain__safetensors_type(entry->dtype), "shape", shape,
			 "data_offsets", (json_int_t)begin, (json_int_t)(begin + dtrain__safetensors_bytes(entry)));
}

/* Makes the header's text, and sets the entries' offsets, counted from the end of the header. */
static int make_text(const char *path, safetensors_entry *const *sorted, size_t count, json_t *metadata, char **out,
		     beton_error *err)
{
	uint64_t offset = 0;
	json_t *header = json_object();
	int failed = header ? 0 : -1;
	if (metadata && !failed)
		failed = json_object_set(header, "__metadata__", metadata);
	for (size_t i = 0; i < count && !failed; i++) {
		if (i > 0 && strcmp(sorted[i]->name, sorted[i - 1]->name) == 0) {
			json_decref(header);
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two tensors are named '%s'", path,
				       sorted[i]->name);
		}
		failed = json_object_set_new(header, sorted[i]->name, describe(sorted[i], offset));
		sorted[i]->offset = offset;
		offset += dtrain__safetensors_bytes(sorted[i]);
	}
	*out = failed ? NULL : json_dumps(header, JSON_COMPACT);
	json_decref(header);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the header", path);
}

/* Makes the length and the header, padded with blanks so that the data starts at a multiple of 8. */
static int make_header(const char *path, safetensors_entry *const *sorted, size_t count, json_t *metadata,
		       unsigned char **out, size_t *size, beton_error *err)
{
	char *text = NULL;
	int status = make_text(path, sorted, count, metadata, &text, err);
	if (status != BETON_OK)
		return status;
	size_t length = strlen(text), padded = (length + 7) / 8 * 8;
	unsigned char *bytes = malloc(LENGTH_BYTES + padded);
	if (bytes) {
		uint64_t stored = htole64(padded);
		memcpy(bytes, &stored, LENGTH_BYTES);
		memcpy(bytes + LENGTH_BYTES, text, length);
		memset(bytes + LENGTH_BYTES + length, ' ', padded - length);
		for (size_t i = 0; i < count; i++)
			sorted[i]->offset += LENGTH_BYTES + padded;
	}
	free(text);
	if (!bytes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the header", path);
	*out = bytes;
	*size = LENGTH_BYTES + padded;
	if (padded > HEADER_MAX)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the header has %zu bytes, %" PRIu64 " are possible",
			       path, padded, HEADER_MAX);
	return BETON_OK;
}

static int put(int fd, const char *path, const void *data, size_t bytes, checkpoint_digest *digest, beton_error *err)
{
	if (bt_write_full(fd, data, bytes) != 0)
		return bt_fail_errno(err, errno, "%s: cannot write %zu bytes at %" PRIu64, path, bytes, digest->size);
	return dtrain__digest_add(digest, data, bytes, err);
}

int dtrain__safetensors_write(int fd, const char *path, safetensors_entry *entries, size_t count, json_t *metadata,
			      safetensors_fetch fetch, void *context, checkpoint_digest *digest, beton_error *err)
{
	safetensors_entry **sorted = calloc(count ? count : 1, sizeof(*sorted));
	unsigned char *header = NULL;
	size_t header_size = 0;
	void *buffer = malloc(SAFETENSORS_PIECE);
	int status = sorted && buffer ? BETON_OK
				      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %zu tensors", path, count);
	for (size_t i = 0; i < count && sorted; i++)
		sorted[i] = &entries[i];
	if (status == BETON_OK) {
		qsort(sorted, count, sizeof(*sorted), compare_for_writing);
		status = make_header(path, sorted, count, metadata, &header, &header_size, err);
	}
	if (status == BETON_OK)
		status = put(fd, path, header, header_size, digest, err);
	for (size_t i = 0; i < count && status == BETON_OK; i++) {
		uint64_t bytes = dtrain__safetensors_bytes(sorted[i]);
		for (uint64_t at = 0; at < bytes && status == BETON_OK; at += SAFETENSORS_PIECE) {
			size_t piece = bytes - at < SAFETENSORS_PIECE ? (size_t)(bytes - at) : SAFETENSORS_PIECE;
			status = fetch(context, (size_t)(sorted[i] - entries), at, buffer, piece, err);
			if (status == BETON_OK)
				status = put(fd, path, buffer, piece, digest, err);
		}
	}
	if (status == BETON_OK)
		status = dtrain__digest_end(digest, err);
	if (status == BETON_OK && fsync(fd) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot sync", path);
	free(buffer);
	free(header);
	free(sorted);
	return status;
}

/* ---- reading ---- */

static int parse_shape(const char *path, const char *name, const json_t *shape, dtrain_shape *out, uint64_t *elements,
		       beton_error *err)
{
	size_t ndim = json_array_size(shape);
	if (!json_is_array(shape))
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has no shape", path, name);
	if (ndim > DTRAIN_MAX_DIMS)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: tensor '%s' has %zu dimensions, more than %d", path, name,
			       ndim, DTRAIN_MAX_DIMS);
	*out = (dtrain_shape){.ndim = (int32_t)ndim};
	*elements = 1;
	for (size_t i = 0; i < ndim; i++) {
		const json_t *dim = json_array_get(shape, i);
		json_int_t value = json_is_integer(dim) ? json_integer_value(dim) : -1;
		if (value < 0 || __builtin_mul_overflow(*elements, (uint64_t)value, elements))
			return bt_fail(err, BETON_FORMAT, "%s: tensor '%s': dimension %zu of its shape is wrong", path,
				       name, i);
		out->dim[i] = value;
	}
	return BETON_OK;
}

static int parse_entry(const char *path, const char *name, json_t *value, safetensors_entry *out, beton_error *err)
{
	const char *type = json_string_value(json_object_get(value, "dtype"));
	const json_t *offsets = json_object_get(value, "data_offsets");
	const json_t *begin = json_array_get(offsets, 0);
	const json_t *end = json_array_get(offsets, 1);
	if (!type || json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
	    json_object_size(value) != 3)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' does not have dtype, shape and data_offsets", path,
			       name);
	size_t kind = 0;
	while (kind < sizeof(types) / sizeof(types[0]) && strcmp(types[kind].name, type) != 0)
		kind++;
	if (kind == sizeof(types) / sizeof(types[0]))
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s' has an unknown dtype '%s'", path, name, type);
	uint64_t bits = 0;
	int status = parse_shape(path, name, json_object_get(value, "shape"), &out->shape, &bits, err);
	if (status != BETON_OK)
		return status;
	json_int_t first = json_integer_value(begin);
	json_int_t last = json_integer_value(end);
	if (__builtin_mul_overflow(bits, (uint64_t)types[kind].bits, &bits) || bits % 8 != 0 || first < 0 ||
	    last < first || (uint64_t)(last - first) != bits / 8)
		return bt_fail(err, BETON_FORMAT, "%s: tensor '%s': its data_offsets do not fit its dtype and shape",
			       path, name);
	out->dtype = (dtrain_dtype)types[kind].dtype;
	out->type = types[kind].name;
	out->offset = (uint64_t)first;
	out->bytes = (uint64_t)(last - first);
	out->name = strdup(name);
	return out->name ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

static int compare_for_reading(const void *a, const void *b)
{
	const safetensors_entry *x = a;
	const safetensors_entry *y = b;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int check_metadata(const char *path, json_t *metadata, beton_error *err)
{
	const char *key;
	json_t *value;
	bool good = json_is_object(metadata);
	json_object_foreach(metadata, key, value) good = good && json_is_string(value);
	return good ? BETON_OK : bt_fail(err, BETON_FORMAT, "%s: __metadata__ is not a list of texts", path);
}

/* On return, offsets count from data_start. */
static int check_coverage(safetensors_file *file, uint64_t data_start, beton_error *err)
{
	uint64_t at = 0;
	for (size_t i = 0; i < file->count; i++) {
		safetensors_entry *entry = &file->entries[i];
		if (entry->offset != at)
			return bt_fail(err, BETON_FORMAT,
				       "%s: tensor '%s' starts at %" PRIu64 " of the data, %" PRIu64 " was expected",
				       file->path, entry->name, entry->offset, at);
		at += entry->bytes;
		entry->offset += data_start;
	}
	uint64_t there = file->size - data_start;
	if (at == there)
		return BETON_OK;
	return bt_fail(err, at > there ? BETON_TRUNCATED : BETON_FORMAT,
		       "%s: holds %" PRIu64 " bytes of tensors, its header says %" PRIu64, file->path, there, at);
}

static int parse_header(safetensors_file *file, json_t *header, uint64_t data_start, beton_error *err)
{
	if (!json_is_object(header))
		return bt_fail(err, BETON_FORMAT, "%s: the header is not an object", file->path);
	file->entries = calloc(json_object_size(header) + 1, sizeof(*file->entries));
	if (!file->entries)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", file->path);
	const char *name;
	json_t *value;
	json_object_foreach(header, name, value)
	{
		bool metadata = strcmp(name, "__metadata__") == 0;
		int status = metadata ? check_metadata(file->path, value, err)
				      : parse_entry(file->path, name, value, &file->entries[file->count], err);
		if (status != BETON_OK)
			return status;
		if (metadata)
			file->metadata = json_incref(value);
		file->count += !metadata;
	}
	qsort(file->entries, file->count, sizeof(*file->entries), compare_for_reading);
	return check_coverage(file, data_start, err);
}

static int read_header(safetensors_file *file, beton_error *err)
{
	uint64_t length;
	struct stat info;
	if (fstat(file->fd, &info) != 0)
		return bt_fail_errno(err, errno, "%s: cannot stat", file->path);
	if (!S_ISREG(info.st_mode))
		return bt_fail(err, BETON_FORMAT, "%s: is not a regular file", file->path);
	file->size = (uint64_t)info.st_size;
	if (file->size < LENGTH_BYTES)
		return bt_fail(err, BETON_TRUNCATED, "%s: has %" PRIu64 " bytes, a safetensors file at least %d",
			       file->path, file->size, LENGTH_BYTES);
	if (bt_pread_full(file->fd, &length, LENGTH_BYTES, 0) != LENGTH_BYTES)
		return bt_fail(err, BETON_IO, "%s: cannot read the header's length", file->path);
	length = le64toh(length);
	if (length > HEADER_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: the header's length %" PRIu64 " is above %" PRIu64, file->path,
			       length, HEADER_MAX);
	if (length > file->size - LENGTH_BYTES)
		return bt_fail(err, BETON_TRUNCATED, "%s: the header of %" PRIu64 " bytes does not fit into %" PRIu64,
			       file->path, length, file->size);
	char *text = malloc(length ? length : 1);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the header", file->path);
	int status = BETON_OK;
	json_error_t problem;
	json_t *header = NULL;
	if (bt_pread_full(file->fd, text, length, LENGTH_BYTES) != (ssize_t)length)
		status = bt_fail(err, BETON_IO, "%s: cannot read the header", file->path);
	else if (length == 0 || text[0] != '{')
		status = bt_fail(err, BETON_FORMAT, "%s: the header does not start with '{'", file->path);
	else if (!(header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem)))
		status = bt_fail(err, BETON_FORMAT, "%s: the header is not JSON: %s", file->path, problem.text);
	else
		status = parse_header(file, header, LENGTH_BYTES + length, err);
	json_decref(header);
	free(text);
	return status;
}

/* Replaces the fault of a header by what the file is instead, if that is known. */
static void tell_kind(const safetensors_file *file, int status, beton_error *err)
{
	uint8_t head[BT_FILE_HEAD];
	ssize_t size = bt_pread_full(file->fd, head, sizeof(head), 0);
	const bt_file_kind *kind = size < 0 ? NULL : bt_file_kind_of(file->path, head, (size_t)size);
	if (kind && !bt_file_kind_is_safetensors(kind))
		bt_fail(err, status, "%s: %s, not a safetensors file; %s", file->path, kind->what, kind->use);
}

int dtrain__safetensors_open(safetensors_file *file, const char *path, beton_error *err)
{
	*file = (safetensors_file){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .path = strdup(path)};
	int status = BETON_OK;
	if (file->fd < 0)
		status = bt_fail_errno(err, errno, "%s: cannot open", path);
	else if (!file->path)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else
		status = read_header(file, err);
	if (status == BETON_FORMAT || status == BETON_TRUNCATED)
		tell_kind(file, status, err);
	if (status != BETON_OK)
		dtrain__safetensors_close(file);
	return status;
}

void dtrain__safetensors_close(safetensors_file *file)
{
	for (size_t i = 0; i < file->count; i++)
		free((void *)file->entries[i].name);
	free(file->entries);
	json_decref(file->metadata);
	free(file->path);
	if (file->fd >= 0)
		close(file->fd);
	*file = (safetensors_file){.fd = -1};
}

const safetensors_entry *dtrain__safetensors_find(const safetensors_file *file, const char *name)
{
	for (size_t i = 0; i < file->count; i++)
		if (strcmp(file->entries[i].name, name) == 0)
			return &file->entries[i];
	return NULL;
}

int dtrain__safetensors_read(const safetensors_file *file, const safetensors_entry *entry, void *destination,
			     beton_error *err)
{
	ssize_t got = bt_pread_full(file->fd, destination, entry->bytes, entry->offset);
	if (got < 0)
		return bt_fail_errno(err, errno, "%s: cannot read tensor '%s'", file->path, entry->name);
	if ((uint64_t)got != entry->bytes)
		return bt_fail(err, BETON_TRUNCATED, "%s: ends inside tensor '%s'", file->path, entry->name);
	return BETON_OK;
}
