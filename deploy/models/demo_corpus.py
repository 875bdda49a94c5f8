# SPDX-License-Identifier: Apache-2.0
"""The demo model's text: four public-domain English texts that Debian packages ship.

Every text is turned into plain paragraphs (one paragraph or verse a line), so that the model learns English and not the
column at which somebody once wrapped it. The last part of every text is held out and never seen in training.
"""

import gzip
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

HELD_OUT = 0.05  # share of each text, at its end

KJV_DATA = "/usr/lib/bible.data"
WEB_MODULE = "engWEB2015eb"
WEB_DATA = "/usr/share/sword/mods.d/engWEB2015eb.conf"
JARGON = "/usr/share/dictd/jargon.dict.dz"
DEVIL = "/usr/share/dictd/devil.dict.dz"


@dataclass
class Text:
    name: str
    package: str
    train: str
    held_out: str
    weight: float = 1.0  # how often training draws from it, relative to its size


def missing_packages():
    """Debian packages that the preparation needs and that are not installed."""
    files = {"bible-kjv-text": KJV_DATA, "dict-jargon": JARGON, "dict-devil": DEVIL, "sword-text-web": WEB_DATA}
    commands = {"bible-kjv": "bible", "diatheke": "diatheke"}
    lacking = [package for package, path in files.items() if not os.path.exists(path)]
    # /usr/games is on few root PATHs, but is where Debian may put such commands.
    search = os.environ.get("PATH", "") + ":/usr/games:/usr/bin"
    return sorted(lacking + [p for p, c in commands.items() if not shutil.which(c, path=search)])


def run(*command):
    environment = dict(os.environ, LC_ALL="C.UTF-8", PATH=os.environ.get("PATH", "") + ":/usr/games")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=True)
    return done.stdout.decode("utf-8", errors="replace")


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


# --- the two Bibles: "Genesis 1", an empty line, then a numbered verse a line -------------------------------------------


def king_james():
    """(heading, verses) for each chapter."""
    chapters = []
    for line in run("bible", "gen1:1-rev22:21").split("\n"):
        if not line.strip():
            continue
        if not line.startswith(" ") and re.fullmatch(r"[1-3I]* ?[A-Z][A-Za-z ]+ \d+", line.strip()) and len(line) < 32:
            chapters.append((line.strip(), []))
        elif re.match(r"  \d+ ", line):
            chapters[-1][1].append(line.strip())
        else:  # a verse that goes on
            chapters[-1][1][-1] += " " + line.strip()
    return chapters


def world_english():
    """(heading, verses) for each chapter; the module's mark-up (word numbers, titles, lines of verse) is dropped."""
    raw = run("diatheke", "-b", WEB_MODULE, "-f", "internal", "-k", "Gen 1:1-Rev 22:21")
    raw = re.sub(r'<div [^>]*type="glossary".*', "", raw, flags=re.S)  # an appendix glued to the last verse
    raw = re.sub(r"<title.*?</title>", "", raw, flags=re.S)
    raw = re.sub(r"(</w>|[,.;:!?])(<w )", r"\1 \2", raw)  # the module lacks some spaces between words
    raw = re.sub(r"<(lb|l|lg|div)\b[^>]*>", " ", raw)
    raw = re.sub(r"<[^>]*>", "", raw)
    chapters = []
    for match in re.finditer(r"^\s*([A-Z][A-Za-z() ]*?) (\d+):(\d+): (.*?)(?=^\s*[A-Z][A-Za-z() ]*? \d+:\d+: |\Z)", raw, re.S | re.M):
        book, chapter, verse, text = match.groups()
        book = {"Revelation of John": "Revelation"}.get(book, book)
        heading = f"{book} {chapter}"
        if not squeeze(text):
            continue
        if not chapters or chapters[-1][0] != heading:
            chapters.append((heading, []))
        chapters[-1][1].append(f"{verse} {squeeze(text)}")
    return chapters


def join_chapters(chapters):
    return "".join(f"{heading}\n\n" + "\n".join(verses) + "\n\n" for heading, verses in chapters)


def chapters_in_tail(chapters):
    """How many chapters at the end hold at least the held-out share of the text."""
    total, size = len(join_chapters(chapters)), 0
    for count, chapter in enumerate(reversed(chapters), start=1):
        size += len(join_chapters([chapter]))
        if size >= HELD_OUT * total:
            return count
    return len(chapters)


def bibles():
    # Both translations are cut at the same chapter: otherwise one would train on what the other holds out.
    versions = [("King James Bible", "bible-kjv-text", king_james()), ("World English Bible", "sword-text-web", world_english())]
    tail = max(chapters_in_tail(chapters) for _, _, chapters in versions)
    return [Text(name, package, join_chapters(c[:-tail]), join_chapters(c[-tail:])) for name, package, c in versions]


# --- the two dictionaries ---------------------------------------------------------------------------------------------


def dictionary_body(path, first_entry):
    with gzip.open(path) as file:
        text = file.read().decode("utf-8", errors="replace").replace("\r", "")
    body = text[text.index("\n" + first_entry) + 1:].rstrip()
    return body[:body.rindex("\n")].rstrip() + "\n"  # the last line lists the characters of the headwords


def jargon():
    """Headwords at the margin, pronunciation and grammar on the next line, indented paragraphs."""
    body = dictionary_body(JARGON, "(TM)\n")
    entries = []
    for block in re.split(r"\n(?=\S)", body):
        head, _, rest = block.partition("\n")
        paragraphs = [squeeze(p) for p in re.split(r"\n\s*\n", rest)]
        entries.append("\n".join([squeeze(head)] + [p for p in paragraphs if p]))
    return "\n\n".join(entries) + "\n"


def devil():
    """Paragraphs are joined; verse, which is indented, keeps its lines."""
    body = dictionary_body(DEVIL, "ABASEMENT, n.")
    blocks = []
    for block in re.split(r"\n\s*\n", body):
        lines = [squeeze(line) for line in block.split("\n") if line.strip()]
        if lines:
            blocks.append("\n".join(lines) if block.startswith("    ") else " ".join(lines))
    return "\n\n".join(blocks) + "\n"


def split_text(name, package, text, weight):
    """Cuts at the first empty line after 95 % of the bytes."""
    data = text.encode()
    cut = data.rfind(b"\n\n", 0, int(len(data) * (1 - HELD_OUT))) + 2
    return Text(name, package, data[:cut].decode(), data[cut:].decode(), weight)


def load_texts():
    # The two Bibles tell everything twice and are learnt by heart while the dictionaries still improve.
    return bibles() + [
        split_text("The Jargon File", "dict-jargon", jargon(), weight=2.0),
        split_text("The Devil's Dictionary", "dict-devil", devil(), weight=2.0),
    ]


if __name__ == "__main__":
    for t in load_texts():
        print(f"== {t.name} ({t.package}): {len(t.train.encode())} bytes to train, {len(t.held_out.encode())} held out")
        print(t.train[:700], "...\n", t.held_out[:500], "...\n", t.held_out[-400:])
