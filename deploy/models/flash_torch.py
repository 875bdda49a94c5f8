# SPDX-License-Identifier: Apache-2.0
"""FLASH in PyTorch, as far as the demo model needs it: training forward, step-by-step decoding, the `flash-lm/1` files.

Two independent forward passes live here. `Flash.forward` handles whole sequences, vectorised over chunks, and is what
trains. `Decoder.step` follows the format's description token by token. `max_difference` compares the two.

Supported settings: scale_norm (`add`), token shift, RoPE (`halves`, `sequence`), Toeplitz bias, relu_squared, both
branches on, tied or untied head. Others are refused.
"""

import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

MASKED = -1e4  # plus any score stays negative, and relu² makes it an exact 0


# --- files ------------------------------------------------------------------------------------------------------------


def to_bfloat16_bytes(tensor):
    """Round to nearest even by hand: numpy has no bfloat16."""
    bits = tensor.detach().float().contiguous().numpy().view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, tensors, metadata):
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        blob = to_bfloat16_bytes(tensors[name])
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path + ".tmp", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))
    os.replace(path + ".tmp", path)


def read_metadata(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0])).get("__metadata__", {})


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data[begin:end], {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(np.float32)
        tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


class SiLU(torch.autograd.Function):
    """x·sigmoid(x) that keeps the sigmoid: PyTorch's own recomputes it in the backward pass, at 10 % of the training time."""

    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        out = x * gate
        ctx.save_for_backward(gate, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        gate, out = ctx.saved_tensors
        return torch.addcmul(out, out, gate, value=-1).add_(gate).mul_(grad)


# --- the model, whole sequences ---------------------------------------------------------------------------------------


def refuse_unsupported(config):
    expected = {
        "norm.type": "scale_norm", "norm.eps_mode": "add", "rope.layout": "halves", "rope.position": "sequence",
        "bias.type": "toeplitz", "quadratic.activation": "relu_squared", "quadratic.row_mean": False,
        "embedding.position": "none", "final_norm.type": "layer_norm",
    }
    for key, value in expected.items():
        section, name = key.split(".")
        if config[section][name] != value:
            raise ValueError(f"config.json: {key} is {config[section][name]!r}; this module only knows {value!r}")


def rope_frequencies(config):
    size = config["rope"]["size"]
    return config["rope"]["base"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


class Layer(torch.nn.Module):
    def __init__(self, config, index):
        super().__init__()
        d, e, s = config["hidden_size"], config["expanded_size"], config["query_key_size"]
        n = config["bias"]["length"]
        normal = lambda std, *shape: torch.nn.Parameter(torch.randn(*shape) * std)
        self.norm_weight = torch.nn.Parameter(torch.ones(1))
        self.uvz_weight = normal(0.6 / math.sqrt(d), 2 * e + s, d)
        self.uvz_bias = torch.nn.Parameter(torch.zeros(2 * e + s))
        self.head_scale = torch.nn.Parameter(torch.ones(4, s) + 0.1 * torch.randn(4, s))
        self.head_offset = normal(0.02, 4, s)
        # A bias that decays with the distance, at a different pace in each layer, gives the local branch something to
        # start from: relu² of a score near zero has almost no gradient.
        distance = n - 1 - torch.arange(2 * n - 1, dtype=torch.float32)
        self.bias_weight = torch.nn.Parameter(0.5 * torch.exp(-distance.clamp(min=0) / (2.0 * 2 ** (index % 4))) + 0.1)
        self.output_weight = normal(0.5 / math.sqrt(e) / math.sqrt(2 * config["num_layers"]), d, e)
        self.output_bias = torch.nn.Parameter(torch.zeros(d))


class Flash(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        refuse_unsupported(config)
        self.config = config
        d = config["hidden_size"]
        self.embedding = torch.nn.Parameter(torch.randn(config["vocab_size"], d) * 0.02)
        self.layers = torch.nn.ModuleList(Layer(config, i) for i in range(config["num_layers"]))
        self.final_weight = torch.nn.Parameter(torch.ones(d))
        self.final_bias = torch.nn.Parameter(torch.zeros(d))
        self.head_weight = self.head_bias = None
        if not config["lm_head"]["tied"]:
            self.head_weight = torch.nn.Parameter(torch.zeros(config["vocab_size"], d))
            self.head_bias = torch.nn.Parameter(torch.zeros(config["vocab_size"]))
        self.use_global = True
        self.dropout = 0.0
        self.tables = {}
        self.captured = None  # a list: collects each layer's state for `Decoder`

    def named_tensors(self):
        """Format name -> parameter."""
        names = {"embedding.weight": self.embedding}
        for i, layer in enumerate(self.layers):
            prefix = f"layers.{i}."
            names[prefix + "norm.weight"] = layer.norm_weight
            names[prefix + "uvz.weight"] = layer.uvz_weight
            names[prefix + "uvz.bias"] = layer.uvz_bias
            names[prefix + "head_scale"] = layer.head_scale
            names[prefix + "head_offset"] = layer.head_offset
            names[prefix + "relative_bias.weight"] = layer.bias_weight
            names[prefix + "output.weight"], names[prefix + "output.bias"] = layer.output_weight, layer.output_bias
        names["final_norm.weight"], names["final_norm.bias"] = self.final_weight, self.final_bias
        if self.head_weight is not None:
            names["lm_head.weight"], names["lm_head.bias"] = self.head_weight, self.head_bias
        return names

    def load_tensors(self, tensors):
        own = self.named_tensors()
        optional = {name for name in own if name.endswith((".uvz.bias", ".output.bias", "lm_head.bias"))}
        wrong = sorted((set(own) - set(tensors) - optional) | (set(tensors) - set(own)))
        if wrong:
            raise ValueError(f"tensors that are missing or unknown: {wrong}")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(tensors[name]) if name in tensors else parameter.zero_()

    def rope_tables(self, length, dtype):
        """cos and sin [length, s]; the features that are not rotated have cos 1 and sin 0. The sign of the first half
        of the sine is flipped, so that a head is h·cos + swap(h)·sin."""
        key = (length, dtype)
        if key not in self.tables:
            s, size = self.config["query_key_size"], self.config["rope"]["size"]
            angle = torch.arange(length, dtype=torch.float64)[:, None] * rope_frequencies(self.config)
            cos, sin = torch.ones(length, s, dtype=torch.float64), torch.zeros(length, s, dtype=torch.float64)
            cos[:, :size] = torch.cat([angle.cos(), angle.cos()], 1)
            sin[:, :size] = torch.cat([-angle.sin(), angle.sin()], 1)
            self.tables[key] = (cos.to(dtype), sin.to(dtype))
        return self.tables[key]

    def swap(self, h):
        size = self.config["rope"]["size"]
        return torch.cat([h[..., size // 2:size], h[..., :size // 2], h[..., size:]], -1)

    def mean_of_past(self, chunks, dtype):
        """[G, G] matrix that turns per-chunk sums into U of every chunk: exclusive, and divided as `linear` says."""
        return (torch.tril(torch.ones(chunks, chunks, dtype=torch.float64), -1) * self.global_weight(chunks)).to(dtype)

    def global_weight(self, chunks):
        linear, size = self.config["linear"], self.config["chunk_size"]
        weight = torch.full((chunks, 1), linear["scale"], dtype=torch.float64)
        return weight / (torch.arange(chunks).clamp(min=1) * size)[:, None] if linear["mean_past"] else weight

    def past_sums(self, sums, global_scale):
        """[B, G, s·e] per-chunk sums -> U of every chunk."""
        chunks, dtype = sums.shape[1], sums.dtype
        if chunks <= 256:
            return torch.matmul(self.mean_of_past(chunks, dtype) * global_scale, sums)
        # Only evaluation gets here: G² work would dominate, and the rounding of a running sum is small.
        past = sums.cumsum(1).sub_(sums)
        return past.mul_(self.global_weight(chunks).to(dtype) * global_scale)

    def bias_matrix(self, layer, dtype):
        size, n = self.config["chunk_size"], self.config["bias"]["length"]
        distance = torch.arange(size)[:, None] - torch.arange(size)[None, :]
        values = layer.bias_weight[(n - 1 - distance).clamp(0, 2 * n - 2)] * self.config["bias"]["scale"]
        return values.masked_fill(distance < 0, MASKED).to(dtype)

    def mix(self, layer, x, dtype, global_scale):
        """One layer's contribution to the residual stream x [B, T, d]; T is a multiple of the chunk size."""
        c = self.config
        d, e, s, size = c["hidden_size"], c["expanded_size"], c["query_key_size"], c["chunk_size"]
        batch, length, _ = x.shape
        chunks = length // size
        normed = (x * (torch.rsqrt(x.square().mean(-1, keepdim=True) + c["norm"]["eps"]) * layer.norm_weight)).to(dtype)
        y = normed
        if c["token_shift"]:
            half = (d + 1) // 2
            y = torch.cat([F.pad(normed[:, :-1, :half], (0, 0, 1, 0)), normed[:, :, half:]], -1)
        uvz = SiLU.apply(F.linear(y, layer.uvz_weight.to(dtype), layer.uvz_bias.to(dtype)))
        u, v, z = uvz.split([e, e, s], -1)
        cos, sin = self.rope_tables(length, dtype)
        swapped = self.swap(z)
        scale, offset = layer.head_scale.to(dtype), layer.head_offset.to(dtype)
        swapped_scale, swapped_offset = self.swap(scale), self.swap(offset)

        def head(i):
            h = torch.addcmul(offset[i], z, scale[i]) * cos
            h = torch.addcmul(h, torch.addcmul(swapped_offset[i], swapped, swapped_scale[i]), sin)
            return h.reshape(batch * chunks, size, s)

        v = v.reshape(batch * chunks, size, e)
        bias = self.bias_matrix(layer, dtype).expand(batch * chunks, size, size)
        scores = torch.baddbmm(bias, head(0), head(1).transpose(1, 2), alpha=c["quadratic"]["score_scale"])
        positive = F.relu(scores)
        weights = positive * positive
        if c["quadratic"]["weight_scale"] != 1.0:
            weights = weights * c["quadratic"]["weight_scale"]
        if self.use_global and chunks > 1:
            sums = torch.bmm(head(3).transpose(1, 2), v).reshape(batch, chunks, s * e)
            if self.captured is not None:
                self.captured.append({"sum": sums[0].sum(0).reshape(s, e), "y": normed[0, -1]})
            past = self.past_sums(sums, global_scale).reshape(batch * chunks, s, e)
            o = torch.baddbmm(torch.bmm(head(2), past), weights, v)
        else:
            o = torch.bmm(weights, v)
        gated = u.reshape(batch * chunks, size, e) * o
        if self.training and self.dropout:
            # One mask a chunk instead of one a token: as useful here, and almost free.
            keep = 1 - self.dropout
            gated = gated * (torch.bernoulli(torch.full((batch * chunks, 1, e), keep)) / keep).to(dtype)
        out = F.linear(gated, layer.output_weight.to(dtype), layer.output_bias.to(dtype))
        return out.reshape(batch, length, d)

    def hidden(self, tokens, dtype=torch.float32, global_scale=1.0):
        length = tokens.shape[1]
        padded = F.pad(tokens, (0, -length % self.config["chunk_size"]))  # at the end: causal, so it changes nothing
        x = F.embedding(padded, self.embedding) * self.config["embedding"]["scale"]
        for layer in self.layers:
            x = x + self.mix(layer, x, dtype, global_scale)
        x = F.layer_norm(x, x.shape[-1:], self.final_weight, self.final_bias, self.config["final_norm"]["eps"])
        return x[:, :length].to(dtype)

    def forward(self, tokens, dtype=torch.float32, global_scale=1.0):
        """Logits [B, T, V] of the tokens [B, T]."""
        weight = self.embedding if self.head_weight is None else self.head_weight
        bias = None if self.head_bias is None else self.head_bias.to(dtype)
        return F.linear(self.hidden(tokens, dtype, global_scale), weight.to(dtype), bias)


# --- the model, one token at a time -----------------------------------------------------------------------------------


class Decoder:
    """Follows the format's forward pass literally; slow, and the yardstick for `Flash.forward`."""

    def __init__(self, model, dtype=torch.float32):
        self.config, self.dtype, self.t = model.config, dtype, 0
        self.w = {name: p.detach().to(dtype) for name, p in model.named_tensors().items()}
        self.frequencies = rope_frequencies(model.config)
        c = self.config
        zeros = lambda *shape: torch.zeros(*shape, dtype=dtype)
        self.states = [
            {"sum": zeros(c["query_key_size"], c["expanded_size"]), "quad_k": [], "lin_k": [], "v": [], "y": zeros(c["hidden_size"])}
            for _ in range(c["num_layers"])
        ]

    @torch.no_grad()
    def prefill(self, model, tokens):
        """Takes over a long prompt from the fast forward pass; the part after its last closed chunk goes step by step."""
        whole = len(tokens) // self.config["chunk_size"] * self.config["chunk_size"]
        if whole > self.config["chunk_size"]:
            model.captured = []
            model.hidden(torch.tensor([tokens[:whole]]), self.dtype)
            for state, captured in zip(self.states, model.captured):
                state.update(captured)
            model.captured, self.t = None, whole
        return [self.step(token) for token in tokens[self.t:]][-1]

    def rotate(self, heads):
        size = self.config["rope"]["size"]
        angle = self.t * self.frequencies
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        a, b = heads[:, :size // 2], heads[:, size // 2:size]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, heads[:, size:]], 1)

    def layer(self, index, x):
        c, w, state = self.config, self.w, self.states[index]
        prefix, size = f"layers.{index}.", c["chunk_size"]
        e, s, d = c["expanded_size"], c["query_key_size"], c["hidden_size"]
        y = x / torch.sqrt(x.square().mean() + c["norm"]["eps"]) * w[prefix + "norm.weight"]
        if c["token_shift"]:
            half = (d + 1) // 2
            y, state["y"] = torch.cat([state["y"][:half], y[half:]]), y
        uvz = F.silu(w[prefix + "uvz.weight"] @ y + w[prefix + "uvz.bias"])
        u, v, z = uvz.split([e, e, s])
        quad_q, quad_k, lin_q, lin_k = self.rotate(z * w[prefix + "head_scale"] + w[prefix + "head_offset"])
        state["quad_k"].append(quad_k)
        state["lin_k"].append(lin_k)
        state["v"].append(v)
        n, offset = c["bias"]["length"], self.t % size
        bias = c["bias"]["scale"] * w[prefix + "relative_bias.weight"][n - 1 - offset:n]  # δ = offset ... 0
        score = c["quadratic"]["score_scale"] * (torch.stack(state["quad_k"]) @ quad_q) + bias
        o = (c["quadratic"]["weight_scale"] * F.relu(score) ** 2) @ torch.stack(state["v"])
        closed = self.t // size * size
        if closed:
            o = o + c["linear"]["scale"] / (closed if c["linear"]["mean_past"] else 1) * (lin_q @ state["sum"])
        if offset == size - 1:  # closed after it was answered with the old sum
            state["sum"] = state["sum"] + torch.stack(state["lin_k"]).T @ torch.stack(state["v"])
            state["quad_k"], state["lin_k"], state["v"] = [], [], []
        return x + w[prefix + "output.weight"] @ (u * o) + w[prefix + "output.bias"]

    def step(self, token):
        """Feeds one token and returns the logits of the next one."""
        c, w = self.config, self.w
        x = w["embedding.weight"][token] * c["embedding"]["scale"]
        for index in range(c["num_layers"]):
            x = self.layer(index, x)
        self.t += 1
        x = F.layer_norm(x, x.shape, w["final_norm.weight"], w["final_norm.bias"], c["final_norm"]["eps"])
        logits = w.get("lm_head.weight", w["embedding.weight"]) @ x
        return logits + w["lm_head.bias"] if "lm_head.bias" in w else logits


@torch.no_grad()
def max_difference(model, tokens):
    """Largest difference between the log probabilities of the forward passes, in float64: the whole sequence at once,
    token by token, and the first handing over to the second."""
    model64 = Flash(model.config).double()
    model64.load_tensors({name: p.detach() for name, p in model.named_tensors().items()})
    whole = F.log_softmax(model64.eval()(torch.tensor([tokens]), torch.float64)[0], -1)
    decoder = Decoder(model64, torch.float64)
    steps = torch.stack([F.log_softmax(decoder.step(token), -1) for token in tokens])
    handed_over = F.log_softmax(Decoder(model64, torch.float64).prefill(model64, tokens), -1)
    return max((whole - steps).abs().max().item(), (handed_over - steps[-1]).abs().max().item())


def save_model(directory, model, metadata):
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(model.config, file, indent=1)
        file.write("\n")
    write_safetensors(os.path.join(directory, "model.safetensors"), model.named_tensors(), metadata)


def load_model(directory):
    with open(os.path.join(directory, "config.json")) as file:
        model = Flash(json.load(file))
    model.load_tensors(read_safetensors(os.path.join(directory, "model.safetensors")))
    return model.eval()
