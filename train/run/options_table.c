/* SPDX-License-Identifier: Apache-2.0
 *
 * The options, and nothing else: --help, the manual page, the completion and the README's table are made of it. */
#include "options_table.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

#include <dtrain/comm.h>
#include <dtrain/model.h>

static const char *const schedules[] = {
	[DTRAIN_SCHEDULE_CONSTANT] = "constant",
	[DTRAIN_SCHEDULE_LINEAR] = "linear",
	[DTRAIN_SCHEDULE_COSINE] = "cosine",
	NULL,
};
static const char *const lr_scales[] = {
	[RUN_LR_SCALE_NONE] = "none",
	[RUN_LR_SCALE_LINEAR] = "linear",
	[RUN_LR_SCALE_SQRT] = "sqrt",
	NULL,
};
static const char *const precisions[] = {
	[ENGINE_PRECISION_F32] = "f32",
	[ENGINE_PRECISION_TF32] = "tf32",
	[ENGINE_PRECISION_BF16] = "bf16",
	[ENGINE_PRECISION_FP16] = "fp16",
	NULL,
};
static const char *const orders[] = {
	[RUN_ORDER_SEQUENTIAL] = "sequential",
	[RUN_ORDER_RANDOM] = "random",
	[RUN_ORDER_QUASI_RANDOM] = "quasi-random",
	[RUN_ORDER_WEIGHTED] = "weighted",
	[RUN_ORDER_WEIGHTED_UNIQUE] = "weighted-unique",
	[RUN_ORDER_BALANCED] = "balanced",
	[RUN_ORDER_LIST] = "list",
	[RUN_ORDER_FFCV_RANDOM] = "ffcv-random",
	[RUN_ORDER_TORCH_DISTRIBUTED] = "torch-distributed",
	NULL,
};
static const char *const engines[] = {
	[BETON_ENGINE_AUTO] = "auto",
	[BETON_ENGINE_MMAP] = "mmap",
	[BETON_ENGINE_THREADS] = "threads",
	[BETON_ENGINE_URING] = "uring",
	NULL,
};
static const char *const bad_samples[] = {
	[RUN_BAD_FAIL] = "fail",
	[RUN_BAD_SKIP] = "skip",
	NULL,
};
static const char *const crops[] = {
	[BETON_CROP_NONE] = "none",
	[BETON_CROP_RANDOM] = "random",
	[BETON_CROP_CENTER] = "center",
	NULL,
};
static const char *const flip_modes[] = {
	[BETON_FLIP_RANDOM] = "random",
	[BETON_FLIP_ALTERNATE] = "alternate",
	NULL,
};
static const char *const fills[] = {
	[VISION_FILL_MEAN] = "mean",
	[VISION_FILL_REFLECT] = "reflect",
	NULL,
};
static const char *const auto_augments[] = {
	[VISION_AUTO_NONE] = "none",
	[VISION_AUTO_RAND] = "rand-augment",
	[VISION_AUTO_TRIVIAL] = "trivial-augment",
	NULL,
};
static const char *const erases[] = {
	[VISION_ERASE_MEAN] = "mean",
	[VISION_ERASE_NOISE] = "noise",
	NULL,
};
static const char *const ttas[] = {
	[VISION_TTA_NONE] = "none",
	[VISION_TTA_FLIP] = "flip",
	[VISION_TTA_FLIP_SHIFT] = "flip-shift",
	NULL,
};
static const char *const flags[] = {"no", "yes", NULL};
static const char *const resumes[] = {
	[RUN_RESUME_NO] = "no",
	[RUN_RESUME_YES] = "yes",
	[RUN_RESUME_AUTO] = "auto",
	NULL,
};

static const char *device_name(int index)
{
	static const char *const names[] = {"auto", "cuda", "cpu", "ref"};
	return index < (int)(sizeof(names) / sizeof(names[0])) ? names[index] : NULL;
}

#define AT(member) offsetof(run_options, member)
#define GROUP(title, more)                                                                 \
	{                                                                                  \
		.name = title, .manual = more, .kind = OPTION_GROUP, .change = OPTION_FREE \
	}
