/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "tools/beton-write/convert.h"
#include "tools/beton-write/images/image.h"
#include "tools/beton-write/sources/paths.h"

int manifest_init(manifest *self, const char *kind, const source_ops *ops, const source_spec *spec, beton_error *err)
{
	int result = source_init(&self->base, kind, ops, spec->argument, err);
	if (result != BETON_OK)
		return result;
	self->has_fields = spec->has_fields;
	self->base.root = spec->root ? strdup(spec->root) : path_folder(spec->argument);
	if (!self->base.root)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	if (!*self->base.root)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--root: the name of the folder is empty");
	return row_index_open(&self->rows, self->base.name, spec->interrupt, err);
}

void manifest_release(manifest *self)
{
	row_index_close(&self->rows);
	name_list_free(&self->remarks);
}

size_t manifest_mark_size(const char *text, size_t size)
{
	static const char mark[] = "\xef\xbb\xbf";
	return size >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
}

char *manifest_row_name(const manifest *self, uint64_t row)
{
	return bt_format("%s: row %llu", self->rows.path, (unsigned long long)row);
}

int manifest_set_text(raw_value *value, raw_kind kind, const char *text, size_t size, beton_error *err)
{
	char *copy = malloc(size + 1);
	if (!copy)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a cell of %zu bytes", size);
	if (size)
		memcpy(copy, text, size);
	copy[size] = 0;
	*value = (raw_value){.kind = kind, .data = copy, .size = size, .owned = copy};
	return BETON_OK;
}

static column_type type_of_text(const raw_value *value)
{
	const char *text = value->data;
	char *end;
	if (value->size == 0 || strlen(text) != value->size)
		return COLUMN_BYTES;
	errno = 0;
	strtoll(text, &end, 10);
	if (*end == 0)
		return errno == 0 ? COLUMN_INT : COLUMN_BYTES; /* a float would not hold all of its digits */
	strtod(text, &end);
	return *end == 0 ? COLUMN_FLOAT : COLUMN_BYTES;
}

/* Whether the name, without blanks and the like and in any case, is one of the list, which ends with NULL. */
static bool is_one_of(const char *name, const char *const *names)
{
	char plain[24];
	size_t length = 0;
	for (; *name && length + 1 < sizeof(plain); name++)
		if (!strchr("_- ", *name))
			plain[length++] = *name;
	plain[length] = 0;
	for (; *names && !*name; names++)
		if (strcasecmp(plain, *names) == 0)
			return true;
	return false;
}

/* Whether the name suggests a column of names of classes, like "label" or "class_name". */
static bool is_class_name(const char *name)
{
	static const char *const names[] = {"label",      "labels",   "labelname",    "labeltext", "class", "classname",
					    "classlabel", "category", "categoryname", "target",    NULL};
	return is_one_of(name, names);
}

/* Whether the name suggests a column of picture paths, like "image_path" or "FileName". */
static bool is_picture_name(const char *name)
{
	static const char *const names[] = {
		"image",       "img",           "picture",     "photo",       "path",
		"file",        "filename",      "filepath",    "imagepath",   "imgpath",
		"imagefile",   "imgfile",       "imagename",   "imgname",     "imagefilename",
		"imgfilename", "imagefilepath", "imgfilepath", "picturepath", "picturefile",
		"photopath",   "photofile",     NULL,
	};
	return is_one_of(name, names);
}

/* Whether the text names a picture that is there. */
static bool names_picture(const manifest *self, const raw_value *text)
{
	uint8_t head[12];
	struct stat status;
	char *path = NULL;
	if (text->kind != RAW_TEXT || convert_path(&self->base, "", text->data, text->size, &path, NULL) != BETON_OK)
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	free(path);
	if (fd < 0)
		return false;
	ssize_t got =
		fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? bt_pread_full(fd, head, sizeof(head), 0) : -1;
	close(fd);
	return got > 0 && image_kind_of(head, (size_t)got) != IMAGE_UNKNOWN;
}

/* Whether it seems to. */
static bool looks_like_picture(const raw_value *text)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings) && text->kind == RAW_TEXT; i++)
		if (path_ends_with(text->data, endings[i]))
			return true;
	return false;
}

bool manifest_is_value(const manifest *self, const raw_value *text)
{
	column_type type = type_of_text(text);
	const char *first = text->data;
	/* A column may be called "inf". */
	bool number = (type == COLUMN_INT || type == COLUMN_FLOAT) && strpbrk(first, "0123456789");
	return number || looks_like_picture(text) || names_picture(self, text);
}

