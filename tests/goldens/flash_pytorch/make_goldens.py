#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files: small random models run by the real FLASH-pytorch package.

One folder a model: the package's own state_dict, and `imported/`, which holds what
deploy/models/import_flash_pytorch.py makes of it, together with `expected.json`: token ids, the
natural logarithm of each token's probability given those before it as the package computes it in
float32, its greedy continuation, and the importer's flags.

Made with Debian 12's python3-torch 1.13.0 and these packages:

  python3 -m venv --system-site-packages flash-venv
  flash-venv/bin/pip install --no-deps flash-pytorch==0.1.9 einops==0.6.1 \\
      rotary-embedding-torch==0.2.3 safetensors==0.4.5
  flash-venv/bin/python tests/goldens/flash_pytorch/make_goldens.py

The models made for an older release of the package are made by the same commands with that
release (flash-pytorch==0.1.6): a run makes those of the release that is installed.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import torch
from flash_pytorch import FLASHTransformer
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
IMPORTER = os.path.join(HERE, "..", "..", "..", "deploy", "models", "import_flash_pytorch.py")

LAPLACE_STD = {"0.1.9": "0.28209479177387814", "0.1.6": "0.886226925452758"}

# Lengths are several groups and a part of one. `freqs`: the shared rotary table is stored with
# every layer (as torch.save does), once (as tools that drop duplicates do) or not at all.
MODELS = {
    "package_defaults": dict(  # all settings that the package has defaults for, but the sizes
        seed=1, length=83, vocab=97, dim=48, depth=3, group_size=16, query_key_dim=32),
    "layer_norm_laplace": dict(
        seed=2, length=70, vocab=61, dim=32, depth=2, group_size=16, query_key_dim=32,
        norm_type="layernorm", shift_tokens=False, laplace=True, prefix="net."),
    "narrow_heads": dict(  # fewer features than the rotary limit of 32
        seed=3, length=67, vocab=61, dim=32, depth=2, group_size=8, query_key_dim=12,
        shift_tokens=False, freqs="once", prefix="module.net."),
    "odd_sizes": dict(
        seed=4, length=61, vocab=101, dim=50, depth=2, group_size=11, query_key_dim=21,
        expansion_factor=1.5, norm_type="layernorm", prefix="model.module."),
    "odd_sizes_laplace": dict(  # the rotary table must come from flags
        seed=5, length=40, vocab=53, dim=26, depth=1, group_size=7, query_key_dim=9,
        laplace=True, freqs="none", also_pt=True),
    "long_group": dict(  # distances beyond all buckets, heads partly rotated, visible epsilons
        seed=6, length=397, vocab=59, dim=24, depth=2, group_size=160, query_key_dim=40,
        norm_eps=1.0, final_norm_eps=0.25),
    "release_0_1_6_laplace": dict(
        seed=7, length=52, vocab=53, dim=24, depth=2, group_size=12, query_key_dim=16,
        shift_tokens=False, laplace=True, release="0.1.6"),
}


def build(spec):
    model = FLASHTransformer(
        num_tokens=spec["vocab"], dim=spec["dim"], depth=spec["depth"], causal=True,
        group_size=spec["group_size"], query_key_dim=spec["query_key_dim"],
        expansion_factor=spec.get("expansion_factor", 2.0),
        norm_type=spec.get("norm_type", "scalenorm"),
        shift_tokens=spec.get("shift_tokens", True),
        laplace_attn_fn=spec.get("laplace", False))
    for layer in model.layers:
        layer.norm.eps = spec.get("norm_eps", 1e-5)
    model.to_logits[0].eps = spec.get("final_norm_eps", 1e-5)
    randomise(model, spec["query_key_dim"])
    return model.eval()


