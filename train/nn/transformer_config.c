/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of transformers from Hugging Face's config.json.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/error.h"
#include "common/system.h"
#include "transformer_parts.h"

enum { MOST_LAYERS = 1 << 16, BYTES_MAX = 1 << 20 };

typedef enum key_kind {
	KEY_COUNT,     /* whole, 1 .. INT32_MAX */
	KEY_EPSILON,   /* see `ranges` */
	KEY_THETA,     /* see `ranges` */
	KEY_DEVIATION, /* see `ranges` */
	KEY_SHARE,     /* 0 <= x < 1 */
	KEY_BOOL,
	KEY_NOT,  /* false sets the member */
	KEY_MEAN, /* "class" or "mean", which sets the member */
	KEY_ACTIVATION,
} key_kind;

typedef struct config_key {
	const char *name;
	size_t offset; /* of the member of dtrain_transformer */
	key_kind kind;
	bool required;
} config_key;

#define KEY(name, member, kind, required)                                  \
	{                                                                  \
		name, offsetof(dtrain_transformer, member), kind, required \
	}

static const config_key gpt2_keys[] = {
	KEY("n_embd", width, KEY_COUNT, true),
	KEY("n_layer", layers, KEY_COUNT, true),
	KEY("n_head", heads, KEY_COUNT, true),
	KEY("n_inner", inner, KEY_COUNT, false),
	KEY("vocab_size", vocabulary, KEY_COUNT, true),
	KEY("n_positions", positions, KEY_COUNT, true),
	KEY("activation_function", activation, KEY_ACTIVATION, false),
	KEY("bias", bias, KEY_BOOL, false),
	KEY("tie_word_embeddings", tied, KEY_BOOL, false),
	KEY("layer_norm_epsilon", epsilon, KEY_EPSILON, false),
	KEY("initializer_range", deviation, KEY_DEVIATION, false),
	KEY("embd_pdrop", embedding_dropout, KEY_SHARE, false),
	KEY("resid_pdrop", dropout, KEY_SHARE, false),
	KEY("attn_pdrop", attention_dropout, KEY_SHARE, false),
};

static const config_key llama_keys[] = {
	KEY("hidden_size", width, KEY_COUNT, true),
	KEY("num_hidden_layers", layers, KEY_COUNT, true),
	KEY("num_attention_heads", heads, KEY_COUNT, true),
	KEY("num_key_value_heads", kv_heads, KEY_COUNT, false),
	KEY("head_dim", head_size, KEY_COUNT, false),
	KEY("intermediate_size", inner, KEY_COUNT, true),
	KEY("vocab_size", vocabulary, KEY_COUNT, true),
	KEY("max_position_embeddings", positions, KEY_COUNT, true),
	KEY("hidden_act", activation, KEY_ACTIVATION, false),
	KEY("tie_word_embeddings", tied, KEY_BOOL, false),
	KEY("rms_norm_eps", epsilon, KEY_EPSILON, false),
	KEY("rope_theta", theta, KEY_THETA, false),
	KEY("attention_dropout", attention_dropout, KEY_SHARE, false),
	KEY("initializer_range", deviation, KEY_DEVIATION, false),
};

static const config_key bert_keys[] = {
	KEY("hidden_size", width, KEY_COUNT, true),
	KEY("num_hidden_layers", layers, KEY_COUNT, true),
	KEY("num_attention_heads", heads, KEY_COUNT, true),
	KEY("intermediate_size", inner, KEY_COUNT, true),
	KEY("vocab_size", vocabulary, KEY_COUNT, true),
	KEY("max_position_embeddings", positions, KEY_COUNT, true),
	KEY("type_vocab_size", token_types, KEY_COUNT, false),
	KEY("hidden_act", activation, KEY_ACTIVATION, false),
	KEY("tie_word_embeddings", tied, KEY_BOOL, false),
	KEY("layer_norm_eps", epsilon, KEY_EPSILON, false),
	KEY("initializer_range", deviation, KEY_DEVIATION, false),
	KEY("hidden_dropout_prob", embedding_dropout, KEY_SHARE, false),
	KEY("hidden_dropout_prob", dropout, KEY_SHARE, false),
	KEY("attention_probs_dropout_prob", attention_dropout, KEY_SHARE, false),
};

