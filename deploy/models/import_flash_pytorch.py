#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the weights of a FLASH-pytorch model into a `flash-lm/1` model directory.

  import_flash_pytorch.py STATE_DICT OUTPUT_DIR --group-size 256 --causal yes \\
      --shift-tokens yes --laplace no --norm-eps 1e-5 --final-norm-eps 1e-5 \\
      --bias-max-distance 128

STATE_DICT is what `torch.save(model.state_dict(), ...)` wrote (.pt), or the same tensors in a
safetensors file. The model is the `FLASHTransformer` of FLASH-pytorch 0.1.6 or later, bare or
wrapped: `net.`, `model.` and `module.` in front of the names are removed.

Some settings change every logit and leave no trace in the weights. They are flags, and the
program refuses to guess them. Needs numpy; needs PyTorch only to open a .pt file.

Exit codes: 0 imported, 1 this file cannot be imported, 2 wrong or missing flags.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import struct
import sys
import tempfile
from dataclasses import dataclass

try:
    import numpy as np
except ImportError:  # --help works without it
    np = None

PREFIXES = ("net.", "model.", "module.")
WRAPPER_KEYS = ("state_dict", "model_state_dict", "model", "module", "net")

# The package computes its heads in the order quad_q, lin_q, quad_k, lin_k; the format's order
# is quad_q, quad_k, lin_q, lin_k.
HEAD_ORDER = [0, 2, 1, 3]

# What no state_dict says, and why. One entry a flag that has no default.
NOT_IN_THE_WEIGHTS = {
    "group_size": "no weight has a dimension of that size",
    "causal": "the weights of both kinds have the same names and shapes",
    "shift_tokens": "shifting has no weights",
    "laplace": "the activation has no weights",
    "norm_eps": "an epsilon is not a weight",
    "final_norm_eps": "an epsilon is not a weight",
    "bias_max_distance": "the bias table has the same size for every distance",
}


class Refused(Exception):
    """The file cannot be imported; the text is the one sentence that the user sees."""


class WrongUsage(Exception):
    """The flags do not say what is needed; the text is the one sentence that the user sees."""


# ---------------------------------------------------------------- reading


@dataclass
class Tensor:
    dtype: str  # safetensors' name for it: the type as stored, which says how exact the values are
    values: np.ndarray  # float32, or None where the type holds no real numbers


def widen_bfloat16(raw):
    return (raw.astype(np.uint32) << 16).view(np.float32)


DECODERS = {
    "F64": ("<f8", lambda raw: raw.astype(np.float32)),
    "F32": ("<f4", lambda raw: raw.astype(np.float32)),
    "F16": ("<f2", lambda raw: raw.astype(np.float32)),
    "BF16": ("<u2", widen_bfloat16),
}


def read_safetensors(path):
    """Name -> Tensor. The format: 8 bytes of length, a JSON header, the data of all tensors."""
    with open(path, "rb") as file:
        content = file.read()
    if len(content) < 8:
        raise Refused(f"{path} is neither a PyTorch file nor a safetensors file: it is too short.")
    (header_size,) = struct.unpack("<Q", content[:8])
    if header_size > len(content) - 8:
        raise Refused(f"{path} is neither a PyTorch file nor a whole safetensors file: its header "
                      f"would end behind the end of the file.")
    try:
        header = json.loads(content[8:8 + header_size].decode("utf-8"))
    except ValueError as error:
        raise Refused(f"The header of {path} is not JSON: {error}.") from error
    if not isinstance(header, dict):
        raise Refused(f"The header of {path} is not a JSON object.")
    header.pop("__metadata__", None)
    data = memoryview(content)[8 + header_size:]
    return {name: decode(path, name, entry, data) for name, entry in header.items()}


def decode(path, name, entry, data):
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        count = math.prod(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"The header of {path} does not describe the tensor {name} as safetensors "
                      f"does.") from error
    if not 0 <= begin <= end <= len(data):
        raise Refused(f"The tensor {name} of {path} lies outside of the file.")
    if dtype not in DECODERS:
        return Tensor(dtype, None)
    stored, widen = DECODERS[dtype]
    if end - begin != count * np.dtype(stored).itemsize:
        raise Refused(f"The tensor {name} of {path} has {end - begin} bytes, which is not what "
                      f"{dtype} {shape} takes.")
    return Tensor(dtype, widen(np.frombuffer(data[begin:end], stored)).reshape(shape))


