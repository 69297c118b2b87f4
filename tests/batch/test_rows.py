"""The rows of a batch: the same in every format, and what is refused before anything is drawn."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from todome import Downsample, Merge
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


KINDS = "a text file with a prompt on each line, or .jsonl, .csv or .parquet with a column for each setting"
COLUMNS = (
    "the columns prompt, negative, seed, size, steps, guidance, scheduler, method, plan, of which prompt is needed"
)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"# nothing\n", f"cannot be used. Allowed: {KINDS}. This one has no rows."),
        ("a.txt", b"\xff\xfe\x00", f"cannot be used. Allowed: {KINDS}. It is not text in UTF-8."),
        ("a.parquet", b"PAR1", f"cannot be used. Allowed: {KINDS}. It is no whole Parquet file."),
        ("a.csv", b"text,seed\na,1\n", f"cannot be used. Allowed: {COLUMNS}. It has text, seed: rename one."),
        (
            "a.csv",
            b"prompt,seed\na,b,3\n",
            "a.csv line 2=['3'] cannot be used. Allowed: 2 fields, as in the first",
        ),
        ("a.jsonl", b'{"prompt": "a"}\n["b"]\n', "a.jsonl line 2='[\"b\"]' cannot be used. Allowed: an object in JSON"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: bytes, said: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be used") as error:
        read_rows(tmp_path / name)
    assert said in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"It cannot be read\.$"):
        read_rows(tmp_path / "none.csv")


def test_a_column_that_is_not_used_is_said(tmp_path: Path):
    (tmp_path / "a.csv").write_text("prompt,guidence\na,3\n")
    with pytest.warns(UserWarning, match=r"^a\.csv has columns that are not used: guidence\.$"):
        read_rows(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"seed": "x"}, "seed='x' cannot be used. Allowed: a whole number. Mend the row."),
        ({"seed": -1}, "seed=-1 cannot be used. Allowed: a whole number from 0 to 2**63 - 1. The default is seed=0."),
        ({"seed": 1.5}, "seed=1.5 cannot be used. Allowed: a whole number. Mend the row."),
        ({"steps": True}, "steps=True cannot be used. Allowed: a whole number. Mend the row."),
        ({"size": "big"}, "size='big' cannot be used. Allowed: pixels, such as 512 or 512x768. Mend the row."),
        ({"size": [64, 100]}, "Height 100 does not work: this model needs multiples of 8. Try 96 or 104."),
        ({"scheduler": "best"}, "scheduler='best' cannot be used."),
        ({"method": "magic"}, "method='magic' cannot be used."),
        ({"method": "deepcache:3"}, "method='deepcache:3' cannot be used. Allowed: dense, todome:2"),
    ],
)
def test_values_that_are_refused(row: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=r"^Row 12: ") as error:
        row_settings(12, {"prompt": "a", **row}, BASE)
    assert said in str(error.value)


def test_keys_are_made_of_what_a_picture_depends_on():
    rows = {1: {"prompt": "a"}, 2: {"prompt": "b"}, 3: {"prompt": "a"}, 4: {"prompt": "a", "seed": 4}}
    jobs = jobs_from(rows, BASE, count=2)
    assert [(job.row, job.settings.prompt, job.settings.seed) for job in jobs.values()] == [
        (1, "a", 3),
        (1, "a", 4),
        (2, "b", 3),
        (2, "b", 4),
        (4, "a", 5),
    ]
    assert key_of(Settings("a", device="cpu")) == key_of(Settings("a"))
    others = [Settings("a", **{name: value}) for name, value in {"seed": 1, "dtype": "float16", "vae": "v"}.items()]
    assert len({key_of(one) for one in [Settings("a"), *others, Settings("a", reduction=Merge(0.5))]}) == 5


def test_one_call_draws_what_differs_in_prompt_and_seed_alone():
    rows = [{"prompt": "a"}, {"prompt": "b", "size": 64}, {"prompt": "c", "seed": 9}, {"prompt": "d", "negative": "x"}]
    rows += [{"prompt": "e", "size": 64}, {"prompt": "f"}, {"prompt": "g", "method": "dense"}]
    jobs = jobs_from(dict(enumerate(rows)), BASE)
    found = [[job.settings.prompt for job in batch] for batch in batches_of(jobs.values(), 2)]
    assert found == [["a", "c"], ["f"], ["b", "e"], ["d"], ["g"]]
