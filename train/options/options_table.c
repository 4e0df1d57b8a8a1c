/* SPDX-License-Identifier: Apache-2.0
 *
 * The options, and nothing else: help, manual page, completion and docs/reference/options.md are made of it. */
#include "options_table.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

#include <dtrain/comm.h>

#include "engine/memory/recompute_option.h"
#include "options_choices.h"

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
#define WHOLE(name, change, member, argument, low, high, standard, text, ...) \
	ROW(name, change, OPTION_WHOLE, member, argument, standard, text, __VA_ARGS__, .least = low, .most = high)
#define SEED(name, change, member, argument, standard, text, manual) \
	ROW(name, change, OPTION_SEED, member, argument, standard, text, manual, .least = 0)
#define REALS(name, change, member, argument, number, low, high, standard, text, ...)                                 \
	ROW(name, change, OPTION_REALS, member, argument, standard, text, __VA_ARGS__, .count = number, .least = low, \
	    .most = high)
#define CHOICE(name, change, member, argument, list, standard, text, ...) \
	ROW(name, change, OPTION_CHOICE, member, argument, standard, text, __VA_ARGS__, .choices = list)
#define FLAG(name, change, member, text, ...) \
	ROW(name, change, OPTION_FLAG, member, NULL, NULL, text, __VA_ARGS__, .choices = flags)
/* Numbers of the optimizer. */
#define NUMBER(name, change, member, low, high, standard, text, manual)                                              \
	ROW(name, change, OPTION_REALS, member, "X", standard, text, manual, .count = 1, .least = low, .most = high, \
	    .of_kind = true)
#define KIND_FLAG(name, change, member, text, ...) \
	ROW(name, change, OPTION_FLAG, member, NULL, NULL, text, __VA_ARGS__, .choices = flags, .of_kind = true)
#define SWITCH(name, change, member, list, argument, text, ...) \
	ROW(name, change, OPTION_SWITCH, member, argument, NULL, text, __VA_ARGS__, .choices = list)

