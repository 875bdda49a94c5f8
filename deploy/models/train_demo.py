#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model of deploy/models/demo and checks it.

  train_demo.py                 prepare the texts, train the tokenizer and the model, write deploy/models/demo,
                                evaluate it and write its model card (about an hour on one core with AVX512-BF16)
  train_demo.py --calibrate     only scale the logits of a deploy/models/demo whose weights are as trained, evaluate, write the card
  train_demo.py --evaluate      only recompute the figures of deploy/models/demo; exit status 1 if a limit is missed

Nothing is downloaded: the texts come from Debian packages, and a package that is not installed is named.
"""

import argparse
import importlib.util
import math
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import demo_corpus  # noqa: E402  (needs the path above)

CONFIG = {
    "format": "flash-lm/1",
    "architecture": "flash",
    "vocab_size": 4096, "hidden_size": 256, "expanded_size": 512, "query_key_size": 128,
    "num_layers": 8, "chunk_size": 128,
    "trained_length": 8192, "max_length": None,
    "bos_token_id": 1, "eos_token_ids": [2],
    "tokenizer": {"type": "sentencepiece", "file": "tokenizer.model"},
    "embedding": {"scale": 16.0, "position": "none"},
    "norm": {"type": "scale_norm", "eps": 1e-5, "eps_mode": "add"},
    "token_shift": True,
    # Only half of the features turn: those let the global branch favour what is near. The other half is a memory of
    # the whole past that looks the same at any position, also far beyond the trained length.
    "rope": {"size": 64, "base": 1000.0, "layout": "halves", "position": "sequence"},
    "bias": {"type": "toeplitz", "scale": 1.0, "length": 128},
    "quadratic": {"score_scale": 128 ** -0.5, "activation": "relu_squared", "weight_scale": 1.0, "row_mean": False},
    "linear": {"scale": 1.0, "mean_past": True},
    "final_norm": {"type": "layer_norm", "eps": 1e-5},
    "lm_head": {"tied": True},
}

# Every fourth step sees one long sequence instead of four short ones, so that the global branch meets long pasts.
SHAPES = [(4, 2048), (4, 2048), (4, 2048), (1, 8192)]
TOKENS_PER_STEP = 8192


def missing_packages():
    modules = {"python3-torch": "torch", "python3-sentencepiece": "sentencepiece", "python3-numpy": "numpy"}
    lacking = [package for package, module in modules.items() if importlib.util.find_spec(module) is None]
    return sorted(lacking + demo_corpus.missing_packages())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--evaluate", action="store_true", help="train nothing; recompute the figures of --output, exit 1 if a limit is missed")
    add("--calibrate", action="store_true",
        help="train nothing; scale the logits of --output as is done after training, then evaluate it and write its model card")
    add("--write-card", action="store_true", help="with --evaluate: also rewrite the model card of --output")
    add("--output", metavar="DIR", default=os.path.join(HERE, "demo"), help="model directory (default: deploy/models/demo)")
    add("--work", metavar="DIR", default=os.path.join(tempfile.gettempdir(), "flash-demo-training"),
        help="directory of the checkpoints; a run resumes from the one it finds there (default: %(default)s)")
    add("--steps", metavar="N", type=int, default=2400, help=f"optimiser steps of {TOKENS_PER_STEP} tokens (default: %(default)s)")
    add("--max-minutes", metavar="MIN", type=float, default=math.inf,
        help="end the training after this many minutes, the learning rate following the clock if it is ahead of the steps "
             "(default: no limit)")
    add("--learning-rate", metavar="X", type=float, default=2e-3, help="peak learning rate (default: %(default)s)")
    add("--weight-decay", metavar="X", type=float, default=0.1, help="AdamW's, on matrices only (default: %(default)s)")
    add("--dropout", metavar="P", type=float, default=0.2, help="probability, on the gated features (default: %(default)s)")
    add("--seed", metavar="N", type=int, default=20, help="seed of the weights, the batches and the dropout (default: %(default)s)")
    add("--threads", metavar="N", type=int, default=1, help="CPU threads (default: %(default)s)")
    add("--dtype", choices=["bfloat16", "float32"], default="bfloat16",
        help="type of the matrix products in training; the weights stay float32 (default: %(default)s)")
    add("--checkpoint-minutes", metavar="MIN", type=float, default=5, help="time between checkpoints (default: %(default)s)")
    return parser.parse_args()


def train_tokenizer(path, texts):
    """A unigram vocabulary that survives any text: nothing is normalised, what has no piece becomes bytes."""
    import sentencepiece

    lines = (line for text in texts for line in text.train.split("\n") if line)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_prefix=path.removesuffix(".model"), vocab_size=CONFIG["vocab_size"],
        model_type="unigram", normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        byte_fallback=True, character_coverage=0.9998, max_sentence_length=1 << 16, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        num_threads=1, minloglevel=1)
    os.remove(path.removesuffix(".model") + ".vocab")


class Batches:
    """Random windows of the training texts; the batch of a step depends on the seed and the step alone."""

    def __init__(self, texts, tokenizer, seed):
        import numpy

        self.numpy, self.seed = numpy, seed
        newline = tokenizer.piece_to_id("<0x0A>")
        self.tokens, self.starts = [], []
        for text in texts:
            ids = numpy.array(tokenizer.encode(text.train) + CONFIG["eos_token_ids"][:1], dtype=numpy.int64)
            self.tokens.append(ids)
            self.starts.append(numpy.concatenate([[0], numpy.flatnonzero(ids == newline) + 1]))
        self.total = sum(len(ids) for ids in self.tokens)
        shares = numpy.array([len(ids) * text.weight for ids, text in zip(self.tokens, texts)])
        self.shares = shares / shares.sum()

    def window(self, random, length):
        """BOS and what follows the start of some line, as a conversation with the server begins."""
        text = random.choice(len(self.tokens), p=self.shares)
        ids = self.tokens[text]
        usable = self.starts[text][self.starts[text] <= len(ids) - length]
        start = random.choice(usable)
        return self.numpy.concatenate([[CONFIG["bos_token_id"]], ids[start:start + length]])

    def batch(self, step):
        import torch

        random = self.numpy.random.default_rng((self.seed, step))
        rows, length = SHAPES[step % len(SHAPES)]
        return torch.from_numpy(self.numpy.stack([self.window(random, length) for _ in range(rows)]))


def learning_rate(peak, step, progress, warm_up=100):
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


def make_optimizer(model, weight_decay):
    import torch

    matrices = [p for p in model.parameters() if p.dim() == 2 and min(p.shape) > 4]
    others = [p for p in model.parameters() if p.dim() != 2 or min(p.shape) <= 4]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9)


def train(options, texts, tokenizer):
    """Returns the model, the steps taken and the minutes they took."""
    import torch
    import torch.nn.functional as F

    from flash_torch import Flash, max_difference, save_model

    torch.manual_seed(options.seed)
    model = Flash(CONFIG)
    batches = Batches(texts, tokenizer, options.seed)
    check = max_difference(model, batches.batch(0)[0, :2 * CONFIG["chunk_size"] + 5].tolist())
    if check > 1e-9:
        sys.exit(f"self-check failed: the training forward pass and the step-by-step one differ by {check}")
    optimizer = make_optimizer(model, options.weight_decay)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {batches.total} training tokens, "
          f"self-check difference {check:.1e}", flush=True)

    checkpoint, step, before = os.path.join(options.work, "checkpoint.pt"), 0, 0.0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, before = state["step"], state["minutes"]
        print(f"resumed at step {step} from {checkpoint}", flush=True)

    dtype = getattr(torch, options.dtype)
    model.train()
    model.dropout = options.dropout
    began = saved = shown = time.monotonic()
    minutes, losses = before, []
    while step < options.steps and minutes < options.max_minutes:
        progress = max(step / options.steps, minutes / options.max_minutes)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options.learning_rate, step, progress)
        torch.manual_seed(options.seed * 1_000_003 + step)  # dropout: the same after a resumption
        batch = batches.batch(step)
        for row in batch.split(1):  # row by row: the activations of one fit the cache better
            logits = model(row[:, :-1], dtype).float()
            loss = F.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten()) / len(batch)
            loss.backward()
            losses.append((loss.item() * len(batch), row.shape[1]))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        now = time.monotonic()
        minutes = before + (now - began) / 60
        if step % 20 == 0:
            speed = 20 * TOKENS_PER_STEP / (now - shown)
            loss = sum(l * n for l, n in losses) / sum(n for _, n in losses)
            left = min((options.steps - step) * TOKENS_PER_STEP / speed / 60, options.max_minutes - minutes)
            print(f"step {step}/{options.steps}  loss {loss:.4f} nats/token  |gradient| {norm:.2f}  {speed:.0f} tokens/s  "
                  f"{minutes:.1f} min gone, {left:.1f} min to go", flush=True)
            losses, shown = [], now
        if now - saved > options.checkpoint_minutes * 60:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "minutes": minutes}
            torch.save(state, checkpoint + ".tmp")
            os.replace(checkpoint + ".tmp", checkpoint)
            save_model(options.work, model, {"steps": str(step)})
            saved = time.monotonic()
    return model.eval(), step, minutes


def main():
    options = arguments()
    lacking = missing_packages()
    if lacking:
        sys.exit(f"train_demo.py: these Debian packages are missing: {' '.join(lacking)}")
    import sentencepiece
    import torch

    torch.set_num_threads(options.threads)
    texts = demo_corpus.load_texts()
    import evaluate_demo
    from flash_torch import read_metadata, save_model

    if options.calibrate:
        metadata = read_metadata(os.path.join(options.output, "model.safetensors"))
        if "logit_scale" in metadata:
            sys.exit("train_demo.py: the logits of these weights are scaled already")
        scorer = evaluate_demo.Scorer(options.output, texts)
        scale = evaluate_demo.calibrate(scorer)
        save_model(options.output, scorer.model, {**metadata, "logit_scale": f"{scale:.2f}"})
    elif not options.evaluate:
        os.makedirs(options.output, exist_ok=True)
        os.makedirs(options.work, exist_ok=True)
        path = os.path.join(options.output, "tokenizer.model")
        if not os.path.exists(os.path.join(options.work, "checkpoint.pt")):
            print("training the tokenizer ...", flush=True)
            train_tokenizer(path, texts)
        model, steps, minutes = train(options, texts, sentencepiece.SentencePieceProcessor(model_file=path))
        settings = {key: getattr(options, key) for key in ("learning_rate", "weight_decay", "dropout", "seed", "threads", "dtype")}
        settings["logit_scale"] = f"{evaluate_demo.calibrate(evaluate_demo.Scorer(options.output, texts, model)):.2f}"
        save_model(options.output, model, {"steps": str(steps), "minutes": f"{minutes:.0f}", **{k: str(v) for k, v in settings.items()}})

    sys.exit(evaluate_demo.main(options.output, texts, write_card=options.write_card or not options.evaluate))


if __name__ == "__main__":
    main()