def read_torch(path):
    try:
        import torch
    except ImportError as error:
        raise Refused(f"{path} is a PyTorch file, and opening it needs PyTorch, which is not "
                      f"installed: install it, or save the state_dict as safetensors.") from error
    try:  # weights_only: a checkpoint from somewhere else must not run code here
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, all of which mean the same to the user
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise Refused(f"PyTorch cannot read {path} as plain weights (save model.state_dict(), not "
                      f"the model): {first_line}") from error
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
             torch.bfloat16: "BF16"}
    tensors = {}
    for name, value in unwrapped(path, loaded, torch.Tensor).items():
        dtype = names.get(value.dtype)
        values = value.detach().to(torch.float32).numpy() if dtype else None
        tensors[name] = Tensor(dtype or str(value.dtype), values)
    return tensors


def unwrapped(path, loaded, tensor_type):
    """The state_dict inside of a training checkpoint such as {"model": ..., "step": ...}."""
    while isinstance(loaded, dict):
        if loaded and all(isinstance(value, tensor_type) for value in loaded.values()):
            return loaded
        inner = [loaded[key] for key in WRAPPER_KEYS if isinstance(loaded.get(key), dict)]
        if len(inner) != 1:
            break
        loaded = inner[0]
    raise Refused(f"{path} holds no state_dict (a dictionary of tensors, bare or under one of "
                  f"{', '.join(WRAPPER_KEYS)}).")


def read_state_dict(path):
    try:
        with open(path, "rb") as file:
            magic = file.read(2)
        # A .pt file is a zip archive, or a pickle in PyTorch's old layout. A safetensors header
        # of 0x..0280 bytes looks like the latter, so its byte 8, an opening brace, decides.
        if magic == b"PK" or (magic == b"\x80\x02" and not starts_json(path)):
            tensors = read_torch(path)
        else:
            tensors = read_safetensors(path)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from error
    return without_prefixes(path, tensors)


def starts_json(path):
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def without_prefixes(path, tensors):
    stripped = {}
    for name, tensor in tensors.items():
        short = name
        while short.startswith(PREFIXES):
            short = short[short.index(".") + 1:]
        if short in stripped:
            raise Refused(f"{path} holds more than one model: two tensors are called {short} once "
                          f"the prefixes {', '.join(PREFIXES)} are removed.")
        stripped[short] = tensor
    return stripped


