/* SPDX-License-Identifier: Apache-2.0 */
#include "convert.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/beton-write/images/file_bytes.h"
#include "tools/beton-write/images/image_convert.h"
#include "tools/beton-write/sources/class_names.h"
#include "tools/beton-write/sources/npy.h"

/* A number in a text is at most this long. */
#define NUMBER_MAX 64

/* State of the conversion of one value. */
typedef struct context {
	const source *from;
	const beton_field *field;
	const source_column *column;
	const image_settings *images;
	const char *name; /* of the item */
	raw_value *raw;
	beton_input *input;
	void **owned;
	beton_jpeg_index **index;
	const field_plan *plan;
	uint32_t number;  /* of the field */
	char **source;    /* of the sample */
	uint64_t *files;  /* bytes of picture files of the sample so far */
	uint64_t *pixels; /* bytes of raw pixels that were made of them */
} context;

int converted_make(converted *values, uint32_t count, beton_error *err)
{
	*values = (converted){.count = count};
	values->inputs = calloc(count ? count : 1, sizeof(*values->inputs));
	values->owned = calloc(count ? count : 1, sizeof(*values->owned));
	values->indexes = calloc(count ? count : 1, sizeof(*values->indexes));
	if (values->inputs && values->owned && values->indexes)
		return BETON_OK;
	converted_free(values);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u fields", count);
}

void converted_clear(converted *values)
{
	for (uint32_t i = 0; values->inputs && values->owned && values->indexes && i < values->count; i++) {
		free(values->owned[i]);
		free(values->indexes[i]);
		values->owned[i] = NULL;
		values->indexes[i] = NULL;
		values->inputs[i] = (beton_input){0};
	}
	values->bytes = values->files = values->pixels = 0;
	free(values->source);
	values->source = NULL;
}

void converted_free(converted *values)
{
	converted_clear(values);
	free(values->inputs);
	free(values->owned);
	free(values->indexes);
	*values = (converted){0};
}

BETON_PRINTF(3, 4) static int bad_value(const context *self, beton_error *err, const char *format, ...)
{
	char text[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: '%s' %s", self->name, self->column->name, text);
}

/* The same for a value that is not of the type that its column was taken for: says with which option it would be. */
BETON_PRINTF(4, 5)
static int wrong_guess(const context *self, const char *type, beton_error *err, const char *format, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	char *fields = field_plan_text(self->plan, self->from, self->number, type);
	int result = fields ? bad_value(self, err, "%s; --fields=%s takes it", text, fields)
			    : bad_value(self, err, "%s", text);
	free(fields);
	return result;
}

int convert_path(const source *from, const char *item_name, const char *text, size_t size, char **path,
		 beton_error *err)
{
	*path = NULL;
	if (size == 0 || memchr(text, 0, size))
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: a path that is %s", item_name,
			       size ? "cut by a NUL byte" : "empty");
	for (const char *part = text; part; part = strchr(part, '/')) {
		part += part[0] == '/';
		if (strncmp(part, "..", 2) == 0 && (part[2] == 0 || part[2] == '/'))
			return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: the path '%s' has '..' in it; see --root",
				       item_name, text);
	}
	size_t root_length = strlen(from->root);
	while (root_length > 0 && from->root[root_length - 1] == '/')
		root_length--;
	if (text[0] != '/')
		*path = bt_format("%s%s%s", from->root, from->root[strlen(from->root) - 1] == '/' ? "" : "/", text);
	else if (from->root[0] == '/' && strncmp(text, from->root, root_length) == 0 && text[root_length] == '/')
		*path = strdup(text);
	else
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: the path '%s' is outside %s; see --root", item_name,
			       text, from->root);
	return *path ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", item_name);
}

static int read_named(const char *item_name, const char *path, file_bytes *file, beton_error *err)
{
	int result = file_bytes_read(path, file, err);
	/* A folder's item has the path as its name; a table's has its row. */
	if (result != BETON_OK && strcmp(item_name, path) != 0)
		bt_prefix(err, "%s", item_name);
	return result;
}

/* The file that a value is or names; its memory becomes the caller's, the item's value loses it. */
static int take_file(const source *from, const char *item_name, raw_value *raw, file_bytes *file, beton_error *err)
{
	*file = (file_bytes){0};
	if (raw->kind == RAW_PATH)
		return read_named(item_name, raw->data, file, err);
	if (raw->kind == RAW_FILE) {
		*file = (file_bytes){raw->owned, raw->size};
		raw->owned = NULL;
		return BETON_OK;
	}
	char *path;
	int result = convert_path(from, item_name, raw->data, raw->size, &path, err);
	if (result == BETON_OK)
		result = read_named(item_name, path, file, err);
	free(path);
	return result;
}

