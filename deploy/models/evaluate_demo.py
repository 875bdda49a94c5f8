# SPDX-License-Identifier: Apache-2.0
"""Figures of the demo model, from the stored weights, and its model card. `train_demo.py --evaluate` runs this."""

import lzma
import math
import os

import sentencepiece
import torch
import torch.nn.functional as F

from flash_torch import Decoder, load_model, max_difference, read_metadata

WINDOW = 2048  # tokens
FAR = 200_000  # position at which the far check begins
MAX_BITS, MIN_GLOBAL_GAIN, MIN_HELD_OUT, MAX_SIZE, PARAMETERS = 1.45, 0.01, 200_000, 16_000_000, (3e6, 6e6)
SCALES = [0.80 + 0.02 * i for i in range(11)]  # of the logits, of which `calibrate` takes one
FILES = ("config.json", "model.safetensors", "tokenizer.model")


def mean_bits(bits, size):
    return bits.sum().item() / size.sum().item()


class Scorer:
    def __init__(self, directory, texts, model=None):
        """The model is the stored one unless one is given; the tokenizer is always the stored one."""
        self.model = model or load_model(directory)
        self.config = self.model.config
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=os.path.join(directory, "tokenizer.model"))
        self.piece_bytes = torch.tensor([self.bytes_of(i) for i in range(self.tokenizer.get_piece_size())])
        self.texts, self.ids = texts, [self.tokenizer.encode(t.held_out) for t in texts]
        for text, ids in zip(texts, self.ids):
            if self.tokenizer.decode(ids) != text.held_out or self.sizes(ids).sum() != len(text.held_out.encode()):
                raise SystemExit(f"the tokenizer does not reproduce {text.name}")
        # How many tokens of each text are its validation half, the first by bytes; the others are its test half.
        self.validation = [int((2 * s.cumsum(0) <= s.sum()).sum()) for s in map(self.sizes, self.ids)]

    def bytes_of(self, piece):
        if self.tokenizer.is_byte(piece):
            return 1
        return 0 if self.tokenizer.is_control(piece) else len(self.tokenizer.id_to_piece(piece).replace("\u2581", " ").encode())

    def sizes(self, ids):
        return self.piece_bytes[torch.tensor(ids)]

    @torch.no_grad()
    def bits(self, ids):
        """Bits that each token costs, given BOS and the tokens before it."""
        inputs = torch.tensor([[self.config["bos_token_id"]] + ids[:-1]])
        hidden, targets = self.model.hidden(inputs)[0], torch.tensor(ids)
        slices = zip(hidden.split(WINDOW), targets.split(WINDOW))  # the logits of all tokens at once would be large
        return torch.cat([F.cross_entropy(h @ self.model.embedding.T, t, reduction="none") for h, t in slices]) / math.log(2)

    def windows(self, use_global):
        """Bits, bytes, position, text and half (0: validation, 1: test) of every held-out token, in windows of WINDOW tokens."""
        self.model.use_global = use_global
        parts = []
        for text, ids in enumerate(self.ids):
            for begin in range(0, len(ids), WINDOW):
                part = ids[begin:begin + WINDOW]
                place = torch.arange(len(part))
                half = begin + place >= self.validation[text]
                parts.append(torch.stack([self.bits(part), self.sizes(part), place, torch.full((len(part),), text), half]))
        self.model.use_global = True
        return torch.cat([p.double() for p in parts], 1)

    def far(self):
        """The first text's held-out part as the continuation of FAR tokens of its training part, in one go."""
        past = self.tokenizer.encode(self.texts[0].train[-8 * FAR:])[-FAR:]
        return mean_bits(self.bits(past + self.ids[0])[FAR:].double(), self.sizes(self.ids[0]))


@torch.no_grad()
def calibrate(scorer):
    """Scales the logits by the one of SCALES with the fewest bits per byte on the validation half, and returns it.

    Training leaves the model too sure of itself. The head is tied and has no bias, so scaling the final norm's weight and
    bias scales the logits, and the file format needs no setting for it.
    """
    model, total, size = scorer.model, torch.zeros(len(SCALES), dtype=torch.float64), 0
    if not scorer.config["lm_head"]["tied"]:
        raise ValueError("calibrate expects a tied head")
    for ids, count in zip(scorer.ids, scorer.validation):
        for begin in range(0, count, WINDOW):
            part = ids[begin:min(begin + WINDOW, count)]
            logits = model(torch.tensor([[scorer.config["bos_token_id"]] + part[:-1]]))[0]
            total += torch.stack([F.cross_entropy(logits * s, torch.tensor(part), reduction="sum") for s in SCALES]).double()
            size += scorer.sizes(part).sum().item()
    bits = (total / math.log(2) / size).tolist()
    for scale, value in zip(SCALES, bits):
        print(f"logits times {scale:.2f}: {value:.4f} bits/byte on the validation half", flush=True)
    scale = SCALES[bits.index(min(bits))]
    model.final_weight.mul_(scale)
    model.final_bias.mul_(scale)
    return scale