class StateDict:
    """The tensors of the source, each of which must be asked for: what is left is unknown."""

    def __init__(self, path, tensors):
        self.path = path
        self._tensors = tensors
        self._unused = set(tensors)

    def names(self):
        return list(self._tensors)

    def has(self, name):
        return name in self._tensors

    def tensor(self, name, *shape):
        """`None` in `shape` stands for any size."""
        if name not in self._tensors:
            raise Refused(f"{self.path} has no tensor {name}: it is not the state_dict of a "
                          f"FLASH-pytorch FLASHTransformer.")
        found = self._tensors[name]
        if found.values is None:
            raise Refused(f"The tensor {name} has the type {found.dtype}; accepted are "
                          f"{', '.join(DECODERS)}.")
        actual = found.values.shape
        if len(actual) != len(shape) or any(w not in (None, a) for w, a in zip(shape, actual)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise Refused(f"The tensor {name} has the shape {list(actual)} where [{wanted}] "
                          f"belongs.")
        if not np.isfinite(found.values).all():
            raise Refused(f"The tensor {name} holds infinite values or NaN.")
        self._unused.discard(name)
        return found

    def values(self, name, *shape):
        return self.tensor(name, *shape).values

    def refuse_unused(self):
        if self._unused:
            raise Refused(f"{self.path} has tensors that a FLASH-pytorch FLASHTransformer does "
                          f"not have: {', '.join(sorted(self._unused))}.")


# ---------------------------------------------------------------- what the shapes say


@dataclass
class Sizes:
    vocabulary: int
    hidden: int
    expanded: int
    query_key: int
    layers: int
    buckets: int
    scale_norm: bool


def count_layers(source):
    found = {int(m.group(1)) for m in (re.match(r"layers\.(\d+)\.", n) for n in source.names()) if m}
    if not found:
        raise Refused(f"{source.path} has no tensors layers.*: it is not the state_dict of a "
                      f"FLASH-pytorch FLASHTransformer.")
    missing = sorted(set(range(len(found))) - found)
    if missing:
        raise Refused(f"{source.path} has no layer {missing[0]}, but has a layer {max(found)}.")
    return len(found)


def read_sizes(source):
    vocabulary, hidden = source.values("token_emb.weight", None, None).shape
    layers = count_layers(source)
    expanded = source.values("layers.0.to_out.weight", hidden, None).shape[1]
    query_key = source.values("layers.0.to_qk.0.weight", None, hidden).shape[0]
    buckets = source.values("layers.0.rel_pos_bias.relative_attention_bias.weight", None, 1).shape[0]
    norms = [name for name in ("norm.g", "norm.weight") if source.has(f"layers.0.{name}")]
    if len(norms) != 1:
        raise Refused(f"{source.path} must have either layers.0.norm.g (scalenorm) or "
                      f"layers.0.norm.weight (layernorm).")
    if hidden % 2:
        raise Refused(f"The hidden size {hidden} is odd, which sinusoidal positions do not allow.")
    if query_key < 2:
        raise Refused("A query_key_dim of 1 leaves no pair of features to rotate.")
    return Sizes(vocabulary, hidden, expanded, query_key, layers, buckets,
                 scale_norm=norms == ["norm.g"])


# Storing frequencies in a narrow type rounds them: how far they may be from the exact ones, and
# how many digits of the base they still tell.
FREQUENCY_TOLERANCE = {"F64": 1e-5, "F32": 1e-5, "F16": 2e-3, "BF16": 1e-2}
BASE_DIGITS = {"F64": 6, "F32": 6, "F16": 3, "BF16": 2}


def base_of(name, frequencies, dimensions, flag_value, flag):
    """The b for which the stored frequencies are b^(-2k/dimensions)."""
    exponents = -2.0 * np.arange(len(frequencies.values)) / dimensions
    if flag_value is not None:
        base = flag_value
    elif len(exponents) < 2:
        raise WrongUsage(f"The flag {flag} is needed: {name} holds one frequency, which is 1 "
                         f"whatever the base is.")
    elif not (frequencies.values > 0).all():
        raise Refused(f"The tensor {name} does not hold the frequencies of one base.")
    else:
        estimate = float(frequencies.values[-1]) ** (1.0 / exponents[-1])
        base = float(f"{estimate:.{BASE_DIGITS[frequencies.dtype]}g}")
    error = np.abs(frequencies.values / base ** exponents - 1.0).max()
    if error > FREQUENCY_TOLERANCE[frequencies.dtype]:
        raise Refused(f"The tensor {name} does not hold the frequencies of the base {base:g} "
                      f"(they are off by {error:.1e}), and the format has no others.")
    return base


def read_position_base(source, sizes, flags):
    name = "abs_pos_emb.inv_freq"
    if source.has(name):
        stored = source.tensor(name, sizes.hidden // 2)
        return base_of(name, stored, sizes.hidden, flags.position_base, "--position-base")
    if flags.position_base is None:
        raise WrongUsage(f"The flag --position-base is needed: the file has no {name}, and the "
                         f"base cannot be read off any other weight.")
    return flags.position_base


def read_rotary_frequencies(source, sizes):
    """The one table that all layers share, however often the file has it, or None."""
    names = [f"layers.{layer}.rotary_pos_emb.freqs" for layer in range(sizes.layers)]
    names = [name for name in names if source.has(name)]
    tables = [source.tensor(name, None) for name in names]
    for name, table in zip(names, tables):
        if not np.array_equal(table.values, tables[0].values):
            raise Refused(f"The tensors {names[0]} and {name} differ; the format has one table of "
                          f"frequencies for all layers.")
    return (names[0], tables[0]) if tables else None


def read_rope(source, sizes, flags):
    found = read_rotary_frequencies(source, sizes)
    if found is None:
        for flag, value in (("--rotary-max", flags.rotary_max), ("--rotary-base", flags.rotary_base)):
            if value is None:
                raise WrongUsage(f"The flag {flag} is needed: the file has no "
                                 f"rotary_pos_emb.freqs, and rotation has no other weights.")
        dimensions, base = min(flags.rotary_max, sizes.query_key), flags.rotary_base
        size = dimensions // 2 * 2
    else:
        name, table = found
        size = 2 * len(table.values)
        # An odd query_key_dim below the package's limit of 32 is rotated but for its last feature,
        # and the exponents are still divided by the odd number.
        odd = size == sizes.query_key - 1 and sizes.query_key < (flags.rotary_max or 32)
        dimensions = sizes.query_key if odd else size
        limit = size if flags.rotary_max is None else flags.rotary_max
        if size > sizes.query_key or size != min(limit, sizes.query_key) // 2 * 2 or size == 0:
            raise Refused(f"The tensor {name} rotates {size} features, which does not agree with "
                          f"query_key_dim {sizes.query_key} and --rotary-max {limit}.")
        base = base_of(name, table, dimensions, flags.rotary_base, "--rotary-base")
    # b^(-2k/odd) is what a slightly smaller base gives for the even size.
    base = base if size == dimensions else base ** (size / dimensions)
    return {"size": size, "base": base, "layout": "interleaved", "position": "sequence"}


# ---------------------------------------------------------------- the model directory


def build_config(source, sizes, flags):
    norm = {"type": "scale_norm", "eps": flags.norm_eps, "eps_mode": "clamp"}
    if not sizes.scale_norm:
        norm = {"type": "layer_norm", "eps": flags.norm_eps}
    quadratic = {"score_scale": 1.0 / flags.group_size,
                 "activation": "laplace" if flags.laplace else "relu_squared",
                 "weight_scale": 1.0, "row_mean": False}
    if flags.laplace:
        quadratic.update(laplace_mean=math.sqrt(0.5), laplace_std=flags.laplace_std)
    return {
        "format": "flash-lm/1", "architecture": "flash",
        "vocab_size": sizes.vocabulary, "hidden_size": sizes.hidden,
        "expanded_size": sizes.expanded, "query_key_size": sizes.query_key,
        "num_layers": sizes.layers, "chunk_size": flags.group_size,
        "trained_length": flags.trained_length, "max_length": flags.max_length,
        "bos_token_id": flags.bos, "eos_token_ids": flags.eos,
        "tokenizer": build_tokenizer(flags),
        "embedding": {"scale": 1.0, "position": "sinusoidal",
                      "position_base": read_position_base(source, sizes, flags)},
        "norm": norm,
        "token_shift": flags.shift_tokens,
        "rope": read_rope(source, sizes, flags),
        "bias": {"type": "t5", "scale": math.sqrt(sizes.query_key), "num_buckets": sizes.buckets,
                 "max_distance": flags.bias_max_distance},
        "quadratic": quadratic,
        "linear": {"scale": 1.0 / flags.group_size, "mean_past": False},
        "final_norm": {"type": "layer_norm", "eps": flags.final_norm_eps},
        "lm_head": {"tied": False},
    }


def build_tokenizer(flags):
    if flags.tokenizer_type == "sentencepiece":
        return {"type": "sentencepiece", "file": "tokenizer.model"}
    return {"type": flags.tokenizer_type}


def convert_layer(source, sizes, layer):
    d, e, s = sizes.hidden, sizes.expanded, sizes.query_key
    old, new = f"layers.{layer}.", f"layers.{layer}."
    tensors = {}
    if sizes.scale_norm:
        tensors[new + "norm.weight"] = source.values(old + "norm.g", 1)
    else:
        tensors[new + "norm.weight"] = source.values(old + "norm.weight", d)
        tensors[new + "norm.bias"] = source.values(old + "norm.bias", d)
    for kind, columns in (("weight", (d,)), ("bias", ())):
        hidden = source.values(f"{old}to_hidden.0.{kind}", 2 * e, *columns)
        value, gate = hidden[:e], hidden[e:]
        query_key = source.values(f"{old}to_qk.0.{kind}", s, *columns)
        tensors[f"{new}uvz.{kind}"] = np.concatenate([gate, value, query_key])
    gamma = source.values(old + "qk_offset_scale.gamma", 4, s)
    beta = source.values(old + "qk_offset_scale.beta", 4, s)
    tensors[new + "head_scale"] = gamma[HEAD_ORDER]
    tensors[new + "head_offset"] = beta[HEAD_ORDER]
    bias = source.values(old + "rel_pos_bias.relative_attention_bias.weight", sizes.buckets, 1)
    tensors[new + "relative_bias.weight"] = bias[:, 0]
    tensors[new + "output.weight"] = source.values(old + "to_out.weight", d, e)
    tensors[new + "output.bias"] = source.values(old + "to_out.bias", d)
    return tensors


def convert(source, sizes):
    v, d = sizes.vocabulary, sizes.hidden
    tensors = {"embedding.weight": source.values("token_emb.weight", v, d),
               "position.scale": source.values("abs_pos_emb.scale", 1)}
    for layer in range(sizes.layers):
        tensors.update(convert_layer(source, sizes, layer))
    tensors["final_norm.weight"] = source.values("to_logits.0.weight", d)
    tensors["final_norm.bias"] = source.values("to_logits.0.bias", d)
    tensors["lm_head.weight"] = source.values("to_logits.1.weight", v, d)
    tensors["lm_head.bias"] = source.values("to_logits.1.bias", v)
    return tensors


# ---------------------------------------------------------------- writing


def narrow_bfloat16(values):
    """Round to nearest, ties to even."""
    bits = np.ascontiguousarray(values, "<f4").view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def narrow_float16(values):
    with np.errstate(over="ignore"):  # checked by the caller, who knows the name
        return values.astype("<f2")


ENCODERS = {
    "float32": ("F32", lambda values: values.astype("<f4")),
    "float16": ("F16", narrow_float16),
    "bfloat16": ("BF16", narrow_bfloat16),
}


def encode(name, values, dtype):
    stored_as, narrow = ENCODERS[dtype]
    encoded = narrow(values)
    _, widen = DECODERS[stored_as]
    if not np.isfinite(widen(encoded.ravel())).all():
        raise Refused(f"The tensor {name} holds values that {dtype} cannot hold; choose another "
                      f"--dtype.")
    return stored_as, encoded.tobytes()


def write_safetensors(path, tensors, dtype):
    """The same tensors give the same bytes: no metadata, no time, the order of `tensors`."""
    header, blobs, position = {}, [], 0
    for name, values in tensors.items():
        stored_as, blob = encode(name, values, dtype)
        header[name] = {"dtype": stored_as, "shape": list(values.shape),
                        "data_offsets": [position, position + len(blob)]}
        blobs.append(blob)
        position += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # so that the data can be mapped and read in place
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
        file.flush()
        os.fsync(file.fileno())


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def refuse_to_overwrite(output, force):
    if not os.path.lexists(output):
        return
    if not force:
        raise Refused(f"{output} exists; --force replaces it.")
    # --force is for an earlier import, not for whatever a mistyped path happens to name.
    if os.path.islink(output) or not os.path.isfile(os.path.join(output, "config.json")):
        raise Refused(f"{output} exists and is not a model directory, which --force does not "
                      f"replace.")


def put_in_place(fresh, output, old):
    if not os.path.lexists(output):
        os.rename(fresh, output)
        return
    os.rename(output, old)
    try:
        os.rename(fresh, output)
    except OSError:
        os.rename(old, output)
        raise


def write_directory(output, config, tensors, flags):
    """All or nothing: the directory appears under its name when it is complete."""
    output = os.path.abspath(output)
    parent = os.path.dirname(output)
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".import-", dir=parent)
    try:
        fresh = os.path.join(work, "new")
        os.mkdir(fresh)
        write_json(os.path.join(fresh, "config.json"), config)
        write_safetensors(os.path.join(fresh, "model.safetensors"), tensors, flags.dtype)
        if flags.tokenizer is not None:
            shutil.copyfile(flags.tokenizer, os.path.join(fresh, "tokenizer.model"))
        refuse_to_overwrite(output, flags.force)
        put_in_place(fresh, output, os.path.join(work, "old"))
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ---------------------------------------------------------------- the command line


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise WrongUsage(f"{message[:1].upper()}{message[1:].rstrip('.')}; --help explains every "
                         f"flag.")


def yes_or_no(text):
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"it must be yes or no, not {text!r}")
    return text == "yes"


