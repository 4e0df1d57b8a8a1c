# SPDX-License-Identifier: Apache-2.0
"""The peer of the README's language model: the same GPT-2 on the same characters with the same settings, in PyTorch.

usage: torch-shakespeare.py INPUT.TXT [SEED [STEPS [THREADS]]]
Settings are those of nanoGPT for a CPU (its README): 4 layers, 4 heads, width 128, 64 characters, batches of 12, AdamW
with beta2 0.99 and weight decay 0.1, clipping at 1, 100 steps of warm-up, a cosine from 1e-3 to 1e-4. Prints one JSON
object with the loss over all windows of the last tenth of the text, not of some random ones."""
import json
import math
import sys

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.outer(nn.functional.gelu(self.inner(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary, positions=64, width=128, layers=4, heads=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(('proj.weight', 'outer.weight'))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, x, y):
        h = self.norm(self.layers(self.tokens(x) + self.positions(torch.arange(x.shape[1]))))
        return nn.functional.cross_entropy((h @ self.tokens.weight.T).flatten(0, 1), y.flatten())


path, seed, steps, threads = sys.argv[1], *(list(map(int, sys.argv[2:5])) + [0, 2000, 1][len(sys.argv) - 2:])
torch.set_num_threads(threads)
torch.manual_seed(seed)
text = open(path).read()
characters = sorted(set(text))
data = torch.tensor([characters.index(c) for c in text])
cut = int(0.9 * len(data))
train, val = data[:cut], data[cut:]
length, batch = 64, 12
model = Model(len(characters))
groups = [{'params': [p for p in model.parameters() if p.dim() == 2], 'weight_decay': 0.1},
          {'params': [p for p in model.parameters() if p.dim() < 2], 'weight_decay': 0.0}]
optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))
for step in range(steps):
    rate = 1e-3 * (step + 1) / 101 if step < 100 else \
        1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / (steps - 100))) * 9e-4
    for group in optimizer.param_groups:
        group['lr'] = rate
    begin = torch.randint(len(train) - length, (batch,))
    x = torch.stack([train[i:i + length] for i in begin])
    y = torch.stack([train[i + 1:i + 1 + length] for i in begin])
    optimizer.zero_grad()
    model(x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
model.eval()
count = (len(val) - 1) // length
x, y = val[:count * length].view(count, length), val[1:count * length + 1].view(count, length)
with torch.no_grad():
    losses = [float(model(a, b)) * len(a) for a, b in zip(x.split(100), y.split(100))]
print(json.dumps({'torch': torch.__version__, 'seed': seed, 'steps': steps, 'val_loss': sum(losses) / count}))
