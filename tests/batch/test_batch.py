"""`todome batch` in this process: pictures, the index, what fails, what is not drawn again."""

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from made import Picky, index, pixels, write_prompts
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner
from zoo import plan_of, planned, small_unet, tiny_pipeline

from todome import Downsample
from todome.hosts import find_layers
from todome.tools.batch.jobs import jobs_from
from todome.tools.batch.rows import read_rows
from todome.tools.batch.run import run_batch
from todome.tools.commands import app
from todome.tools.engines.here import Here
from todome.tools.generate import make_picture, settings_of
from todome.tools.pipelines import open_pipeline
from todome.tools.settings import Settings


def written_at() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.png")}


def test_pictures_and_the_index(batch: Callable[..., Any], model: Path):
    Path("rows.csv").write_text("prompt,seed,size,method\na rose,4,32x48,dense\na tulip,,,\na rose,4,32x48,dense\n")
    result = batch("rows.csv", "-o", "out", "--negative", "grey")
    assert result.exit_code == 0, result.output
    assert "Note: 1 rows say the same as others: drawn once." in result.stderr
    assert result.stdout.startswith("out: 2 pictures made; ")
    first, second = index()
    assert (first["row"], first["prompt"], first["seed"], first["width"], first["height"]) == (2, "a rose", 4, 32, 48)
    assert (first["method"], first["negative"], first["status"], first["device"]) == ("dense", "grey", "made", "cpu")
    assert second["method"].startswith("Downsample(factor=2")
    assert first["seconds"] > 0
    alone = make_picture(settings_of(Path("out", first["file"])), open_pipeline(model, "cpu"))
    assert (np.asarray(alone.picture) == pixels(first)).all()


def test_what_is_there_is_not_drawn_again(batch: Callable[..., Any]):
    write_prompts(2)
    assert batch("prompts.txt", "-o", "out").exit_code == 0
    before = written_at()
    write_prompts(3)
    result = batch("prompts.txt", "-o", "out", "--batch", "2")
    assert result.stdout.startswith("out: 1 pictures made, 2 there before; ")
    assert before.items() <= written_at().items()
    assert [record["row"] for record in index()] == [1, 2, 3]
    Path("out", index()[1]["file"]).unlink()
    assert batch("prompts.txt", "-o", "out").stdout.startswith("out: 1 pictures made, 2 there before; ")


