/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV manifests: the first row, or --columns, names the columns. The first row also tells what separates the cells:
 * tabs in a .tsv file, commas in others, and semicolons where a spreadsheet program writes numbers with commas. */
#include <stdlib.h>
#include <string.h>

#include <csv.h>

#include "common/error.h"
#include "manifest.h"
#include "tools/beton-write/sources/paths.h"
#include "tools/beton-write/sources/sources.h"

#define COLUMNS_MAX 4096

typedef struct csv_source {
	manifest manifest;
	char delimiter;
	bool has_delimiter;  /* it was found in the first row */
	const char *columns; /* --columns, or NULL: the first row has the names; borrowed until the source is open */
	uint64_t first;      /* row of the first sample */
} csv_source;

/* step: bytes by which the room for a cell grows. */
static int init_parser(const csv_source *self, struct csv_parser *parser, size_t step, beton_error *err)
{
	if (csv_init(parser, CSV_STRICT | CSV_STRICT_FINI) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->manifest.base.name);
	csv_set_delim(parser, (unsigned char)self->delimiter);
	csv_set_blk_size(parser, step);
	return BETON_OK;
}

/* ---- finding the rows ---- */

typedef struct row_finder {
	csv_source *from;
	struct csv_parser parser;
	uint64_t begin; /* of the row that is being read */
	uint64_t ended; /* rows that ended in the line that was given last */
} row_finder;

static void count_row(int terminator, void *data)
{
	(void)terminator;
	((row_finder *)data)->ended++;
}

static int bad_row(const row_finder *self, beton_error *err)
{
	const row_index *rows = &self->from->manifest.rows;
	if (csv_error((struct csv_parser *)&self->parser) == CSV_ENOMEM)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", rows->path);
	return bt_fail(err, BETON_FORMAT, "%s: row %llu: the quotes are wrong", rows->path,
		       (unsigned long long)rows->count + 1);
}

static size_t count_outside_quotes(const char *line, size_t size, char letter)
{
	size_t count = 0;
	bool quoted = false;
	for (size_t i = 0; i < size; i++) {
		quoted ^= line[i] == '"';
		count += !quoted && line[i] == letter;
	}
	return count;
}

/* If the first row does not contain what its kind of file has between cells, looks for what others have. */
static void find_delimiter(csv_source *self, struct csv_parser *parser, const char *line, size_t size)
{
	static const char others[] = ";\t,";
	size_t blank = 0;
	while (blank < size && strchr("\r\n", line[blank]))
		blank++;
	/* Blank lines are not rows. */
	if (self->has_delimiter || blank == size)
		return;
	self->has_delimiter = true;
	if (count_outside_quotes(line, size, self->delimiter) > 0)
		return;
	for (const char *other = others; *other; other++) {
		if (count_outside_quotes(line, size, *other) == 0)
			continue;
		self->delimiter = *other;
		csv_set_delim(parser, (unsigned char)*other);
		return;
	}
}

static int add_line(void *data, const char *line, size_t size, uint64_t offset, beton_error *err)
{
	row_finder *self = data;
	row_index *rows = &self->from->manifest.rows;
	uint64_t end = offset + size;
	if (end - self->begin > ROW_BYTES_MAX)
		return bt_fail(err, BETON_FORMAT, "%s: row %llu is longer than %u bytes; is a quote missing?",
			       rows->path, (unsigned long long)rows->count + 1, ROW_BYTES_MAX);
	self->ended = 0;
	size_t skipped = offset == 0 ? manifest_mark_size(line, size) : 0;
	find_delimiter(self->from, &self->parser, line + skipped, size - skipped);
	if (csv_parse(&self->parser, line + skipped, size - skipped, NULL, count_row, self) != size - skipped)
		return bad_row(self, err);
	if (self->ended > 1)
		return bt_fail(err, BETON_FORMAT, "%s: row %llu: a carriage return ends a row, but not its line",
			       rows->path, (unsigned long long)rows->count + 1);
	if (self->ended == 0)
		return BETON_OK;
	int result = row_index_add(rows, self->begin, end, err);
	self->begin = end;
	return result;
}

static int find_rows(csv_source *self, beton_error *err)
{
	row_finder finder = {.from = self};
	row_index *rows = &self->manifest.rows;
	int result = init_parser(self, &finder.parser, ROW_BYTES_MAX / 16, err);
	if (result != BETON_OK)
		return result;
	result = row_index_each_line(rows, add_line, &finder, err);
	finder.ended = 0;
	if (result == BETON_OK && csv_fini(&finder.parser, NULL, count_row, &finder) != 0)
		result = bad_row(&finder, err);
	if (result == BETON_OK && finder.ended)
		result = row_index_add(rows, finder.begin, rows->size, err);
	csv_free(&finder.parser);
	return result;
}

/* ---- reading one row ---- */

/* Gives each cell of a row to its place; columns: how many there may be. */
typedef struct row_reader {
	const source *from;
	raw_value *cells;
	uint32_t columns;
	uint32_t found;
	bool every; /* else only wanted ones */
	int result;
	beton_error *err;
} row_reader;

static void take_cell(void *text, size_t size, void *data)
{
	row_reader *self = data;
	uint32_t column = self->found++;
	if (self->result == BETON_OK && column < self->columns && (self->every || self->from->columns[column].wanted))
		self->result = manifest_set_text(&self->cells[column], RAW_TEXT, text, size, self->err);
}

static void ignore_end(int terminator, void *data)
{
	(void)terminator;
	(void)data;
}