static const config_key vit_keys[] = {
	KEY("hidden_size", width, KEY_COUNT, true),
	KEY("num_hidden_layers", layers, KEY_COUNT, true),
	KEY("num_attention_heads", heads, KEY_COUNT, true),
	KEY("intermediate_size", inner, KEY_COUNT, true),
	KEY("image_size", image_size, KEY_COUNT, true),
	KEY("patch_size", patch_size, KEY_COUNT, true),
	KEY("hidden_act", activation, KEY_ACTIVATION, false),
	KEY("layer_norm_eps", epsilon, KEY_EPSILON, false),
	KEY("initializer_range", deviation, KEY_DEVIATION, false),
	KEY("plain", plain, KEY_BOOL, false),
	KEY("pool", mean_pool, KEY_MEAN, false),
	KEY("class_token", no_class_token, KEY_NOT, false),
	KEY("hidden_dropout_prob", embedding_dropout, KEY_SHARE, false),
	KEY("hidden_dropout_prob", dropout, KEY_SHARE, false),
	KEY("attention_probs_dropout_prob", attention_dropout, KEY_SHARE, false),
	KEY("drop_path_rate", drop_path, KEY_SHARE, false),
};

/* A key that changes what is computed, and the only value that is supported; also its value if the key is missing. */
typedef struct fixed_key {
	const char *name, *value; /* as JSON */
} fixed_key;

static const fixed_key gpt2_fixed[] = {{"scale_attn_weights", "true"},
				       {"scale_attn_by_inverse_layer_idx", "false"},
				       {"add_cross_attention", "false"},
				       {NULL, NULL}};
static const fixed_key llama_fixed[] = {
	{"attention_bias", "false"}, {"mlp_bias", "false"}, {"rope_scaling", "null"}, {NULL, NULL}};
static const fixed_key bert_fixed[] = {{"position_embedding_type", "\"absolute\""},
				       {"is_decoder", "false"},
				       {"add_cross_attention", "false"},
				       {NULL, NULL}};
static const fixed_key vit_fixed[] = {{"num_channels", "3"}, {"qkv_bias", "true"}, {NULL, NULL}};

/* Keys that do not change what is computed. */
static const char *const idle_keys[] = {"architectures",
					"auto_map",
					"bos_token_id",
					"chunk_size_feed_forward",
					"classifier_dropout",
					"cls_token_id",
					"dtype",
					"encoder_stride",
					"eos_token_id",
					"finetuning_task",
					"gradient_checkpointing",
					"id2label",
					"label2id",
					"mask_token_id",
					"model_type",
					"n_ctx",
					"num_labels",
					"output_attentions",
					"output_hidden_states",
					"pad_token_id",
					"pooler_act",
					"pooler_output_size",
					"pretraining_tp",
					"problem_type",
					"reorder_and_upcast_attn",
					"return_dict",
					"sep_token_id",
					"summary_activation",
					"summary_first_dropout",
					"summary_proj_to_labels",
					"summary_type",
					"summary_use_proj",
					"task_specific_params",
					"tokenizer_class",
					"torch_dtype",
					"transformers_version",
					"unk_token_id",
					"use_cache"};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

