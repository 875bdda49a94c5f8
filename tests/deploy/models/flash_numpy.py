# SPDX-License-Identifier: Apache-2.0
"""The forward pass of `flash-lm/1` in float64, one token at a time, from the mathematics.

An oracle: written to be compared with the formulas line by line, and not to be fast. It shares no
code with the importer, and remembers what the mathematics speaks of (all of the current chunk)
rather than what a server would keep.
"""

import json
import math
import os
import struct

import numpy as np

erf = np.vectorize(math.erf, otypes=[float])


def read_safetensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[entry["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors


def silu(x):
    return x / (1.0 + np.exp(-x))


def log_softmax(x):
    x = x - x.max()
    return x - math.log(np.exp(x).sum())


def normalise(x, settings, weight, bias):
    kind = settings["type"]
    if kind == "none":
        return x
    if kind == "layer_norm":
        return (x - x.mean()) / np.sqrt(x.var() + settings["eps"]) * weight + bias
    mean_square = (x * x).mean()
    if settings["eps_mode"] == "add":
        return x / np.sqrt(mean_square + settings["eps"]) * weight
    return x / max(np.sqrt(mean_square), settings["eps"]) * weight


def rotate(x, position, rope):
    size = rope["size"]
    k = np.arange(size // 2)
    angles = position * rope["base"] ** (-2.0 * k / size)
    first, second = (2 * k, 2 * k + 1) if rope["layout"] == "interleaved" else (k, k + size // 2)
    rotated = x.copy()
    rotated[first] = x[first] * np.cos(angles) - x[second] * np.sin(angles)
    rotated[second] = x[second] * np.cos(angles) + x[first] * np.sin(angles)
    return rotated


def t5_bucket(distance, buckets, max_distance):
    exact = buckets // 2
    if distance < exact:
        return distance
    scaled = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return min(buckets - 1, exact + math.trunc(scaled))


def bias_vector(bias, chunk, tensors, prefix):
    """The bias of each distance 0 .. chunk - 1."""
    if bias["type"] == "none":
        return np.zeros(chunk)
    if bias["type"] == "t5":
        table = tensors[prefix + "weight"]
        buckets = [t5_bucket(n, bias["num_buckets"], bias["max_distance"]) for n in range(chunk)]
        return bias["scale"] * table[buckets]
    if bias["type"] == "toeplitz":
        return bias["scale"] * tensors[prefix + "weight"][bias["length"] - 1 - np.arange(chunk)]
    a, b = tensors[prefix + "a"], tensors[prefix + "b"]
    half = len(a) // 2
    a1, a2, b1, b2 = a[:half], a[half:], b[:half], b[half:]
    theta = bias.get("base", 10000.0) ** (-2.0 * np.arange(half) / len(a))
    return bias["scale"] * np.array([
        ((a1 * b1 + a2 * b2) * np.cos(n * theta) - (a2 * b1 - a1 * b2) * np.sin(n * theta)).sum()
        for n in range(chunk)])


def activate(x, quadratic):
    if quadratic["activation"] == "relu_squared":
        return np.maximum(x, 0.0) ** 2
    mean = quadratic.get("laplace_mean", math.sqrt(0.5))
    std = quadratic.get("laplace_std", math.sqrt(1.0 / (4.0 * math.pi)))
    return 0.5 * (1.0 + erf((x - mean) / (std * math.sqrt(2.0))))


class Layer:
    """One layer with what it remembers of the tokens before."""

    def __init__(self, config, tensors, index):
        self.config = config
        self.prefix = f"layers.{index}."
        self.tensors = tensors
        self.bias = bias_vector(config["bias"], config["chunk_size"], tensors,
                                self.prefix + "relative_bias.")
        self.memory = np.zeros((config["query_key_size"], config["expanded_size"]))
        self.quad_keys, self.lin_keys, self.values = [], [], []
        self.previous = np.zeros(config["hidden_size"])

    def weight(self, name, default=0.0):
        return self.tensors.get(self.prefix + name, default)

    def heads(self, z, position):
        rope = self.config["rope"]
        names = (["quad_q", "quad_k"] if self.config["quadratic"] else [])
        names += ["lin_q", "lin_k"] if self.config["linear"] else []
        heads = z * self.weight("head_scale") + self.weight("head_offset")
        if rope is not None:
            if rope["position"] == "chunk":
                position = position % self.config["chunk_size"]
            heads = [rotate(head, position, rope) for head in heads]
        return dict(zip(names, heads))

    def local(self, query):
        quadratic = self.config["quadratic"]
        i = len(self.quad_keys) - 1
        out = np.zeros(self.config["expanded_size"])
        for j in range(i + 1):
            score = quadratic["score_scale"] * (query @ self.quad_keys[j]) + self.bias[i - j]
            out += quadratic["weight_scale"] * activate(score, quadratic) * self.values[j]
        return out / (i + 1) if quadratic["row_mean"] else out

    def past(self, query, position):
        linear, chunk = self.config["linear"], self.config["chunk_size"]
        closed = position // chunk
        if closed == 0:
            return np.zeros(self.config["expanded_size"])
        scale = linear["scale"] / (closed * chunk) if linear["mean_past"] else linear["scale"]
        return scale * (query @ self.memory)

    def close_chunk(self):
        if self.config["linear"]:
            for key, value in zip(self.lin_keys, self.values):
                self.memory += np.outer(key, value)
        self.quad_keys, self.lin_keys, self.values = [], [], []

    def step(self, x, position):
        e = self.config["expanded_size"]
        y = normalise(x, self.config["norm"], self.weight("norm.weight"), self.weight("norm.bias"))
        shifted = y.copy()
        if self.config["token_shift"]:
            half = (len(y) + 1) // 2
            shifted[:half] = self.previous[:half]
        self.previous = y
        uvz = silu(self.weight("uvz.weight") @ shifted + self.weight("uvz.bias"))
        gate, value, z = uvz[:e], uvz[e:2 * e], uvz[2 * e:]
        heads = self.heads(z, position)
        self.values.append(value)
        out = np.zeros(e)
        if self.config["quadratic"]:
            self.quad_keys.append(heads["quad_k"])
            out += self.local(heads["quad_q"])
        if self.config["linear"]:
            self.lin_keys.append(heads["lin_k"])
            out += self.past(heads["lin_q"], position)
        if (position + 1) % self.config["chunk_size"] == 0:
            self.close_chunk()
        return x + self.weight("output.weight") @ (gate * out) + self.weight("output.bias")


class Sequence:
    """A model reading one sequence: `step` takes a token and gives the logits of the next."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        self.layers = [Layer(config, tensors, index) for index in range(config["num_layers"])]
        self.position = 0

    def embed(self, token):
        embedding, d = self.config["embedding"], self.config["hidden_size"]
        x = self.tensors["embedding.weight"][token] * embedding["scale"]
        if embedding["position"] == "sinusoidal":
            angles = self.position * embedding["position_base"] ** (-2.0 * np.arange(d // 2) / d)
            waves = np.concatenate([np.sin(angles), np.cos(angles)])
            x = x + self.tensors["position.scale"] * waves
        elif embedding["position"] == "learned":
            x = x + self.tensors["position.weight"][self.position]
        return x

    def step(self, token):
        x = self.embed(token)
        for layer in self.layers:
            x = layer.step(x, self.position)
        self.position += 1
        x = normalise(x, self.config["final_norm"], self.tensors.get("final_norm.weight"),
                      self.tensors.get("final_norm.bias"))
        tied = self.config["lm_head"]["tied"]
        head = self.tensors["embedding.weight" if tied else "lm_head.weight"]
        return head @ x + self.tensors.get("lm_head.bias", 0.0)


def load(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return config, read_safetensors(os.path.join(directory, "model.safetensors"))


def logprobs(config, tensors, ids):
    """The natural logarithm of each token's probability given those before it."""
    sequence = Sequence(config, tensors)
    return np.array([log_softmax(sequence.step(token))[following]
                     for token, following in zip(ids, ids[1:])])


def greedy(config, tensors, prompt, count):
    sequence = Sequence(config, tensors)
    for token in prompt:
        logits = sequence.step(token)
    generated = []
    for _ in range(count):
        generated.append(int(logits.argmax()))
        logits = sequence.step(generated[-1])
    return generated