def whole_number(minimum):
    def parse(text):
        if not re.fullmatch(r"\d+", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"it must be a whole number from {minimum} up, not "
                                             f"{text!r}")
        return int(text)
    return parse


def positive(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"it must be a positive number, not {text!r}")
    return value


def token_ids(text):
    return [whole_number(0)(part) for part in text.split(",")]


def add_model_flags(parser):
    needed = parser.add_argument_group("settings that the weights do not show (all are needed)")
    needed.add_argument("--group-size", type=whole_number(1), metavar="N",
                        help="group_size of the FLASHTransformer, in tokens (the package's "
                             "default is 256); becomes chunk_size")
    needed.add_argument("--causal", type=yes_or_no, metavar="yes|no",
                        help="causal of the FLASHTransformer; no is refused, since such a model "
                             "does not predict the next token")
    needed.add_argument("--shift-tokens", type=yes_or_no, metavar="yes|no",
                        help="shift_tokens of the FLASHTransformer (the package's default is yes)")
    needed.add_argument("--laplace", type=yes_or_no, metavar="yes|no",
                        help="laplace_attn_fn of the FLASHTransformer (the package's default is "
                             "no, which is relu squared)")
    needed.add_argument("--laplace-std", type=positive, metavar="X",
                        help="needed with --laplace yes, refused without: 0.88622693 for a model "
                             "trained with FLASH-pytorch 0.1.6, 0.28209479 for 0.1.7 and later")
    needed.add_argument("--norm-eps", type=positive, metavar="X",
                        help="epsilon of the layers' norm (the package has 1e-5)")
    needed.add_argument("--final-norm-eps", type=positive, metavar="X",
                        help="epsilon of the last LayerNorm (PyTorch's default is 1e-5)")
    needed.add_argument("--bias-max-distance", type=whole_number(1), metavar="N",
                        help="max_distance of the relative position bias, in tokens (the package "
                             "has 128)")


