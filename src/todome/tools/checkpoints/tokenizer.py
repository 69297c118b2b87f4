"""CLIP's tokenizer, which Stable Diffusion 1.x, 2.x and XL share, from the merges that come with todome."""

import gzip
import json
from pathlib import Path

BEGIN, END = "<|startoftext|>", "<|endoftext|>"
PRINTED = (range(ord("!"), ord("~") + 1), range(ord("¡"), ord("¬") + 1), range(ord("®"), ord("ÿ") + 1))


def byte_letters() -> list[str]:
    """A printed letter for each byte, first for those that are letters themselves: byte-level BPE writes bytes so."""
    printed = [byte for part in PRINTED for byte in part]
    others = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) for byte in printed] + [chr(256 + i) for i in range(len(others))]


def merges() -> list[str]:
    packed = Path(__file__).with_name("clip_merges.txt.gz").read_bytes()
    return gzip.decompress(packed).decode().splitlines()


def write_tokenizer(folder: Path, padding: str) -> None:
    """Files from which `CLIPTokenizer.from_pretrained` makes the tokenizer."""
    letters, pairs = byte_letters(), merges()
    words = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(pair.split()) for pair in pairs), BEGIN, END]
    special = {"bos_token": BEGIN, "eos_token": END, "unk_token": END, "pad_token": padding}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "do_lower_case": True, **special}
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs, ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
