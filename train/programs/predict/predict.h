/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-predict: what a trained model says of pictures. */
#ifndef PROGRAMS_PREDICT_PREDICT_H
#define PROGRAMS_PREDICT_PREDICT_H

#include <jansson.h>
#include <stdio.h>

#include <beton/beton.h>

#include "common/system.h"
#include "engine/engine.h"
#include "engine/pretrained/weight_source.h"
#include "engine/tasks/vision/vision.h"
#include "launch/rank_team.h"
#include "options/device_choice.h"
#include "shards/shards.h"

typedef enum predict_format { PREDICT_BY_NAME = 0, PREDICT_JSON = 1, PREDICT_CSV = 2 } predict_format;

/* Options of the command line; numbers below 0 and NULL texts are not given. */
typedef struct predict_options {
	const char *weights, *data;
	const char *output; /* NULL: standard output */
	bool force;         /* an output that exists is replaced */
	int format;         /* predict_format */
	uint64_t top;       /* classes of a picture; 0: all */
	const char *model, *image_field, *label_field;
	const char *classes, *image_size, *val_ratio, *mean, *std; /* texts of numbers, as in the weights' metadata */
	int tta;                                                   /* vision_tta */
	bool skip;                                                 /* leave bad pictures out */
	uint64_t batch_size, threads;
	engine_precision precision;
	run_device_choice device;
	bool share_device;   /* ranks may use one GPU */
	uint64_t world_size; /* 0: not given */
} predict_options;

/* ---- pictures.c: pictures as a data set ---- */

/* A data set that is open for reading. */
typedef struct predict_data {
	char *path;   /* of the .beton file or the set */
	char *folder; /* NULL: none. A temporary folder that path is in. */
	char *prefix; /* prefix of each source: the pictures' folder */
	bt_shard_inputs files;
	uint64_t samples;     /* of all files */
	beton_reader *reader; /* of files.list[at]; at first of the first */
	uint32_t at;
} predict_data;

/* Opens a .beton file or a set of such files, or makes a file of a picture or of all pictures in and below a folder,
 * with the program beton-write: rank 0 for all ranks. Errors: as beton_set_open and bt_shard_input_open; NOT_FOUND (no
 * picture, no beton-write); IO (beton-write failed, and has said why). */
int predict_data_open(const char *given, bool skip, const rank_team *team, predict_data *out, beton_error *err);
/* Opens the file with the sample as data->reader. *index: the number of the sample in that file. Errors: as
 * bt_shard_input_open. */
int predict_data_seek(predict_data *data, uint64_t sample, uint64_t *index, beton_error *err);
/* *out: an array with the names of the classes, NULL if there are none. Errors: as vision_class_names_load. */
int predict_data_names(const predict_data *data, json_t **out, beton_error *err);
/* Removes the temporary files when all ranks have opened them, and can go on reading. Errors: of the group. */
int predict_data_release(predict_data *data, const rank_team *team, beton_error *err);
/* A zeroed struct is allowed. */
void predict_data_close(predict_data *data);
/* By the ending of its name. */
bool predict_is_picture(const char *name);

/* ---- messages.c: what beton-write says ---- */

/* The list of pictures that beton-write reads. */
typedef struct predict_list {
	const char *path;
	const char *given; /* the folder or picture that it was made of */
	const char *root;  /* prefix of each path in the list */
} predict_list;

/* Prints the lines of the file at path, which beton-write has written, with the names of pictures in place of rows of
 * the list. failed: the last line is the error that is returned, IO. */
int predict_messages_tell(const char *path, const predict_list *list, bool failed, beton_error *err);

/* ---- output.c: where the results go ---- */

typedef struct predict_output {
	FILE *stream;     /* NULL: not open */
	const char *path; /* NULL: standard output */
	bt_atomic_file file;
} predict_output;

/* Whether the output may be written. INVALID_ARGUMENT: it has the name of a picture, is the data, a shard of it, the
 * weights or a file of a checkpoint, or is not a regular file. EXISTS: it exists, and force is not given. Other errors:
 * as beton_set_open. */
int predict_output_check(const predict_options *options, beton_error *err);
/* path NULL: standard output. */
int predict_output_open(const char *path, predict_output *out, beton_error *err);
/* Gives a file its name, unless status is a failure, and then removes it. Returns status, or the first failure. A
 * zeroed struct is allowed. */
int predict_output_close(predict_output *output, int status, beton_error *err);

/* ---- rows.c: the results ---- */

/* How outputs are made from the model's logits. */
typedef enum predict_kind {
	PREDICT_SOFTMAX,  /* probabilities of the classes, whose sum is 1 */
	PREDICT_LOGISTIC, /* a probability of each class or label by itself */
	PREDICT_NUMBERS,  /* nothing */
} predict_kind;

/* Writes a line for each picture. */
typedef struct predict_rows {
	FILE *file;
	bool csv;
	predict_kind kind;
	int64_t classes, top; /* of the model; listed for a picture: of NUMBERS all */
	double scale;         /* of the logits */
	const json_t *names;  /* of the classes, an array; NULL: not known */
	predict_data *data;
	int label; /* index of the field with the pictures' labels; -1: none */
	struct predict_class *order;
} predict_rows;

/* Allocates, and writes the first line of a table. */
int predict_rows_begin(predict_rows *rows, beton_error *err);
/* logits: [classes]. */
int predict_rows_add(predict_rows *rows, uint64_t sample, const float *logits, beton_error *err);
/* A zeroed struct is allowed. */
void predict_rows_free(predict_rows *rows);

/* ---- share.c: the rows of several ranks ---- */

/* Batches go to the ranks in turn, and their rows to rank 0, which writes them in the order of the batches. Rank 0 is
 * not further ahead than its own batches; another rank is some batches ahead of rank 0. */
typedef struct predict_share {
	const rank_team *team;
	predict_rows *rows;
	uint64_t batch_size;
	struct predict_letter *letters; /* rank 0: the next one of each rank; else those on their way */
	int next;                       /* letter to use */
	char *text;                     /* of the batch that is being written, by other ranks than 0 */
	size_t size;
	int64_t count, bad; /* samples of the other ranks */
} predict_share;

int predict_share_open(predict_share *share, const rank_team *team, predict_rows *rows, uint64_t batch_size,
		       beton_error *err);
/* The batches and samples that this rank computes of all samples. */
uint64_t predict_share_batches(const predict_share *share, uint64_t samples);
uint64_t predict_share_samples(const predict_share *share, uint64_t samples);
/* The sample at this rank's position. */
uint64_t predict_share_sample(const predict_share *share, uint64_t position);
/* Around the rows of a batch. number: of any of its samples. */
int predict_share_begin(predict_share *share, uint64_t number, beton_error *err);
int predict_share_end(predict_share *share, uint64_t number, beton_error *err);
/* After the last batch: of rank 0 until all rows of all ranks are written. count, bad: samples of this rank; then, on
 * rank 0, of all ranks. PEER_LOST: a rank was asked to stop. interrupted: this one was. */
int predict_share_finish(predict_share *share, bool interrupted, int64_t *count, int64_t *bad, beton_error *err);
/* A zeroed struct is allowed. Before the team leaves its groups, unless something has failed. */
void predict_share_close(predict_share *share);

/* ---- picture_model.c: the model ---- */

/* Computes the rows of all pictures, of several ranks of this rank's batches. rows->file is rank 0's. Errors: also of
 * the other ranks. */
int predict_run(const predict_options *options, const run_source *weights, predict_data *data, rank_team *team,
		predict_rows *rows, beton_error *err);

#endif