static int add_remark(manifest *self, const char *name, const raw_value *first, beton_error *err)
{
	char *remark = strdup("");
	if (looks_like_picture(first)) {
		free(remark);
		remark = bt_format(
			"%s: the column '%s' is stored as text: its first value, '%s', is not a picture in %s; "
			"--root=FOLDER says where paths begin, --fields=image=%s:image,... what is a picture",
			self->base.name, name, (const char *)first->data, self->base.root, name);
	}
	int result = remark ? name_list_add(&self->remarks, remark, err)
			    : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
	free(remark);
	return result;
}

int manifest_add_column(manifest *self, const char *name, const raw_value *first, beton_error *err)
{
	static const column_type types[] = {
		[RAW_MISSING] = COLUMN_BYTES, [RAW_INT] = COLUMN_INT,    [RAW_REAL] = COLUMN_FLOAT,
		[RAW_TEXT] = COLUMN_BYTES,    [RAW_JSON] = COLUMN_JSON,  [RAW_FILE] = COLUMN_BYTES,
		[RAW_PATH] = COLUMN_BYTES,    [RAW_ARRAY] = COLUMN_ARRAY};
	if (source_find_column(&self->base, name) >= 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: two columns are called '%s'", self->base.name, name);
	/* JSON's texts are not numbers, even if they look like it; CSV has only texts. */
	bool guess = first->kind == RAW_TEXT && strcmp(self->base.kind, "csv") == 0;
	column_type type = guess ? type_of_text(first) : types[first->kind];
	if (names_picture(self, first))
		type = COLUMN_IMAGE;
	else if (type == COLUMN_BYTES && first->kind == RAW_TEXT && first->size > 0 && is_class_name(name))
		type = COLUMN_CLASS;
	int result = source_add_column(&self->base, name, name, type, err);
	return result == BETON_OK ? add_remark(self, name, first, err) : result;
}

/* The column that becomes the field `image`, or NULL. */
static source_column *choose_picture(manifest *self)
{
	bool texts = strcmp(self->base.kind, "csv") == 0; /* whatever they look like */
	source_column *chosen = NULL;
	source_column *called = NULL;
	bool taken = false; /* the name, by something else */
	for (uint32_t i = 0; i < self->base.num_columns; i++) {
		source_column *column = &self->base.columns[i];
		bool image = strcmp(column->name, "image") == 0;
		if (column->type == COLUMN_IMAGE && (!chosen || image))
			chosen = column;
		taken |= image && column->type != COLUMN_IMAGE;
		if ((column->type == COLUMN_BYTES || texts) && !called && is_picture_name(column->name))
			called = column;
	}
	return !chosen ? called : taken ? NULL : chosen;
}

/* Chooses the column that becomes the field `label`: classes by name, the column `label` before others. The others are
 * text. */
static int choose_class(manifest *self, beton_error *err)
{
	source *base = &self->base;
	int64_t label = source_find_column(base, "label");
	int64_t chosen = label >= 0 && base->columns[label].type == COLUMN_CLASS ? label : -1;
	for (uint32_t i = 0; i < base->num_columns; i++) {
		source_column *column = &base->columns[i];
		if (column->type != COLUMN_CLASS)
			continue;
		/* A column `label` of numbers is the label. */
		if (chosen < 0 && label < 0)
			chosen = i;
		if (i != chosen)
			column->type = COLUMN_BYTES;
	}
	if (chosen < 0)
		return BETON_OK;
	char *field = strdup("label");
	if (!field)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	free(base->columns[chosen].field);
	base->columns[chosen].field = field;
	return BETON_OK;
}

int manifest_end_columns(manifest *self, beton_error *err)
{
	source_column *chosen = choose_picture(self);
	if (chosen) {
		char *field = strdup("image");
		if (!field)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->base.name);
		free(chosen->field);
		chosen->field = field;
		chosen->type = COLUMN_IMAGE;
	}
	int result = choose_class(self, err);
	for (uint32_t i = 0; i < self->base.num_columns && result == BETON_OK && !self->has_fields; i++)
		if (self->base.columns[i].type != COLUMN_IMAGE && *self->remarks.names[i])
			result = name_list_add(&self->base.notes.remarks, self->remarks.names[i], err);
	return result;
}