def add_frequency_flags(parser):
    group = parser.add_argument_group(
        "frequencies (read off the weights where those have them, and then checked)")
    group.add_argument("--rotary-max", type=whole_number(2), metavar="N",
                       help="features that are rotated at most (the package has 32); needed where "
                            "the file has no rotary_pos_emb.freqs")
    group.add_argument("--rotary-base", type=positive, metavar="X",
                       help="base of the rotary frequencies (the package has 10000); needed where "
                            "the file has no rotary_pos_emb.freqs")
    group.add_argument("--position-base", type=positive, metavar="X",
                       help="base of the sinusoidal positions (the package has 10000); needed "
                            "where the file has no abs_pos_emb.inv_freq")


def add_output_flags(parser):
    group = parser.add_argument_group("the model directory")
    group.add_argument("--tokenizer-type", choices=("sentencepiece", "bytes", "none"),
                       default="none",
                       help="bytes: ids 0-255 are bytes; none (the default): the server takes and "
                            "gives token ids only")
    group.add_argument("--tokenizer", metavar="FILE",
                       help="the SentencePiece model, which is copied; with --tokenizer-type "
                            "sentencepiece only")
    group.add_argument("--bos", type=whole_number(0), metavar="ID",
                       help="token that the server puts before a prompt given as text (default: "
                            "none)")
    group.add_argument("--eos", type=token_ids, default=[], metavar="ID[,ID...]",
                       help="tokens that end a text (default: none)")
    group.add_argument("--trained-length", type=whole_number(1), metavar="N",
                       help="longest sequence seen in training, in tokens: the server warns of "
                            "longer requests (default: unknown)")
    group.add_argument("--max-length", type=whole_number(1), metavar="N",
                       help="longest sequence that the server accepts, in tokens (default: no "
                            "limit)")
    group.add_argument("--dtype", choices=tuple(ENCODERS), default="float32",
                       help="type in which the weights are stored (default: %(default)s)")
    group.add_argument("--force", action="store_true",
                       help="replace OUTPUT_DIR if it holds a model already")