static int read_row(const csv_source *self, uint64_t row, row_reader *reader, beton_error *err)
{
	char *text;
	size_t size;
	int result = row_index_read(&self->manifest.rows, row, &text, &size, err);
	if (result != BETON_OK)
		return result;
	struct csv_parser parser;
	result = init_parser(self, &parser, size + 1, err);
	if (result == BETON_OK) {
		size_t skipped = row == 0 ? manifest_mark_size(text, size) : 0;
		reader->err = err;
		bool good = csv_parse(&parser, text + skipped, size - skipped, take_cell, ignore_end, reader) ==
				    size - skipped &&
			    csv_fini(&parser, take_cell, ignore_end, reader) == 0;
		/* The whole file was parsed before. */
		result = good ? reader->result
			      : bt_fail(err, BETON_FILE_CHANGED, "%s: row %llu changed, or is too large for memory",
					self->manifest.base.name, (unsigned long long)row + 1);
		csv_free(&parser);
	}
	free(text);
	return result;
}

static int at(source *base, uint64_t index, source_item *item, beton_error *err)
{
	const csv_source *self = (const csv_source *)base;
	item->name = manifest_row_name(&self->manifest, index + self->first + 1);
	if (!item->name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", base->name);
	row_reader reader = {.from = base, .cells = item->values, .columns = base->num_columns};
	int result = read_row(self, index + self->first, &reader, err);
	if (result == BETON_OK && reader.found != base->num_columns)
		result = bt_fail(err, BETON_SAMPLE_CORRUPT, "%s: %u cell%s with '%s' between, and the first row has %u",
				 item->name, reader.found, reader.found == 1 ? "" : "s",
				 self->delimiter == '\t' ? "\\t" : (const char[]){self->delimiter, 0},
				 base->num_columns);
	return result;
}

static void close_csv(source *base)
{
	manifest_release(&((csv_source *)base)->manifest);
	free(base);
}

static const source_ops csv_ops = {.at = at, .close = close_csv};

/* The names in --columns. *found: how many there are. */
static int split_columns(const csv_source *self, raw_value *names, uint32_t *found, beton_error *err)
{
	int result = BETON_OK;
	*found = 0;
	for (const char *part = self->columns; part && result == BETON_OK;) {
		size_t size = strcspn(part, ",");
		if (*found < COLUMNS_MAX)
			result = manifest_set_text(&names[*found], RAW_TEXT, part, size, err);
		++*found;
		part = part[size] ? part + size + 1 : NULL;
	}
	return result;
}

/* A first row that is a sample would be lost, and the columns would have its values as names. With --fields, the user
 * knows the names. */
static int check_header(const csv_source *self, const raw_value *names, uint32_t count, beton_error *err)
{
	for (uint32_t i = 0; i < count && !self->columns && !self->manifest.has_fields; i++)
		if (manifest_is_value(&self->manifest, &names[i]))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: row 1: '%s' is a value, not the name of a column: --columns=NAME,NAME,... "
				       "names the columns of a file without a row of names; --fields=NAME,... takes "
				       "this row as names",
				       self->manifest.base.name, (const char *)names[i].data);
	return BETON_OK;
}

/* Row 0 has the names, unless --columns has them; the next one shows the types of values. */
static int add_columns(csv_source *self, beton_error *err)
{
	raw_value *cells = calloc(2 * COLUMNS_MAX, sizeof(*cells));
	if (!cells)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->manifest.base.name);
	row_reader names = {.cells = cells, .columns = COLUMNS_MAX, .every = true};
	row_reader values = {.cells = cells + COLUMNS_MAX, .columns = COLUMNS_MAX, .every = true};
	int result = self->columns ? split_columns(self, cells, &names.found, err) : read_row(self, 0, &names, err);
	if (result == BETON_OK && self->manifest.rows.count > self->first)
		result = read_row(self, self->first, &values, err);
	if (result == BETON_OK && names.found > COLUMNS_MAX)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: more than %d columns", self->manifest.base.name,
				 COLUMNS_MAX);
	if (result == BETON_OK)
		result = check_header(self, cells, names.found, err);
	if (result == BETON_OK && self->columns && names.found != values.found)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "--columns: '%s' has %u name%s, and row 1 of %s %u cells",
				 self->columns, names.found, names.found == 1 ? "" : "s", self->manifest.base.name,
				 values.found);
	for (uint32_t i = 0; i < names.found && result == BETON_OK; i++) {
		if (cells[i].size == 0 || strlen(cells[i].data) != cells[i].size)
			result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: column %u has no name, or one with a NUL",
					 self->manifest.base.name, i + 1);
		else
			result = manifest_add_column(&self->manifest, cells[i].data, &cells[COLUMNS_MAX + i], err);
	}
	for (uint32_t i = 0; i < 2 * COLUMNS_MAX; i++)
		free(cells[i].owned);
	free(cells);
	return result == BETON_OK ? manifest_end_columns(&self->manifest, err) : result;
}

int csv_source_open(const source_spec *spec, source **train, beton_error *err)
{
	csv_source *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", spec->argument);
	*train = &self->manifest.base;
	self->columns = spec->columns;
	self->first = spec->columns ? 0 : 1;
	self->delimiter = path_ends_with(spec->argument, ".tsv") ? CSV_TAB : CSV_COMMA;
	int result = manifest_init(&self->manifest, "csv", &csv_ops, spec, err);
	if (result == BETON_OK)
		result = find_rows(self, err);
	/* A file of one row may be a sample without a row of names, which is said first. */
	if (result == BETON_OK && self->manifest.rows.count > 0)
		result = add_columns(self, err);
	if (result == BETON_OK && self->manifest.rows.count <= self->first)
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no rows below the names of the columns",
				 self->manifest.base.name);
	self->columns = NULL;
	if (result == BETON_OK)
		self->manifest.base.count = self->manifest.rows.count - self->first;
	return result;
}
