/* SPDX-License-Identifier: Apache-2.0
 *
 * A training loop of one's own: three epochs of SGD over the pictures of a .beton file whose fields are "image" and
 * "label", on the fastest device there is. Build it against installed libraries:
 *
 *     cc train-loop.c $(pkg-config --cflags --libs libdtrain libbeton-loader) -o train-loop
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/loader.h>
#include <dtrain/model.h>
#include <dtrain/optimizer.h>

enum { BATCH = 4, SIZE = 32, CLASSES = 10, EPOCHS = 3 };

static beton_error err;

/* Ends the program with the message of the call that has failed. */
static void check(int status)
{
	if (status == BETON_OK)
		return;
	fprintf(stderr, "train-loop: %s\n", err.message);
	exit(1);
}

static beton_loader *open_loader(int argc, char **argv)
{
	beton_loader *loader;
	beton_loader_options options;
	if (argc != 2) {
		fprintf(stderr, "usage: train-loop FILE.beton\n");
		exit(2);
	}
	beton_loader_options_init(&options);
	options.batch_size = BATCH;
	options.last = BETON_LAST_DROP; /* a graph's shapes are static */
	options.order = BETON_ORDER_RANDOM;
	options.image.height = options.image.width = SIZE;
	options.image.flip_probability = 0.5;
	options.image.dtype = BETON_FLOAT32;
	options.image.layout = BETON_NCHW;
	options.image.normalize = true;
	check(beton_loader_open(&loader, argv[1], &options, &err));
	return loader;
}

/* All epochs: the loader prepares the next one's first batches before this one has ended. */
static beton_iterator *open_batches(beton_loader *loader)
{
	beton_iterator_options options;
	beton_iterator *batches;
	beton_iterator_options_init(&options);
	options.epochs = EPOCHS;
	check(beton_iterator_open_with(&batches, loader, &options, &err));
	return batches;
}

/* The memory of a batch's tensor. */
static const void *data_of(const beton_batch *batch, const char *name)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0)
			return batch->tensors[i].data;
	fprintf(stderr, "train-loop: the file has no field '%s'\n", name);
	exit(1);
}

int main(int argc, char **argv)
{
	beton_loader *loader = open_loader(argc, argv);
	beton_iterator *batches = open_batches(loader);
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	dtrain_stream *stream;
	dtrain_optimizer *sgd;
	dtrain_optimizer_options options;

	/* The model: a graph of fixed shapes, which is compiled once. */
	check(dtrain_device_open("auto", NULL, &device, &err));
	check(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	check(dtrain_graph_create(params, true, &graph, &err));
	const dtrain_shape pictures = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIZE, SIZE});
	const dtrain_shape labels = dtrain_shape_of(1, (int64_t[]){BATCH});
	dtrain_tensor image = dtrain_graph_input(graph, "image", DTRAIN_F32, &pictures);
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
	dtrain_tensor logits = dtrain_model_build(graph, "resnet20", image, CLASSES);
	dtrain_tensor loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, label, 0));
	dtrain_graph_backward(graph, loss);
	dtrain_graph_step_metric(graph, loss, 0); /* can be read after each run */
	check(dtrain_graph_compile(&graph, &program, &err));

	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_optimizer_options_init(&options);
	check(api->stream_create(device, &stream, &err));
	check(dtrain_params_initialize(params, 0, stream, &err));
	check(dtrain_optimizer_create(params, &options, &sgd, &err));
	for (int epoch = 0, status = BETON_OK; epoch < EPOCHS; epoch++) {
		beton_batch *batch;
		float now = 0;
		while ((status = beton_iterator_next(batches, &batch, -1, &err)) == BETON_OK) {
			check(api->copy(stream, dtrain_program_data(program, image), data_of(batch, "image"),
					sizeof(float[BATCH][3][SIZE][SIZE]), DTRAIN_HOST_TO_DEVICE, &err));
			check(api->copy(stream, dtrain_program_data(program, label), data_of(batch, "label"),
					sizeof(int64_t[BATCH]), DTRAIN_HOST_TO_DEVICE, &err));
			check(dtrain_program_run(program, stream, 0, 1, &err));
			check(dtrain_optimizer_step(sgd, 0.05, stream, &err));
			check(api->copy(stream, &now, dtrain_params_step_metrics(params), sizeof(now),
					DTRAIN_DEVICE_TO_HOST, &err));
			check(api->stream_synchronize(stream, &err));
			beton_batch_release(&batch);
		}
		check(status == BETON_END ? BETON_OK : status);
		printf("epoch %d: loss of the last batch %.4f\n", epoch + 1, (double)now);
	}

	beton_iterator_close(&batches);
	dtrain_optimizer_destroy(&sgd);
	api->stream_destroy(stream);
	dtrain_program_destroy(&program);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
	beton_loader_close(&loader);
	return 0;
}