/* defaults: as in Hugging Face's configuration class. */
static const struct {
	const char *name;
	const config_key *keys;
	int count;
	const fixed_key *fixed;
	dtrain_transformer defaults;
} types[] = {
	[DTRAIN_TRANSFORMER_GPT2] = {"gpt2",
				     gpt2_keys,
				     COUNT(gpt2_keys),
				     gpt2_fixed,
				     {.activation = DTRAIN_ACTIVATION_GELU_TANH,
				      .bias = true,
				      .tied = true,
				      .epsilon = 1e-5,
				      .deviation = 0.02,
				      .embedding_dropout = 0.1,
				      .dropout = 0.1,
				      .attention_dropout = 0.1}},
	[DTRAIN_TRANSFORMER_LLAMA] =
		{"llama",
		 llama_keys,
		 COUNT(llama_keys),
		 llama_fixed,
		 {.activation = DTRAIN_ACTIVATION_SILU, .epsilon = 1e-6, .theta = 10000, .deviation = 0.02}},
	[DTRAIN_TRANSFORMER_BERT] = {"bert",
				     bert_keys,
				     COUNT(bert_keys),
				     bert_fixed,
				     {.activation = DTRAIN_ACTIVATION_GELU,
				      .bias = true,
				      .tied = true,
				      .token_types = 2,
				      .epsilon = 1e-12,
				      .deviation = 0.02,
				      .embedding_dropout = 0.1,
				      .dropout = 0.1,
				      .attention_dropout = 0.1}},
	[DTRAIN_TRANSFORMER_VIT] =
		{"vit",
		 vit_keys,
		 COUNT(vit_keys),
		 vit_fixed,
		 {.activation = DTRAIN_ACTIVATION_GELU, .bias = true, .epsilon = 1e-12, .deviation = 0.02}},
};

static const struct {
	const char *name;
	dtrain_activation activation;
} activations[] = {{"gelu", DTRAIN_ACTIVATION_GELU},
		   {"gelu_new", DTRAIN_ACTIVATION_GELU_TANH},
		   {"gelu_pytorch_tanh", DTRAIN_ACTIVATION_GELU_TANH},
		   {"silu", DTRAIN_ACTIVATION_SILU},
		   {"swish", DTRAIN_ACTIVATION_SILU}};

/* ---- one key ---- */

static int fail_type(const char *path, const char *name, const char *needed, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is not %s", path, name, needed);
}

static int take_activation(const char *path, const char *name, const json_t *value, dtrain_activation *out,
			   beton_error *err)
{
	if (!json_is_string(value))
		return fail_type(path, name, "a string", err);
	for (int i = 0; i < COUNT(activations); i++)
		if (strcmp(activations[i].name, json_string_value(value)) == 0) {
			*out = activations[i].activation;
			return BETON_OK;
		}
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: \"%s\" is \"%s\"; supported are gelu, gelu_new, gelu_pytorch_tanh and silu", path, name,
		       json_string_value(value));
}

static int take_pool(const char *path, const char *name, const json_t *value, bool *mean, beton_error *err)
{
	const char *text = json_string_value(value);
	*mean = text && strcmp(text, "mean") == 0;
	if (*mean || (text && strcmp(text, "class") == 0))
		return BETON_OK;
	return fail_type(path, name, "\"class\" or \"mean\"", err);
}

static bool is_real(key_kind kind)
{
	return kind == KEY_EPSILON || kind == KEY_THETA || kind == KEY_DEVIATION;
}

static int check_number(const char *what, const config_key *key, double number, beton_error *err)
{
	/* An epsilon is added as a float, and is not 0 there. A theta below 1 would make the later pairs of a head turn
	 * faster. A deviation is a whole number in one of two units. */
	static const struct {
		double least, most;
	} ranges[] = {[KEY_EPSILON] = {1e-30, 1}, [KEY_THETA] = {1, 1e12}, [KEY_DEVIATION] = {1e-7, 1e6}};
	if (key->kind == KEY_SHARE && !(number >= 0 && number < 1))
		return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is %g, not in [0, 1)", what, key->name, number);
	if (is_real(key->kind) && !(number >= ranges[key->kind].least && number <= ranges[key->kind].most))
		return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is %g, not %g .. %g", what, key->name, number,
			       ranges[key->kind].least, ranges[key->kind].most);
	return BETON_OK;
}