def half_rows(full, local):
    """Bits per byte of the two halves and of both: with and without the global branch."""
    rows = []
    for name, half in [("validation half", 0), ("test half", 1)]:
        inside = full[4] == half
        rows.append((name, int(full[1, inside].sum()), mean_bits(*full[0:2, inside]), mean_bits(*local[0:2, inside])))
    return rows + [("**all**", int(full[1].sum()), mean_bits(*full[0:2]), mean_bits(*local[0:2]))]


def position_rows(full, local, chunk):
    """Bits per byte by the chunk in which a token is predicted: with and without the global branch."""
    rows, first, last = [], 0, 1
    while first * chunk < WINDOW:
        inside = (full[2] >= first * chunk) & (full[2] < last * chunk)
        name = f"chunk {first + 1}" if last == first + 1 else f"chunks {first + 1}-{last}"
        rows.append((f"{name} (tokens {first * chunk}-{last * chunk - 1})", full[0:2, inside], local[0:2, inside]))
        first, last = last, 2 * last
    beyond = full[2] >= 2 * chunk
    rows.append(("**beyond the second chunk**", full[0:2, beyond], local[0:2, beyond]))
    rows.append(("**all**", full[0:2], local[0:2]))
    return [(name, mean_bits(*f), mean_bits(*l)) for name, f, l in rows]


def long_rows(scorer, full):
    """For the first two texts: one pass over all of the held-out part against windows, by absolute position."""
    rows, edges = [], [0, 2048, 8192, 32768, 1 << 30]
    for text, ids in list(enumerate(scorer.ids))[:2]:
        bits, sizes = scorer.bits(ids).double(), scorer.sizes(ids)
        windowed = full[0, full[3] == text]
        for begin, end in zip(edges, edges[1:]):
            part = slice(begin, min(end, len(ids)))
            rows.append((f"{scorer.texts[text].name}, tokens {begin}-{part.stop - 1}", mean_bits(bits[part], sizes[part]),
                         mean_bits(windowed[part], sizes[part])))
    return rows


def xz_bits(texts):
    """Bits per byte of xz -9e, alone and after the training text (which its 64 MiB dictionary holds whole)."""
    train, held_out = ("".join(getattr(t, part) for t in texts).encode() for part in ("train", "held_out"))
    size = lambda data: len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    return 8 * size(held_out) / len(held_out), 8 * (size(train + held_out) - size(train)) / len(held_out)


def compute(directory, texts):
    scorer = Scorer(directory, texts)
    full, local = scorer.windows(True), scorer.windows(False)
    alone, primed = xz_bits(texts)
    return scorer, {
        "positions": position_rows(full, local, scorer.config["chunk_size"]),
        "halves": half_rows(full, local),
        "texts": [(t.name, t.package, len(t.train.encode()), len(t.held_out.encode()), mean_bits(*full[0:2, full[3] == i]))
                  for i, t in enumerate(texts)],
        "long": long_rows(scorer, full),
        "far": scorer.far(),
        "xz": alone, "xz_primed": primed,
        "held_out": sum(len(t.held_out.encode()) for t in texts),
        "size": sum(os.path.getsize(os.path.join(directory, name)) for name in FILES),
        "parameters": sum(p.numel() for p in scorer.model.parameters()),
        "difference": max_difference(scorer.model, [scorer.config["bos_token_id"]] + scorer.ids[0][:300]),
    }


def checks(figures):
    """(what, whether it holds)"""
    _, overall, _ = figures["positions"][-1]
    _, beyond, beyond_local = figures["positions"][-2]
    gain = beyond_local / beyond - 1
    return [
        (f"held-out text {figures['held_out']} bytes >= {MIN_HELD_OUT}", figures["held_out"] >= MIN_HELD_OUT),
        (f"{figures['parameters']} parameters, between 3 and 6 million", PARAMETERS[0] <= figures["parameters"] <= PARAMETERS[1]),
        (f"files {figures['size']} bytes < {MAX_SIZE}", figures["size"] < MAX_SIZE),
        (f"{overall:.4f} bits per byte < {MAX_BITS}", overall < MAX_BITS),
        (f"{100 * gain:.2f} % more beyond the second chunk without the global branch, >= {100 * MIN_GLOBAL_GAIN:.0f} %",
         gain >= MIN_GLOBAL_GAIN),
        (f"chunked and step-by-step forward pass differ by {figures['difference']:.1e} < 1e-9", figures["difference"] < 1e-9),
    ]