def parse_flags(arguments):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                    allow_abbrev=False)
    parser.add_argument("state_dict", metavar="STATE_DICT", help="the weights: .pt or safetensors")
    parser.add_argument("output", metavar="OUTPUT_DIR", help="the directory to be made")
    add_model_flags(parser)
    add_frequency_flags(parser)
    add_output_flags(parser)
    flags = parser.parse_args(arguments)
    check_flags(flags)
    return flags


def check_flags(flags):
    missing = [f"--{name.replace('_', '-')} ({why})" for name, why in NOT_IN_THE_WEIGHTS.items()
               if getattr(flags, name) is None]
    if missing:
        raise WrongUsage(f"Settings that cannot be read off the weights are missing: "
                         f"{', '.join(missing)}.")
    if flags.laplace and flags.laplace_std is None:
        raise WrongUsage("The flag --laplace-std is needed with --laplace yes: it is not a weight, "
                         "and FLASH-pytorch 0.1.6 (0.88622693) and 0.1.7 (0.28209479) differ.")
    if not flags.laplace and flags.laplace_std is not None:
        raise WrongUsage("The flag --laplace-std goes with --laplace yes only.")
    if (flags.tokenizer_type == "sentencepiece") != (flags.tokenizer is not None):
        raise WrongUsage("The flags --tokenizer FILE and --tokenizer-type sentencepiece go "
                         "together.")
    if flags.tokenizer is not None and not os.path.isfile(flags.tokenizer):
        raise WrongUsage(f"The tokenizer {flags.tokenizer} is not a file.")


