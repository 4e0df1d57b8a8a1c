/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures for a detector: letterboxed to a square, flipped at random, with boxes that move with the pixels. Prints the
 * boxes, and the place of each picture in its square, with which a detector's answer is converted back to the picture's
 * own pixels. The file has a field "image" and an array "boxes" of rows [left, top, right, bottom] in pixels; rows of
 * zeros fill it up. Build it against an installed library:
 *
 *     cc boxes.c $(pkg-config --cflags --libs libbeton-loader) -o boxes
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <stdio.h>
#include <string.h>

#include <beton/loader.h>

enum { SIDE = 64 };

static const beton_tensor *find(const beton_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0)
			return &batch->tensors[i];
	return NULL;
}

/* box: left, top, right, bottom in the square; becomes those in the stored picture. drawn: the picture's row of
 * "image.drawn", without operations: crop x, y, width, height; flipped; place x, y, width, height. */
static void take_back(double box[4], const double *drawn)
{
	const double *crop = drawn, *place = drawn + 5;
	double left = box[0] - place[0], right = box[2] - place[0];
	if (drawn[4] == 1) {
		double mirrored = place[2] - right;
		right = place[2] - left;
		left = mirrored;
	}
	box[0] = crop[0] + left * crop[2] / place[2];
	box[2] = crop[0] + right * crop[2] / place[2];
	box[1] = crop[1] + (box[1] - place[1]) * crop[3] / place[3];
	box[3] = crop[1] + (box[3] - place[1]) * crop[3] / place[3];
}

static void print_batch(const beton_batch *batch)
{
	const beton_tensor *boxes = find(batch, "boxes"), *kept = find(batch, "boxes.kept");
	const beton_tensor *drawn = find(batch, "image.drawn");
	int64_t rows = boxes->shape[1];
	for (int64_t i = 0; i < batch->count * rows; i++) {
		const float *box = (const float *)boxes->data + i * 4;
		double back[4] = {(double)box[0], (double)box[1], (double)box[2], (double)box[3]};
		/* A row that fills the array up, or a box outside the crop, keeps nothing. */
		if (((const float *)kept->data)[i] == 0)
			continue;
		take_back(back, (const double *)drawn->data + i / rows * drawn->shape[1]);
		printf("sample %llu: %.1f %.1f %.1f %.1f of %d, in the picture %.1f %.1f %.1f %.1f\n",
		       (unsigned long long)batch->sample_ids[i / rows], (double)box[0], (double)box[1], (double)box[2],
		       (double)box[3], SIDE, back[0], back[1], back[2], back[3]);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: boxes FILE.beton\n");
		return 2;
	}
	const beton_geometry boxes = {.field = "boxes", .kind = BETON_BOXES_XYXY, .units = BETON_UNITS_PIXELS};
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.order = BETON_ORDER_RANDOM;
	options.image.height = options.image.width = SIDE;
	options.image.fit = BETON_FIT_PAD_CENTER;
	options.image.pad[0] = options.image.pad[1] = options.image.pad[2] = 114;
	options.image.flip_probability = 0.5;
	options.geometry = &boxes;
	options.num_geometry = 1;
	options.drawn = true;

	beton_error err;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	if (beton_loader_open(&loader, argv[1], &options, &err) != BETON_OK ||
	    beton_iterator_open(&iterator, loader, 0, 0, &err) != BETON_OK) {
		fprintf(stderr, "boxes: %s\n", err.message);
		beton_loader_close(&loader);
		return 1;
	}
	beton_batch *batch;
	int result;
	int lost = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END) {
		if (result != BETON_OK) { /* this batch is lost; the next one may be fine */
			fprintf(stderr, "boxes: %s\n", err.message);
			lost++;
			continue;
		}
		print_batch(batch);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return lost > 0;
}
