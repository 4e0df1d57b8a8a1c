/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture of a schedule's times: a lane for each rank, a box for each action.
 */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/pipeline/schedules.h"

/* Pixels. */
enum {
	LEFT = 70,  /* names of the ranks */
	RIGHT = 80, /* their idle shares */
	TOP = 34,   /* the title */
	LANE = 30,  /* a box, and below it space for lines that are transfers */
	BOX = 22,
	LINE = 4,
	BOTTOM = 34, /* the legend */
	LEGEND = 130,
	LEAST_WIDTH = 640,
	MOST_WIDTH = 16000,
	SHORTEST = 22, /* of the shortest action */
	DIGIT = 7      /* of a number in a box */
};

static const struct {
	const char *name, *colour;
} looks[DTRAIN__ACTION_KINDS] = {
	[DTRAIN_ACTION_FORWARD] = {"forward", "#7aa6e8"},
	[DTRAIN_ACTION_BACKWARD] = {"backward", "#74c08a"},
	[DTRAIN_ACTION_INPUT_GRADIENT] = {"input gradient", "#74c08a"},
	[DTRAIN_ACTION_WEIGHT_GRADIENT] = {"weight gradient", "#f0b35a"},
	[DTRAIN_ACTION_SEND_FORWARD] = {"send forward", "#2f5fa8"},
	[DTRAIN_ACTION_SEND_BACKWARD] = {"send backward", "#2c7a45"},
};

typedef struct svg_picture {
	FILE *out;
	const dtrain_pipeline_schedule *schedule;
	const dtrain_pipeline_timeline *timeline;
	int32_t *chunk_of_stage; /* [stages] */
	int32_t chunks;
	double scale;                     /* pixels of a unit of time */
	bool drawn[DTRAIN__ACTION_KINDS]; /* for the legend */
} svg_picture;

static double scale_of(const dtrain_pipeline_schedule *schedule, const dtrain_pipeline_timeline *timeline)
{
	double shortest = timeline->makespan;
	for (int32_t rank = 0; rank < schedule->ranks; rank++)
		for (int32_t i = 0; i < schedule->lists[rank].count; i++) {
			const dtrain_action_time *time = &timeline->times[rank][i];
			const double takes = time->end - time->start;
			if (dtrain__action_computes(schedule->lists[rank].actions[i].kind) && takes > 0 &&
			    takes < shortest)
				shortest = takes;
		}
	if (!(timeline->makespan > 0))
		return 0;
	double width = SHORTEST * timeline->makespan / shortest;
	width = width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
	return width / timeline->makespan;
}

static void print_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			fputs("&amp;", out);
		else if (*text == '<')
			fputs("&lt;", out);
		else
			fputc(*text, out);
	}
}

/* Later chunks are paler. */
static void print_action(svg_picture *p, int32_t rank, int32_t index)
{
	const dtrain_action *action = &p->schedule->lists[rank].actions[index];
	const dtrain_action_time *time = &p->timeline->times[rank][index];
	const bool computes = dtrain__action_computes(action->kind);
	const double x = LEFT + time->start * p->scale, width = (time->end - time->start) * p->scale;
	const double y = TOP + LANE * rank + (computes ? 0 : BOX);
	char text[DTRAIN__ACTION_TEXT];
	if (width <= 0 || !looks[action->kind].name)
		return;
	p->drawn[action->kind] = true;
	fprintf(p->out,
		"<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" fill-opacity=\"%.2f\"%s>"
		"<title>%s: %g to %g</title></rect>\n",
		x, y, width, computes ? BOX : LINE, looks[action->kind].colour,
		1 - 0.8 * p->chunk_of_stage[action->stage] / p->chunks, computes ? " stroke=\"#fff\"" : "",
		dtrain__action_text(action, text), time->start, time->end);
	const int digits = snprintf(text, sizeof(text), "%d", action->micro_batch);
	if (computes && width >= digits * DIGIT)
		fprintf(p->out, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", x + width / 2, y + 16,
			text);
}

static void print_legend(svg_picture *p)
{
	int32_t x = LEFT;
	const int32_t y = TOP + LANE * p->schedule->ranks + 10;
	for (int kind = 0; kind < DTRAIN__ACTION_KINDS; kind++) {
		if (!p->drawn[kind] || !looks[kind].name)
			continue;
		fprintf(p->out,
			"<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>"
			"<text x=\"%d\" y=\"%d\">%s</text>\n",
			x, y, looks[kind].colour, x + 18, y + 11, looks[kind].name);
		x += LEGEND;
	}
}

static void print_picture(svg_picture *p, const char *title)
{
	const double width = p->timeline->makespan * p->scale;
	fprintf(p->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\" "
		"font-size=\"14\">",
		LEFT + (width < LEAST_WIDTH ? LEAST_WIDTH : width) + RIGHT, TOP + LANE * p->schedule->ranks + BOTTOM,
		LEFT);
	print_escaped(p->out, title);
	fputs("</text>\n", p->out);
	for (int32_t rank = 0; rank < p->schedule->ranks; rank++) {
		const int32_t y = TOP + LANE * rank;
		fprintf(p->out,
			"<text x=\"8\" y=\"%d\">rank %d</text>\n<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
			"fill=\"#eee\"/>\n",
			y + 16, rank, LEFT, y, width, BOX);
		for (int32_t i = 0; i < p->schedule->lists[rank].count; i++)
			print_action(p, rank, i);
		fprintf(p->out, "<text x=\"%.2f\" y=\"%d\">idle %.1f %%</text>\n", LEFT + width + 8, y + 16,
			100 * p->timeline->ranks[rank].idle);
	}
	print_legend(p);
	fputs("</svg>\n", p->out);
}

/* The number of a stage among the stages of its rank. */
static bool number_chunks(svg_picture *p)
{
	const dtrain_pipeline_schedule *s = p->schedule;
	int32_t *count = calloc((size_t)s->ranks, sizeof(*count));
	p->chunk_of_stage = calloc((size_t)s->stages, sizeof(*p->chunk_of_stage));
	for (int32_t stage = 0; count && p->chunk_of_stage && stage < s->stages; stage++) {
		p->chunk_of_stage[stage] = count[s->rank_of_stage[stage]]++;
		p->chunks = p->chunk_of_stage[stage] < p->chunks ? p->chunks : p->chunk_of_stage[stage] + 1;
	}
	free(count);
	return p->chunks > 0;
}

int dtrain_pipeline_schedule_svg(const dtrain_pipeline_schedule *schedule, const dtrain_pipeline_timeline *timeline,
				 const char *title, char **out, beton_error *err)
{
	size_t size;
	if (BT_MISSING(err, schedule, timeline, title, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	svg_picture p = {.schedule = schedule, .timeline = timeline, .scale = scale_of(schedule, timeline)};
	p.out = number_chunks(&p) ? open_memstream(out, &size) : NULL;
	if (p.out)
		print_picture(&p, title);
	free(p.chunk_of_stage);
	if (p.out && fclose(p.out) == 0)
		return BETON_OK;
	free(*out);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory");
}