static bool names_file(const source *from, const raw_value *raw)
{
	return raw->kind == RAW_PATH || raw->kind == RAW_FILE || (raw->kind == RAW_TEXT && from->root);
}

/* The text of a number, without blanks around it. */
static int number_text(const context *self, char text[NUMBER_MAX], beton_error *err)
{
	const char *begin = self->raw->data;
	size_t size = self->raw->size;
	while (size > 0 && strchr(" \t\r\n", begin[size - 1]) && begin[size - 1])
		size--;
	while (size > 0 && strchr(" \t\r\n", *begin) && *begin) {
		begin++;
		size--;
	}
	if (size == 0)
		return bad_value(self, err, "is empty, not a number");
	if (size >= NUMBER_MAX || memchr(begin, 0, size))
		return wrong_guess(self, "text", err, "is not a number: %.*s", size < 40 ? (int)size : 40, begin);
	memcpy(text, begin, size);
	text[size] = 0;
	return BETON_OK;
}

/* One element, whatever its shape. */
static bool is_scalar(const raw_value *raw)
{
	return raw->kind == RAW_ARRAY && raw->size == raw->array->item_size;
}

static bool is_table(const source *from)
{
	return from->root != NULL;
}

static int convert_class(const context *self, beton_error *err)
{
	self->input->integer = class_names_find(&self->from->classes, self->raw);
	return self->input->integer >= 0 ? BETON_OK : bad_value(self, err, "names no class");
}

static int convert_int(const context *self, beton_error *err)
{
	const raw_value *raw = self->raw;
	if (self->plan->classes[self->number])
		return convert_class(self, err);
	if (raw->kind == RAW_INT) {
		self->input->integer = raw->integer;
		return BETON_OK;
	}
	if (is_scalar(raw)) {
		if (!array_read_int(raw->array, raw->data, &self->input->integer))
			return bad_value(self, err, "is not a whole number that fits 64 bits with a sign");
		return BETON_OK;
	}
	if (raw->kind == RAW_REAL)
		return wrong_guess(self, "float", err, "is not a whole number: %.17g", raw->real);
	if (raw->kind != RAW_TEXT && raw->kind != RAW_FILE)
		return bad_value(self, err, "is not a whole number");
	char text[NUMBER_MAX];
	int result = number_text(self, text, err);
	if (result != BETON_OK)
		return result;
	if (bt_type_of(self->field->type)->parse(text, self->input))
		return BETON_OK;
	char *end;
	strtod(text, &end);
	return wrong_guess(self,
			   *end == 0              ? "float"
			   : is_table(self->from) ? "class"
						  : "text",
			   err, "is not a whole number%s: %s", errno == ERANGE ? " of 64 bits with a sign" : "", text);
}

static int convert_float(const context *self, beton_error *err)
{
	const raw_value *raw = self->raw;
	if (raw->kind == RAW_REAL || raw->kind == RAW_INT) {
		self->input->real = raw->kind == RAW_REAL ? raw->real : (double)raw->integer;
		return BETON_OK;
	}
	if (is_scalar(raw)) {
		if (!array_read_real(raw->array, raw->data, &self->input->real))
			return bad_value(self, err, "is not a real number");
		return BETON_OK;
	}
	if (raw->kind != RAW_TEXT && raw->kind != RAW_FILE)
		return bad_value(self, err, "is not a number");
	char text[NUMBER_MAX];
	int result = number_text(self, text, err);
	if (result != BETON_OK)
		return result;
	if (bt_type_of(self->field->type)->parse(text, self->input))
		return BETON_OK;
	char *end;
	strtod(text, &end);
	return wrong_guess(self, "text", err, "is not a number%s: %s", *end ? "" : " that 64 bits can hold", text);
}