def check_flags_against_sizes(flags, sizes):
    ids = flags.eos + ([] if flags.bos is None else [flags.bos])
    if ids and max(ids) >= sizes.vocabulary:
        raise WrongUsage(f"The token {max(ids)} of --bos and --eos is outside of the vocabulary of "
                         f"{sizes.vocabulary}.")
    if flags.tokenizer_type == "bytes" and sizes.vocabulary < 256:
        raise WrongUsage(f"The flag --tokenizer-type bytes needs a vocabulary of 256 or more, not "
                         f"{sizes.vocabulary}.")
    if flags.bias_max_distance <= sizes.buckets // 2:
        raise WrongUsage(f"The flag --bias-max-distance must be above {sizes.buckets // 2}, half "
                         f"the number of buckets.")


def run(flags):
    if not flags.causal:
        raise Refused("A FLASH model that is not causal sees the future and cannot generate; it "
                      "is not imported.")
    refuse_to_overwrite(flags.output, flags.force)
    source = StateDict(flags.state_dict, read_state_dict(flags.state_dict))
    sizes = read_sizes(source)
    check_flags_against_sizes(flags, sizes)
    config = build_config(source, sizes, flags)
    tensors = convert(source, sizes)
    source.refuse_unused()
    write_directory(flags.output, config, tensors, flags)
    print(f"{flags.output}: {sizes.layers} layers, hidden size {sizes.hidden}, expanded size "
          f"{sizes.expanded}, query_key_size {sizes.query_key}, vocabulary {sizes.vocabulary}, "
          f"{sum(values.size for values in tensors.values())} weights as {flags.dtype}.")


def main(arguments):
    try:
        flags = parse_flags(arguments)
        if np is None:
            raise Refused("this Python has no numpy: use /usr/bin/python3 with Debian's "
                          "python3-numpy, or pip install numpy in a venv")
        run(flags)
    except WrongUsage as error:
        print(error, file=sys.stderr)
        return 2
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
