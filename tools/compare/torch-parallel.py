# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's tensor parallelism (DTensor), or of its pipelines, on the CPU over Gloo: the peer of `dtrain-ffcv --mesh`.

usage, by torchrun: torch-parallel.py CONFIG.JSON WEIGHTS.SAFETENSORS TOKENS.BIN WAY LENGTH BATCH MICRO-BATCHES STEPS LR
WAY: tensor (parallelize_module as in PyTorch's tutorial: heads and the mlp by columns, then rows, the table by rows, the head and its
loss by columns); gpipe or 1f1b (torch.distributed.pipelining, a stage a rank, layers shared out evenly). The weights are a GPT-2 with
Hugging Face's names and a head of its own; step i has the i-th BATCH x LENGTH tokens. AdamW in f32 without decay, one thread. Rank 0
prints one JSON object: the losses, the median time of the later half of the steps, and the largest peak of any rank's resident memory,
and the same before the model was made."""
import json
import os
import resource
import statistics
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

config_path, weights_path, tokens_path, way = sys.argv[1:5]
length, batch, micro_batches, steps = map(int, sys.argv[5:9])
rate = float(sys.argv[9])
torch.set_num_threads(1)
dist.init_process_group('gloo')
rank, world = dist.get_rank(), dist.get_world_size()
with open(config_path, encoding='utf-8') as file:
    config = json.load(file)
width, heads, layers, vocabulary = config['n_embd'], config['n_head'], config['n_layer'], config['vocab_size']


def peak_bytes():
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024], dtype=torch.int64)
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    return peak.item()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width) for _ in range(4))
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (w(y).view(b, t, -1, width // heads).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.proj(nn.functional.gelu(self.fc(self.norm2(x)), approximate='tanh'))


class GPT(nn.Module):
    """The layers first to last, with the table before the model's first one and the head after its last one."""

    def __init__(self, first, last):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width) if first == 0 else None
        self.positions = nn.Embedding(config['n_positions'], width) if first == 0 else None
        self.layers = nn.ModuleDict({str(i): Layer() for i in range(first, last)})
        self.norm = nn.LayerNorm(width) if last == layers else None
        self.head = nn.Linear(width, vocabulary, bias=False) if last == layers else None

    def forward(self, x):
        if self.tokens:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x)) if self.head else x


def read_weights(model):
    """In place. Parts of the model that this rank does not have are left out."""
    with open(weights_path, 'rb') as file:
        size = struct.unpack('<Q', file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())

    def load(name, parameter, part=None):
        entry = header[name]
        begin, end = entry['data_offsets']
        value = torch.frombuffer(data, dtype=torch.float32, offset=begin, count=(end - begin) // 4).view(entry['shape'])
        value = value.t() if 'c_' in name and value.dim() == 2 else value
        parameter.data.copy_(value if part is None else value.chunk(3)[part])

    def load_both(name, module, part=None):
        load(name + '.weight', module.weight, part)
        load(name + '.bias', module.bias, part)

    if model.tokens:
        load('transformer.wte.weight', model.tokens.weight)
        load('transformer.wpe.weight', model.positions.weight)
    for i, layer in model.layers.items():
        of = 'transformer.h.' + i
        for part, module in enumerate((layer.wq, layer.wk, layer.wv)):
            load_both(of + '.attn.c_attn', module, part)
        for name, module in (('.ln_1', layer.norm1), ('.attn.c_proj', layer.wo), ('.ln_2', layer.norm2), ('.mlp.c_fc', layer.fc),
                             ('.mlp.c_proj', layer.proj)):
            load_both(of + name, module)
    if model.head:
        load_both('transformer.ln_f', model.norm)
        load('lm_head.weight', model.head.weight)


def divide(model):
    mesh = init_device_mesh('cpu', (world,))
    parallelize_module(model, mesh, {'tokens': RowwiseParallel(input_layouts=Replicate()),
                                     'head': ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    for layer in model.layers.values():
        columns = {name: ColwiseParallel() for name in ('wq', 'wk', 'wv', 'fc')}
        parallelize_module(layer, mesh, {**columns, 'wo': RowwiseParallel(), 'proj': RowwiseParallel()})


def loss_of(logits, labels):
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


before = peak_bytes()
tensor = way == 'tensor'
model = GPT(0, layers) if tensor else GPT(layers * rank // world, layers * (rank + 1) // world)
read_weights(model)
if tensor:
    divide(model)
else:
    stage = PipelineStage(model, rank, world, torch.device('cpu'))
    schedule = {'gpipe': ScheduleGPipe, '1f1b': Schedule1F1B}[way](stage, micro_batches, loss_fn=loss_of)
# The fast optimizer takes no group of divided and whole parameters.
groups = [[p for p in model.parameters() if isinstance(p, DTensor) == divided] for divided in (False, True)]
optimizer = torch.optim.AdamW([{'params': group} for group in groups if group], lr=rate, weight_decay=0, foreach=True)
with open(tokens_path, 'rb') as file:
    tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long()
times, losses = [], []


def step(x, y):
    if tensor:
        with loss_parallel():
            loss = loss_of(model(x), y)
            loss.backward()
        return loss.item()
    parts = []
    if rank == 0:
        schedule.step(x)
    elif rank == world - 1:
        schedule.step(target=y, losses=parts)
    else:
        schedule.step()
    return sum(part.item() for part in parts) / micro_batches


for i in range(steps):
    window = tokens[i * batch * length:(i + 1) * batch * length + 1]
    dist.barrier()
    began = time.monotonic()
    optimizer.zero_grad()
    losses.append(step(window[:-1].view(batch, length), window[1:].view(batch, length)))
    optimizer.step()
    times.append(time.monotonic() - began)
if not tensor:
    all_losses = [None] * world
    dist.all_gather_object(all_losses, losses)
    losses = all_losses[-1]
result = {'step_ms': 1e3 * statistics.median(times[steps // 2:]), 'peak_bytes': peak_bytes(), 'before_bytes': before, 'losses': losses}
if rank == 0:
    print(json.dumps(result), flush=True)
dist.barrier()
# Gloo's threads may abort the process at its end.
os._exit(0)