/* Pixels: uint8, height x width with 3 values, 1 value or no third dimension. */
static int take_pixels(const context *self, rgb_image *image, beton_error *err)
{
	const array_type *type = self->raw->array;
	uint64_t depth = type->ndim == 3 ? type->shape[2] : 1;
	if (strcmp(type->dtype + 1, "u1") != 0 || (type->ndim != 2 && type->ndim != 3) || (depth != 1 && depth != 3))
		return bad_value(self, err, "is not a picture: that is an array of uint8, height x width (x 3 or 1)");
	int result = image_allocate(image, type->shape[1], type->shape[0], self->name, err);
	if (result != BETON_OK)
		return result;
	const uint8_t *from = self->raw->data;
	size_t pixels = (size_t)image->width * image->height;
	if (depth == 3)
		memcpy(image->data, from, pixels * 3);
	else
		for (size_t i = 0; i < pixels; i++)
			memset(image->data + 3 * i, from[i], 3);
	return BETON_OK;
}

/* The path in a table, below its root: where the sample comes from, if its row has nothing else to say. */
static int note_source(const context *self, beton_error *err)
{
	const char *path = self->raw->data;
	if (self->raw->kind != RAW_TEXT || *self->source)
		return BETON_OK;
	/* convert_path has seen to it that an absolute one begins with root. */
	if (*path == '/')
		for (const char *root = self->from->root; *root && *path == *root; root++)
			path++;
	path += strspn(path, "/");
	*self->source = strdup(path);
	return *self->source ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
}

/* The row of a table says nothing about the picture. The caller frees the name; NULL: no memory. */
static char *picture_name(const char *item_name, const raw_value *raw)
{
	return raw->kind == RAW_TEXT ? bt_format("%s: %s", item_name, (const char *)raw->data) : strdup(item_name);
}

static int convert_picture_file(const context *self, stored_image *stored, beton_error *err)
{
	char *name = picture_name(self->name, self->raw);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	file_bytes file;
	int result = take_file(self->from, self->name, self->raw, &file, err);
	if (result == BETON_OK)
		result = note_source(self, err);
	if (result == BETON_OK)
		*self->files += file.size;
	if (result == BETON_OK)
		result = image_convert(&file, name, self->images, stored, err);
	if (result == BETON_OK && stored->mode == BETON_IMAGE_RAW)
		*self->pixels += stored->size;
	free(file.data);
	free(name);
	return result;
}

static int convert_image(const context *self, beton_error *err)
{
	stored_image stored = {0};
	int result;
	if (self->raw->kind == RAW_ARRAY) {
		rgb_image image = {0};
		result = take_pixels(self, &image, err);
		if (result == BETON_OK)
			result = image_convert_pixels(&image, self->name, self->images, &stored, err);
		free(image.data);
	} else if (names_file(self->from, self->raw)) {
		result = convert_picture_file(self, &stored, err);
	} else {
		result = bad_value(self, err, "is not a picture");
	}
	*self->owned = stored.data;
	*self->index = stored.index;
	self->input->jpeg_index = stored.index;
	self->input->data = stored.data;
	self->input->size = stored.size;
	self->input->mode = stored.mode;
	self->input->width = stored.width;
	self->input->height = stored.height;
	return result;
}

/* Reads the raster that raw is or names. Its file's memory stays raw's only if that is the file. */
static int read_raster(const source *from, const char *item_name, raw_value *raw, const raster_request *request,
		       raster_image *out, uint64_t *files, beton_error *err)
{
	if (raw->kind == RAW_ARRAY)
		return raster_read_array(raw->array, raw->data, request, out, err);
	file_bytes file = {.data = raw->owned, .size = raw->size};
	int result = raw->kind == RAW_FILE ? BETON_OK : take_file(from, item_name, raw, &file, err);
	if (result == BETON_OK)
		result = raster_read(&file, request, out, err);
	*files += file.size;
	if (raw->kind != RAW_FILE)
		free(file.data);
	return result;
}

static bool is_raster(const source *from, const raw_value *raw)
{
	return raw->kind == RAW_ARRAY || names_file(from, raw);
}

/* Every raster of a field has as many channels and bits as the first one. */
static int check_raster(const context *self, const char *name, const raster_type *type, beton_error *err)
{
	const beton_field *field = self->field;
	if (type->channels == field->shape[0] && type->item_size == field->item_size)
		return BETON_OK;
	return bt_fail(err, BETON_SAMPLE_CORRUPT,
		       "%s: '%s' has %u channels of %u bits, and the first one, %s, has %llu of %u", name,
		       self->column->name, type->channels, 8 * type->item_size, self->plan->first[self->number],
		       (unsigned long long)field->shape[0], 8 * field->item_size);
}

