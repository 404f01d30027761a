#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers prompts with the engine on attune: run.py MODEL PROMPT... MODEL is a Llama or Qwen of transformers, a name or
a folder. On a GPU it runs in bf16, elsewhere in fp32."""
import sys

import attune.flash

attune.flash.install()  # before engine.py imports flash_attn

import torch  # noqa: E402
from engine import Engine  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

name, *prompts = sys.argv[1:]
on_gpu = torch.cuda.is_available()
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16 if on_gpu else torch.float32)
tokenizer = AutoTokenizer.from_pretrained(name)
engine = Engine(model.to("cuda" if on_gpu else "cpu").eval())
requests = [engine.add(tokenizer(prompt)["input_ids"], 200, tokenizer.eos_token_id) for prompt in prompts]
while engine.step():
    pass
for request in requests:
    print(tokenizer.decode(request.tokens, skip_special_tokens=True), end="\n\n")
