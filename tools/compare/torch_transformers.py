# SPDX-License-Identifier: Apache-2.0
"""Transformers in PyTorch, as one would write them for speed: the peers of those that `dtrain-bench step` times.

For torch-step.py and torch-gpu-step.py."""
import json

import torch
from torch import nn

GPT2_124M = {'n_embd': 768, 'n_layer': 12, 'n_head': 12, 'vocab_size': 50257, 'n_positions': 1024}
# patch, width, layers, heads
VITS = {'vit-s16': (16, 384, 12, 6), 'vit-b16': (16, 768, 12, 12), 'vit-mini4': (4, 96, 6, 3)}


class Attention(nn.Module):
    def __init__(self, width, heads, causal, dropout, bias):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """dropout: of the residual branches; attention_dropout: of the probabilities."""

    def __init__(self, width, heads, causal, gelu, epsilon, dropout=0., attention_dropout=0., bias=True):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, epsilon, bias=bias)
        self.attention = Attention(width, heads, causal, attention_dropout, bias)
        self.norm2, self.dropout = nn.LayerNorm(width, epsilon, bias=bias), dropout
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias), nn.GELU(approximate=gelu), nn.Linear(4 * width, width, bias))

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))

    def drop(self, x):
        return nn.functional.dropout(x, self.dropout, self.training) if self.dropout else x


class ViT(nn.Module):
    def __init__(self, name, size, classes):
        super().__init__()
        patch, width, layers, heads = VITS[name]
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*[Layer(width, heads, False, 'none', 1e-6) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.layers(x)[:, 0]))


def is_gpt2(name):
    """gpt2, or the path to a config.json of its kind."""
    return name == 'gpt2' or name.endswith('.json')


class GPT2(nn.Module):
    def __init__(self, name):
        super().__init__()
        config = GPT2_124M
        if name != 'gpt2':
            with open(name, encoding='utf-8') as file:
                config = json.load(file)
        width, self.vocabulary = config['n_embd'], config['vocab_size']
        bias = config.get('bias', True)
        shares = [config.get(name, 0.) for name in ('resid_pdrop', 'attn_pdrop')]
        self.tokens, self.positions = nn.Embedding(self.vocabulary, width), nn.Embedding(config['n_positions'], width)
        self.dropout = nn.Dropout(config.get('embd_pdrop', 0.))
        self.layers = nn.Sequential(
            *[Layer(width, config['n_head'], True, 'tanh', 1e-5, *shares, bias) for _ in range(config['n_layer'])])
        self.norm, self.head = nn.LayerNorm(width, bias=bias), nn.Linear(width, self.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.dropout(self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device)))
        return self.head(self.norm(self.layers(x))).flatten(0, 1)