static int take_value(const char *path, const config_key *key, const json_t *value, dtrain_transformer *out,
		      beton_error *err)
{
	void *member = (char *)out + key->offset;
	double number = json_number_value(value);
	switch (key->kind) {
	case KEY_COUNT:
		if (!json_is_integer(value))
			return fail_type(path, key->name, "a whole number", err);
		*(int64_t *)member = json_integer_value(value);
		if (*(int64_t *)member < 1 || *(int64_t *)member > INT32_MAX)
			return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is %lld, not 1 .. %d", path, key->name,
				       (long long)json_integer_value(value), INT32_MAX);
		return BETON_OK;
	case KEY_EPSILON:
	case KEY_THETA:
	case KEY_DEVIATION:
	case KEY_SHARE:
		if (!json_is_number(value))
			return fail_type(path, key->name, "a number", err);
		*(double *)member = number;
		return check_number(path, key, number, err);
	case KEY_BOOL:
	case KEY_NOT:
		if (!json_is_boolean(value))
			return fail_type(path, key->name, "true or false", err);
		*(bool *)member = json_is_true(value) == (key->kind == KEY_BOOL);
		return BETON_OK;
	case KEY_MEAN:
		return take_pool(path, key->name, value, member, err);
	case KEY_ACTIVATION:
		return take_activation(path, key->name, value, member, err);
	}
	return BETON_OK;
}

static int take_keys(const char *path, const json_t *root, dtrain_transformer *out, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < types[out->type].count && status == BETON_OK; i++) {
		const config_key *key = &types[out->type].keys[i];
		const json_t *value = json_object_get(root, key->name);
		if (value && !json_is_null(value))
			status = take_value(path, key, value, out, err);
		else if (key->required)
			status = bt_fail(err, BETON_FORMAT, "%s: has no \"%s\", which model_type \"%s\" needs", path,
					 key->name, types[out->type].name);
	}
	return status;
}

/* ---- keys with one supported value ---- */

static int check_fixed(const char *path, const json_t *root, const fixed_key *fixed, beton_error *err)
{
	for (; fixed->name; fixed++) {
		const json_t *value = json_object_get(root, fixed->name);
		json_t *only = json_loads(fixed->value, JSON_DECODE_ANY, NULL);
		bool same = !value || json_is_null(value) || (only && json_equal(value, only));
		json_decref(only);
		if (!same)
			return bt_fail(err, BETON_UNSUPPORTED, "%s: \"%s\" is supported only as %s", path, fixed->name,
				       fixed->value);
	}
	return BETON_OK;
}

/* Newer files have rope_theta in an object. */
static int take_rope(const char *path, const json_t *root, dtrain_transformer *out, beton_error *err)
{
	static const config_key theta = KEY("rope_parameters.rope_theta", theta, KEY_THETA, false);
	const json_t *rope = json_object_get(root, "rope_parameters");
	if (out->type != DTRAIN_TRANSFORMER_LLAMA || !rope || json_is_null(rope))
		return BETON_OK;
	if (!json_is_object(rope))
		return fail_type(path, "rope_parameters", "an object", err);
	const json_t *type = json_object_get(rope, "rope_type"), *value = json_object_get(rope, "rope_theta");
	if (type && (!json_is_string(type) || strcmp(json_string_value(type), "default") != 0))
		return bt_fail(err, BETON_UNSUPPORTED,
			       "%s: \"rope_parameters.rope_type\" is supported only as \"default\"", path);
	return value ? take_value(path, &theta, value, out, err) : BETON_OK;
}

/* ---- the whole ---- */

/* The key of a member, for messages. */
static const char *key_of(const dtrain_transformer *t, size_t offset)
{
	for (int i = 0; i < types[t->type].count; i++)
		if (types[t->type].keys[i].offset == offset)
			return types[t->type].keys[i].name;
	return "?";
}

