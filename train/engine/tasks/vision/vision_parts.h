/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of vision_task, by file; see task.h. */
#ifndef ENGINE_TASKS_VISION_VISION_PARTS_H
#define ENGINE_TASKS_VISION_VISION_PARTS_H

#include "engine/engine.h"
#include "vision.h"

enum { VISION_OUTPUTS_MAX = 1000000 };
/* Maximum number of views of a validation picture: with --tta the picture and its mirror image, then the shifted
 * ones. */
enum { VISION_VIEWS_MAX = 6 };
/* Indices of engine_network.results and more. */
enum { VISION_LOGITS = 0, VISION_LOSSES = 1 };
enum { VISION_ADDED = 0, VISION_ADDED_AGAIN = 1 };

static inline const vision_options *vision_options_of(const engine_job *job)
{
	return job->options;
}

static inline vision_kind vision_kind_of(const engine_data *data)
{
	return (vision_kind)(data->outputs - vision_outputs);
}

/* labels.c: the fields that labels are read from. */
typedef struct vision_labels {
	char *text; /* the memory of the names */
	const char *names[BETON_JOINED_MAX];
	int count;
	vision_kind kind;
	int64_t elements; /* numbers for a picture; of CLASSES 1 */
} vision_labels;

/* Finds the fields, and how the loss uses them. out needs vision_labels_free, also on failure. Errors: NOT_FOUND,
 * MISMATCH (a field is not of numbers, or of numbers that do not suit the loss), INVALID_ARGUMENT (too many),
 * NO_MEMORY. */
int vision_labels_find(const beton_reader *reader, const vision_options *options, vision_labels *out, beton_error *err);
void vision_labels_free(vision_labels *labels);
/* Splits the names of --label-field, or takes the field. Errors: INVALID_ARGUMENT, NO_MEMORY. */
int vision_labels_split(const vision_options *options, const char *field, vision_labels *out, beton_error *err);

/* targets.c: labels that are numbers. Cross-entropy needs probabilities with a sum of 1, bce numbers from 0 to 1, mse
 * finite ones. MISMATCH: the message has file, sample and number. */
/* Checks the fields of integers and floats, which are in the file's table of samples. Arrays are as large as their
 * number of elements, and far apart: they are checked when a batch has been read. */
int vision_targets_read(const beton_reader *reader, const vision_options *options, const vision_labels *labels,
			beton_error *err);
int vision_check_batch(const engine_rank *engine, bool training, const beton_batch *batch, beton_error *err);

/* data.c */
int vision_read_data(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
		     beton_error *err);

int vision_class_names(const engine_job *job, const char *const *paths, int count, char **out, beton_error *err);

/* loading.c */
int vision_count_views(const engine_job *job);
/* True if --mixup or --cutmix mixes training pictures of a batch; batches then have "LABEL.mixed" and
 * "IMAGE.lambda". */
bool vision_mixes(const engine_job *job);
/* Makes the loader subtract --mean and divide by --std. */
void vision_normalize(const vision_options *options, beton_image_options *image);
int vision_open_loader(const engine_rank *engine, bool training, beton_loader_options *options,
		       const engine_files *files, beton_loader **out, beton_error *err);

/* network.c */
int vision_check(const engine_job *job, const engine_data *data, bool begins, beton_error *err);
dtrain_tensor vision_build(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network);

/* evaluate.c */
int vision_feed_run(engine_rank *engine, const beton_batch *batch, int view, beton_error *err);
int vision_add_batch(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
		     engine_class_count *by_class, beton_error *err);

/* whiten.c: the first layer of the model airbench94, a convolution that decorrelates the pixels of a patch. Its filters
 * are computed from 5000 pictures (or all, if fewer) spread evenly over the training set, cut and normalized as in
 * evaluation, and are not trained; its bias is trained for some epochs. */
bool vision_whitens(const engine_job *job);
int vision_prepare(engine_rank *engine, const engine_files *files, beton_error *err);
const char *vision_find_early(const engine_job *job, double *epochs);

#endif