def randomise(model, query_key_dim):
    """Every parameter gets a value that shows in the result: none stays 0 or 1."""
    scale = {
        "token_emb.weight": (0.0, 1.0), "abs_pos_emb.scale": (0.8, 0.1),
        "norm.g": (1.2, 0.2), "norm.weight": (1.0, 0.3), "norm.bias": (0.0, 0.3),
        "to_hidden.0.bias": (0.0, 0.3), "to_qk.0.bias": (0.0, 0.3), "to_out.bias": (0.0, 0.3),
        "gamma": (0.3, 1.2), "beta": (0.0, 0.6),
        "relative_attention_bias.weight": (0.3 / query_key_dim ** 0.5, 0.6 / query_key_dim ** 0.5),
        "to_logits.0.weight": (1.0, 0.3), "to_logits.0.bias": (0.0, 0.3),
        "to_logits.1.bias": (0.0, 0.5),
    }
    for name, parameter in model.named_parameters():
        if name.endswith("rotary_pos_emb.freqs"):
            continue  # frequencies are not trained
        mean, deviation = next((s for end, s in scale.items() if name.endswith(end)), (0.0, None))
        if deviation is None:  # the matrices: outputs about as large as inputs
            deviation = (2.0 if name.startswith("to_logits") else 1.2) / parameter.shape[1] ** 0.5
        with torch.no_grad():
            parameter.normal_(mean, deviation)


def stored_tensors(model, spec):
    tensors, seen = {}, False
    for name, value in model.state_dict().items():
        if name.endswith("rotary_pos_emb.freqs"):
            if spec.get("freqs") == "none" or (spec.get("freqs") == "once" and seen):
                continue
            seen = True
        tensors[spec.get("prefix", "") + name] = value.detach().clone().contiguous()
    return tensors


def run(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]))[0]


def greedy(model, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        best = run(model, ids)[-1].topk(2)
        assert best.values[0] - best.values[1] > 2e-3, "a tie: choose another seed"
        ids.append(int(best.indices[0]))
    return {"prompt_ids": list(prompt), "generated_ids": ids[len(prompt):]}


def importer_flags(spec):
    yes_no = lambda value: "yes" if value else "no"
    flags = ["--group-size", str(spec["group_size"]), "--causal", "yes",
             "--shift-tokens", yes_no(spec.get("shift_tokens", True)),
             "--laplace", yes_no(spec.get("laplace", False)),
             "--norm-eps", str(spec.get("norm_eps", 1e-5)),
             "--final-norm-eps", str(spec.get("final_norm_eps", 1e-5)),
             "--bias-max-distance", "128"]
    if spec.get("laplace"):
        flags += ["--laplace-std", LAPLACE_STD[spec.get("release", "0.1.9")]]
    if spec.get("freqs") == "none":
        flags += ["--rotary-max", "32", "--rotary-base", "10000"]
    return flags


def save_state_dict(folder, tensors, file_name):
    path = os.path.join(folder, file_name)
    if file_name.endswith(".pt"):
        torch.save(tensors, path)
    else:
        save_file(tensors, path, metadata={"format": "pt"})
    return path


def make(name, spec):
    torch.manual_seed(spec["seed"])
    model = build(spec)
    ids = torch.randint(0, spec["vocab"], (spec["length"],)).tolist()
    chosen = run(model, ids).double().log_softmax(-1)[:-1]
    logprobs = [round(float(row[token]), 6) for row, token in zip(chosen, ids[1:])]
    expected = {"source": f"flash-pytorch {version('flash-pytorch')}, float32",
                "importer_flags": importer_flags(spec), "ids": ids, "logprobs": logprobs,
                "greedy": greedy(model, ids[:spec["group_size"] + 3], min(2 * spec["group_size"], 40))}
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tensors = stored_tensors(model, spec)
    path = save_state_dict(folder, tensors, "state_dict.safetensors")
    if spec.get("also_pt"):
        save_state_dict(folder, tensors, "state_dict.pt")
    imported = os.path.join(folder, "imported")
    subprocess.run([sys.executable, IMPORTER, path, imported] + expected["importer_flags"],
                   check=True)
    with open(os.path.join(imported, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")


def main():
    for name, spec in MODELS.items():
        if spec.get("release", "0.1.9") == version("flash-pytorch"):
            make(name, spec)


if __name__ == "__main__":
    main()
