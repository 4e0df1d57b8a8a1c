#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes transformers.json: what Hugging Face's models of tokens, and ViTs with timm's names, compute at small sizes,
and in some steps of SGD.

Usage: make-transformers.py > transformers.json        (any PyTorch and transformers; CPU; some seconds)
       make-transformers.py gpt2 > gpt2.json           (OpenAI's smallest GPT-2, 124 million parameters: 7 GB, a minute)

Weights, tokens, pictures and labels are formulas that the test which reads the file (tests/train/nn/golden_models.c) computes again.
Everything is computed in double, except that Hugging Face's Llama computes norms and rotations in float; and the losses
once more with autocast to bfloat16. A case has the model's config.json.
"""
import json
import sys

import numpy
import torch
import transformers

LARGE = sys.argv[1:] == ["gpt2"]
BATCH, T, STEPS, ELEMENTS, LOGITS = (1, 512, 4, 4, 400) if LARGE else (3, 10, 10, 4, 4)
LR, MOMENTUM = 0.02, 0.9
GPT2 = dict(model_type="gpt2", n_embd=24, n_layer=2, n_head=3, vocab_size=37, n_positions=12)
LLAMA = dict(model_type="llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
             vocab_size=37, max_position_embeddings=16)
BERT = dict(model_type="bert", hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
            vocab_size=37, max_position_embeddings=12)
VIT = dict(model_type="vit", hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
           image_size=8, patch_size=4, layer_norm_eps=1e-6)
HEIGHT, WIDTH, CLASSES = 12, 8, 7

LARGE_CASES = [
    ("gpt2, 124 million parameters", dict(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, vocab_size=50257,
                                          n_positions=1024), ()),
]
CASES = LARGE_CASES if LARGE else [
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
    ("vit", VIT, ()),
    ("vit, mean of the patches", dict(VIT, pool="mean"), ()),
    ("vit, no class token", dict(VIT, pool="mean", class_token=False), ()),
    ("vit, plain", dict(VIT, plain=True, hidden_act="gelu_pytorch_tanh"), ()),
]


def fill(name, tensor):
    """Numbers of a generator that starts from the tensor's name."""
    salt = sum((i + 1) * byte for i, byte in enumerate(name.encode())) % 2**32
    one_dimension = tensor.dim() == 1
    is_weight = name.endswith("weight")
    scale = tensor.shape[-1] ** -0.5 if not one_dimension else 0.2 if is_weight else 0.1
    # state = state * 1664525 + 1013904223, modulo 2^32, as often as there are elements.
    factors = numpy.full(tensor.numel(), 1664525, numpy.uint32).cumprod(dtype=numpy.uint32)
    sums = numpy.concatenate([numpy.ones(1, numpy.uint32), factors[:-1]]).cumsum(dtype=numpy.uint32)
    state = factors * numpy.uint32((12345 + 2654435761 * salt) % 2**32) + sums * numpy.uint32(1013904223)
    wave = (state >> numpy.uint32(8)) * 2.0**-23 - 1
    values = (1 if one_dimension and is_weight else 0) + scale * wave
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(values.astype(numpy.float32)).reshape(tensor.shape))


class Block(torch.nn.Module):
    """Attention and MLP, each behind a norm."""

    def __init__(self, config):
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        inner = config["intermediate_size"]
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, config["layer_norm_eps"]) for _ in range(2))
        self.attn = torch.nn.ModuleDict({"qkv": torch.nn.Linear(width, 3 * width),
                                         "proj": torch.nn.Linear(width, width)})
        self.mlp = torch.nn.ModuleDict({"fc1": torch.nn.Linear(width, inner), "fc2": torch.nn.Linear(inner, width)})
        self.gelu = torch.nn.GELU(approximate="tanh" if config.get("hidden_act") else "none")

    def forward(self, x):
        batch, count, width = x.shape
        qkv = self.attn["qkv"](self.norm1(x)).reshape(batch, count, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads)**-0.5, -1) @ v
        x = x + self.attn["proj"](y.transpose(1, 2).reshape(batch, count, width))
        return x + self.mlp["fc2"](self.gelu(self.mlp["fc1"](self.norm2(x))))


