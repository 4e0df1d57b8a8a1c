#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-golden.py TEXT FOLDER: trains a vocabulary of 320 tokens on TEXT with Hugging Face's tokenizers, and writes it
with what tiktoken 0.14 and tokenizers 0.23 make of some texts. Needs both packages; the tests only need the result."""
import base64
import json
import pathlib
import sys

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
CL100K = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
          r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""")
TEXTS = [
    "", "a", "First Citizen: we'll THEY'LL 'tis it's, don't?!\n\nSpeak, speak.", "  two  spaces \t\n x  ",
    "héllo wörld ﬁ Ⅷ ½ ٣", "日本語のテキスト。", "\U0001f923 \U0001f469‍\U0001f467", "123456789 3.14",
    "\u00a0nbsp\u180ex\u0085y\u2028z\u3000", "\x1c\x1f\x0b\x0c a\0b", "<|endoftext|>", "theretheretheretherethere" * 4,
    "a" * 99 + " " * 77 + "b", "\r\n\r\n end", "-----====[](){}", "\n" * 9,
    "aaa aaaaa aaaaaaa", "   three    four     five\n\n\n   x",
]

text, folder = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
trained = Tokenizer(models.BPE())
trained.pre_tokenizer = byte_level
# Runs, of which merges overlap, and indentation, which is split in a way of its own, are rare in prose.
trained.train_from_iterator([text, "\n\n        aaaaaaaa" * 3000], trainers.BpeTrainer(
    vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=byte_level.alphabet(), show_progress=False))
trained.model.save(str(folder))
plain = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
plain.pre_tokenizer = byte_level

shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
byte_of = {chr(b): b for b in shown}
byte_of.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)})
ranks = {bytes([b]): b for b in range(256)}
for line in (folder / "merges.txt").read_text().split("\n")[1:]:
    if line:
        ranks.setdefault(bytes(byte_of[c] for c in line.replace(" ", "")), len(ranks))
(folder / "ranks").write_text("".join(f"{base64.b64encode(k).decode()} {v}\n" for k, v in ranks.items()))
gpt2, cl100k = (tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
                for name, pattern in (("gpt2", GPT2), ("cl100k", CL100K)))
cases = [{"text": t, "folder": plain.encode(t).ids, "gpt2": gpt2.encode_ordinary(t), "cl100k": cl100k.encode_ordinary(t)}
         for t in TEXTS]
(folder / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