def test_a_cut_off_line_and_a_picture_without_one(batch: Callable[..., Any]):
    """As a process leaves them that was killed after a picture and within a line. A report leaves the index alone."""
    write_prompts(3)
    assert batch("prompts.txt", "-o", "out").exit_code == 0
    before, lines = written_at(), Path("out/index.jsonl").read_text().splitlines(keepends=True)
    Path("out/index.jsonl").write_text(lines[0] + lines[1][:50])
    assert CliRunner().invoke(app, ["report", "out"]).exit_code == 0
    assert Path("out/index.jsonl").read_text() == lines[0] + lines[1][:50]
    assert batch("prompts.txt", "-o", "out").exit_code == 0
    assert written_at() == before
    assert [(record["row"], record["seconds"] is None) for record in index()] == [(1, False), (2, True), (3, True)]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A pipeline that fails where a prompt is in this list."""
    from diffusers import StableDiffusionPipeline

    words, encode = [], StableDiffusionPipeline.encode_prompt

    def encode_prompt(self: Any, prompt: list[str], *args: Any, **kwargs: Any) -> Any:
        if set(words) & {*prompt}:
            raise RuntimeError("This prompt is too much.")
        return encode(self, prompt, *args, **kwargs)

    monkeypatch.setattr(StableDiffusionPipeline, "encode_prompt", encode_prompt)
    return words


def test_a_row_that_fails_is_written_down(batch: Callable[..., Any], broken: list[str]):
    write_prompts(4)
    broken.append("rose number 1")
    result = batch("prompts.txt", "-o", "out", "--batch", "3")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: 1 failed, as out/index.jsonl says. Row 2: This prompt is too much.")
    assert [record["status"] for record in index()] == ["made", "failed", "made", "made"]
    assert index()[1]["error"] == "This prompt is too much."
    broken.clear()
    again = batch("prompts.txt", "-o", "out")
    assert (again.exit_code, "out: 0 pictures made, 3 there before; " in again.stdout) == (1, True)
    assert batch("prompts.txt", "-o", "out", "--retry").exit_code == 0
    assert [record["status"] for record in index()] == ["made"] * 4


def test_the_first_failure_can_end_it(batch: Callable[..., Any], broken: list[str]):
    write_prompts(4)
    broken.append("rose number 1")
    result = batch("prompts.txt", "-o", "out", "--fail-fast")
    assert result.exit_code == 1
    assert result.stderr == "Error: Row 2 failed: This prompt is too much. What was drawn before is in out.\n"
    assert [record["row"] for record in index()] == [1, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--size", "36"), "Width 36 does not work: this model needs multiples of 8."),
        (("--shards", "zip"), "shards='zip' cannot be used."),
        (("--lora", "none.safetensors"), "lora='none.safetensors' cannot be used."),
        (("--model", "nowhere"), "model='nowhere' cannot be used."),
        (("--workers", "2"), "It needs --ray."),
        (("-o", "prompts.txt"), "out='prompts.txt' cannot be used."),
        (("-o", "."), "out='.' cannot be used."),
    ],
)
def test_what_is_refused_before_anything_is_drawn(batch: Callable[..., Any], words: Any, said: str):
    write_prompts(1)
    result = batch("prompts.txt", "-o", "out", *words)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("method", "said"),
    [("todome:2,2,2,2", "factor=(2, 2, 2, 2) cannot be used."), ("todome:plan=other.json", "This plan is for another")],
)
def test_a_reduction_of_one_row_that_does_not_fit_is_refused_first(batch: Callable[..., Any], method: str, said: str):
    plan_of({"up.9.0": planned(2, 64, (8,))}).save("other.json")
    Path("rows.csv").write_text(f'prompt,method\na rose,todome:2\na tulip,"{method}"\n')
    result = batch("rows.csv", "-o", "out")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {said}")
    assert not list(Path("out").rglob("*.png"))


def test_rows_have_plans(batch: Callable[..., Any]):
    layers = find_layers(tiny_pipeline(unet=small_unet()).unet)
    for name, factor in {"two": 2, "four": 4}.items():
        factors = {one.name: planned(factor, 256 // 4 ** (one.level - 1), one.width) for one in layers}
        plan_of(factors, {"steps": 3, "scheduler": "euler-a"}).save(f"{name}.json")
    Path("rows.csv").write_text('prompt,plan,method\na,two.json,\na,four.json,\na,,"todome:plan=two.json"\n')
    result = batch("rows.csv", "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "Note: 1 rows say the same as others: drawn once." in result.stderr
    two, four = index()
    assert (pixels(two) != pixels(four)).any()
    assert {(one["steps"], one["scheduler"]) for one in (two, four)} == {(3, "euler-a")}


def test_two_batches_do_not_meet_in_one_folder(batch: Callable[..., Any]):
    write_prompts(1)
    assert batch("prompts.txt", "-o", "out").exit_code == 0
    with FileLock("out/.lock"):
        result = batch("prompts.txt", "-o", "out")
    assert "a folder that no other batch is drawing into" in result.stderr


def test_webdataset_shards(batch: Callable[..., Any]):
    write_prompts(5)
    assert batch("prompts.txt", "-o", "plain").exit_code == 0
    assert batch("prompts.txt", "-o", "out", "--shards", "webdataset", "--shard-size", "2").exit_code == 0
    assert sorted(path.name for path in Path("out/shards").iterdir()) == ["00000.tar", "00001.tar", "00002.tar"]
    assert not list(Path("out").rglob("*.png"))
    with tarfile.open("out/shards/00001.tar") as tar:
        names = tar.getnames()
        content = {name: file.read() for name in names if (file := tar.extractfile(name))}
    plain = [record for record in index("plain") if record["row"] in (3, 4)]
    assert names == [f"{record['key']}.{ending}" for record in plain for ending in ("png", "txt", "json")]
    first = plain[0]["key"]
    assert content[f"{first}.txt"] == b"rose number 2"
    assert json.loads(content[f"{first}.json"])["file"] == "shards/00001.tar"
    with Image.open(io.BytesIO(content[f"{first}.png"])) as picture:
        assert (np.asarray(picture) == pixels(plain[0], "plain")).all()
    assert [record["file"] for record in index()] == [f"shards/0000{number}.tar" for number in (0, 0, 1, 1, 2)]


def test_shards_go_on(batch: Callable[..., Any]):
    """More rows become further shards, also after a process was killed before a shard was there, or just after."""
    parts = ("-o", "out", "--shards", "parquet", "--shard-size", 2)
    write_prompts(4)
    assert batch("prompts.txt", "-o", "out").exit_code == 0
    single = {path: path.read_bytes() for path in Path("out").rglob("*.png")}
    assert batch("prompts.txt", *parts).exit_code == 0
    Path("out/shards/00001.parquet").unlink()
    for path, content in single.items():
        path.write_bytes(content)
    write_prompts(5)
    result = batch("prompts.txt", *parts)
    assert result.stdout.startswith("out: 3 pictures made, 2 there before; ")  # two were found
    tables = [parquet.read_table(path).to_pylist() for path in sorted(Path("out/shards").iterdir())]
    rows = [row for table in tables for row in table]
    assert [row["prompt"] for row in rows] == [f"rose number {number}" for number in range(5)]
    with Image.open(io.BytesIO(rows[3]["image"]["bytes"])) as picture:
        assert picture.size == (32, 32)
    assert parquet.read_table("out/index.parquet").num_rows == 5
    assert not list(Path("out").rglob("*.png"))


def test_other_batch_sizes_and_a_thread_for_each_device_draw_the_same(batch: Callable[..., Any], model: Path):
    """On a CPU a kernel may add up in another order for other batches: then by one step of 255 at most."""
    write_prompts(5)
    for size in (1, 2, 5):
        assert batch("prompts.txt", "-o", f"by-{size}", "--batch", size).exit_code == 0
    base = Settings(model=str(model), size=(32, 32), steps=2, reduction=Downsample(2), device="cpu")
    jobs = jobs_from(read_rows(Path("prompts.txt")), base)
    assert run_batch(jobs, base, Path("threads"), Here(["cpu", "cpu"])).made == 5
    for one, *others in zip(*map(index, ("by-1", "by-2", "by-5", "threads")), strict=True):
        for other, folder in zip(others, ("by-2", "by-5", "threads"), strict=True):
            assert (other["key"], other["file"]) == (one["key"], one["file"])
            assert abs(pixels(other, folder) - pixels(one, "by-1").astype(int)).max() <= 1


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu"]])
def test_what_a_worker_raises_ends_the_run(devices: list[str]):
    with pytest.raises(ValueError, match=r"^Three is too much\.$"):
        list(Here(devices).run(Picky(), range(10), "test"))
    assert sorted(Here(devices).run(Picky(), range(3), "test")) == [f"{i} in {os.getcwd()} on cpu" for i in range(3)]


@pytest.mark.parametrize("shards", [(), ("--shards", "webdataset"), ("--shards", "parquet")], ids=str)
def test_a_report_shows_a_sample(batch: Callable[..., Any], broken: list[str], shards: tuple[str, ...]):
    write_prompts(6)
    broken.append("rose number 1")
    assert batch("prompts.txt", "-o", "out", *shards).exit_code == 1
    result = CliRunner().invoke(app, ["report", "out", "--cases", "3"])
    assert result.exit_code == 0, result.output
    page = Path("out/report.html").read_text()
    assert "3 of 5 pictures" in page
    assert [page.count(f"<b>rose number {number}</b>") for number in range(6)] == [1, 0, 0, 1, 0, 1]
    assert page.count("data:image/webp;base64,") == 3
    assert "<td>2</td><td>rose number 1</td><td>This prompt is too much.</td>" in page


def test_a_report_of_nothing(batch: Callable[..., Any], broken: list[str]):
    write_prompts(1)
    broken.append("rose number 0")
    assert batch("prompts.txt", "-o", "out").exit_code == 1
    assert "Allowed: a batch with pictures." in CliRunner().invoke(app, ["report", "out"]).stderr


class Elsewhere(Here):
    """An engine whose workers write into a folder of their own, as on a machine that does not share this one."""

    def run(self, worker: Any, items: Any, title: str) -> Any:
        worker.folder = worker.folder.with_name("elsewhere")
        yield from super().run(worker, items, title)


def test_a_folder_that_workers_do_not_share_ends_the_run(model: Path, tmp_path: Path):
    base = Settings(model=str(model), size=(32, 32), steps=1, device="cpu")
    jobs = jobs_from({1: {"prompt": "a rose"}, 2: {"prompt": "a tulip"}}, base)
    with pytest.raises(ValueError, match="Allowed: a folder that all machines of the cluster share, under one name"):
        run_batch(jobs, base, tmp_path / "out", Elsewhere(["cpu"]))
    assert len(list(tmp_path.rglob("*.png"))) == 1