class ViT(torch.nn.Module):
    """timm's VisionTransformer; if plain, big_vision's."""

    def __init__(self, config):
        super().__init__()
        width, side, self.plain = config["hidden_size"], config["patch_size"], config.get("plain", False)
        self.grid = (2, 2) if self.plain else (HEIGHT // side, WIDTH // side)
        self.tokens = int(not self.plain and config.get("class_token", True))
        self.mean = config.get("pool") == "mean"
        if self.tokens:
            self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, width))
        if not self.plain:
            self.pos_embed = torch.nn.Parameter(torch.zeros(1, self.grid[0] * self.grid[1] + self.tokens, width))
        self.patch_embed = torch.nn.ModuleDict({"proj": torch.nn.Conv2d(3, width, side, side)})
        self.blocks = torch.nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        setattr(self, "fc_norm" if self.mean else "norm", torch.nn.LayerNorm(width, config["layer_norm_eps"]))
        self.head = torch.nn.Linear(width, CLASSES)

    def places(self, width):
        y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in self.grid), indexing="ij")
        rate = 1 / 10000**(torch.arange(width // 4, dtype=torch.float64) / (width // 4 - 1))
        y, x = y.flatten()[:, None] * rate, x.flatten()[:, None] * rate
        return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1).float()

    def forward(self, image):
        x = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        if self.plain:
            x = x + self.places(x.shape[2])
        else:
            tokens = [self.cls_token.expand(len(x), -1, -1)] if self.tokens else []
            x = torch.cat(tokens + [x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        if self.mean:
            return self.head(self.fc_norm(x[:, self.tokens:].mean(1)))
        x = self.norm(x)
        return self.head(x.mean(1) if self.plain else x[:, 0])


def numbers(multiplier, below):
    return (torch.arange(BATCH * T) * multiplier % below).reshape(BATCH, T)


def make(config, dtype):
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
    return model(made).to(dtype).eval()


def trace_vit(name, config, dtype):
    model, trained = ViT(config).to(dtype), {}
    for key, tensor in model.named_parameters():
        fill(key, tensor)
        trained[key] = tensor
    side = config["patch_size"]
    shape = (BATCH, 3, model.grid[0] * side, model.grid[1] * side)
    image = (torch.arange(torch.Size(shape).numel()) * 37 % 101 - 50).to(dtype).reshape(shape) / 32
    labels = torch.arange(BATCH) * 2 % CLASSES
    result = {"name": name, "config": dict(config), "given": [], "height": shape[2], "width": shape[3],
              "classes": CLASSES}
    return train(result, trained, lambda: model(image), labels, dtype)


def trace(name, config, given, dtype):
    if config["model_type"] == "vit":
        return trace_vit(name, config, dtype)
    model = make(config, dtype)
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
    options["attention_mask"] = torch.zeros(BATCH, 1, T, T, dtype=dtype).masked_fill(
        ~allowed[:, None], -1e30)
    if "position" in given:
        options["position_ids"] = (numbers(1, T) * 7 + 3) % T
    if "token_types" in given:
        options["token_type_ids"] = numbers(3, 7) % 2
    result = {"name": name, "config": dict(config), "given": list(given)}
    return train(result, trained, lambda: model(tokens, **options).logits, labels, dtype)


def train(result, trained, forward, labels, dtype):
    optimizer = torch.optim.SGD(trained.values(), lr=LR, momentum=MOMENTUM)
    result["count"], result["losses"] = sum(tensor.numel() for tensor in trained.values()), []
    for step in range(STEPS):
        optimizer.zero_grad()
        # Autocast rounds to bfloat16 what is in float.
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            logits = forward()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).to(dtype), labels.reshape(-1))
        loss.backward()
        result["losses"].append(loss.item())
        if step == 0:
            result["logits"] = shown(logits, LOGITS)
            result["gradients"] = {key: shown(tensor.grad) for key, tensor in trained.items()}
        optimizer.step()
    return result


def trace_both(case):
    result = trace(*case, torch.float64)
    result["bf16_losses"] = [float(f"{loss:.7g}") for loss in trace(*case, torch.float32)["losses"]]
    return result


def shown(tensor, elements=ELEMENTS):
    """The norm, and some elements."""
    flat = tensor.detach().reshape(-1)
    return [flat.norm().item()] + [flat[i * 7919 % len(flat)].item() for i in range(elements)]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


made_by = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
cases = ",\n".join(json.dumps(rounded(trace_both(case))) for case in CASES)
sys.stdout.write('{"made_by": "%s", "batch": %d, "length": %d, "cases": [\n%s\n]}\n' % (made_by, BATCH, T, cases))