#define KEY_OF(t, member) key_of(t, offsetof(dtrain_transformer, member))

static int fail_divisor(const char *what, const char *a, int64_t value, const char *b, int64_t divisor,
			beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: \"%s\" %lld is not divisible by \"%s\" %lld", what, a, (long long)value,
		       b, (long long)divisor);
}

int dtrain__transformer_check(const dtrain_transformer *t, const char *what, beton_error *err)
{
	if ((unsigned)t->type >= COUNT(types))
		return bt_fail(err, BETON_FORMAT, "%s: model_type %d", what, (int)t->type);
	/* The size that a file leaves out. */
	if (t->head_size == 0 && t->width > 0 && t->heads > t->width)
		return bt_fail(err, BETON_FORMAT, "%s: \"%s\" %lld is less than \"%s\" %lld", what, KEY_OF(t, width),
			       (long long)t->width, KEY_OF(t, heads), (long long)t->heads);
	for (int i = 0; i < types[t->type].count; i++) {
		const config_key *key = &types[t->type].keys[i];
		const int64_t *count = (const int64_t *)((const char *)t + key->offset);
		if (key->kind == KEY_COUNT && *count < 1)
			return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is %lld, not positive", what, key->name,
				       (long long)*count);
		const double *number = (const double *)((const char *)t + key->offset);
		if (key->kind == KEY_SHARE || is_real(key->kind)) {
			int status = check_number(what, key, *number, err);
			if (status != BETON_OK)
				return status;
		}
	}
	if (t->layers > MOST_LAYERS)
		return bt_fail(err, BETON_FORMAT, "%s: \"%s\" is %lld, not 1 .. %d", what, KEY_OF(t, layers),
			       (long long)t->layers, MOST_LAYERS);
	if (t->type != DTRAIN_TRANSFORMER_LLAMA && (t->width % t->heads || t->head_size != t->width / t->heads))
		return fail_divisor(what, KEY_OF(t, width), t->width, KEY_OF(t, heads), t->heads, err);
	if (t->kv_heads < 1 || t->heads % t->kv_heads)
		return fail_divisor(what, KEY_OF(t, heads), t->heads, KEY_OF(t, kv_heads), t->kv_heads, err);
	if (t->type == DTRAIN_TRANSFORMER_LLAMA && t->head_size % 2)
		return bt_fail(err, BETON_FORMAT, "%s: \"head_dim\" %lld is odd", what, (long long)t->head_size);
	if (t->type == DTRAIN_TRANSFORMER_VIT && t->image_size % t->patch_size)
		return fail_divisor(what, "image_size", t->image_size, "patch_size", t->patch_size, err);
	if (t->plain && (t->mean_pool || t->no_class_token))
		return bt_fail(err, BETON_FORMAT, "%s: \"pool\" and \"class_token\" cannot be combined with \"plain\"",
			       what);
	if (t->no_class_token && !t->mean_pool)
		return bt_fail(err, BETON_FORMAT, "%s: without a \"class_token\", \"pool\" has to be \"mean\"", what);
	if (t->type != DTRAIN_TRANSFORMER_VIT && t->drop_path != 0)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: \"drop_path_rate\" is supported only for vit", what);
	if (t->type == DTRAIN_TRANSFORMER_LLAMA && t->activation != DTRAIN_ACTIVATION_SILU)
		return bt_fail(err, BETON_UNSUPPORTED, "%s: \"hidden_act\" of llama is supported only as \"silu\"",
			       what);
	return BETON_OK;
}

