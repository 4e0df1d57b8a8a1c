/* SPDX-License-Identifier: Apache-2.0
 *
 * The view as a self-contained page for a browser; pictures are embedded as they are stored.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/base64.h>

#include "beton/types/types.h"
#include "common/error.h"
#include "common/system.h"
#include "raster.h"
#include "tile.h"
#include "tools/common/png_writer.h"
#include "view.h"

/* The page may not load or run anything, whatever the dataset says. */
static const char *const head =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
	"style-src 'unsafe-inline'\"/>\n<title>";

static const char *const style =
	"</title>\n<style>\n"
	"body { font-family: sans-serif; }\n"
	".sheet { display: grid; grid-template-columns: repeat(%u, %upx); gap: 8px; }\n"
	"figure { margin: 0; }\n"
	"figure div { width: %upx; height: %upx; display: flex; align-items: center; justify-content: center; }\n"
	"img { max-width: 100%%; max-height: 100%%; }\n"
	".enlarged { image-rendering: pixelated; }\n"
	"figcaption { font-size: 80%%; overflow-wrap: anywhere; }\n"
	".damaged { color: #c00; font-size: 70%%; overflow: hidden; }\n"
	"</style>\n</head>\n<body>\n<h1>";

/* UTF-8 text without control characters. Two characters that it may have are none for XML. */
static void put_text(FILE *stream, const char *text)
{
	for (; *text; text++) {
		if (strncmp(text, "\xef\xbf\xbe", 3) == 0 || strncmp(text, "\xef\xbf\xbf", 3) == 0) {
			fputc('?', stream);
			text += 2;
		} else if (strchr("&<>\"'", *text)) {
			fprintf(stream, "&#%d;", *text);
		} else {
			fputc(*text, stream);
		}
	}
}

static void put_base64(FILE *stream, const uint8_t *data, size_t size)
{
	enum { PIECE = 3 * 1024 }; /* a multiple of three bytes leaves no padding in the middle */
	char text[BASE64_ENCODE_RAW_LENGTH(PIECE)];
	for (size_t at = 0; at < size; at += PIECE) {
		size_t piece = size - at < PIECE ? size - at : PIECE;
		base64_encode_raw(text, piece, data + at);
		fwrite(text, 1, BASE64_ENCODE_RAW_LENGTH(piece), stream);
	}
}

/* Makes what a browser can show of a sample. A damaged one gives SAMPLE_CORRUPT. */
static int make_picture(const view_sample *sample, png_bytes *png, beton_error *err)
{
	const beton_value *value = &sample->value;
	if (bt_form_of(value->type) == BT_FORM_RASTER) {
		pixels rgb;
		int result = raster_to_rgb(&rgb, sample->reader, value, sample->stored, err);
		if (result == BETON_OK)
			result = png_encode(png, rgb.data, rgb.width, rgb.height, err);
		free(rgb.data);
		return result;
	}
	return value->mode == BETON_IMAGE_RAW ? png_encode(png, sample->stored, value->width, value->height, err)
					      : BETON_OK;
}

static void put_picture(const view_job *job, const view_sample *sample, const png_bytes *png)
{
	bool jpeg = bt_value_is_jpeg(&sample->value);
	uint32_t factor = tile_factor(sample->value.width, sample->value.height, job->side);
	fputs("<img alt=\"\" ", job->stream);
	if (factor > 1)
		fprintf(job->stream, "class=\"enlarged\" width=\"%u\" height=\"%u\" ", sample->value.width * factor,
			sample->value.height * factor);
	fprintf(job->stream, "title=\"%u x %u pixels, %" PRIu64 " bytes", sample->value.width, sample->value.height,
		sample->value.blob.size);
	if (sample->source && *sample->source) {
		fputs(", ", job->stream);
		put_text(job->stream, sample->source);
	}
	fprintf(job->stream, "\" src=\"data:image/%s;base64,", jpeg ? "jpeg" : "png");
	put_base64(job->stream, jpeg ? sample->stored : png->data, jpeg ? (size_t)sample->value.blob.size : png->size);
	fputs("\"/>", job->stream);
}

/* fault: NULL, or what is wrong with the picture. */
static void put_figure(view_job *job, const view_sample *sample, const beton_error *fault, const png_bytes *png)
{
	fputs("<figure><div>", job->stream);
	if (!fault) {
		put_picture(job, sample, png);
	} else {
		view_note_damage(job, fault);
		fputs("<span class=\"damaged\">", job->stream);
		put_text(job->stream, fault->message);
		fputs("</span>", job->stream);
	}
	fputs("</div><figcaption>", job->stream);
	put_text(job->stream, sample->caption ? sample->caption : "damaged");
	fputs("</figcaption></figure>\n", job->stream);
}

static void put_head(const view_job *job)
{
	beton_error name; /* the path, as harmless as a message is */
	bt_fail(&name, BETON_OK, "%s", job->in->path);
	fputs(head, job->stream);
	put_text(job->stream, name.message);
	fprintf(job->stream, style, job->columns, job->side, job->side, job->side);
	put_text(job->stream, name.message);
	fprintf(job->stream, "</h1>\n<p>%" PRIu64 " of %" PRIu64 " sample%s</p>\n<div class=\"sheet\">\n", job->shown,
		job->in->num_samples, bt_plural(job->in->num_samples));
}

int view_write_html(view_job *job, beton_error *err)
{
	view_walk walk = {0};
	view_sample sample = {0};
	png_bytes png = {0};
	bool found = true;
	int result = BETON_OK;
	put_head(job);
	while (result == BETON_OK) {
		beton_error fault;
		int status = view_next(job, &walk, &sample, &found, &fault);
		if (status == BETON_OK && !found)
			break;
		if (status == BETON_OK)
			status = make_picture(&sample, &png, &fault);
		if (status != BETON_OK && status != BETON_SAMPLE_CORRUPT) {
			*err = fault;
			result = status;
			break;
		}
		put_figure(job, &sample, status == BETON_OK ? NULL : &fault, &png);
		progress_sample(job->bar, sample.value.blob.size);
		if (ferror(job->stream))
			result = bt_fail_errno(err, errno, "cannot write the page");
	}
	fputs("</div>\n</body>\n</html>\n", job->stream);
	view_sample_free(&sample);
	free(png.data);
	return result;
}