#define ROW(title, change_, type, member, value, standard_, help, more, ...)                                         \
	{                                                                                                            \
		.name = title, .argument = value, .standard = standard_, .text = help, .manual = more, .kind = type, \
		.change = OPTION_##change_, .offset = AT(member), __VA_ARGS__                                        \
	}
#define TEXT(name, change, member, argument, standard, text, manual, ...) \
	ROW(name, change, OPTION_TEXT, member, argument, standard, text, manual, __VA_ARGS__)
#define PATH(name, change, member, argument, text, manual, ...) \
	ROW(name, change, OPTION_PATH, member, argument, NULL, text, manual, __VA_ARGS__)
#define WHOLE(name, change, member, argument, low, high, standard, text, manual) \
	ROW(name, change, OPTION_WHOLE, member, argument, standard, text, manual, .least = low, .most = high)
#define SEED(name, change, member, argument, standard, text, manual) \
	ROW(name, change, OPTION_SEED, member, argument, standard, text, manual, .least = 0)
#define REALS(name, change, member, argument, number, low, high, standard, text, manual)                         \
	ROW(name, change, OPTION_REALS, member, argument, standard, text, manual, .count = number, .least = low, \
	    .most = high)
#define CHOICE(name, change, member, argument, list, standard, text, manual) \
	ROW(name, change, OPTION_CHOICE, member, argument, standard, text, manual, .choices = list)
#define FLAG(name, change, member, text, manual) \
	ROW(name, change, OPTION_FLAG, member, NULL, NULL, text, manual, .choices = flags)
#define SWITCH(name, change, member, list, argument, text, manual) \
	ROW(name, change, OPTION_SWITCH, member, argument, NULL, text, manual, .choices = list)

