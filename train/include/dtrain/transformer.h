/* SPDX-License-Identifier: Apache-2.0
 *
 * Transformers: a description, which may come from Hugging Face's config.json, and functions that build a model of
 * tokens or of pictures (ViT) from it. <dtrain/model.h> builds a ViT by its name.
 *
 * Names, shapes and initial values of parameters are Hugging Face's: GPT2LMHeadModel ("transformer.h.0.attn.c_attn",
 * weights [in, out]), LlamaForCausalLM ("model.layers.0.self_attn.q_proj") and BertForMaskedLM
 * ("bert.encoder.layer.0.attention.self.query"); a ViT's are timm's ("blocks.0.attn.qkv"). A tied head has no parameter
 * of its own.
 */
#ifndef DTRAIN_TRANSFORMER_H
#define DTRAIN_TRANSFORMER_H

#include <dtrain/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Families of transformers. */
typedef enum dtrain_transformer_type {
	DTRAIN_TRANSFORMER_GPT2 = 0,
	DTRAIN_TRANSFORMER_LLAMA = 1,
	DTRAIN_TRANSFORMER_BERT = 2,
	DTRAIN_TRANSFORMER_VIT = 3,
} dtrain_transformer_type;

/* In brackets: the keys of config.json for gpt2; llama, bert and vit. */
typedef struct dtrain_transformer {
	size_t struct_size;
	dtrain_transformer_type type; /* model_type */
	int64_t width;                /* [n_embd; hidden_size] divisible by heads */
	int64_t layers;               /* [n_layer; num_hidden_layers] */
	int64_t heads;                /* [n_head; num_attention_heads] */
	int64_t kv_heads;             /* heads of keys and values [num_key_value_heads]; divides heads */
	int64_t head_size;            /* [head_dim] width / heads except in Llama */
	int64_t inner;                /* width inside an MLP [n_inner; intermediate_size] */
	int64_t vocabulary;           /* [vocab_size]; 0: pictures */
	int64_t positions;            /* the longest sequence [n_positions; max_position_embeddings]; 0: pictures */
	int64_t token_types;          /* BERT's [type_vocab_size]; otherwise 0 */
	int64_t image_size;           /* ViT's side in pixels [image_size]; otherwise 0 */
	int64_t patch_size;           /* ViT's side of a patch in pixels [patch_size]; otherwise 0 */
	dtrain_activation activation; /* of the MLP [activation_function; hidden_act]; Llama: of its gate */
	bool bias;                    /* linear layers and layer norms have one [bias, as nanoGPT]; Llama: false */
	bool tied;                    /* the head is the token embedding [tie_word_embeddings] */
	/* ViT: positions are sines and cosines that are not trained, without a class token, and the head starts at
	 * zero and reads the mean of the tokens, as in "Better plain ViT baselines for ImageNet-1k" [plain, which only
	 * this library has; default false]. */
	bool plain;
	double epsilon;   /* of the norms [layer_norm_epsilon; layer_norm_eps, Llama: rms_norm_eps]; 1e-30 .. 1 */
	double theta;     /* of rotary embeddings [rope_theta], 1 .. 1e12; otherwise 0 */
	double deviation; /* standard deviation of initial weights [initializer_range]; 1e-7 .. 1e6 */
	double embedding_dropout; /* share of the embeddings' sum [embd_pdrop; hidden_dropout_prob]; default 0 */
	double dropout;           /* share of what attention and MLP add [resid_pdrop; hidden_dropout_prob] */
	/* ViT's stochastic depth [drop_path_rate, as Hugging Face's BEiT; default 0]: what attention and MLP of layer i
	 * add is left out of a picture with the probability drop_path * i / (layers - 1), timm's rule. */
	double drop_path;
	/* Share of the probabilities of attention [attn_pdrop; attention_probs_dropout_prob; Llama:
	 * attention_dropout]. */
	double attention_dropout;
	/* ViT: the head reads the mean of the patches' tokens, which is normalized ("fc_norm"), as timm's with
	 * global_pool='avg' [pool, "mean" or "class", which only this library has; default class]. */
	bool mean_pool;
	bool no_class_token; /* ViT with mean_pool: there is none, as timm's with class_token=False [class_token] */
} dtrain_transformer;

/* GPT-2 small without dropout. */
BETON_API void dtrain_transformer_init_sized(dtrain_transformer *description, size_t size);
static inline void dtrain_transformer_init(dtrain_transformer *description)
{
	dtrain_transformer_init_sized(description, sizeof(*description));
}

/* Reads config.json of Hugging Face, which has at most 1 MiB. Keys that are not known are ignored: see
 * dtrain_transformer_unused. Keys that a model can do without have Hugging Face's defaults. err must not be NULL.
 * Errors name the file and the key: NOT_FOUND, IO, INVALID_ARGUMENT (no regular file, too long, not text), FORMAT (not
 * JSON, a wrong type, a missing key, a value out of range), UNSUPPORTED (another model_type; a value that would change
 * what the model computes). */
BETON_API int dtrain_transformer_read(const char *path, dtrain_transformer *out, beton_error *err);

/* The same for the text of such a file. name: for messages. */
BETON_API int dtrain_transformer_parse(const char *text, const char *name, dtrain_transformer *out, beton_error *err);

