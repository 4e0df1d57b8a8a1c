/* SPDX-License-Identifier: Apache-2.0
 *
 * compare-logs A B STEPS LOSS_TOLERANCE VALIDATION_TOLERANCE: two logs of dtrain-ffcv tell the same story: both have
 * steps 1 .. STEPS with losses, and the same epochs' evaluations with losses, equal to the relative tolerances;
 * learning rates and counts are equal. Norms of gradients, if both have them, differ by 30 times the tolerance of
 * losses, or 1e-4: a parameter that counts twice changes them by more. With a validation tolerance of 0 the accuracies,
 * if any, are equal too. Where a run was resumed, what had been logged of later steps does not count, nor what stands
 * before a start; neither does the same step twice without that. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 4096

typedef struct story {
	json_t *steps[ROWS];
	json_t *evaluations[ROWS];
} story;

static void forget(json_t **row)
{
	json_decref(*row);
	*row = NULL;
}

/* Rows that the run which begins here does not go on from. */
static void begin(bool resumes, json_int_t after, story *out)
{
	for (json_int_t i = 0; i < ROWS; i++) {
		const json_t *made = json_object_get(out->evaluations[i], "step");
		if (i > after)
			forget(&out->steps[i]);
		if (!resumes || json_integer_value(made) > after)
			forget(&out->evaluations[i]);
	}
}

static int read_story(const char *path, story *out)
{
	char line[65536];
	FILE *file = fopen(path, "r");
	if (!file)
		return fprintf(stderr, "%s: cannot open\n", path);
	while (fgets(line, sizeof(line), file)) {
		json_error_t problem;
		json_t *row = json_loads(line, 0, &problem);
		const char *type = json_string_value(json_object_get(row, "type"));
		const json_t *step = json_object_get(row, "step");
		if (!type || !json_is_integer(step))
			return fprintf(stderr, "%s: a wrong line: %s", path, line);
		bool starts = strcmp(type, "start") == 0, resumes = strcmp(type, "resume") == 0;
		if (starts || resumes)
			begin(resumes, json_integer_value(step), out);
		if (starts || resumes || strcmp(type, "epoch") == 0 || strcmp(type, "tuning") == 0 ||
		    strcmp(type, "device") == 0) {
			json_decref(row);
			continue;
		}
		bool is_step = strcmp(type, "step") == 0;
		const json_t *key = is_step ? step : json_object_get(row, "epoch");
		json_int_t index = json_integer_value(key);
		if (!json_is_integer(key) || index < 1 || index >= ROWS)
			return fprintf(stderr, "%s: a wrong line: %s", path, line);
		json_t **place = &(is_step ? out->steps : out->evaluations)[index];
		if (is_step && *place)
			return fprintf(stderr, "%s: step %d twice\n", path, (int)index);
		json_decref(*place);
		*place = row;
	}
	fclose(file);
	return 0;
}

static double number(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);
	if (!json_is_number(value)) {
		fprintf(stderr, "%s is missing or not a number\n", key);
		exit(1);
	}
	return json_number_value(value);
}

static int same(const json_t *a, const json_t *b, const char *key, double tolerance, int index, double *worst)
{
	double x = number(a, key);
	double y = number(b, key);
	double difference = fabs(x - y) / fmax(fabs(x), 1e-30);
	if (x != y && difference > *worst)
		*worst = difference;
	if (x == y || difference <= tolerance)
		return 0;
	return fprintf(stderr, "%d: %s is %.17g and %.17g, differing by %.3g\n", index, key, x, y, difference);
}

int main(int argc, char **argv)
{
	static story a;
	static story b;
	if (argc != 6 || read_story(argv[1], &a) || read_story(argv[2], &b))
		return 2;
	int steps = atoi(argv[3]);
	double tolerance = atof(argv[4]);
	double validation_tolerance = atof(argv[5]);
	double worst = 0;
	double worst_validation = 0;
	double worst_norm = 0;
	int wrong = 0;
	for (int i = 1; i < ROWS; i++) {
		if (!a.steps[i] != (i > steps) || !b.steps[i] != (i > steps)) {
			fprintf(stderr, "step %d: in %s %d, in %s %d\n", i, argv[1], !!a.steps[i], argv[2],
				!!b.steps[i]);
			return 1;
		}
		if (!a.evaluations[i] != !b.evaluations[i]) {
			fprintf(stderr, "evaluation of epoch %d: in one log only\n", i);
			return 1;
		}
		if (a.steps[i]) {
			wrong += same(a.steps[i], b.steps[i], "loss", tolerance, i, &worst) != 0;
			wrong += same(a.steps[i], b.steps[i], "lr", 0, i, &worst) != 0;
			wrong += same(a.steps[i], b.steps[i], "epoch", 0, i, &worst) != 0;
			if (json_is_number(json_object_get(a.steps[i], "grad_norm")) &&
			    json_is_number(json_object_get(b.steps[i], "grad_norm")))
				wrong += same(a.steps[i], b.steps[i], "grad_norm", fmax(30 * tolerance, 1e-4), i,
					      &worst_norm) != 0;
		}
		if (a.evaluations[i]) {
			double accuracy = validation_tolerance > 0 ? 1e30 : 0;
			double ignored = 0;
			wrong += same(a.evaluations[i], b.evaluations[i], "val_loss", validation_tolerance, i,
				      &worst_validation) != 0;
			wrong += same(a.evaluations[i], b.evaluations[i], "val_count", 0, i, &ignored) != 0;
			/* Only for pictures. */
			bool has = json_object_get(a.evaluations[i], "val_top1") != NULL;
			wrong += has && same(a.evaluations[i], b.evaluations[i], "val_top1", accuracy, i, &ignored);
			wrong += has && same(a.evaluations[i], b.evaluations[i], "val_top5", accuracy, i, &ignored);
		}
	}
	printf("%d steps, losses differ by at most %.3g, validation losses by %.3g, norms by %.3g\n", steps, worst,
	       worst_validation, worst_norm);
	return wrong ? 1 : 0;
}