const option_row run_rows[] = {
	GROUP("Data and model", NULL),
	ROW("task", FIXED, OPTION_CHOICE, task, "NAME", "vision",
	    "the task: vision (a class for each picture), or lm (the next token of a text)",
	    "With `lm` --data and --val are files of tokens: nanoGPT's and llm.c's .bin, or a .beton file that "
	    "`beton-write` `--format=tokens` makes. A sample is a window of --context-length tokens and the next "
	    "token. The options of one task are errors with the other. Without --task, a --model that only one "
	    "task has decides.",
	    .choices = tasks, .fact = "task"),
	ROW("data", PLACE, OPTION_PATHS, data, "FILE[,FILE...]", NULL,
	    "training set: .beton files with pictures and labels, or files of tokens; or sets of .beton files "
	    "(required)",
	    "The fields are named by --image-field and --label-field. Several files are concatenated into one data "
	    "set; their fields must be the same. A set of beton-set, NAME.betonset, stands for its shards. With "
	    "several files, a comma in a name needs a backslash before it. Samples that do not fill a global batch at "
	    "the end of an epoch are left out; each epoch leaves out different ones.",
	    .none = false),
	TEXT("data-weights", FIXED, data_weights, "X,...", NULL,
	     "how often to draw from each --data file, relative to the others",
	     "One number per file. In every 65536 positions each file gets its share, at positions drawn at random. "
	     "The samples of a file come in passes, as many as needed; each pass is a new permutation of the file.",
	     .none = true, NEEDS(SET, IS("order", "random"))),
	TEXT("image-field", FIXED, vision.image_field, "NAME", NULL,
	     "picture field of --data and --val (default: `image`, or the first picture field)",
	     "The first line of the output shows the fields in use.", .none = true),
	TEXT("label-field", FIXED, vision.label_field, "NAME[,NAME...]", NULL,
	     "label field of --data and --val (default: `label`, or the first integer field)",
	     "An integer field has the number of a picture's class. An array, or several fields of integers or "
	     "floats, has a number for each output of the model: with --loss `cross-entropy` the probabilities of the "
	     "classes (as a teacher gives them), with `bce` 0 or 1 for each label, with `mse` the numbers to be "
	     "predicted. The default with `mse` is `label`, or the first field of floats.",
	     .none = true, .fact = "label_field"),
	FLAG("ignore-classes", TOLD, vision.ignore_classes, "do not compare the names of classes in several files",
	     "A label then stands for what its own file calls so. Otherwise files of --data that number their classes "
	     "differently are refused, and so is such a --val."),
	ROW("loss", FIXED, OPTION_CHOICE, vision.loss, "NAME", "cross-entropy",
	    "training loss: cross-entropy, bce (a binary one for each output), or mse (mean squared error)",
	    "Its targets depend on --label-field. `bce` is the mean over the outputs of the binary cross "
	    "entropy with logits, as timm's --bce-loss. With classes its target is 1 for the class and 0 elsewhere, "
	    "with --mixup and --cutmix the two shares; evaluation then has the cross entropy, so that runs can be "
	    "compared. With several labels, evaluation has the loss, F1 (the mean over the pictures), the share of "
	    "labels that are right, and the share of pictures with no wrong label; a label counts as predicted above a "
	    "probability of 1/2. `mse` is the mean over the outputs; evaluation has the mean absolute error, too. The "
	    "numbers are not scaled.",
	    .choices = losses, .fact = "loss"),
	ROW("ignore-label", FIXED, OPTION_WHOLE, vision.ignore_label, "N", "0",
	    "pictures with the label N, which is negative, have no loss; 0 = none",
	    "As ignore_index of PyTorch's cross_entropy: a rank's loss is the mean over the other pictures of its "
	    "batch, and an evaluation leaves them out. The log then has no accuracy in training.",
	    .least = INT32_MIN, .most = 0, .fact = "ignore_label", NEEDS(SET, IS("loss", "cross-entropy"))),
	REALS("bce-threshold", TOLD, vision.bce_threshold, "X", 1, 0, 1, "0",
	      "with --loss `bce`, targets above X count as 1, others as 0; 0 = they count as they are",
	      "As timm's --bce-target-thresh: with --mixup, both classes of a picture count as 1. The label smoothing "
	      "is part of the target.",
	      NEEDS(SET, IS("loss", "bce"))),
	PATH("val", PLACE, val, "FILE", "validation set (default: no evaluation)",
	     "A set of beton-set stands for its shards. If both files name their classes, a label must have the same "
	     "name in both. When a run with a validation set is resumed, an empty name means none.",
	     .none = true),
	ROW("recipe", FIXED, OPTION_NAME, recipe, "NAME|FILE", NULL,
	    "take options from a recipe; the command line wins",
	    "NAME is a recipe that comes with the program. FILE needs a slash, as in `./recipe`. See RECIPES.",
	    .none = false),
	ROW("model", FIXED, OPTION_NAME, model, "NAME|FILE", NULL, "%s (required)",
	    "`airbench94` is airbench94's network for CIFAR-10, for pictures of 9 to 136 pixels a side. Its first "
	    "layer is computed before the first step, from 5000 pictures that are spread evenly over --data and "
	    "cropped as in --val. `resnet9` is the network of FFCV's CIFAR-10 example, for pictures of 11 to 74 pixels "
	    "a side. `resnet20` is for CIFAR. `resnet50`, `resnet101` and `resnet152` are version 1.5. The vision "
	    "transformers `vit-s16` and `vit-b16` have patches of 16 pixels, `vit-ti4` and `vit-mini4` of 4 pixels for "
	    "small pictures; those with `-plain` have fixed positions and average the patches instead of having a "
	    "class token. GPT-2's and BERT's models imply --task `lm`. FILE, with a slash or the ending `.json`, is "
	    "Hugging Face's description of a model, a config.json. For a vision transformer, `\"pool\": \"mean\"` in "
	    "it is timm's global_pool='avg', and `\"class_token\": false` besides that its class_token=False.",
	    .name_at = run_task_model, .suffix = ".json", .fact = "model"),
	PATH("init", FREE, init, "FILE", "initial weights: a safetensors file, an index of several, or a folder",
	     "Tensor names are torchvision's, which timm's resnets share, or Hugging Face's; for vision transformers "
	     "they are timm's, torchvision's or Hugging Face's, and their positions are resized for pictures of "
	     "another size, as timm does. A prefix `module.`, `_orig_mod.` or `model.` of all names is ignored. "
	     "Numbers of 16 or 64 bits are converted, and a number that is not finite is an error. If the number of "
	     "classes differs, the head (the last layer) is initialized as in a new run. Any other tensor that is "
	     "missing or has another shape is an error. The output and the log list what was loaded and what was not. "
	     "In a folder of checkpoints the newest one is used, in one without any `model.safetensors` or "
	     "`model.safetensors.index.json`, or else the shards of PyTorch's HuggingFaceStorageWriter with "
	     "save_distributed=True (`shard-00001-model-00001-of-00001.safetensors`). An index names files of its "
	     "folder. Shards are read in place, and whatever is not all of a tensor is an error. In a checkpoint with "
	     "moving averages, the averages are used. A resumed run has the weights of its checkpoint.",
	     .none = true),
	TEXT("freeze", TOLD, freeze, "PATTERN[,...]", NULL, "do not train the layers and parameters that match",
	     "A PATTERN is a shell pattern. It matches a parameter's name, or the part of the name before one of "
	     "its dots: `layer1`, `layer[1-3]`, `*.bias`. A frozen parameter has no gradient, update or weight "
	     "decay, and does not count for --clip-norm. A bucket with only frozen parameters is not sent to "
	     "other ranks, and backward ends at the first layer that is trained. Batch norm's running statistics "
	     "match by their own names. `layer1` freezes the statistics of its layers, too, which then normalize "
	     "with them as in evaluation; a pattern such as `*.weight` leaves the statistics changing. It is an "
	     "error to freeze the statistics of a layer that is trained, or of a layer after one that is trained.",
	     .none = true),
	FLAG("evaluate", TOLD, evaluate, "evaluate --init or the newest of --checkpoint on --val; do not train",
	     "The weights' metadata supply what they have of the model, its classes, --label-field, --loss, "
	     "--image-size, --mean, --std and --val-ratio; these need not be given. It trains and saves nothing. "
	     "Training options such as --data and --epochs are not needed."),
	SWITCH("plan", TOLD, plan, plans, "full", "print the memory that the run needs, and exit; full: all items",
	       "The list has a rank's parameters, gradients, optimizer state and activations, the units of parameters "
	       "that are gathered or on their way to a shard, and what the rank sends in a step. Tables tell the same "
	       "for each `--strategy`, if there are several ranks, and for each `--recompute`. Then come the largest "
	       "tensors that are alive in the step with the most bytes; with `full` all of them, and each step of the "
	       "program with its bytes. Neither --epochs nor --steps is needed. dtrain-plan(1) needs neither data nor "
	       "ranks. It writes nothing: `--checkpoint`, `--log` and `--tensorboard` stay as they are.",
	       NEEDS(SET, IS("strategy", STRATEGY_TOGETHER " local"))),
	FLAG("overlap", TOLD, overlap,
	     "measure what communication the ranks wait for, and what would hide it, and exit",
	     "Some steps on made-up samples are measured, on all ranks; they update nothing. For each unit of "
	     "parameters the table has the bytes of its transfer, when its gradients were complete, when the transfer "
	     "began and ended, how long the step waited for it, and what was computed meanwhile. The cost of "
	     "transfers, a latency and a time for each byte, is fitted to these times. Then the step is simulated with "
	     "units of other sizes, another order, and transfers in more or fewer lanes. It writes nothing: "
	     "`--checkpoint`, `--log` and `--tensorboard` stay as they are. Needs several ranks, and a strategy whose "
	     "ranks take each step together, but neither --epochs nor --steps. On a busy machine the measured and the "
	     "simulated times differ; if it is more than twofold, a warning says so.",
	     NEEDS(SET, IS("strategy", STRATEGY_TOGETHER))),
	ROW("classes", FREE, OPTION_WHOLE, vision.classes, "N", NULL,
	    "number of classes (default: highest label of the data + 1)", NULL, .least = 1, .most = 1000000,
	    .fact = "classes"),
	ROW("image-size", TOLD, OPTION_WHOLE, vision.image_size, "N", NULL,
	    "scale pictures to N x N pixels (default: the model's size if it is a ViT, else 224)", NULL, .least = 1,
	    .most = 4096, .fact = "image_size"),

	GROUP("Length", NULL),
	ROW("epochs", TOLD, OPTION_REALS, epochs, "X", NULL, "train X epochs; this or --steps is required",
	    "Counted from the start of the run, also after a resume. X may be a fraction, and is rounded up to a "
	    "whole step.",
	    .count = 1, .least = 1e-6, .most = 1e6, .alias = "epoch"),
	WHOLE("steps", TOLD, steps, "N", 1, RUN_STEPS_MAX, NULL, "train N steps, over as many epochs as needed",
	      "Counted from the start of the run, also after a resume."),
	WHOLE("batch-size", TOLD, batch_size, "N", 1, 65536, "64", "batch size of each rank, in samples", NULL),
	WHOLE("global-batch", TOLD, global_batch, "N", 0, 1e12, "0",
	      "samples in a step over all ranks, instead of --batch-size; 0 = not given",
	      "Each rank's batch size becomes N / (ranks * --accumulate), which must be a whole number."),
	WHOLE("accumulate", TOLD, accumulate, "K", 1, 4096, "1",
	      "accumulate the gradients of K batches per rank in a step",
	      "Each rank adds up the gradients of its batches, and the ranks reduce them once a step; the update "
	      "uses the mean. Batch norm computes its statistics for each batch separately. Samples that do not "
	      "fill a step at the end of an epoch are left out."),
	WHOLE("reproducible", FIXED, reproducible, "V", 0, 4096, "0",
	      "divide a step into V deterministic shards: the same bits on any number of ranks; 0 = off",
	      "A shard is a batch of --batch-size samples, and each rank computes V / ranks of them in a step, which "
	      "replaces --accumulate. The gradients of the shards are added up in one order, so that weights and "
	      "losses do not depend on the number of ranks or on --strategy, also when a run is resumed with others. V "
	      "is a power of two. Implies --deterministic. On the device `cpu` sums also depend on the number of "
	      "compute threads: a rank has 1 / V of its machine's cores, or --threads, which must then be the same in "
	      "all runs. --bucket-mb, --unit-mb and --unit-pattern do not go with it."),

	GROUP("Ranks and device", NULL),
	WHOLE("world-size", TOLD, world_size, "N", 1, DTRAIN_MAX_RANKS, "1", "start N ranks on this machine",
	      "A single rank trains in the process itself."),
	TEXT("device", PLACE, device, "NAME[:INDEX]", "auto", "cuda, cpu, ref, or auto: the fastest one available",
	     "`cuda`: NVIDIA's GPUs; their module is loaded on request. `cpu`: oneDNN. `ref`: plain C, slow, for "
	     "comparison. Each rank uses the GPU whose number is its local rank (its number on its machine), "
	     "unless INDEX is given.",
	     .name_at = device_name),
	CHOICE("precision", TOLD, precision, "NAME", precisions, "f32", "%s, the type to compute in",
	       "The type of activations and their gradients. Parameters, their gradients, statistics and the loss "
	       "stay in 32 bits. `tf32` is `f32`, but rounds the inputs of convolutions and matrix products where the "
	       "device is faster that way; on the device `cpu` oneDNN 2 then has Winograd's algorithm, whose errors "
	       "are several times larger than `f32`'s and far below TF32's. `bf16` on the device `cpu` is faster than "
	       "`f32` on a processor with AMX or AVX-512's BF16 instructions. Without AVX-512 it stores 16 bits and "
	       "computes in 32, which is slower, and so does `fp16` on every processor: they are for trying a GPU's "
	       "run. `fp16` scales the loss as torch.amp.GradScaler does: a step whose gradients are not finite is "
	       "skipped, and checkpoints save the scale."),
	TEXT("recompute", FREE, recompute, "HOW", "none",
	     "results that backward computes again to save memory: none, selective, full, or the first N blocks",
	     "`selective`: ops without products that move few bytes (norms, activations, gates, dropout), where "
	     "backward has their inputs in any case. `full`: everything but the inputs of blocks (a transformer's "
	     "layers, a ResNet's residual blocks), which takes up to a third more products. N: the same for the first "
	     "N blocks, as Megatron-LM's method `block`, and for everything before them; N above their number is an "
	     "error. The last block, whose backward begins at once, is never computed again. The results have the same "
	     "bits. `--plan` prints the memory of each.",
	     .name_at = engine_recompute_name),
	CHOICE("offload", TOLD, offload, "NAME", engine_offload_names, "none",
	       "data that a GPU leaves in the memory of the host: %s",
	       "`optimizer`: the F32 values of parameters and the states of the optimizer, which the host updates on "
	       "--threads threads. Gradients go to the host while backward goes on, and the new values, or their "
	       "16-bit copies, come back unit by unit. With --clip-norm or fp16 the updates begin when the gradients "
	       "of all units are complete. AdamW with 16-bit types then takes 6 bytes of the GPU for each parameter, "
	       "not 18. Not with --lookahead, --ema, --reproducible and the strategies `local` and `async`. "
	       "`activations`: each activation that backward reads and that takes more than a hundredth of the largest "
	       "one's bytes, except the last two. They go to the host when forward has used them, and come back before "
	       "backward's first use; the results have the same bits. With --recompute it is the activations that are "
	       "kept. `both`: both. `parameters`: all of `optimizer`, and what ops read of the parameters. Each unit "
	       "of --strategy comes to the GPU ahead of its use, for forward and again for backward, and its gradients "
	       "leave when they are complete, so that the GPU has the units in use alone. --prefetch-mb and "
	       "--keep-gathered then apply to every strategy. With a sharding strategy the host of each rank has its "
	       "shard, and a unit is gathered when the shards have come. `all`: parameters and activations."),
	FLAG("deterministic", TOLD, deterministic, "the same bits in every run on the same device; may be slower",
	     "The versions of the device's libraries must be the same, too."),
	FLAG("no-capture", FREE, no_capture, "launch the ops of each step on a GPU one by one",
	     "By default only the first two steps run this way; later steps are captured and launched as a whole."),
	FLAG("share-device", FREE, share_device, "let several ranks use one GPU",
	     "For tests. Each rank uses the first GPU, unless --device has an index."),
	WHOLE("threads", PLACE, threads, "N", 0, 4096, "0", "compute threads per rank; 0 = one per core of the rank",
	      "With 0, OMP_NUM_THREADS applies if it is set. Compute threads wait for each other many times in a "
	      "step. If other processes use a quarter of the rank's cores or more, a warning says so once: fewer "
	      "threads may then be several times faster."),
	WHOLE("workers", FREE, workers, "N", 0, 4096, "0", "loader threads per rank; 0 = one per core of the rank",
	      "They read and decode pictures."),
	WHOLE("master-port", FREE, master_port, "N", 0, 65535, "0", "TCP port where ranks meet; 0 = a free one", NULL),
	TEXT("interface", FREE, interface, "NAME", NULL,
	     "network interface between ranks (default: the one towards rank 0's machine)",
	     "If another launcher starts the ranks, rank 0's store listens on this interface, too: at MASTER_ADDR if "
	     "the interface has it, else at its first address. By default "
	     "that store listens on all interfaces, or only on the loopback interface if MASTER_ADDR is a "
	     "loopback address. If this program starts the ranks, their store is on the loopback interface. The "
	     "variable NCCL_SOCKET_IFNAME is set to NAME, unless it is set already.",
	     .none = false),
	REALS("timeout", FREE, timeout, "SECONDS", 1, 1, 86400, "30", "longest wait for another rank in a step",
	      "The job fails after this time. Set-up, evaluation and saving have half an hour, finding rank 0's "
	      "store has five minutes, and joining has three. In any of these phases a rank that is stopped "
	      "(SIGSTOP), or whose machine is cut off, for SECONDS + 1 ends the job, unless all ranks are stopped. A "
	      "device that has not completed a step after SECONDS + 35 ends its rank."),
	REALS("bucket-mb", TOLD, bucket_mb, "X", 1, 0, 4096, "0",
	      "MiB of gradients in a bucket; 0 = 1 for the first, then 25",
	      "The ranks reduce a bucket as a whole. A parameter is never split, so a bucket may be larger. With "
	      "ring reduction, another size may change the last bits of the sums.",
	      NEEDS(GIVEN, IS("strategy", "ddp local"))),

	GROUP("Several ranks", NULL),
	CHOICE("strategy", TOLD, strategy, "NAME", strategies, "ddp", "how ranks share the parameters: %s",
	       "`ddp`: every rank has all of them. `zero1`: ranks have all values and gradients, but each updates its "
	       "shard alone and has optimizer states for that only. `zero2`: they also have gradients of their shards "
	       "only. `zero3` or `fsdp`: they have values of their shards only, too, and gather the others' before "
	       "each use. `hsdp`: as zero3 among the ranks of a machine (or --shard), with copies on the others. "
	       "`local`: every rank has all, trains its own for --local-steps, and then they move on together. "
	       "`async`: rank 0 is a parameter server, and no worker waits for all others. See LESS COMMUNICATION for "
	       "these two. "
	       "`lars`, `lamb` and `muon` need whole parameters: shards then begin and end between parameters, and are "
	       "as large as the fullest. A run may be resumed with another strategy, but not from or to `local`."),
	WHOLE("shard", TOLD, shard, "N", 0, DTRAIN_MAX_RANKS, "0",
	      "neighbouring ranks that share one copy of the parameters; 0 = all, with hsdp the ranks of a machine",
	      "With any sharding strategy. The number of ranks must be a multiple of N. There are ranks / N copies; "
	      "the ranks that have the same shard of different copies add up only its gradients.",
	      NEEDS(USED, IS("strategy", STRATEGY_SHARDS))),
	TEXT("mesh", FREE, mesh, "AXIS=N[,AXIS=N...]", NULL,
	     "how the ranks divide data and model: tensor=N, replicate=N, shard=N",
	     "`tensor`: N neighbouring ranks compute one model together, for the same samples: each has a part of the "
	     "heads and of the MLP of every layer, and they add up what both compute (Megatron-LM's tensor "
	     "parallelism). For transformers, whose heads, heads of keys and width of the MLP N must divide, and for "
	     "the mlp. The other ranks have other samples: there are ranks / N parts of a batch, and --strategy and "
	     "--shard are about these. `replicate` and `shard` are checked: their product with `tensor` is the number "
	     "of ranks. A run with `tensor` starts as the same run without does, and has the same losses but for the "
	     "order of sums. It cannot save or load weights yet.",
	     .none = true),
	REALS("unit-mb", TOLD, unit_mb, "X", 1, 0, 65536, "0",
	      "MiB of parameters that are gathered together; 0 = a block of the model",
	      "For sharding strategies. A block is a layer of a transformer or a stage of a ResNet. A parameter is in "
	      "one unit, so a unit may be larger.",
	      NEEDS(GIVEN, IS("strategy", STRATEGY_SHARDS))),
	FLAG("tune-units", FREE, tune_units, "choose --bucket-mb or --unit-mb from a few steps before the first",
	     "Steps are measured as with --overlap, with the default units. The size from a sixteenth to four times "
	     "that of the largest one with which a step is expected to be shortest is chosen, if it gains a hundredth "
	     "and its memory is free; otherwise the default units are kept. All ranks have the same. Training is "
	     "that with the size given by hand: `ddp` may add up in another order. The log and checkpoints have the "
	     "size in the place of this option, so a resumed run keeps it.",
	     NEEDS(GIVEN, IS("strategy", STRATEGY_TOGETHER))),
	TEXT("unit-pattern", TOLD, unit_pattern, "PATTERN", NULL, "modules whose parameters are gathered together",
	     "For sharding strategies, in place of blocks. PATTERN is a shell pattern that matches the names of "
	     "modules, which are the names of parameters without their last part. `transformer.h.*` makes a unit of "
	     "each layer of a GPT-2, `layer[1-4].*` of each block of a ResNet. The parameters between two such modules "
	     "are a unit, too.",
	     NEEDS(GIVEN, IS("strategy", STRATEGY_SHARDS))),
	REALS("prefetch-mb", FREE, prefetch_mb, "X", 1, 0, 65536, "64",
	      "MiB of units that are gathered ahead of use; 0 = none",
	      "For zero3 and hsdp, and with --offload parameters. The next unit is gathered ahead in any case, unless "
	      "X is 0.",
	      NEEDS(GIVEN, IS("strategy", "zero3 fsdp hsdp"), IS("offload", OFFLOAD_UNITS))),
	FLAG("keep-gathered", FREE, keep_gathered, "keep units gathered from forward to backward",
	     "For zero3 and hsdp, and with --offload parameters: a third less traffic, and as much memory as zero2.",
	     NEEDS(GIVEN, IS("strategy", "zero3 fsdp hsdp"), IS("offload", OFFLOAD_UNITS))),
	FLAG("accumulate-locally", FREE, accumulate_locally, "with --accumulate, reduce gradients once a step",
	     "For zero2, zero3 and hsdp, which otherwise reduce the gradients of each batch, so that a rank has "
	     "gradients of its shards only. `ddp` and `zero1` always reduce once.",
	     RULES(OWN(NEEDS, GIVEN, LIST(IS("strategy", "zero2 zero3 fsdp hsdp")), .early = false),
		   OWN(NEEDS, GIVEN, LIST(ABOVE("accumulate", 1)), .early = false))),
	FLAG("sync-batch-norm", TOLD, sync_batch_norm, "batch norm over the batches of all ranks together",
	     "As torch.nn.SyncBatchNorm: mean and variance are taken over the ranks' batches together, and so are the "
	     "running statistics. For batches that are small on each rank. Each batch norm waits for the other ranks, "
	     "in forward and in backward. Batches of --accumulate are still separate. With one rank this changes "
	     "nothing."),
	CHOICE("buffers", TOLD, buffers, "HOW", buffers, "average",
	       "%s: which of the ranks' running statistics evaluations and checkpoints use",
	       "Each rank's batch norms collect running statistics of its own batches. `average`: the mean of the "
	       "ranks'. `broadcast`: rank 0's, as with PyTorch's broadcast_buffers; PyTorch sends them before each "
	       "forward, but no training step reads them, so they are sent when they are needed. `own`: each rank "
	       "evaluates with its own, and a checkpoint has rank 0's, which all ranks get when a run is resumed.",
	       NEEDS(GIVEN, IS("strategy", STRATEGY_TOGETHER " local"))),
	WHOLE("local-steps", TOLD, local_steps, "N", 1, RUN_STEPS_MAX, "500",
	      "with --strategy `local`, steps between two synchronizations",
	      "A round ends after so many steps, and with the run. 500 is what DiLoCo's authors use.",
	      NEEDS(GIVEN, IS("strategy", "local"))),
	WHOLE("local-warmup", FIXED, local_warmup, "N", 0, RUN_STEPS_MAX, "0",
	      "with --strategy `local`, steps before the first round",
	      "In these the ranks reduce gradients, as with `ddp` (post-local SGD).",
	      NEEDS(GIVEN, IS("strategy", "local"))),
	REALS("outer-lr", TOLD, outer_lr, "X", 1, 1e-6, 1e6, "0.7",
	      "with --strategy `local`, learning rate of the outer optimizer",
	      "1 with --outer-momentum 0 makes the mean of the ranks' parameters the new ones, as in local SGD. The "
	      "default is DiLoCo's.",
	      NEEDS(GIVEN, IS("strategy", "local"))),
	REALS("outer-momentum", TOLD, outer_momentum, "X", 1, 0, 1 - DBL_EPSILON, "0.9",
	      "with --strategy `local`, Nesterov momentum of the outer optimizer", NULL,
	      NEEDS(GIVEN, IS("strategy", "local"))),
	WHOLE("staleness", TOLD, staleness, "N", 0, 1000000000, "8",
	      "with --strategy `async`, batches that a worker may be ahead of the slowest; 0 = synchronous",
	      "With 0 the gradients of all workers make one step, as with `ddp`. Otherwise each worker's gradients are "
	      "a step of their own.",
	      NEEDS(GIVEN, IS("strategy", "async"))),
	CHOICE("compress", TOLD, compress, "METHOD", compressions, "none",
	       "%s: what ranks send in place of gradients in F32",
	       "`f16` and `bf16`: that type; gradients are divided by the number of ranks before, and with a sharding "
	       "strategy runs of a step are still added up in F32. `int8`: a byte for each, and a scale for each block "
	       "of 256. `topk`: the largest of each bucket alone. `powersgd`: of each weight, seen as a matrix of its "
	       "first dimension and the rest, two narrow matrices (Vogels et al. 2019). These three are for ddp, and "
	       "for the sums over several copies with --shard. The rest of the gradients is added to the gradients of "
	       "the next step, in extra memory as large as the gradients, and is saved in checkpoints; each rank "
	       "writes a part. A run that is resumed with another METHOD or --powersgd-min-rate, on another number of "
	       "copies of the parameters (`ddp`: of ranks; else of ranks / --shard), with shards that cut other "
	       "matrices, or with another product of ranks and --accumulate, begins without it and says so."),
	REALS("compress-ratio", TOLD, compress_ratio, "X", 1, 1e-6, 1, "0.01", "share of gradients that `topk` sends",
	      NULL, NEEDS(GIVEN, IS("compress", "topk"))),
	FLAG("no-error-feedback", TOLD, no_error_feedback, "drop what `int8`, `topk` and `powersgd` do not send", NULL,
	     NEEDS(GIVEN, IS("compress", "int8 topk powersgd"))),
	WHOLE("powersgd-rank", TOLD, powersgd_rank, "N", 1, 65536, "1", "columns of the matrices that `powersgd` sends",
	      NULL, NEEDS(GIVEN, IS("compress", "powersgd"))),
	WHOLE("powersgd-start", TOLD, powersgd_start, "N", 0, RUN_STEPS_MAX, "1000",
	      "steps before `powersgd` begins; until then gradients are sent as they are",
	      "Gradients of the first steps are approximated badly. On a GPU, steps are captured from then on. A "
	      "resumed run goes on counting, on any number of ranks above one.",
	      NEEDS(GIVEN, IS("compress", "powersgd"))),
	REALS("powersgd-min-rate", TOLD, powersgd_min_rate, "X", 1, 1e-6, 1e6, "2",
	      "compress only matrices that become X times smaller, and more", NULL,
	      NEEDS(GIVEN, IS("compress", "powersgd"))),
	FLAG("no-warm-start", TOLD, no_warm_start, "let `powersgd` draw its matrices in each step anew",
	     "By default a step begins with the matrices of the last one.", NEEDS(GIVEN, IS("compress", "powersgd"))),

	GROUP("Optimizer", NULL),
	TEXT("optimizer", FIXED, optimizer, "NAME", "sgd", "%s",
	     "`sgd`, `adam` and `adamw` are the same as PyTorch's, `lion`, `lars` and `lamb` as timm's. The defaults "
	     "of their numbers depend on the name. `lars` and `lamb` scale the update of each parameter by norms, "
	     "unless its weight decay is 0: --no-bias-decay leaves biases and batch norm unscaled. `lamb` clips "
	     "gradients to a norm of 1. `muon` is PyTorch's for the matrices and convolutions in the network's blocks, "
	     "with Nesterov's momentum, and `adamw` for all else: biases, norms, and the parameters before the first "
	     "block and after the last one, such as embeddings and the last layer. On `cuda` its products are BF16, as "
	     "PyTorch's are, elsewhere F32. A resumed run has the optimizer of its checkpoint.",
	     .name_at = optimizer_name),
	NUMBER("lr", TOLD, lr, 0, FLT_MAX, "0.1", "learning rate", NULL),
	CHOICE("lr-scale", TOLD, lr_scale, "NAME", lr_scales, "none",
	       "how the learning rate depends on the global batch: %s",
	       "`none`: the rate is --lr for any number of ranks. `linear`: the rate is --lr times the global batch "
	       "(--batch-size * --accumulate * ranks) / --lr-base-batch (Goyal et al. 2017). `sqrt`: the rate is "
	       "--lr times the square root of that ratio. The same factor applies to --initial-lr and --final-lr. "
	       "The first lines of the output and `lr` in the log show the resulting rate."),
	WHOLE("lr-base-batch", TOLD, lr_base_batch, "N", 1, 1e12, "256", "global batch that --lr is meant for",
	      "Used by --lr-scale `linear` and `sqrt`."),
	CHOICE("schedule", TOLD, schedule, "NAME", schedules, "cosine", "%s: the learning rate after the warm-up",
	       "`linear` and `cosine` fall from --lr to --final-lr over the rest of the run. `wsd` (warm-up, stable, "
	       "decay) stays at --lr and falls linearly in the last part of the run, --decay-share. `polynomial` falls "
	       "as the share of the steps that are left to the power of --schedule-power, as PyTorch's PolynomialLR. "
	       "`step` is multiplied by --milestone-factor at each of --milestones, as PyTorch's MultiStepLR."),
	REALS("decay-share", TOLD, decay_share, "X", 1, 0, 1, "0.2",
	      "length of the decay of `wsd` as a share of the run", "Rounded to a step.",
	      NEEDS(GIVEN, IS("schedule", "wsd"))),
	REALS("schedule-power", TOLD, schedule_power, "X", 1, 1e-3, 1e3, "1", "power of the schedule `polynomial`",
	      NULL, NEEDS(GIVEN, IS("schedule", "polynomial"))),
	TEXT("milestones", TOLD, milestones, "X[,...]", NULL, "epochs at which the schedule `step` changes the rate",
	     "Counted from the start of the run, in rising order. X may be a fraction, and is rounded to a step.",
	     .none = true, NEEDS(USED, IS("schedule", "step"))),
	REALS("milestone-factor", TOLD, milestone_factor, "X", 1, 0, 1e3, "0.1",
	      "factor on the learning rate at each of --milestones", NULL, NEEDS(GIVEN, IS("schedule", "step"))),
	REALS("initial-lr", TOLD, initial_lr, "X", 1, 1e-12, FLT_MAX, NULL,
	      "learning rate of the warm-up's first step (default: --lr / warm-up steps)",
	      "The rate rises linearly from there and reaches --lr at the first step after the warm-up. By default it "
	      "reaches --lr at the last step of the warm-up. --lr / (warm-up steps + 1) gives nanoGPT's warm-up. A "
	      "warm-up is required. If the warm-up rounds to no steps, the run starts at --lr.",
	      NEEDS(USED, SET("warmup-epochs"), SET("warmup-steps"), SET("warmup-share"))),
	REALS("final-lr", TOLD, final_lr, "X", 1, 0, FLT_MAX, "0", "learning rate at the end of the schedule",
	      "`constant` and `step` do not use it."),
	REALS("warmup-epochs", TOLD, warmup_epochs, "X", 1, 0, 1e6, "0", "length of the warm-up in epochs",
	      "The learning rate rises linearly. X may be a fraction. Only one of the three warm-up options may be "
	      "given. With --schedule `linear` the rate follows a triangle: it changes at every step, reaches --lr "
	      "at the end of the warm-up, and falls linearly to --final-lr."),
	WHOLE("warmup-steps", TOLD, warmup_steps, "N", 0, RUN_STEPS_MAX, "0", "length of the warm-up in steps", NULL),
	REALS("warmup-share", TOLD, warmup_share, "X", 1, 0, 1, "0", "length of the warm-up as a share of the run",
	      "Rounded to a step."),
	NUMBER("momentum", TOLD, momentum, 0, 1 - DBL_EPSILON, "0.9", "momentum", NULL),
	KIND_FLAG("nesterov", TOLD, nesterov, "use Nesterov momentum", NULL, NEEDS(USED, ABOVE("momentum", 0))),
	NUMBER("beta1", TOLD, beta1, 0, 1 - DBL_EPSILON, NULL, "decay of the mean of gradients", NULL),
	NUMBER("beta2", TOLD, beta2, 0, 1 - DBL_EPSILON, NULL, "decay of the mean of squared gradients",
	       "For `lion` the decay of the mean of gradients; beta1 mixes that mean with the gradient."),
	NUMBER("epsilon", TOLD, epsilon, FLT_MIN, FLT_MAX, NULL, "added to the divisor of the update", NULL),
	KIND_FLAG("amsgrad", FIXED, amsgrad, "divide by the largest mean of squared gradients so far",
		  "The largest one before its bias is corrected, as PyTorch computes it."),
	NUMBER("adamw-lr-scale", TOLD, adamw_lr_scale, 0, FLT_MAX, NULL,
	       "Muon: factor on the learning rate of AdamW's part", "timm's fallback_lr_scale."),
	NUMBER("ns-steps", TOLD, ns_steps, 1, 99, NULL, "Muon: Newton-Schulz steps", NULL),
	KIND_FLAG("match-rms-adamw", TOLD, match_rms_adamw, "Muon: give updates the size of AdamW's",
		  "PyTorch's adjust_lr_fn \"match_rms_adamw\": the rate of a matrix is multiplied by 0.2 * "
		  "sqrt(max(rows, columns)), with which rates and decays of AdamW fit. Without it the factor is "
		  "sqrt(max(1, rows / columns)), \"original\". A weight stored as [in, out], as GPT-2's are, has `in` "
		  "rows."),
	NUMBER("trust", TOLD, trust, FLT_MIN, FLT_MAX, NULL, "LARS's trust coefficient", NULL),
	NUMBER("weight-decay", TOLD, weight_decay, 0, FLT_MAX, "1e-4", "weight decay of the parameters",
	       "`sgd`, `adam` and `lars` add it to the gradient. `adamw`, `lion` and `muon` subtract it from the "
	       "parameter, times the learning rate; `lamb` adds it to the update before it is scaled. The class token "
	       "and the embeddings of positions of a vision transformer (`cls_token`, `pos_embed`) have none, as in "
	       "timm, unless --param-groups gives them one."),
	REALS("bias-lr-scale", TOLD, bias_lr_scale, "X", 1, 1e-6, 1e6, "1",
	      "factor on the learning rate of biases and batch norm",
	      "These are the parameters of one dimension. Their weight decay is divided by the factor, so a step "
	      "decays them as much as the other parameters."),
	NUMBER("clip-norm", TOLD, clip_norm, 0, FLT_MAX, "0", "clip gradients to this norm; 0 = no clipping",
	       "As torch.nn.utils.clip_grad_norm_: if the norm of all gradients is larger than X, they are multiplied "
	       "by X / (norm + 1e-6). The gradients are the means over the ranks, without the loss scale of `fp16`. "
	       "The log has the norm of each step, with this option or without it; lines that are printed have it with "
	       "this option or a log. If the norm is infinite, finite gradients become 0 and infinite ones NaN. If the "
	       "norm is NaN, all gradients become NaN. With `fp16` such a step is skipped."),
	CHOICE("clip-norm-type", TOLD, clip_norm_type, "TYPE", norms, "2", "norm of --clip-norm and of the log: %s",
	       "The root of the sum of squares, the sum of magnitudes, or the largest magnitude.",
	       RULES(OWN(NEEDS, GIVEN, LIST(SET("clip-norm"), SET("log"), SET("tensorboard")),
			 .reason = "nothing else has the norm"))),
	FLAG("no-bias-decay", TOLD, no_bias_decay, "no weight decay of biases and norms",
	     "These are the parameters of one dimension. Common in recipes for ImageNet and for language models."),
	TEXT("no-decay", TOLD, no_decay, "PATTERN[,...]", NULL, "no weight decay of the parameters that match",
	     "Patterns are as for --freeze. A pattern that matches no parameter, or only frozen ones, is an error.",
	     .none = true),
	TEXT("param-groups", TOLD, param_groups, "PATTERN=X[:DECAY][,...]", NULL,
	     "factor on the learning rate, and weight decay, of the parameters that match",
	     "Patterns are as for --freeze; of several that match the first counts. X is a factor on the rate that "
	     "the parameter has otherwise. Without DECAY its weight decay stays as it is. An example for a pretrained "
	     "network: `fc=10,conv1=0.1:0`. A pattern that matches no parameter, or only frozen ones, is an error.",
	     .none = true),
	REALS("layer-decay", TOLD, layer_decay, "X", 1, 1e-6, 1, "1",
	      "factor on the learning rate from each block of the network to the one before",
	      "The last block has the rate of --lr, the block before it X times that rate, and so on. Blocks are the "
	      "repeated parts of the network (residual blocks, layers of a transformer), and the parts before and "
	      "after them."),
	WHOLE("lookahead", SWITCHED, lookahead, "N", 0, 1e6, "0",
	      "Lookahead: go back to slow weights every N steps; 0 = never",
	      "Lookahead (Zhang et al. 2019) keeps slow weights of the parameters and of batch norm's statistics. "
	      "After every N steps they become d * slow + (1 - d) * weights, and training continues from them. The "
	      "run ends with the slow weights. The factor d is 0.95 to the power of N, times the cube of the "
	      "completed share of the steps."),
	REALS("ema", SWITCHED, ema, "DECAY", 1, 0, 1 - DBL_EPSILON, "0",
	      "decay of a moving average of the weights, for evaluation; 0 = no average",
	      "An exponential moving average of parameters and batch norm's statistics, as in timm and "
	      "torchvision: after a step it becomes DECAY * average + (1 - DECAY) * weights. Training continues "
	      "with the weights themselves. Evaluation uses the average. Checkpoints have both; see CHECKPOINTS."),
	FLAG("ema-warmup", TOLD, ema_warmup, "raise the average's decay from 0 to --ema",
	     "As in timm: after n updates the decay is the smaller of --ema and 1 - (n + 1)^(-2/3). Without this "
	     "option, the average of a short run is mostly the initial weights.",
	     NEEDS(USED, ABOVE("ema", 0))),
	WHOLE("ema-every", TOLD, ema_every, "N", 1, 1e6, "1", "update the average every N steps", NULL),
	REALS("whiten-bias-epochs", TOLD, vision.whiten_bias_epochs, "X", 1, 0, 1e6, "3",
	      "epochs during which `airbench94` trains its first layer's bias", "Later the bias is frozen."),
	REALS("label-smoothing", TOLD, label_smoothing, "X", 1, 0, 1, "0", "label smoothing of the training loss",
	      NULL),
	REALS("dropout", TOLD, dropout, "P", 1, 0, 0.999, NULL,
	      "share of the values that training of a transformer sets to 0 (default: the model's)",
	      "It applies to the sum of the embeddings, the probabilities of attention, and the outputs of attention "
	      "and MLP of each layer. Which values, depends on --seed, the step and the place in the global batch, not "
	      "on the number of ranks."),
	REALS("drop-path", TOLD, vision.drop_path, "P", 1, 0, 0.999, NULL,
	      "stochastic depth: how often the last layer of a vision transformer is left out (default: the model's)",
	      "Attention and MLP of layer i of n, from 0, are left out of a picture with the probability P * i / (n - "
	      "1), each by itself, as timm's --drop-path. The rest is scaled up. The draws are as for --dropout."),
	SEED("seed", FIXED, seed, "N", "0", "seed of weights, order and augmentation", NULL),

	GROUP("Order and loading", NULL),
	CHOICE("order", FIXED, order, "NAME", orders, "random", "order of the training set: %s",
	       "`random` is a new permutation in each epoch. `quasi-random` draws --window-pages pages of the file "
	       "at a time and permutes their samples; it suits files larger than memory on disks that are fast only "
	       "in order. `weighted` draws samples by --weights with replacement, `weighted-unique` without. "
	       "`balanced` has rounds with one sample of each class. `list` is the order of --indices. "
	       "`ffcv-random` is FFCV's order, and `torch-distributed` is that of PyTorch's DistributedSampler, "
	       "number for number. `uniform` draws with replacement, each sample with the same chance."),
	PATH("indices", PLACE, indices, "FILE", "train on these samples only, one number per line (default: all)",
	     "They apply to every order, and may repeat. Samples are numbered from 0, over all files of --data.",
	     .none = true),
	ROW("weights", PLACE, OPTION_NAME, weights, "FIELD|FILE", NULL,
	    "weights of the samples, for the weighted orders",
	    "FIELD is an integer or floating-point field of --data. FILE needs a slash, and has one number per "
	    "line: for each sample, or for each of --indices. A sample of weight 0 is never drawn.",
	    .none = true, NEEDS(USED, IS("order", "weighted weighted-unique"))),
	TEXT("class-field", FIXED, class_field, "NAME", NULL,
	     "class of a sample for the order `balanced` (default: the label)", NULL, .none = true,
	     NEEDS(USED, IS("order", "balanced"))),
	WHOLE("window-pages", FIXED, window_pages, "N", 1, UINT32_MAX, "64",
	      "pages in a window of the order `quasi-random`", NULL),
	WHOLE("epoch-samples", FIXED, epoch_samples, "N", 0, 1e12, "0",
	      "samples per epoch where samples are drawn; 0 = as many as there are",
	      "For the orders `weighted`, `weighted-unique`, `balanced` and `uniform`, and for --data-weights.",
	      NEEDS(USED, IS("order", "weighted weighted-unique balanced uniform"), SET("data-weights"))),
	CHOICE("engine", FREE, engine, "NAME", engines, "auto", "how to read files: %s",
	       "`mmap` maps files into memory; a file that becomes shorter during the run kills the process. "
	       "`threads` copies from the page cache, and a pool of threads reads what is not cached. `uring` is "
	       "io_uring; if the system forbids it, a message says so and `threads` is used. `auto` is `uring` with "
	       "--direct, else `threads`."),
	FLAG("direct", FREE, direct, "read files without the page cache",
	     "For files much larger than memory. If the file system does not support it, a message says so."),
	WHOLE("read-ahead", FREE, read_ahead, "N", 0, 1024, "0",
	      "samples that each loader thread reads ahead; 0 = automatic",
	      "The automatic number is 0 while the file is in memory, and grows while training waits for data."),
	WHOLE("memory-limit", FREE, memory_limit, "N", 0, 1e15, "0",
	      "memory limit of each rank's loader in bytes; 0 = no limit",
	      "The limit covers batches, read-ahead, cached metadata of the files, and decoding. It applies to the "
	      "loaders of --data and --val separately. A limit that is too small is an error, which names the "
	      "smallest possible one."),
	WHOLE("max-pixels", FREE, max_pixels, "N", 0, 1e15, "0",
	      "a JPEG with more pixels is a bad sample; 0 = 89478485", "It is not decoded."),
	CHOICE("bad-samples", TOLD, bad_samples, "NAME", bad_samples, "fail",
	       "action on a picture that cannot be read or decoded: %s",
	       "`fail` ends the run and names the sample. `skip` replaces a bad training picture by another picture "
	       "of the epoch, so that batches are full, and leaves bad validation pictures out. The output lists "
	       "the bad samples after each epoch, and the log has their number. A file of a set that cannot be "
	       "opened, or differs from the one added, ends the run with both."),

	GROUP("Pictures", NULL),
	CHOICE("crop", TOLD, vision.crop, "NAME", crops, "random", "%s crop of training pictures",
	       "`random` is the random resized crop, `none` the whole picture."),
	REALS("crop-scale", TOLD, vision.crop_scale, "MIN,MAX", 2, 1e-6, 1, "0.08,1",
	      "area of a random crop, as a share of the picture", NULL),
	REALS("crop-ratio", TOLD, vision.crop_ratio, "MIN,MAX", 2, 1e-3, 1e3, "0.75,1.3333333333333333",
	      "aspect ratio (width / height) of a random crop", NULL),
	REALS("flip", TOLD, vision.flip, "P", 1, 0, 1, "0.5", "probability of a left-right flip in training", NULL),
	CHOICE("flip-mode", TOLD, vision.flip_mode, "NAME", flip_modes, "random",
	       "random, or alternate: flip each picture in every second epoch",
	       "`random` draws the flips anew in each epoch. `alternate` draws once for each picture: the drawn "
	       "pictures are flipped in the first epoch, the third, and so on, the others in the second, the "
	       "fourth, and so on. Two epochs so show each picture from both sides."),
	WHOLE("translate", TOLD, vision.translate, "N", 0, 4096, "0", "shift training pictures by up to N pixels",
	      "In both directions; all offsets are equally likely."),
	CHOICE("translate-fill", TOLD, vision.translate_fill, "NAME", fills, "mean",
	       "fill of what a shift uncovers: mean, or reflect (mirrored)",
	       "`mean` is --mean without its decimals. `reflect` mirrors the picture at its edge."),
	WHOLE("cutout", TOLD, vision.cutout, "N", 0, 4096, "0", "cover a square of N x N pixels in training pictures",
	      "The square's place is drawn for each picture, inside the picture. The square is filled with the "
	      "mean. Cutout comes after --translate."),
	REALS("vertical-flip", TOLD, vision.vertical_flip, "P", 1, 0, 1, "0",
	      "probability of a top-bottom flip in training", NULL),
	CHOICE("auto-augment", TOLD, vision.auto_augment, "NAME", auto_augments, "none",
	       "automatic augmentation in training: %s",
	       "These are torchvision's RandAugment (14 operations, 31 bins) and TrivialAugmentWide, with "
	       "nearest-neighbour sampling. Uncovered pixels become black."),
	WHOLE("ra-ops", TOLD, vision.ra_ops, "N", 1, 14, "2", "operations of `rand-augment` per picture", NULL),
	WHOLE("ra-magnitude", TOLD, vision.ra_magnitude, "N", 0, 30, "9",
	      "magnitude of the operations of `rand-augment`", NULL),
	REALS("color-jitter", TOLD, vision.color_jitter, "B,C,S,H", 4, 0, 100, "0,0,0,0",
	      "jitter of brightness, contrast, saturation, hue in training; 0 = none",
	      "torchvision's ColorJitter, in random order: a factor is drawn from max(0, 1 - X) to 1 + X, where X "
	      "is B, C or S; the hue shift is drawn from -H to H. The largest H is 0.5."),
	REALS("grayscale", TOLD, vision.grayscale, "P", 1, 0, 1, "0", "probability of a grey picture in training",
	      NULL),
	REALS("random-erase", TOLD, vision.random_erase, "P", 1, 0, 1, "0",
	      "probability that a rectangle is erased in training",
	      "torchvision's RandomErasing with its defaults: 2 to 33 % of the area, height / width of 0.3 to 3.3. "
	      "It is the last operation on a picture."),
	CHOICE("erase-mode", TOLD, vision.erase_mode, "NAME", erases, "mean",
	       "fill of an erased rectangle: mean, or noise",
	       "`noise` is a normal number for each pixel and colour, after --mean and --std are applied, as "
	       "torchvision's value `random` and timm's mode `pixel`."),
	REALS("mixup", TOLD, vision.mixup, "ALPHA", 1, 0, 1000, "0",
	      "mix pictures and labels within each training batch; 0 = no MixUp",
	      "MixUp (Zhang et al. 2018), with the meaning of alpha in timm and torchvision. For each batch a share s "
	      "is drawn from Beta(ALPHA, ALPHA). Each picture becomes s * itself + (1 - s) * another picture of the "
	      "batch. The loss is s * the loss of its own label + (1 - s) * the loss of the other label. Pictures are "
	      "mixed after all other operations. The log has the loss of the mixed labels. Evaluation does not mix."),
	REALS("cutmix", TOLD, vision.cutmix, "ALPHA", 1, 0, 1000, "0",
	      "paste a box of another picture into each training picture; 0 = no CutMix",
	      "CutMix (Yun et al. 2019). For each batch the box's place is drawn, and its share of the area is "
	      "drawn from Beta(ALPHA, ALPHA). The part of the box outside the picture is cut off. The loss is as "
	      "with --mixup, with the area that is left as the share. With both --mixup and --cutmix, each batch "
	      "has one of the two, with equal probability."),
	ROW("val-ratio", TOLD, OPTION_REALS, vision.val_ratio, "X", "0.875",
	    "side of validation's centre crop, as a share of the shorter side",
	    "Also used for training pictures with --crop `center`.", .count = 1, .least = 1e-6, .most = 1,
	    .fact = "val_ratio"),
	CHOICE("tta", TOLD, vision.tta, "NAME", ttas, "none",
	       "test-time augmentation: none, flip, or flip-shift (flipped and shifted views)",
	       "`flip` adds the logits of a validation picture and of its mirror image, and computes class and loss "
	       "from the sum. `flip-shift` computes class and loss from a mean of logits. Half of it is the mean of "
	       "those two views. The other half is the mean of four views: the picture shifted by one pixel to the "
	       "lower right and to the upper left, with mirrored edges, and the mirror images of both.",
	       NEEDS(USED, SET("val"))),
	ROW("mean", TOLD, OPTION_REALS, vision.mean, "R,G,B", "123.675,116.28,103.53",
	    "mean to subtract from each channel, on the scale 0..255", "The default is ImageNet's.", .count = 3,
	    .least = -1e6, .most = 1e6, .fact = "mean"),
	ROW("std", TOLD, OPTION_REALS, vision.std, "R,G,B", "58.395,57.12,57.375",
	    "standard deviation to divide each channel by, on the scale 0..255", "The default is ImageNet's.",
	    .count = 3, .least = 1e-6, .most = 1e6, .fact = "std"),

	GROUP("Tokens", "Options of --task `lm`."),
	ROW("context-length", FIXED, OPTION_WHOLE, lm.context_length, "T", NULL,
	    "tokens of a window (default: the model's longest sequence)",
	    "Window i of a file begins at token i * T. Tokens at the end of a file that do not fill a window are "
	    "left out.",
	    .least = 1, .most = 1 << 24, .fact = "context_length"),
	WHOLE("window-stride", FIXED, lm.window_stride, "N", 0, 1 << 24, "0",
	      "tokens from one training window to the next; 0 = --context-length",
	      "With 1 and --order `uniform` windows begin at random tokens, as in nanoGPT. --epoch-samples then sets "
	      "how often the run is evaluated."),
	ROW("end-of-text", FIXED, OPTION_WHOLE, lm.end_of_text, "TOKEN", NULL,
	    "the last token of each document: tokens of one document do not see another (default: none)",
	    "Positions count from the beginning of each document.", .least = 0, .most = UINT32_MAX,
	    .fact = "end_of_text"),
	TEXT("token-field", FIXED, lm.token_field, "NAME", NULL,
	     "field of .beton files with tokens (default: the first one that can hold them)", NULL, .none = true),
	ROW("mask-token", FIXED, OPTION_WHOLE, lm.mask_token, "TOKEN", NULL,
	    "for a BERT: the token in place of masked ones (required; 103 in bert-base-uncased)",
	    "A BERT learns to tell the masked tokens of a window. 80 % of the tokens that --mask-probability chooses "
	    "become this token, 10 % a random one, and 10 % stay. Which ones, depends on --seed, the epoch and the "
	    "place in the file, not on the number of ranks; evaluations mask the same tokens each time, and with any "
	    "--seed. Each rank's loss is the mean over its own masked tokens, and gradients are the mean of the "
	    "ranks', as with PyTorch's DistributedDataParallel; evaluations have the mean over all masked tokens.",
	    .least = 0, .most = UINT32_MAX, .fact = "mask_token"),
	ROW("mask-probability", FIXED, OPTION_REALS, lm.mask_probability, "P", NULL,
	    "for a BERT: share of the tokens that are masked (default: 0.15)", NULL, .count = 1, .least = 1e-6,
	    .most = 1, .fact = "mask_probability"),
	ROW("special-tokens", FIXED, OPTION_TOKENS, lm.special, "TOKEN[,TOKEN...]", NULL,
	    "for a BERT: tokens that are never masked (default: none)",
	    "In bert-base-uncased 0,101,102,103: padding, the ends of a text, and the mask.", .least = 0,
	    .most = UINT32_MAX, .none = true, .fact = "special_tokens"),

	GROUP("Output", NULL),
	/* torchrun matches abbreviations of its own options, such as --log-dir. */
	PATH("log", FREE, log, "FILE", "append a line of JSON for each step and evaluation",
	     "See LOG. Without --resume the file must be new or empty. With --resume an existing file must begin with "
	     "a line of a log. When a run with a log is resumed, an empty name means none. The reader of a FIFO is "
	     "waited for, for half of --timeout.",
	     .none = true, .alias = "log-file"),
	WHOLE("log-every", FREE, log_every, "N", 1, RUN_STEPS_MAX, "1", "log every N-th step and the last one",
	      "Evaluations and epochs are always logged. The times of an epoch cover all its steps."),
	PATH("tensorboard", FREE, tensorboard, "DIR", "also write the numbers of --log for TensorBoard",
	     "An event file is added to the folder, which is created if it is missing. Losses and learning rates "
	     "are under `train/`, evaluations under `val/`, and the times of an epoch under `epoch/`.",
	     .none = true),
	FLAG("quiet", FREE, quiet, "print only errors and warnings",
	     "A resumed run does not take this option from its checkpoint."),
	WHOLE("print-every", FREE, print_every, "N", 0, RUN_STEPS_MAX, "0",
	      "print a line every N steps; 0 = every two seconds",
	      "For output to a file or a pipe. On a terminal, one line shows the current step and is updated in "
	      "place. Each evaluation and each epoch has a line of its own in any case."),
	WHOLE("val-every", TOLD, val_every, "N", 1, 1e6, "1", "evaluate every N epochs, and at the end", NULL),
	WHOLE("eval-every", TOLD, eval_every, "N", 0, RUN_STEPS_MAX, "0", "also evaluate every N steps; 0 = no",
	      "Training goes on as without it. Besides its samples an evaluation costs the start of its loader, some "
	      "0.03 ms. With --keep-best the best of these evaluations is kept, too.",
	      NEEDS(USED, SET("val"))),
	WHOLE("eval-batches", TOLD, eval_batches, "N", 0, RUN_STEPS_MAX, "0",
	      "evaluate N batches of each rank, spread evenly over --val; 0 = the whole --val",
	      "The K samples of S have the numbers 0, S / K, 2 S / K and so on, rounded down. They are the same each "
	      "time, and with another number of ranks or --batch-size others. With --reproducible, N batches of each "
	      "of its shards are evaluated, which are the same samples on any number of ranks.",
	      NEEDS(USED, SET("val"))),
	FLAG("val-per-class", TOLD, val_per_class, "also log the accuracy of each class",
	     "The record of each evaluation has a list `val_classes`. With --evaluate the list is printed.",
	     RULES(OWN(NEEDS, SET, LIST(IS("task", "vision")), .reason = "samples of other tasks have no classes"))),
	PATH("checkpoint", FREE, checkpoint, "DIR", "write checkpoints to DIR, at the end of each epoch and of the run",
	     "Also when a signal ends training; see CHECKPOINTS.", .none = false),
	WHOLE("checkpoint-every", FREE, checkpoint_every, "N", 0, RUN_STEPS_MAX, "0",
	      "also write a checkpoint every N steps; 0 = no", NULL, NEEDS(SET, SET("checkpoint"))),
	WHOLE("keep-checkpoints", FREE, keep_checkpoints, "N", 0, 1e6, "3", "keep the newest N checkpoints; 0 = all",
	      NULL),
	FLAG("checkpoint-async", FREE, checkpoint_async, "write checkpoints while training goes on",
	     "Each rank copies what it writes to host memory, which --plan tells, and a thread writes the copy. "
	     "Training waits for the copy only, and for the checkpoint before if that is still being written. The "
	     "files are the same. The run ends when its last checkpoint is on disk. If one cannot be written, the "
	     "run ends with that error after one of the next steps.",
	     NEEDS(SET, SET("checkpoint"))),
	FLAG("keep-best", TOLD, keep_best, "also keep the checkpoint with the best evaluation on --val, as DIR/best",
	     "The best one has the highest top-1; with several labels (--loss `bce`) the highest F1, with --loss `mse` "
	     "and --task `lm` the lowest loss. Among equal ones it keeps the first. `best` is a link to the "
	     "checkpoint's folder. It does not count for --keep-checkpoints, and is kept until a better one is saved.",
	     RULES(OWN(NEEDS_ALL, USED, LIST(SET("checkpoint"), SET("val")), .early = false))),
	SWITCH("resume", FREE, resume, resumes, "auto",
	       "continue from the newest checkpoint of --checkpoint, with its options; auto: or start a new run",
	       "See RESUMING. Without a checkpoint it fails, or with `auto` starts a new run, "
	       "so that a scheduler can give the same command each time.",
	       RULES(OWN(NEEDS, SET, LIST(SET("checkpoint")), .early = true))),
	FLAG("help", FREE, help, "show this help and exit (-h)", NULL),
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