static int convert_raster(const context *self, beton_error *err)
{
	if (!is_raster(self->from, self->raw))
		return bad_value(self, err, "is neither a file nor an array");
	char *name = picture_name(self->name, self->raw);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	const raster_request request = {.name = name, .max_pixels = self->images->max_pixels};
	raster_image raster = {0};
	int result = read_raster(self->from, self->name, self->raw, &request, &raster, self->files, err);
	if (result == BETON_OK)
		result = note_source(self, err);
	if (result == BETON_OK)
		result = check_raster(self, name, &raster.type, err);
	*self->owned = raster.data;
	self->input->data = raster.data;
	self->input->size = (uint64_t)raster.width * raster.height * raster.type.channels * raster.type.item_size;
	self->input->width = raster.width;
	self->input->height = raster.height;
	*self->pixels += self->input->size;
	free(name);
	return result;
}

int convert_raster_type(const source *from, const source_item *item, uint32_t column, named_raster *out,
			beton_error *err)
{
	raw_value *raw = &item->values[column];
	if (raw->kind == RAW_MISSING || !is_raster(from, raw))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: '%s' %s, so that the channels of its rasters are unknown", item->name,
			       from->columns[column].name,
			       raw->kind == RAW_MISSING ? "is missing" : "is neither a file nor an array");
	char *name = picture_name(item->name, raw);
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", item->name);
	const raster_request request = {.name = name, .max_pixels = UINT64_MAX, .facts_only = !from->skip_bad};
	raster_image raster = {0};
	uint64_t files = 0;
	int result = read_raster(from, item->name, raw, &request, &raster, &files, err);
	free(raster.data);
	*out = (named_raster){.type = raster.type, .name = result == BETON_OK ? name : NULL};
	if (result != BETON_OK)
		free(name);
	return result;
}

/* The raw bytes as they are, which stay the item's or become the sample's. */
static void take_bytes(const context *self)
{
	*self->owned = self->raw->owned;
	self->raw->owned = NULL;
	self->input->data = self->raw->data;
	self->input->size = self->raw->size;
}

static int convert_bytes(const context *self, beton_error *err)
{
	if (self->raw->kind == RAW_PATH) {
		file_bytes file;
		int result = take_file(self->from, self->name, self->raw, &file, err);
		*self->owned = file.data;
		self->input->data = file.data;
		self->input->size = file.size;
		return result;
	}
	if (self->raw->kind != RAW_TEXT && self->raw->kind != RAW_FILE && self->raw->kind != RAW_JSON)
		return bad_value(self, err, "is a number or array, which cannot be stored as bytes");
	take_bytes(self);
	return BETON_OK;
}

static int convert_json(const context *self, beton_error *err)
{
	char number[32] = "";
	if (self->raw->kind == RAW_INT)
		snprintf(number, sizeof(number), "%lld", (long long)self->raw->integer);
	if (self->raw->kind == RAW_REAL)
		snprintf(number, sizeof(number), "%.17g", self->raw->real);
	if (*number) {
		*self->owned = strdup(number);
		self->input->data = *self->owned;
		self->input->size = strlen(number);
		return *self->owned ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->name);
	}
	int result = self->raw->kind == RAW_ARRAY ? bad_value(self, err, "is an array, which cannot be stored as JSON")
						  : convert_bytes(self, err);
	if (result != BETON_OK || self->raw->kind == RAW_JSON)
		return result;
	json_error_t fault;
	json_t *root = json_loadb(self->input->data ? self->input->data : "", (size_t)self->input->size,
				  JSON_DECODE_ANY | JSON_ALLOW_NUL, &fault);
	if (!root)
		return bad_value(self, err, "is not JSON: line %d: %s", fault.line, fault.text);
	json_decref(root);
	return BETON_OK;
}

/* The array that a file holds; *elements points into it. */
static int parse_array(const char *item_name, const file_bytes *file, array_type *type, const uint8_t **elements,
		       beton_error *err)
{
	size_t offset;
	int result =
		npy_parse(file->data ? file->data : (const uint8_t *)"", file->size, item_name, type, &offset, err);
	uint64_t bytes;
	if (result != BETON_OK || !array_bytes(type, &bytes))
		return result;
	if (file->size - offset != bytes)
		return bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: an array of %zu bytes where its header promises %llu",
			       item_name, file->size - offset, (unsigned long long)bytes);
	*elements = file->data + offset;
	return BETON_OK;
}