/* The keys of such a text that are not used and may change the model's results, or be misspelt: "a, b", malloc'ed.
 * Keys without an effect on results, such as "torch_dtype" and "bos_token_id", and keys that begin with "_", are left
 * out. NULL: none, or the text is not such a file, or memory is short. */
BETON_API char *dtrain_transformer_unused(const char *text);

/* The text of the file, malloc'ed, if name is that of a file: it has a slash or ends in ".json". Otherwise NULL. It is
 * for programs that keep the description beside the weights. Errors: as for reading the file. */
BETON_API int dtrain_transformer_text(const char *name, char **out, beton_error *err);

/* The names of the models of tokens that come with the library: gpt2, gpt2-medium, gpt2-large, gpt2-xl (Hugging Face's,
 * without dropout) and gpt2-baby (nanoGPT's for characters: 6 layers, 6 heads, width 384, context 256, a vocabulary of
 * 65, GELU with erf, no biases, dropout 0.2 everywhere), gpt3-175b (96 layers, width 12288, context 2048), llama-7b,
 * llama-13b and llama-70b (Llama 2), bert-tiny (2 layers, width 128), bert-base and bert-large (Google's, with 30,522
 * uncased tokens, without dropout). NULL past the end. */
BETON_API const char *dtrain_transformer_name(int index);

/* The description of that name, also that of a ViT (<dtrain/model.h>), or of that file: see
 * dtrain_transformer_text. Errors: NOT_FOUND, which lists the names, and errors of dtrain_transformer_read. */
BETON_API int dtrain_transformer_find(const char *name, dtrain_transformer *out, beton_error *err);

/* Tensors that a model of tokens reads; negative: none. dtrain_transformer_inputs_init sets all to -1. */
typedef struct dtrain_transformer_inputs {
	size_t struct_size;
	dtrain_tensor tokens;      /* i64 or i32 [b, t], 0 .. vocabulary - 1; t at most positions */
	dtrain_tensor position;    /* i64 [b, t], 0 .. positions - 1; none: 0 .. t - 1 in each row */
	dtrain_tensor segment;     /* i32 [b, t]: a token attends to tokens of its own segment only; none: to all.
				      Padding of BERT has a segment of its own. */
	dtrain_tensor token_types; /* BERT: i64 or i32 [b, t]; none: all 0 */
	dtrain_tensor random;      /* i64 [DTRAIN_RANDOMS] for dropout: see dtrain_dropout; needed in training if the
				      description has dropout */
	/* GPT-2 and Llama in evaluation, to compute a text in several runs: see dtrain_attention_cached. position is
	 * needed then, and segment is not supported. keys, values: a tensor [b, s, kv_heads * head_size] of
	 * dtrain_graph_memory for each layer; NULL: none. past: i64 [1] */
	const dtrain_tensor *keys, *values;
	dtrain_tensor past;
} dtrain_transformer_inputs;

BETON_API void dtrain_transformer_inputs_init_sized(dtrain_transformer_inputs *inputs, size_t size);
static inline void dtrain_transformer_inputs_init(dtrain_transformer_inputs *inputs)
{
	dtrain_transformer_inputs_init_sized(inputs, sizeof(*inputs));
}

/* Outputs of a model of tokens. */
typedef struct dtrain_transformer_outputs {
	size_t struct_size;
	/* [b, t, width]: what the head multiplies. In graphs that train with the option sequence_parallel of
	 * <dtrain/sync.h> this rank's part of the rows. */
	dtrain_tensor hidden;
	dtrain_tensor head;      /* the head's weight [vocabulary, width] */
	dtrain_tensor head_bias; /* [vocabulary]; negative: none (all but BERT) */
} dtrain_transformer_outputs;

BETON_API void dtrain_transformer_outputs_init_sized(dtrain_transformer_outputs *outputs, size_t size);
static inline void dtrain_transformer_outputs_init(dtrain_transformer_outputs *outputs)
{
	dtrain_transformer_outputs_init_sized(outputs, sizeof(*outputs));
}

/* Adds the model to a graph for training or evaluation. Returns outputs->hidden. Calls dtrain_graph_next_block before
 * each layer. On failure, also if the description is for pictures, it returns -1, and the graph has the error. */
BETON_API dtrain_tensor dtrain_transformer_build(dtrain_graph *graph, const dtrain_transformer *description,
						 const dtrain_transformer_inputs *inputs,
						 dtrain_transformer_outputs *outputs);

/* Cross entropy of the logits for each of the b * t tokens: [b * t]. label: i64 [b, t]; options: as for
 * dtrain_linear_cross_entropy. */
BETON_API dtrain_tensor dtrain_transformer_losses(dtrain_graph *graph, const dtrain_transformer_outputs *outputs,
						  dtrain_tensor label, const dtrain_loss_options *options);

/* Logits [n, vocabulary] of the tokens rows, i64 [n]: token t of sequence b is row b * T + t. Negative: of all. */
BETON_API dtrain_tensor dtrain_transformer_logits(dtrain_graph *graph, const dtrain_transformer_outputs *outputs,
						  dtrain_tensor rows);

/* Adds a ViT from a picture batch [n, 3, h, w] to logits [n, classes]: as dtrain_model_build. random: as in
 * dtrain_transformer_inputs. */
BETON_API dtrain_tensor dtrain_vit_build(dtrain_graph *graph, const dtrain_transformer *description,
					 dtrain_tensor image, dtrain_tensor random, int64_t classes);

#ifdef __cplusplus
}
#endif

#endif