const option_row run_rows[] = {
	GROUP("Data and model", NULL),
	ROW("data", PLACE, OPTION_PATHS, data, "FILE[,FILE...]", NULL,
	    "training set: .beton files with pictures and labels (required)",
	    "The fields are those of --image-field and --label-field. The samples of an epoch that do not fill a "
	    "global batch are left "
	    "out; each epoch leaves out others. Several files are one data set, one behind the other; their fields "
	    "must be the same. A comma that is in a name of several has a backslash in front of it.",
	    .none = false),
	TEXT("data-weights", FIXED, data_weights, "X,...", NULL, "how often samples of each --data come",
	     "One number for each file, in proportion to the others. In every 65536 positions each file comes as "
	     "often as that says, at places that are drawn; its samples come in passes, each of which permutes them "
	     "anew, as often as they are needed.",
	     .none = true),
	TEXT("image-field", FIXED, vision.image_field, "NAME", NULL,
	     "picture field of --data and --val (default: `image`, or the first picture field)",
	     "The first line of the output says which fields are used.", .none = true),
	TEXT("label-field", FIXED, vision.label_field, "NAME", NULL,
	     "label field of --data and --val (default: `label`, or the first integer field)", NULL, .none = true),
	PATH("val", PLACE, val, "FILE", "validation set; none: no evaluation",
	     "Where both files have names for their classes, a label must have the same name in both. An empty name "
	     "means none, where the run that is resumed has one.",
	     .none = true),
	ROW("recipe", FIXED, OPTION_NAME, recipe, "NAME|FILE", NULL, "options from a recipe, for all that is not given",
	    "A name is that of a recipe which came with the program; a file is named with a slash, as in `./recipe`. "
	    "See RECIPES.",
	    .none = false),
	TEXT("model", FIXED, model, "NAME", NULL, "%s (required)",
	     "`airbench94` is the network of airbench94, for CIFAR-10, and takes pictures of 9 to 136 pixels a side; "
	     "its first layer is computed before the first step, from 5000 pictures of --data that are spread evenly "
	     "over it and cut as those of --val are. `resnet9` is that of FFCV's CIFAR-10 example, for pictures of "
	     "11 to 74 pixels a side. `resnet20` is for CIFAR. `resnet50` is version 1.5.",
	     .name_at = dtrain_model_name),
	PATH("init", FREE, init, "FILE", "begin with the weights of a safetensors file, or of a checkpoint's folder",
	     "Names are torchvision's, which timm's resnets have, too; `module.`, `_orig_mod.` and `model.` in front "
	     "of "
	     "all of them are passed over. Numbers of 16 or 64 bits are converted. Where the number of classes differs "
	     "the head, which is the last layer, begins anew. A tensor that is missing elsewhere, or has another "
	     "shape, "
	     "is an error. The output and the log say what was taken and what was not. Of a folder of checkpoints the "
	     "newest is taken, and of one with moving averages those. A run that is resumed has the weights of its "
	     "checkpoint.",
	     .none = true),
	TEXT("freeze", TOLD, freeze, "PATTERN[,...]", NULL, "layers and parameters that are not trained",
	     "A pattern is as in a shell, and matches a parameter's name or what is in front of one of its dots: "
	     "`layer1`, "
	     "`layer[1-3]`, `*.bias`. What it matches has no gradient, update or decay, and no part in --clip-norm, "
	     "and is "
	     "not sent to other ranks where whole buckets of it are; backward ends at the first layer that is trained. "
	     "Batch norm's running statistics go by their own names: `layer1` freezes those of its layers, too, which "
	     "then normalize with them, as in evaluation, while they go on to move behind a pattern such as "
	     "`*.weight`. "
	     "Frozen statistics of a layer that is trained, or has such in front of it, are refused.",
	     .none = true),
	FLAG("evaluate", FREE, evaluate, "only evaluate --init, or the newest of --checkpoint, on --val",
	     "What the weights' metadata say need not be given: the model, its classes, --image-size, --mean, --std "
	     "and "
	     "--val-ratio. Nothing is trained or saved; --data, --epochs and what belongs to training are not needed."),
	FLAG("plan", FREE, plan, "print what memory the run needs, and exit",
	     "Parameters, gradients, optimizer state and activations of a rank; then the tensors that are alive in the "
	     "step with most bytes, and each step of the program with its bytes."),
	WHOLE("classes", FREE, classes, "N", 1, 1000000, NULL,
	      "classes of the model (default: the data's highest label + 1)", NULL),
	WHOLE("image-size", TOLD, vision.image_size, "N", 1, 4096, "224", "pictures are scaled to N x N pixels", NULL),

	GROUP("Length", NULL),
	REALS("epochs", TOLD, epochs, "X", 1, 1e-6, 1e6, NULL,
	      "train X epochs, in whole steps; this or --steps is required",
	      "Counted from the start of the run, not from where it was resumed. A fraction is possible, and ends "
	      "with a whole step."),
	WHOLE("steps", TOLD, steps, "N", 1, RUN_STEPS_MAX, NULL, "train N steps, over as many epochs as that takes",
	      "Counted in the same way."),
	WHOLE("batch-size", TOLD, batch_size, "N", 1, 65536, "64", "pictures in a batch of one rank", NULL),
	WHOLE("global-batch", TOLD, global_batch, "N", 0, 1e12, "0",
	      "pictures in a step of all ranks together, in place of --batch-size; 0 = not given",
	      "Each rank's share is N / (ranks * --accumulate), which must be a whole number."),
	WHOLE("accumulate", TOLD, accumulate, "K", 1, 4096, "1", "batches of each rank in a step",
	      "Their gradients are added up, and sent to the other ranks once a step; the update is that of their "
	      "mean. "
	      "Batch norm has the statistics of each batch by itself. What an epoch has beyond whole steps is left "
	      "out."),

	GROUP("Ranks and device", NULL),
	WHOLE("world-size", TOLD, world_size, "N", 1, DTRAIN_MAX_RANKS, "1", "start N ranks on this machine",
	      "One rank trains in the process itself."),
	TEXT("device", PLACE, device, "NAME[:INDEX]", "auto", "cuda, cpu, ref or auto, the fastest there is",
	     "`cuda`: NVIDIA's GPUs, by a module that is loaded when it is asked for. `cpu`: oneDNN. `ref`: plain C, "
	     "slow, to compare with. Each rank takes the GPU of its number among the ranks of its machine, unless an "
	     "INDEX is given.",
	     .name_at = device_name),
	CHOICE("precision", TOLD, precision, "NAME", precisions, "f32", "%s, for what is computed",
	       "The type of activations and their gradients; parameters, their gradients, statistics and the loss "
	       "stay in 32 bits. `tf32` is `f32` with the inputs of convolutions and products rounded where the "
	       "device is faster then. With `fp16` the loss is scaled as torch.amp.GradScaler does, and steps whose "
	       "gradients are not finite are left out; the scale is saved with checkpoints."),
	FLAG("deterministic", TOLD, deterministic, "the same bits in each run on the same device, where that is slower",
	     "The versions of the device's libraries must be the same, too."),
	FLAG("no-capture", FREE, no_capture, "put each step on a GPU op by op, not as a whole",
	     "Without it only the first two steps are; the others are captured and launched as a whole."),
	FLAG("share-device", FREE, share_device, "let several ranks use one GPU",
	     "For tests; each rank takes the first GPU unless an index is given."),
	WHOLE("threads", PLACE, threads, "N", 0, 4096, "0", "compute threads per rank; 0 = its cores",
	      "With 0, OMP_NUM_THREADS decides where it is set. They wait for each other many times in a step: where "
	      "other processes use a quarter of their cores or more, that is said, once, as fewer threads may be "
	      "several times faster then."),
	WHOLE("workers", FREE, workers, "N", 0, 4096, "0", "loader threads per rank; 0 = its cores",
	      "They read and decode pictures."),
	WHOLE("master-port", FREE, master_port, "N", 0, 65535, "0", "TCP port where ranks meet; 0 = a free one", NULL),
	TEXT("interface", FREE, interface, "NAME", NULL,
	     "network interface between ranks (default: the one on the way to rank 0's machine)",
	     "Where something else starts the ranks, rank 0's store listens on it, too; by default the store listens "
	     "on "
	     "all of them, or on the loopback interface where MASTER_ADDR is an address of that. The store of ranks "
	     "that this program starts is on the loopback interface. Where NCCL_SOCKET_IFNAME is not set, it becomes "
	     "that name.",
	     .none = false),
	REALS("timeout", FREE, timeout, "SECONDS", 1, 1, 86400, "30", "longest wait for another rank in a step",
	      "After it the job is given up. Set-up, evaluation and saving have half an hour, finding rank 0's store "
	      "has five minutes, joining has three. A rank of this program's own that is stopped (SIGSTOP) for ten "
	      "seconds more ends the job in all of them, unless all ranks are. A device that is not done with a step "
	      "35 seconds after that ends the rank, too."),

	REALS("bucket-mb", TOLD, bucket_mb, "X", 1, 0, 4096, "0",
	      "MiB of gradients that are reduced at once; 0 = 1 for the first, then 25",
	      "A parameter is never cut, so a bucket may be larger. Where ranks reduce in a ring, sums of other "
	      "buckets may differ in the last bits."),

	GROUP("Optimizer: SGD", "SGD as PyTorch's."),
	REALS("lr", TOLD, lr, "X", 1, 0, FLT_MAX, "0.1", "learning rate", NULL),
	CHOICE("lr-scale", TOLD, lr_scale, "NAME", lr_scales, "none", "how the rate depends on the global batch: %s",
	       "`none`: --lr is the rate, whatever the number of ranks. `linear`: the rate is --lr times the global "
	       "batch "
	       "(--batch-size * --accumulate * ranks) / --lr-base-batch (Goyal et al. 2017). `sqrt`: --lr times the "
	       "root "
	       "of that. --initial-lr and --final-lr are multiplied by the same factor. The first lines of the output "
	       "and the log's lr say what came out."),
	WHOLE("lr-base-batch", TOLD, lr_base_batch, "N", 1, 1e12, "256", "global batch for which --lr is meant",
	      "It is used by --lr-scale `linear` and `sqrt`."),
	CHOICE("schedule", TOLD, schedule, "NAME", schedules, "cosine", "%s",
	       "How the rate goes on after the warm-up."),
	REALS("initial-lr", TOLD, initial_lr, "X", 1, 1e-12, FLT_MAX, NULL,
	      "of the first step, where the warm-up begins (default: --lr / its steps)",
	      "From there it is a straight line to --lr at the first step behind the warm-up. By default the last "
	      "step of the warm-up has --lr already. A warm-up is required; where that is rounded to no step at all, "
	      "the run begins at --lr."),
	REALS("final-lr", TOLD, final_lr, "X", 1, 0, FLT_MAX, "0", "where `linear` and `cosine` end", NULL),
	REALS("warmup-epochs", TOLD, warmup_epochs, "X", 1, 0, 1e6, "0", "the rate rises for that long",
	      "It rises linearly; a fraction is possible. Only one of the three options for a warm-up may be given. "
	      "With --schedule `linear` this is a triangle: the rate is changed in every step, reaches --lr when the "
	      "warm-up ends, and falls in a straight line to --final-lr."),
	WHOLE("warmup-steps", TOLD, warmup_steps, "N", 0, RUN_STEPS_MAX, "0", "the same in steps", NULL),
	REALS("warmup-share", TOLD, warmup_share, "X", 1, 0, 1, "0", "the same as a share of the run",
	      "Rounded to a step."),
	REALS("momentum", TOLD, momentum, "X", 1, 0, 1 - DBL_EPSILON, "0.9", "momentum", NULL),
	FLAG("nesterov", TOLD, nesterov, "Nesterov's form of momentum", NULL),
	REALS("weight-decay", TOLD, weight_decay, "X", 1, 0, FLT_MAX, "1e-4", "of the parameters", NULL),
	REALS("bias-lr-scale", TOLD, bias_lr_scale, "X", 1, 1e-6, 1e6, "1",
	      "times --lr: of biases and batch norm; their decay is by so much less",
	      "These are the parameters of one dimension; a step takes off as much of each."),
	REALS("clip-norm", TOLD, clip_norm, "X", 1, 0, FLT_MAX, "0", "clip gradients to this norm; 0 = not",
	      "As torch.nn.utils.clip_grad_norm_: where the norm of all gradients (of their means over the ranks, "
	      "without the scale of `fp16`) is larger than X, they are multiplied with X / (norm + 1e-6). The log has "
	      "the norm of each step, so a very large X only shows it. A norm that is infinite makes gradients 0, and "
	      "those that are infinite themselves NaN, as they all are where the norm is NaN; with `fp16` such a step "
	      "is left out."),
	FLAG("no-bias-decay", TOLD, no_bias_decay, "no weight decay of biases and batch norm",
	     "As recipes for ImageNet have it."),
	WHOLE("lookahead", SWITCHED, lookahead, "N", 0, 1e6, "0", "every N steps go back to slow weights; 0 = never",
	      "Slow weights beside the parameters and batch norm's statistics, as in Lookahead (Zhang et al. 2019): "
	      "after every N steps they become d times slow + (1 - d) times weights, and training goes on from "
	      "there; after the last step the slow weights are what is left. The factor d is 0.95 to the power of N, "
	      "times the cube of the part of the steps that is done."),
	REALS("ema", SWITCHED, ema, "DECAY", 1, 0, 1 - DBL_EPSILON, "0",
	      "a moving average of the weights, which is what is evaluated; 0 = none",
	      "An exponential one of parameters and batch norm's statistics, as timm's and torchvision's: after a step "
	      "it "
	      "becomes DECAY times average + (1 - DECAY) times weights. Training goes on with the weights themselves. "
	      "Evaluations are of the average. Checkpoints have both; see CHECKPOINTS."),
	FLAG("ema-warmup", TOLD, ema_warmup, "the average's decay begins at 0 and rises to --ema",
	     "As in timm: after n updates it is 1 - (n + 1)^(-2/3), if that is less. Without it a short run's average "
	     "is mostly the initial weights."),
	WHOLE("ema-every", TOLD, ema_every, "N", 1, 1e6, "1", "steps from one update of the average to the next", NULL),
	REALS("whiten-bias-epochs", TOLD, vision.whiten_bias_epochs, "X", 1, 0, 1e6, "3",
	      "`airbench94` trains its first layer's bias for that long", "Then the bias stays as it is."),
	REALS("label-smoothing", TOLD, label_smoothing, "X", 1, 0, 1, "0", "in the training loss", NULL),
	SEED("seed", FIXED, seed, "N", "0", "of weights, order and augmentation", NULL),

	GROUP("Order and loading", NULL),
	CHOICE("order", FIXED, order, "NAME", orders, "random", "of the training set: %s",
	       "`random` is another permutation in each epoch. `quasi-random` puts --window-pages pages of the file "
	       "together, drawn at random, and permutes their samples: for files larger than memory on disks that "
	       "want to be read in order. `weighted` draws with replacement, `weighted-unique` without, by "
	       "--weights. `balanced` comes in rounds, in each of which every class comes once. `list` is --indices "
	       "as they stand. `ffcv-random` is FFCV's order, and `torch-distributed` PyTorch's "
	       "DistributedSampler's, number for number."),
	PATH("indices", PLACE, indices, "FILE", "the samples to train on, one number a line; none: all",
	     "Any order is made of them alone; they may repeat. Samples count from 0, over all files of --data.",
	     .none = true),
	ROW("weights", PLACE, OPTION_NAME, weights, "FIELD|FILE", NULL, "of samples, for the orders that draw by them",
	    "A field of --data with whole or real numbers; or a file, which is named with a slash, with one number a "
	    "line: of each sample, or of each of --indices. A weight of 0 is never.",
	    .none = true),
	TEXT("class-field", FIXED, class_field, "NAME", NULL, "classes of the order `balanced` (default: the label)",
	     NULL, .none = true),
	WHOLE("window-pages", FIXED, window_pages, "N", 1, UINT32_MAX, "64", "pages of the order `quasi-random`", NULL),
	WHOLE("epoch-samples", FIXED, epoch_samples, "N", 0, 1e12, "0",
	      "length of an epoch where samples are drawn; 0 = as many as there are",
	      "In the orders `weighted`, `weighted-unique` and `balanced`, and with --data-weights."),
	CHOICE("engine", FREE, engine, "NAME", engines, "auto", "how files are read: %s",
	       "`mmap` maps them into memory; a file that becomes shorter meanwhile ends the process. `threads` copies "
	       "from the page cache, and a pool of threads reads what is not there. `uring` is io_uring; where the "
	       "system forbids it, a message says so and `threads` takes its place. `auto` is `uring` with --direct, "
	       "else `threads`."),
	FLAG("direct", FREE, direct, "read past the page cache",
	     "For files much larger than memory. Where the file system cannot do it, a message says so."),
	WHOLE("read-ahead", FREE, read_ahead, "N", 0, 1024, "0",
	      "samples that each loader thread reads ahead; 0 = automatic",
	      "The automatic number is 0 where the file is in memory, and grows while data is late."),
	WHOLE("memory-limit", FREE, memory_limit, "N", 0, 1e15, "0", "bytes for each rank's loader; 0 = what it needs",
	      "It covers batches, what is read ahead, what is kept of the files' metadata, and decoding; the loaders "
	      "of "
	      "--data and --val have as much each. A limit that cannot work is refused, with the least that can."),
	WHOLE("max-pixels", FREE, max_pixels, "N", 0, 1e15, "0",
	      "a JPEG that has more pixels is a bad sample; 0 = 89478485", "Nothing of it is decoded."),

	CHOICE("bad-samples", TOLD, bad_samples, "NAME", bad_samples, "fail",
	       "pictures that cannot be read or decoded: %s, which counts and names them",
	       "`fail` ends the run with the sample's number. With `skip` another picture of the epoch takes the place "
	       "of "
	       "one of --data, so that each batch is full, and evaluations leave those of --val out. The output names "
	       "them after each epoch, and the log has their number."),

	GROUP("Pictures", NULL),
	CHOICE("crop", TOLD, vision.crop, "NAME", crops, "random", "%s, in training",
	       "`random` is random-resized-crop, `none` the whole picture."),
	REALS("crop-scale", TOLD, vision.crop_scale, "MIN,MAX", 2, 1e-6, 1, "0.08,1", "random crop's share of the area",
	      NULL),
	REALS("crop-ratio", TOLD, vision.crop_ratio, "MIN,MAX", 2, 1e-3, 1e3, "0.75,1.3333333333333333",
	      "random crop's width / height", NULL),
	REALS("flip", TOLD, vision.flip, "P", 1, 0, 1, "0.5", "chance of a left-right flip in training", NULL),
	CHOICE("flip-mode", TOLD, vision.flip_mode, "NAME", flip_modes, "random",
	       "random, or alternate: every picture's other side in every other epoch",
	       "With `random` it is drawn for each epoch anew. With `alternate` it is drawn once for each picture: "
	       "those drawn are flipped in the first epoch, the third, and so on, the others in those between, so "
	       "that two epochs show every picture from both sides."),
	WHOLE("translate", TOLD, vision.translate, "N", 0, 4096, "0", "moves training pictures by up to N pixels",
	      "In both directions, every place being equally likely."),
	CHOICE("translate-fill", TOLD, vision.translate_fill, "NAME", fills, "mean",
	       "what a move uncovers: the mean, or reflect, the picture mirrored",
	       "`mean` is --mean without its decimals; `reflect` is what lies on the other side of the picture's "
	       "edge."),
	WHOLE("cutout", TOLD, vision.cutout, "N", 0, 4096, "0", "covers a square of N x N pixels of training pictures",
	      "The square is drawn for each picture, lies inside, and becomes the mean. It comes after --translate."),
	REALS("vertical-flip", TOLD, vision.vertical_flip, "P", 1, 0, 1, "0", "chance of a top-bottom flip in training",
	      NULL),
	CHOICE("auto-augment", TOLD, vision.auto_augment, "NAME", auto_augments, "none", "%s, in training",
	       "torchvision's RandAugment (14 operations, 31 bins) and TrivialAugmentWide, with nearest pixels and "
	       "black "
	       "where a picture is moved away."),
	WHOLE("ra-ops", TOLD, vision.ra_ops, "N", 1, 14, "2", "operations of `rand-augment` for each picture", NULL),
	WHOLE("ra-magnitude", TOLD, vision.ra_magnitude, "N", 0, 30, "9", "their magnitude", NULL),
	REALS("color-jitter", TOLD, vision.color_jitter, "B,C,S,H", 4, 0, 100, "0,0,0,0",
	      "jitter of brightness, contrast, saturation and hue in training; 0 = not",
	      "torchvision's ColorJitter: factors are drawn from max(0, 1 - X) to 1 + X, the hue from -H to H, which "
	      "is "
	      "0.5 at most; in random order."),
	REALS("grayscale", TOLD, vision.grayscale, "P", 1, 0, 1, "0", "chance of a grey picture in training", NULL),
	REALS("random-erase", TOLD, vision.random_erase, "P", 1, 0, 1, "0",
	      "chance of a rectangle that is erased in training",
	      "torchvision's RandomErasing with its defaults: 2 to 33 % of the area, height / width of 0.3 to 3.3. It "
	      "is "
	      "the last operation."),
	CHOICE("erase-mode", TOLD, vision.erase_mode, "NAME", erases, "mean", "what it becomes: the mean, or noise",
	       "`noise` is a normal number for each pixel and colour after --mean and --std, as torchvision's value "
	       "`random` and timm's mode `pixel`."),
	REALS("mixup", TOLD, vision.mixup, "ALPHA", 1, 0, 1000, "0",
	      "mixes training pictures and labels with others' of the batch; 0 = not",
	      "MixUp (Zhang et al. 2018), with the meaning of alpha in timm and torchvision: for each batch a share is "
	      "drawn from Beta(ALPHA, ALPHA); each picture becomes that share of itself and the rest of another one of "
	      "its batch, and its loss that share of the loss of its own label and the rest of that of the other. "
	      "Pictures are mixed after all that is done to each of them. The log has the loss of mixed labels; "
	      "evaluation mixes nothing."),
	REALS("cutmix", TOLD, vision.cutmix, "ALPHA", 1, 0, 1000, "0",
	      "puts a box of another picture into each; 0 = not",
	      "CutMix (Yun et al. 2019): the box's place, and its share of the area from Beta(ALPHA, ALPHA), are drawn "
	      "for each batch; what lies outside of the picture is cut off. The loss is as with --mixup, by the share "
	      "that is left. With --mixup and --cutmix each batch has one of them, with the same chance."),
	REALS("val-ratio", TOLD, vision.val_ratio, "X", 1, 1e-6, 1, "0.875",
	      "validation's centre crop: share of the shorter side",
	      "Training pictures are cut in the same way with --crop `center`."),
	CHOICE("tta", TOLD, vision.tta, "NAME", ttas, "none",
	       "evaluation's views: none, flip (and the mirror image), flip-shift (and both moved)",
	       "With `flip` the logits of a validation picture and those of its mirror image are added, before its "
	       "class and loss are computed. With `flip-shift` they are computed of a mean: half of it is the mean "
	       "of these two, half of it that of four others, the picture moved by one pixel to the lower right and "
	       "to the upper left (its edges being mirrored), and the mirror images of these."),
	REALS("mean", TOLD, vision.mean, "R,G,B", 3, -1e6, 1e6, "123.675,116.28,103.53",
	      "subtracted, on the scale 0..255", "The default is ImageNet's."),
	REALS("std", TOLD, vision.std, "R,G,B", 3, 1e-6, 1e6, "58.395,57.12,57.375", "then divided by",
	      "The default is ImageNet's."),

	GROUP("Output", NULL),
	/* torchrun matches abbreviations of its own options, such as --log-dir. */
	PATH("log", FREE, log, "FILE", "a line of JSON for each step and evaluation (or --log-file)",
	     "Lines are added to the file: see LOG. Without --resume the file must be new, or empty; with it one "
	     "that is there has to begin with a line of a log. An empty name means none, as for --val.",
	     .none = true, .alias = "log-file"),
	WHOLE("log-every", FREE, log_every, "N", 1, RUN_STEPS_MAX, "1", "log every N-th step, and the last",
	      "Evaluations and epochs are always logged; an epoch's times cover all of its steps."),
	PATH("tensorboard", FREE, tensorboard, "DIR", "write the numbers of --log for TensorBoard, too",
	     "An event file is added to the folder, which is created if it is missing. Losses and rates are under "
	     "`train/`, evaluations under `val/`, and where the time of an epoch went under `epoch/`.",
	     .none = true),
	FLAG("quiet", FREE, quiet, "print nothing but errors and warnings", NULL),
	WHOLE("print-every", FREE, print_every, "N", 0, RUN_STEPS_MAX, "0",
	      "print a line every N steps; 0 = every two seconds",
	      "This is for output to a file or a pipe. On a terminal one line shows the current step, and is rewritten "
	      "in place."),
	WHOLE("val-every", TOLD, val_every, "N", 1, 1e6, "1", "evaluate every N epochs, and at the end", NULL),
	FLAG("val-per-class", FREE, val_per_class, "also log the accuracy of each class",
	     "Each evaluation's record has a list `val_classes`. With --evaluate the list is printed."),
	PATH("checkpoint", FREE, checkpoint, "DIR", "write checkpoints there, at each epoch's end and at the end",
	     "And when a signal ends training: see CHECKPOINTS.", .none = false),
	WHOLE("checkpoint-every", FREE, checkpoint_every, "N", 0, RUN_STEPS_MAX, "0", "and every N steps; 0 = not",
	      NULL),
	WHOLE("keep-checkpoints", FREE, keep_checkpoints, "N", 0, 1e6, "3", "keep the newest N; 0 = all", NULL),
	FLAG("keep-best", FREE, keep_best, "keep the checkpoint with the best top-1, too: DIR/best",
	     "By the evaluations on --val; of equal ones the first. `best` is a link to its folder, which counts for "
	     "none of --keep-checkpoints, and is kept until a better one is saved."),
	SWITCH("resume", FREE, resume, resumes, "auto",
	       "go on from the newest checkpoint of --checkpoint, with the options it was saved with; auto: or begin",
	       "See RESUMING. Where there is none it is an error, or with `auto` the beginning of a run, so that a "
	       "scheduler can give the same command each time."),
	FLAG("help", FREE, help, "show this and exit (-h)", NULL),
	FLAG("version", FREE, version, "show the version and exit (-V)", NULL),
};

const int run_row_count = sizeof(run_rows) / sizeof(run_rows[0]);

_Static_assert(sizeof(run_rows) / sizeof(run_rows[0]) <= RUN_ROWS_MAX, "RUN_ROWS_MAX is too small");

int run_row_find(const char *name)
{
	for (int i = 0; i < run_row_count; i++)
		if (run_rows[i].kind != OPTION_GROUP && strcmp(run_rows[i].name, name) == 0)
			return i;
	return -1;
}

const char *run_row_possible(const option_row *row, int index)
{
	bool lists = row->kind == OPTION_CHOICE || row->kind == OPTION_SWITCH;
	if (row->name_at)
		return row->name_at(index);
	return lists ? row->choices[index] : NULL;
}
