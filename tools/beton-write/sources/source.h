/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of samples. A source has columns and items; an item has one raw value for each wanted column. fields.h and
 * convert.h define how raw values are stored.
 *
 * There are two sorts of sources. Those with at() know their number of items, and return any of them to any number of
 * threads at once. Those with next() return one after the other, to one thread at a time.
 */
#ifndef BETON_WRITE_SOURCE_H
#define BETON_WRITE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "name_list.h"
#include "tools/beton-write/notes.h"

#define SOURCE_COUNT_UNKNOWN UINT64_MAX

/* Elements in C order. dtype: NumPy's spelling. No dimensions: one element. */
typedef struct array_type {
	char dtype[16];
	uint32_t item_size; /* bytes of one element */
	uint32_t ndim;
	uint64_t shape[BETON_DIMS_MAX];
} array_type;

typedef enum raw_kind {
	RAW_MISSING, /* the item has no value in this column */
	RAW_INT,
	RAW_REAL,
	RAW_TEXT,  /* a cell of a table: data is text; for a picture or an array, the path of its file below root */
	RAW_JSON,  /* data is JSON text */
	RAW_FILE,  /* data is the content of a file */
	RAW_PATH,  /* data is the NUL-terminated path of a file */
	RAW_ARRAY, /* data is elements of *array */
} raw_kind;

typedef struct raw_value {
	raw_kind kind;
	int64_t integer;
	double real;
	const void *data; /* size bytes; for TEXT and JSON a NUL byte follows that is not counted */
	size_t size;
	const array_type *array; /* the source's */
	void *owned; /* the memory of data, if it belongs to the item; else NULL, and data belongs to the source */
} raw_value;

typedef struct source_item {
	char *name;        /* for messages: a path, or "archive.tar: member" */
	char *source;      /* to be stored: "cat/1.jpg", below the folder that is read; NULL: none */
	raw_value *values; /* one for each column of the source */
	uint32_t num_values;
} source_item;

/* The natural type of a column; --fields may override it. */
typedef enum column_type {
	COLUMN_INT,
	COLUMN_CLASS, /* names of classes */
	COLUMN_FLOAT,
	COLUMN_IMAGE,
	COLUMN_BYTES,
	COLUMN_JSON,
	COLUMN_ARRAY,
} column_type;

typedef struct source_column {
	char *name;
	char *field; /* the default field; NULL: none */
	column_type type;
	bool has_array; /* array is the type of all values; else the first item's type counts */
	array_type array;
	bool wanted; /* set by the reader; values of other columns may stay MISSING */
} source_column;

typedef struct source source;

/* The sets that a source may have; only the first is always there. */
enum { SET_TRAIN, SET_VAL, SET_TEST, NUM_SETS };

typedef struct source_ops {
	/* Item index (below count). Errors: SAMPLE_CORRUPT, NOT_FOUND or ACCESS when that item alone is bad. */
	int (*at)(source *self, uint64_t index, source_item *item, beton_error *err);
	/* The next item; END after the last one. SAMPLE_CORRUPT: that item is bad, the next one can be asked for; all
	 * other errors are final. */
	int (*next)(source *self, source_item *item, beton_error *err);
	/* The first item, which next returns again; only for sources with next. Valid until then; do not clear it. Only
	 * when the wanted columns are known. SAMPLE_CORRUPT: that item is bad. */
	int (*peek)(source *self, const source_item **item, beton_error *err);
	/* The item that peek gives is bad: next says so in its place, and peek gives the next one. END: no more items.
	 * NULL: only the first item may be looked at. */
	int (*pass_first)(source *self, const beton_error *fault, beton_error *err);
	/* Passes over the next item without reading its content; results as next. NULL: next is used. */
	int (*skip)(source *self, beton_error *err);
	/* Adds the column of that name, which is not known yet. NULL: all columns are known. */
	int (*add_column)(source *self, const char *name, beton_error *err);
	void (*close)(source *self);
} source_ops;

/* The part that all sources share; each kind has its own struct that begins with it. */
struct source {
	const source_ops *ops;
	const char *kind;    /* what --format calls it; static */
	char *name;          /* for messages */
	char *root;          /* where the paths in RAW_TEXT begin; NULL: it has none */
	uint64_t count;      /* items, or SOURCE_COUNT_UNKNOWN */
	uint64_t num_tokens; /* above 0: the items are the chunks of a stream, to be written whole and in their order */
	uint64_t vocabulary; /* of such a stream: one more than the largest token; 0: not known */
	int64_t end_of_text; /* the token between its documents; -1: not known */
	bool skip_bad;       /* bad items are left out: see source_spec */
	source_column *columns;
	uint32_t num_columns;
	name_list classes; /* names of the labels, if the source has such */
	source_notes notes;
};

typedef struct source_spec {
	const char *argument;            /* as the user gave it: a file, folder, pattern or "-" */
	const char *format;              /* a kind, or NULL: what the argument looks like */
	const char *root;                /* --root, or NULL */
	const char *columns;             /* --columns, or NULL: the first row of a table has the names */
	bool has_fields;                 /* there is --fields */
	bool wants_label;                /* there is none, or it names the column `label` */
	const char *output;              /* unpacked arrays go into unnamed files in its folder */
	const char *val_output;          /* that of a validation set, if there is one */
	const char *test_output;         /* that of a test set */
	const char *error_list;          /* --error-list, or NULL */
	bool holds_out;                  /* --val-fraction: a validation set is made of the training set */
	bool skip_bad;                   /* --on-error=skip */
	uint64_t chunk_tokens;           /* --chunk-tokens */
	const struct text_request *text; /* --tokenizer: the source is text; NULL: it is not */
	const atomic_int *interrupt;     /* not 0: reading ends with CANCELLED */
} source_spec;

/* Opens the source that spec names: sets[NUM_SETS], NULL where there is none. The caller closes them; on failure all
 * are NULL. */
int source_open(const source_spec *spec, source *sets[], beton_error *err);

/* Closes *self, if any, and sets it to NULL. */
void source_close(source **self);

/* An item for source_at and source_next: one value for each column, all MISSING. */
int source_item_make(const source *self, source_item *item, beton_error *err);

/* Frees the item's memory; its values are MISSING again. */
void source_item_clear(source_item *item);
void source_item_free(source_item *item);

/* Gives the item the source FILE/NAME: a member of the archive at path, of whose path only the last part counts. path
 * "-", standard input: NAME. Errors: NO_MEMORY. */
int source_item_set_member(source_item *item, const char *path, const char *name, beton_error *err);

/* The same for record `index` of the file at path: FILE/INDEX. */
int source_item_set_record(source_item *item, const char *path, uint64_t index, beton_error *err);

/* ---- for the kinds of sources ---- */

/* Sets name and operations of self, which must be zero. Close self after a failure too. */
int source_init(source *self, const char *kind, const source_ops *ops, const char *name, beton_error *err);

/* Adds a column; field may be NULL. */
int source_add_column(source *self, const char *name, const char *field, column_type type, beton_error *err);

/* The index of the column of that name, or -1. */
int64_t source_find_column(const source *self, const char *name);

#endif