static bool same_type(const beton_field *field, const array_type *type)
{
	if (strcmp(field->dtype, type->dtype) != 0)
		return false;
	if (type->ndim == 0)
		return field->ndim == 1 && field->shape[0] == 1;
	return field->ndim == type->ndim && memcmp(field->shape, type->shape, type->ndim * sizeof(*type->shape)) == 0;
}

/* "<f4[3,4]" */
static void print_type(char *text, size_t size, const char *dtype, uint32_t ndim, const uint64_t *shape)
{
	size_t used = (size_t)snprintf(text, size, "%s[", dtype);
	for (uint32_t i = 0; i < ndim && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%llu", i ? "," : "",
					 (unsigned long long)shape[i]);
	if (used < size)
		snprintf(text + used, size - used, "]");
}

static int check_type(const context *self, const array_type *type, beton_error *err)
{
	char found[80];
	char expected[80];
	if (same_type(self->field, type))
		return BETON_OK;
	print_type(found, sizeof(found), type->dtype, type->ndim, type->shape);
	print_type(expected, sizeof(expected), self->field->dtype, self->field->ndim, self->field->shape);
	return bad_value(self, err, "is an array %s, and the first one was %s", found, expected);
}

static int convert_array(const context *self, beton_error *err)
{
	if (self->raw->kind == RAW_ARRAY) {
		int result = check_type(self, self->raw->array, err);
		if (result == BETON_OK)
			take_bytes(self);
		return result;
	}
	if (!names_file(self->from, self->raw))
		return bad_value(self, err, "is not an array");
	file_bytes file;
	array_type type;
	const uint8_t *elements = NULL;
	int result = take_file(self->from, self->name, self->raw, &file, err);
	*self->owned = file.data;
	if (result == BETON_OK)
		result = parse_array(self->name, &file, &type, &elements, err);
	if (result == BETON_OK)
		result = check_type(self, &type, err);
	if (result != BETON_OK)
		return result;
	self->input->data = elements;
	self->input->size = file.size - (size_t)(elements - file.data);
	return BETON_OK;
}

static int convert_value(const context *self, beton_error *err)
{
	if (self->raw->kind == RAW_MISSING)
		return bad_value(self, err, "is missing");
	switch (bt_form_of(self->field->type)) {
	case BT_FORM_INTEGER:
		return convert_int(self, err);
	case BT_FORM_REAL:
		return convert_float(self, err);
	case BT_FORM_IMAGE:
		return convert_image(self, err);
	case BT_FORM_TEXT:
		return convert_json(self, err);
	case BT_FORM_ARRAY:
		return convert_array(self, err);
	case BT_FORM_RASTER:
		return convert_raster(self, err);
	case BT_FORM_BYTES:
	case BT_FORM_OTHER:
		break;
	}
	return convert_bytes(self, err);
}

int convert_item(const converter *self, source_item *item, converted *values, beton_error *err)
{
	values->source = item->source;
	item->source = NULL;
	for (uint32_t i = 0; i < self->plan->count; i++) {
		uint32_t column = self->plan->columns[i];
		const context value = {.from = self->from,
				       .field = &self->plan->fields[i],
				       .column = &self->from->columns[column],
				       .images = self->images,
				       .name = item->name,
				       .raw = &item->values[column],
				       .input = &values->inputs[i],
				       .owned = &values->owned[i],
				       .index = &values->indexes[i],
				       .plan = self->plan,
				       .number = i,
				       .source = &values->source,
				       .files = &values->files,
				       .pixels = &values->pixels};
		int result = convert_value(&value, err);
		if (result != BETON_OK)
			return result;
		values->bytes += value.input->size;
	}
	return BETON_OK;
}

int convert_array_type(const source *from, const source_item *item, uint32_t column, array_type *type, beton_error *err)
{
	raw_value *raw = &item->values[column];
	if (raw->kind == RAW_ARRAY) {
		*type = *raw->array;
		return BETON_OK;
	}
	if (raw->kind == RAW_MISSING || !names_file(from, raw))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' %s, so that the shape of its arrays is unknown",
			       item->name, from->columns[column].name,
			       raw->kind == RAW_MISSING ? "is missing" : "is not an array");
	file_bytes file = {.data = raw->owned, .size = raw->size};
	const uint8_t *elements;
	int result = BETON_OK;
	if (raw->kind != RAW_FILE)
		result = take_file(from, item->name, raw, &file, err);
	if (result == BETON_OK)
		result = parse_array(item->name, &file, type, &elements, err);
	if (raw->kind != RAW_FILE)
		free(file.data);
	return result;
}
