/* SPDX-License-Identifier: Apache-2.0 */
#include "predict.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"

struct predict_class {
	double probability; /* or number */
	int64_t class_number;
};

/* NULL: not known. */
static const char *name_of(const predict_rows *rows, int64_t class_number)
{
	return json_string_value(json_array_get(rows->names, (size_t)class_number));
}

/* ---- CSV, RFC 4180 ---- */

static void put_field(FILE *file, const char *text)
{
	if (!text || !text[strcspn(text, ",\"\r\n")]) {
		fputs(text ? text : "", file);
		return;
	}
	putc('"', file);
	for (; *text; text++)
		fputs(*text == '"' ? "\"\"" : (char[]){*text, 0}, file);
	putc('"', file);
}

static void put_header(const predict_rows *rows)
{
	fputs(rows->label >= 0 ? "sample,source,label" : "sample,source", rows->file);
	for (int64_t i = 0; i < rows->top; i++) {
		char number[24] = "";
		if (i > 0)
			snprintf(number, sizeof(number), "_%" PRId64, i + 1);
		if (rows->kind == PREDICT_NUMBERS)
			fprintf(rows->file, ",value%s", number);
		else
			fprintf(rows->file, ",class%s,name%s,probability%s", number, number, number);
	}
	putc('\n', rows->file);
}

static void put_csv(const predict_rows *rows, uint64_t sample, const char *source, int64_t label)
{
	fprintf(rows->file, "%" PRIu64 ",", sample);
	put_field(rows->file, source);
	if (rows->label >= 0)
		fprintf(rows->file, ",%" PRId64, label);
	for (int64_t i = 0; i < rows->top; i++) {
		if (rows->kind != PREDICT_NUMBERS) {
			fprintf(rows->file, ",%" PRId64 ",", rows->order[i].class_number);
			put_field(rows->file, name_of(rows, rows->order[i].class_number));
		}
		fprintf(rows->file, ",%.6g", rows->order[i].probability);
	}
	putc('\n', rows->file);
}

/* ---- JSON lines ---- */

static int put_json(const predict_rows *rows, uint64_t sample, const char *source, int64_t label, beton_error *err)
{
	json_t *top = json_array(), *line = json_pack("{s:I}", "sample", (json_int_t)sample);
	int failed = !top || !line;
	/* A source that is not UTF-8 is left out. */
	if (!failed && *source)
		json_object_set_new(line, "source", json_string(source));
	if (!failed && rows->label >= 0)
		failed |= json_object_set_new(line, "label", json_integer(label));
	for (int64_t i = 0; i < rows->top && !failed; i++) {
		const char *name = name_of(rows, rows->order[i].class_number);
		json_t *entry =
			rows->kind == PREDICT_NUMBERS
				? json_real(rows->order[i].probability)
				: json_pack("{s:I, s:s*, s:f}", "class", (json_int_t)rows->order[i].class_number,
					    "name", name, "probability", rows->order[i].probability);
		failed |= !entry || json_array_append_new(top, entry);
	}
	if (!failed)
		failed = json_object_set(line, rows->kind == PREDICT_NUMBERS ? "values" : "top", top);
	if (!failed && (json_dumpf(line, rows->file, JSON_COMPACT | JSON_REAL_PRECISION(6)) != 0))
		failed = 1;
	putc('\n', rows->file);
	json_decref(top);
	json_decref(line);
	return failed && !ferror(rows->file) ? bt_fail(err, BETON_NO_MEMORY, "out of memory for a line") : BETON_OK;
}

/* ---- rows ---- */

int predict_rows_begin(predict_rows *rows, beton_error *err)
{
	rows->order = calloc((size_t)rows->classes, sizeof(*rows->order));
	if (!rows->order)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %" PRId64 " classes", rows->classes);
	if (rows->csv && rows->file)
		put_header(rows);
	return BETON_OK;
}

/* The most probable class first; of equal ones the lower number, as in evaluations. */
static int compare(const void *a, const void *b)
{
	const struct predict_class *x = a, *y = b;
	if (x->probability != y->probability)
		return x->probability < y->probability ? 1 : -1;
	return x->class_number < y->class_number ? -1 : x->class_number > y->class_number;
}

static int find_probabilities(predict_rows *rows, uint64_t sample, const float *logits, beton_error *err)
{
	double most = -INFINITY, sum = 0;
	for (int64_t i = 0; i < rows->classes; i++) {
		if (!isfinite(logits[i]))
			return bt_fail_sample(err, BETON_DIVERGED, (int64_t)sample,
					      "sample %" PRIu64 ": the model's output is not finite", sample);
		most = fmax(most, (double)logits[i]);
	}
	for (int64_t i = 0; i < rows->classes; i++) {
		double logit = (double)logits[i];
		double number = rows->kind == PREDICT_NUMBERS    ? logit
				: rows->kind == PREDICT_LOGISTIC ? 1 / (1 + exp(-rows->scale * logit))
								 : exp(rows->scale * (logit - most));
		rows->order[i] = (struct predict_class){number, i};
		sum += number;
	}
	if (rows->kind == PREDICT_NUMBERS)
		return BETON_OK;
	for (int64_t i = 0; i < rows->classes && rows->kind == PREDICT_SOFTMAX; i++)
		rows->order[i].probability /= sum;
	qsort(rows->order, (size_t)rows->classes, sizeof(*rows->order), compare);
	return BETON_OK;
}

int predict_rows_add(predict_rows *rows, uint64_t sample, const float *logits, beton_error *err)
{
	char source[BETON_SOURCE_MAX + 1];
	beton_value label = {.integer = -1};
	uint64_t index = 0;
	int status = find_probabilities(rows, sample, logits, err);
	if (status == BETON_OK)
		status = predict_data_seek(rows->data, sample, &index, err);
	if (status == BETON_OK)
		status = beton_reader_source(rows->data->reader, index, source, err);
	if (status == BETON_OK && rows->label >= 0)
		status = beton_reader_value(rows->data->reader, index, (uint32_t)rows->label, &label, err);
	char *path = status == BETON_OK ? bt_format("%s%s", *source ? rows->data->prefix : "", source) : NULL;
	if (status == BETON_OK && !path)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for a line");
	if (status == BETON_OK && rows->csv)
		put_csv(rows, sample, path, label.integer);
	else if (status == BETON_OK)
		status = put_json(rows, sample, path, label.integer, err);
	free(path);
	if (status == BETON_OK && ferror(rows->file))
		status = bt_fail_errno(err, errno, "cannot write the results");
	return status;
}

void predict_rows_free(predict_rows *rows)
{
	free(rows->order);
	rows->order = NULL;
}
