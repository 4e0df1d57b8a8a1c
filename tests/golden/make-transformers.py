#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes transformers.json: what Hugging Face's models of tokens compute at small sizes, and in ten steps of SGD.

Usage: make-transformers.py > transformers.json        (any PyTorch and transformers; CPU; some seconds)

Weights, tokens and labels are formulas that the test which reads the file (tests/train/golden_models.c) computes again.
Everything is computed in double, except that Hugging Face's Llama computes norms and rotations in float. A case has the
model's config.json.
"""
import json
import sys

import torch
import transformers

BATCH, T, STEPS, ELEMENTS = 3, 10, 10, 4
LR, MOMENTUM = 0.02, 0.9
GPT2 = dict(model_type="gpt2", n_embd=24, n_layer=2, n_head=3, vocab_size=37, n_positions=12)
LLAMA = dict(model_type="llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
             vocab_size=37, max_position_embeddings=16)
BERT = dict(model_type="bert", hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
            vocab_size=37, max_position_embeddings=12)

CASES = [
    # name, config, what is given besides tokens
    ("gpt2", GPT2, ()),
    ("gpt2, full context", dict(GPT2, n_positions=T, n_inner=40, activation_function="gelu"), ()),
    ("gpt2, positions and documents", GPT2, ("position", "segment")),
    ("gpt2, no biases, own head", dict(GPT2, bias=False, tie_word_embeddings=False, layer_norm_epsilon=1e-3), ()),
    ("llama", LLAMA, ()),
    ("llama, shared keys", dict(LLAMA, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=500.0,
                                rms_norm_eps=1e-5), ()),
    ("llama, heads of another size", dict(LLAMA, num_key_value_heads=1, head_dim=6,
                                          rope_parameters={"rope_type": "default", "rope_theta": 300.0}),
     ("position",)),
    ("bert", BERT, ()),
    ("bert, token types and padding", dict(BERT, layer_norm_eps=1e-6), ("token_types", "segment")),
]


def fill(name, tensor):
    """Numbers of a generator that starts from the tensor's name."""
    salt = sum((i + 1) * byte for i, byte in enumerate(name.encode())) % 2**32
    state = (12345 + 2654435761 * salt) % 2**32
    one_dimension = tensor.dim() == 1
    is_weight = name.endswith("weight")
    scale = tensor.shape[-1] ** -0.5 if not one_dimension else 0.2 if is_weight else 0.1
    values = []
    for _ in range(tensor.numel()):
        state = (state * 1664525 + 1013904223) % 2**32
        wave = (state >> 8) * 2.0**-23 - 1
        values.append((1 if one_dimension and is_weight else 0) + scale * wave)
    with torch.no_grad():
        tensor.copy_(torch.tensor(values, dtype=torch.float32).reshape(tensor.shape))


def numbers(multiplier, below):
    return (torch.arange(BATCH * T) * multiplier % below).reshape(BATCH, T)


def make(config):
    known = {key: value for key, value in config.items() if key not in ("model_type", "bias")}
    off = {"gpt2": dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), "llama": {},
           # With a padding token its embedding would get no gradient as an input.
           "bert": dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=None)}[config["model_type"]]
    classes = {"gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
               "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
               "bert": (transformers.BertConfig, transformers.BertForMaskedLM)}
    made, model = classes[config["model_type"]]
    made = made(**known, **off)
    made._attn_implementation = "eager"
    return model(made).double().eval()


def trace(name, config, given):
    model = make(config)
    decoder = config["model_type"] != "bert"
    trained = {}
    for key, tensor in model.named_parameters():
        if key.endswith("bias") and not config.get("bias", True):
            torch.nn.init.zeros_(tensor)
            continue
        fill(key, tensor)
        trained[key] = tensor
    model.tie_weights()
    vocabulary = config["vocab_size"]
    tokens, labels = numbers(17, vocabulary), numbers(29, vocabulary)
    labels = labels.where(torch.arange(BATCH * T).reshape(BATCH, T) % 5 != 0, -100)
    options = {}
    segment = numbers(1, T) // 4 if "segment" in given else torch.zeros(BATCH, T, dtype=torch.int64)
    allowed = segment[:, :, None] == segment[:, None, :]
    if decoder:
        allowed = allowed & torch.ones(T, T, dtype=torch.bool).tril()
    options["attention_mask"] = torch.zeros(BATCH, 1, T, T, dtype=torch.float64).masked_fill(
        ~allowed[:, None], -1e300)
    if "position" in given:
        options["position_ids"] = (numbers(1, T) * 7 + 3) % T
    if "token_types" in given:
        options["token_type_ids"] = numbers(3, 7) % 2
    optimizer = torch.optim.SGD(trained.values(), lr=LR, momentum=MOMENTUM)
    result = {"name": name, "config": dict(config), "given": list(given),
              "count": sum(tensor.numel() for tensor in trained.values()), "losses": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens, **options).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), labels.reshape(-1))
        loss.backward()
        result["losses"].append(loss.item())
        if step == 0:
            result["logits"] = shown(logits)
            result["gradients"] = {key: shown(tensor.grad) for key, tensor in trained.items()}
        optimizer.step()
    return result


def shown(tensor):
    """The norm, and some elements."""
    flat = tensor.detach().reshape(-1)
    return [flat.norm().item()] + [flat[i * 7919 % len(flat)].item() for i in range(ELEMENTS)]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


made_by = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
cases = ",\n".join(json.dumps(rounded(trace(*case))) for case in CASES)
sys.stdout.write('{"made_by": "%s", "cases": [\n%s\n]}\n' % (made_by, cases))