static int find_type(const char *path, const json_t *root, dtrain_transformer *out, beton_error *err)
{
	const json_t *value = json_object_get(root, "model_type");
	if (!value)
		return bt_fail(err, BETON_FORMAT, "%s: has no \"model_type\"", path);
	if (!json_is_string(value))
		return fail_type(path, "model_type", "a string", err);
	for (int i = 0; i < COUNT(types); i++)
		if (strcmp(types[i].name, json_string_value(value)) == 0) {
			*out = types[i].defaults;
			out->struct_size = sizeof(*out);
			out->type = (dtrain_transformer_type)i;
			return BETON_OK;
		}
	return bt_fail(err, BETON_UNSUPPORTED, "%s: \"model_type\" is \"%s\"; supported are gpt2, llama, bert and vit",
		       path, json_string_value(value));
}

/* Derives values that files leave out. */
static void derive(dtrain_transformer *t)
{
	if (!t->inner)
		t->inner = 4 * t->width;
	if (!t->kv_heads)
		t->kv_heads = t->heads;
	if (!t->head_size)
		t->head_size = t->width / t->heads;
}

static int take(const char *path, const json_t *root, dtrain_transformer *out, beton_error *err)
{
	if (!json_is_object(root))
		return bt_fail(err, BETON_FORMAT, "%s: is not a JSON object", path);
	int status = find_type(path, root, out, err);
	if (status == BETON_OK)
		status = take_keys(path, root, out, err);
	if (status == BETON_OK)
		status = check_fixed(path, root, types[out->type].fixed, err);
	if (status == BETON_OK)
		status = take_rope(path, root, out, err);
	if (status != BETON_OK)
		return status;
	derive(out);
	return dtrain__transformer_check(out, path, err);
}

int dtrain_transformer_parse(const char *text, const char *name, dtrain_transformer *out, beton_error *err)
{
	if (BT_MISSING(err, text, name, out))
		return BETON_INVALID_ARGUMENT;
	json_error_t where;
	dtrain_transformer read = {0};
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	int status = root ? take(name, root, &read, err)
			  : bt_fail(err, BETON_FORMAT, "%s: line %d: %s", name, where.line, where.text);
	json_decref(root);
	if (status == BETON_OK)
		*out = read;
	return status;
}

static bool is_used(dtrain_transformer_type type, const char *name)
{
	for (int i = 0; i < types[type].count; i++)
		if (strcmp(types[type].keys[i].name, name) == 0)
			return true;
	for (const fixed_key *fixed = types[type].fixed; fixed->name; fixed++)
		if (strcmp(fixed->name, name) == 0)
			return true;
	return type == DTRAIN_TRANSFORMER_LLAMA && strcmp(name, "rope_parameters") == 0;
}

static bool is_idle(const char *name)
{
	for (int i = 0; i < COUNT(idle_keys); i++)
		if (strcmp(idle_keys[i], name) == 0)
			return true;
	return name[0] == '_';
}

char *dtrain_transformer_unused(const char *text)
{
	dtrain_transformer found;
	beton_error ignored;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	char *list = NULL;
	const char *name;
	json_t *value;
	bool known = json_is_object(root) && find_type("", root, &found, &ignored) == BETON_OK;
	json_object_foreach(known ? root : NULL, name, value)
	{
		if (is_used(found.type, name) || is_idle(name))
			continue;
		char *longer = list ? bt_format("%s, %s", list, name) : strdup(name);
		free(list);
		list = longer;
		if (!list)
			break;
	}
	json_decref(root);
	return list;
}

int dtrain_transformer_text(const char *name, char **out, beton_error *err)
{
	if (BT_MISSING(err, name, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	return dtrain__is_config_path(name) ? bt_read_text(name, BYTES_MAX, out, err) : BETON_OK;
}

int dtrain_transformer_read(const char *path, dtrain_transformer *out, beton_error *err)
{
	if (BT_MISSING(err, path, out))
		return BETON_INVALID_ARGUMENT;
	char *text = NULL;
	int status = bt_read_text(path, BYTES_MAX, &text, err);
	if (status == BETON_OK)
		status = dtrain_transformer_parse(text, path, out, err);
	free(text);
	return status;
}
