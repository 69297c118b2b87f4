"""The rows of a batch: the same in every format, and what is refused before anything is drawn."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from zoo import plan_of, planned

from todome import Downsample, Merge, Plan
from todome.tools.batch.jobs import batches_of, jobs_from, key_of
from todome.tools.batch.rows import read_rows, row_settings
from todome.tools.settings import Settings

BASE = Settings(model="some/model", seed=3, size=(512, 512), steps=20, reduction=Downsample(2))
ROWS: list[dict[str, Any]] = [
    {"prompt": "a rose, red", "negative": "grey", "seed": 7, "size": "64x96", "steps": 4, "guidance": 2.5},
    {"prompt": "ünïcode", "scheduler": "euler", "method": "tome:0.5"},
    {"prompt": "dense", "method": "dense", "size": "64"},
]


def write_csv(path: Path) -> None:
    path.write_text(
        "prompt,negative,seed,size,steps,guidance,scheduler,method\n"
        '"a rose, red",grey,7,64x96,4,2.5,,\nünïcode,,,,,,euler,tome:0.5\ndense,,,64,,,,dense\n',
        encoding="utf-8",
    )


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_parquet(path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist([{**dict.fromkeys(ROWS[0] | ROWS[1]), **row} for row in ROWS]), path)


@pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet])
def test_every_format_says_the_same(tmp_path: Path, write: Any):
    path = tmp_path / f"rows.{write.__name__.removeprefix('write_')}"
    write(path)
    found = [row_settings(number, row, BASE) for number, row in read_rows(path).items()]
    common: Any = {"model": "some/model"}
    first: Any = {"seed": 7, "size": (64, 96), "steps": 4, "guidance": 2.5}
    assert found == [
        Settings("a rose, red", "grey", **first, reduction=Downsample(2), **common),
        Settings("ünïcode", seed=3, size=(512, 512), steps=20, scheduler="euler", reduction=Merge(0.5), **common),
        Settings("dense", seed=3, size=(64, 64), steps=20, reduction=None, **common),
    ]


def test_text_has_a_prompt_on_each_line(tmp_path: Path):
    path = tmp_path / "rows.txt"
    path.write_text("a rose\n\n# none\n  a tulip \n")
    assert read_rows(path) == {1: {"prompt": "a rose"}, 4: {"prompt": "a tulip"}}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"# nothing\n", "prompts="),
        ("a.txt", b"\xff\xfe\x00", "prompts="),
        ("a.parquet", b"PAR1", "prompts="),
        ("none.csv", None, "prompts="),
        ("a.csv", b"text,seed\na,1\n", "prompts="),
        ("a.csv", b'prompt\n"' + b"a" * 200_000 + b'"\n', "prompts="),
        ("a.csv", b"prompt,seed\na,b,3\n", "a.csv line 2="),
        ("a.jsonl", b'{"prompt": "a"}\n["b"]\n', "a.jsonl line 2="),
        ("a.jsonl", b"[" * 100_000, "a.jsonl line 1="),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes | None, said: str):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((OSError, ValueError), match=rf"^{said}.* cannot be used\. Allowed: "):
        read_rows(tmp_path / name)


def test_a_column_that_is_not_used_is_said(tmp_path: Path):
    (tmp_path / "a.csv").write_text("prompt,guidence\na,3\n")
    with pytest.warns(UserWarning, match=r"^a\.csv has columns that are not used: guidence\.$"):
        read_rows(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "row",
    [
        {"seed": "x"},
        {"seed": 1e999},
        {"steps": True},
        {"size": "big"},
        {"method": "magic"},
        {"method": "deepcache:3"},
        {"plan": "none.json"},
        {"method": "dense", "plan": "none.json"},
    ],
    ids=str,
)
def test_values_that_are_refused(row: dict[str, Any]):
    with pytest.raises(ValueError, match=r"^Row 12: "):
        row_settings(12, {"prompt": "a", **row}, BASE)


@pytest.mark.parametrize("seed", [2**63 - 1, str(2**53 + 1)])
def test_seeds_of_64_bits(seed: Any):
    assert row_settings(1, {"prompt": "a", "seed": seed}, BASE).seed == int(seed)


def save_plan(path: Path, **conditions: Any) -> str:
    plan_of({"up.1.0": planned(2, 64, (8,))}, conditions).save(path)
    return str(path)


@pytest.mark.parametrize("column", ["plan", "method"])
def test_a_plan_gives_what_it_was_measured_with_unless_the_row_says_otherwise(tmp_path: Path, column: str):
    file = save_plan(tmp_path / "a.json", size=[64, 96], steps=8, guidance=2.0, scheduler="euler", model="another")
    row = {"prompt": "a", column: file if column == "plan" else f"todome:plan={file}"}
    found = row_settings(1, row, BASE)
    assert (found.size, found.steps, found.guidance, found.scheduler) == ((64, 96), 8, 2.0, "euler")
    assert (type(found.reduction), found.model, found.seed) == (Plan, "some/model", 3)
    other = row_settings(1, {**row, "steps": 5, "scheduler": "ddim"}, BASE)
    assert (other.size, other.steps, other.guidance, other.scheduler) == ((64, 96), 5, 2.0, "ddim")


def test_a_plan_that_was_measured_with_the_models_own_scheduler(tmp_path: Path):
    file = save_plan(tmp_path / "a.json", scheduler="PNDMScheduler")
    base = Settings(scheduler="euler", steps=20)
    found = row_settings(1, {"prompt": "a", "plan": file}, base)
    assert (found.scheduler, found.steps) == (None, 20)


@pytest.mark.parametrize("needed", [{"loras": ["ink.safetensors:0.8"]}, {"vae": "other.safetensors"}], ids=str)
def test_a_plan_with_other_weights_than_the_batch_is_refused(tmp_path: Path, needed: dict[str, Any]):
    file = save_plan(tmp_path / "a.json", **needed)
    with pytest.raises(ValueError, match=r"^Row 4: plan=.* was measured with .*(ink|other)\.safetensors"):
        row_settings(4, {"prompt": "a", "plan": file}, BASE)
    own = Settings(loras=tuple(needed.get("loras", ())), vae=needed.get("vae"))
    assert isinstance(row_settings(4, {"prompt": "a", "plan": file}, own).reduction, Plan)


def test_a_plan_of_a_row_is_that_of_the_option(tmp_path: Path):
    parts: dict[str, Any] = {"loras": ("ink.safetensors:0.8",), "vae": "other.safetensors"}
    file = save_plan(tmp_path / "a.json", size=[64, 96], steps=8, guidance=2.0, scheduler="PNDMScheduler", **parts)
    base = Settings("a", scheduler="euler", **parts)
    assert row_settings(4, {"prompt": "a", "plan": file}, base) == base.with_plan(file)
    broken = save_plan(tmp_path / "b.json", steps="many")
    with pytest.raises(ValueError, match=r"^Row 4: plan="):
        row_settings(4, {"prompt": "a", "plan": broken}, base)


def test_keys_are_made_of_what_a_picture_depends_on():
    rows = {1: {"prompt": "a"}, 2: {"prompt": "b"}, 3: {"prompt": "a"}, 4: {"prompt": "a", "seed": 4}}
    jobs = jobs_from(rows, BASE, count=2)
    found = [(job.row, job.settings.prompt, job.settings.seed) for job in jobs.values()]
    assert found == [(1, "a", 3), (1, "a", 4), (2, "b", 3), (2, "b", 4), (4, "a", 5)]
    assert key_of(Settings("a", device="cpu")) == key_of(Settings("a"))
    others = [Settings("a", **{name: value}) for name, value in {"seed": 1, "dtype": "float16", "vae": "v"}.items()]
    assert len({key_of(one) for one in [Settings("a"), *others, Settings("a", reduction=Merge(0.5))]}) == 5


def test_one_call_draws_what_differs_in_prompt_and_seed_alone():
    rows = [{"prompt": "a"}, {"prompt": "b", "size": 64}, {"prompt": "c", "seed": 9}, {"prompt": "d", "negative": "x"}]
    rows += [{"prompt": "e", "size": 64}, {"prompt": "f"}, {"prompt": "g", "method": "dense"}]
    jobs = jobs_from(dict(enumerate(rows)), BASE)
    found = [[job.settings.prompt for job in batch] for batch in batches_of(jobs.values(), 2)]
    assert found == [["a", "c"], ["f"], ["b", "e"], ["d"], ["g"]]