# --- samples ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def sample(scorer, prompt_ids, count, seed, temperature=0.7, top_p=0.95):
    generator = torch.Generator().manual_seed(seed)
    decoder, ids = Decoder(scorer.model), []
    logits = decoder.prefill(scorer.model, prompt_ids)
    while len(ids) < count:
        probability, order = torch.softmax(logits / temperature, -1).sort(descending=True)
        probability[probability.cumsum(0) - probability > top_p] = 0
        token = order[torch.multinomial(probability, 1, generator=generator)].item()
        if token in scorer.config["eos_token_ids"]:
            break
        ids.append(token)
        logits = decoder.step(token)
    return scorer.tokenizer.decode(ids)


def samples(scorer):
    bos = [scorer.config["bos_token_id"]]
    prompts = ["In the beginning", "Genesis 1\n\n1", "And Jesus said to them,", "kernel hacker\nn.\n", "HONESTY, n. "]
    shown = [(repr(p), p + sample(scorer, bos + scorer.tokenizer.encode(p), 110, seed)) for seed, p in enumerate(prompts)]
    past = bos + scorer.tokenizer.encode(scorer.texts[0].train[-8 * FAR:])[-FAR:]
    title = f"{FAR} tokens of the King James training text before it"
    return shown + [(title, "... " + sample(scorer, past, 110, 9))]


# --- the card ---------------------------------------------------------------------------------------------------------


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def render_card(directory, scorer, figures):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "demo_card.md")) as file:
        template = file.read()
    numbers = lambda row: [row[0]] + [f"{value:.3f}" for value in row[1:]]
    quote = lambda text: "```text\n" + text.replace("```", "'''").strip("\n") + "\n```"
    by_position = [numbers(row) + [f"{100 * (row[2] / row[1] - 1):+.1f} %"] for row in figures["positions"]]
    metadata = read_metadata(os.path.join(directory, "model.safetensors"))
    values = {
        "PARAMETERS": f"{figures['parameters'] / 1e6:.2f} million", "SIZE": f"{figures['size'] / 1e6:.1f} MB",
        "OVERALL": f"{figures['positions'][-1][1]:.3f}", "XZ": f"{figures['xz']:.3f}", "XZ_PRIMED": f"{figures['xz_primed']:.3f}",
        "HELD_OUT": f"{figures['held_out']:,}", "WINDOW": str(WINDOW), "FAR": f"{FAR:,}", "FAR_BITS": f"{figures['far']:.3f}",
        "KJV_BITS": f"{figures['texts'][0][4]:.3f}",
        "TEXTS": table(["text", "Debian package", "bytes trained on", "bytes held out", "bits per byte"],
                       [[n, f"`{p}`", f"{a:,}", f"{b:,}", f"{c:.3f}"] for n, p, a, b, c in figures["texts"]]),
        "POSITIONS": table(["position", "bits per byte", "global branch off", "difference"], by_position),
        "HALVES": table(["held-out text", "bytes", "bits per byte", "global branch off"],
                        [[n, f"{b:,}", f"{f:.3f}", f"{l:.3f}"] for n, b, f, l in figures["halves"]]),
        "SCALE": metadata.get("logit_scale", "1.00"),
        "LONG": table(["part of the held-out text", "in one pass", f"in windows of {WINDOW}"], [numbers(r) for r in figures["long"]]),
        "LIMITS": "\n".join(f"- {'met' if holds else '**missed**'}: {what}" for what, holds in checks(figures)),
        "SETTINGS": table(["setting", "value"], sorted(metadata.items())),
        "SAMPLES": "\n\n".join(f"After {title}:\n\n{quote(text)}" for title, text in samples(scorer)),
    }
    for key, value in values.items():
        template = template.replace("{{" + key + "}}", value)
    with open(os.path.join(directory, "README.md"), "w") as file:
        file.write(template)


def main(directory, texts, write_card=False):
    """Prints the figures and returns the exit status."""
    print("evaluating the stored weights (a few minutes) ...", flush=True)
    scorer, figures = compute(directory, texts)
    for name, full, local in figures["positions"]:
        print(f"{name:42s} {full:.4f} bits/byte   without the global branch {local:.4f} ({100 * (local / full - 1):+.2f} %)")
    for name, size, full, local in figures["halves"]:
        print(f"{name:42s} {full:.4f} bits/byte on {size} bytes   without the global branch {local:.4f}")
    for name, _, _, size, bits in figures["texts"]:
        print(f"{name:42s} {bits:.4f} bits/byte on {size} bytes")
    for name, one, windowed in figures["long"]:
        print(f"{name:42s} {one:.4f} bits/byte in one pass, {windowed:.4f} in windows of {WINDOW}")
    print(f"{figures['texts'][0][0]} from position {FAR} on: {figures['far']:.4f} bits/byte")
    print(f"xz -9e: {figures['xz']:.4f} bits/byte, {figures['xz_primed']:.4f} with the training text as its dictionary")
    if write_card:
        render_card(directory, scorer, figures)
    results = checks(figures)
    for what, holds in results:
        print(("ok      " if holds else "MISSED  ") + what)
    return 0 if all(holds for _, holds in results) else 1
