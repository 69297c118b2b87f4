"""A training that was cut continues exactly where it stopped; nothing is lost and nothing half-written."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lora_photos import draw_photos, small_recipe
from PIL import Image
from safetensors.torch import load_file

from todome import Downsample
from todome.tools.training import checkpoints
from todome.tools.training.checkpoints import checkpoints_in, newest_state, save_checkpoint
from todome.tools.training.lora import Interrupted, Samples, train
from todome.tools.training.trainer import Trainer


def same(one: Any, other: Any) -> bool:
    """Tensors and whatever holds them, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Any:
    """After so many steps, the process is asked to stop."""

    def after(steps: int, number: signal.Signals = signal.SIGINT) -> None:
        take_step = Trainer.take_step

        def stepping(self: Trainer) -> torch.Tensor:
            loss = take_step(self)
            if self.step == steps:
                monkeypatch.undo()
                os.kill(os.getpid(), number)
            return loss

        monkeypatch.setattr(Trainer, "take_step", stepping)

    return after


@pytest.mark.parametrize(
    ("model", "changes", "number"),
    [
        ("todome-flowers", {"steps": 2, "batch": 1, "checkpointing": True}, signal.SIGINT),
        (
            "tiny",
            {"accumulate": 2, "flip": True, "reduction": Downsample(2, phase="random", stop=0.7)},
            signal.SIGTERM,
        ),
    ],
    ids=["flowers", "tiny"],
)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(recipe, tmp_path, tiny, cut, model, changes, number):
    asked = recipe(model=tiny if model == "tiny" else model, **changes)
    train(asked, tmp_path / "whole.safetensors", cpu=True)
    handlers = [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)]
    cut(1, number)
    with pytest.raises(Interrupted, match=rf"^step 1 of {asked.steps}$"):
        train(asked, tmp_path / "cut.safetensors", cpu=True)
    assert [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [path.name for path in checkpoints_in(tmp_path / "cut-run/checkpoints")] == ["000001"]
    assert not (tmp_path / "cut.safetensors").exists()
    done = train(asked, tmp_path / "cut.safetensors", resume=True, cpu=True)
    assert done.steps == asked.steps - 1
    states = [newest_state(tmp_path / f"{name}-run/checkpoints") for name in ("whole", "cut")]
    assert same(*states)
    assert same(*(load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "cut")))


def test_a_checkpoint_can_be_tried(recipe, tmp_path):
    train(recipe(steps=2), tmp_path / "a.safetensors", save_every=1, cpu=True)
    last = load_file(tmp_path / "a-run/checkpoints/000002/lora.safetensors")
    assert same(last, load_file(tmp_path / "a.safetensors"))
    assert not same(last, load_file(tmp_path / "a-run/checkpoints/000001/lora.safetensors"))


def test_the_last_few_are_kept(recipe, tmp_path):
    train(recipe(steps=3), tmp_path / "a.safetensors", save_every=1, keep=2, cpu=True)
    assert sorted(path.name for path in (tmp_path / "a-run/checkpoints").iterdir()) == ["000002", "000003"]


def write_nothing(path: Path) -> None:
    path.write_text("a LoRA")


@pytest.mark.parametrize("failing", ["state", "lora"])
def test_a_save_that_fails_leaves_the_older_ones(tmp_path, monkeypatch, failing):
    def full(*args: Any) -> None:
        Path(args[-1]).write_bytes(b"half")
        raise OSError("disk full")

    save_checkpoint(tmp_path, 1, {"x": torch.ones(3)}, write_nothing, keep=1)
    with monkeypatch.context() as patch:
        if failing == "state":
            patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(tmp_path, 2, {"x": torch.zeros(3)}, write_nothing if failing == "state" else full, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    assert same(newest_state(tmp_path), {"step": 1, "x": torch.ones(3)})


def test_a_process_that_is_killed_amid_a_save_leaves_no_checkpoint(tmp_path, monkeypatch):
    (tmp_path / ".000002.part").mkdir()
    (tmp_path / ".000002.part/state.pt").write_bytes(b"half")
    assert newest_state(tmp_path) is None
    save_checkpoint(tmp_path, 3, {}, write_nothing, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["000003"]


def test_a_checkpoint_that_is_only_half_removed_is_none(tmp_path, monkeypatch):
    remove = shutil.rmtree

    def killed(path: Path, **options: Any) -> None:
        if not (Path(path) / "lora.safetensors").exists():
            return remove(path, **options)
        (Path(path) / "lora.safetensors").unlink()
        raise KeyboardInterrupt

    save_checkpoint(tmp_path, 1, {}, write_nothing, keep=1)
    monkeypatch.setattr(checkpoints.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, {}, write_nothing, keep=1)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["000002"]


def test_many_steps_are_in_the_order_of_numbers(tmp_path):
    for step in (999999, 1000000):
        save_checkpoint(tmp_path, step, {}, write_nothing, keep=2)
    assert newest_state(tmp_path) == {"step": 1000000}


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    recipe = small_recipe(draw_photos(folder / "photos"), model=tiny, steps=1)
    train(recipe, folder / "a.safetensors", cpu=True)
    return folder


@pytest.fixture
def begun(trained_once: Path, tmp_path: Path) -> Path:
    """A file whose training is done, on photos that are drawn alike."""
    shutil.copytree(trained_once / "a-run", tmp_path / "a-run")
    return Path(shutil.copy(trained_once / "a.safetensors", tmp_path))


def test_other_data_are_refused(recipe, begun, photos, says):
    allowed = "Allowed: the pictures and captions with which this training began."

    def refused(change: str) -> Any:
        return says(
            ValueError, f"data='{photos}' cannot be used. {allowed} {change}: undo it, or train into another file."
        )

    (photos / "red.txt").write_text("another caption")
    with refused("red.png has changed"):
        train(recipe(steps=1), begun, resume=True, cpu=True)
    Image.new("RGB", (96, 96)).save(photos / "blue.png")
    with refused("blue.png is new"):
        train(recipe(steps=1, caption="a tulip"), begun, resume=True, cpu=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 2}, "steps=2 cannot be used. Allowed: 1"),
        ({"rank": 3, "alpha": 2}, "rank=3 cannot be used. Allowed: 2"),
        ({"learning_rate": 0.1}, "learning_rate=0.1 cannot be used. Allowed: 0.0001"),
        ({"accumulate": 2}, "accumulate x processes=2 cannot be used. Allowed: 1"),
        ({"reduction": None}, "reduction='None' cannot be used. Allowed: \"Downsample(factor=2, phase='random', "),
    ],
    ids=str,
)
def test_other_settings_are_refused(recipe, begun, changes, text):
    with pytest.raises(ValueError, match="cannot be used") as error:
        train(recipe(**{"steps": 1, **changes}), begun, resume=True, cpu=True)
    rest = "with which this training began. Use it again, or train into another file."
    assert str(error.value).startswith(text)
    assert str(error.value).endswith(rest)


def test_a_run_that_is_done_has_nothing_left_to_do_whatever_changes_no_weights(recipe, begun):
    before = load_file(begun)
    assert train(recipe(steps=1, checkpointing=True), begun, resume=True, cpu=True).steps == 0
    assert same(load_file(begun), before)


def test_nothing_is_overwritten_unasked(recipe, begun, says):
    before = begun.read_bytes()
    overwrite = "Choose another name, or overwrite it with --force."
    text = f"out='{begun}' exists already. {overwrite}"
    with says(FileExistsError, text):
        train(recipe(steps=1), begun, cpu=True)
    assert begun.read_bytes() == before
    begun.unlink()
    last = begun.parent / "a-run/checkpoints/000001"
    remedy = f"{last} is there: go on with --resume, or start over with --force."
    text = f"out='{begun}' cannot be used. Allowed: a file whose training has not begun. {remedy}"
    with says(FileExistsError, text):
        train(recipe(steps=1), begun, cpu=True)


def test_by_force_it_starts_over(recipe, begun):
    samples = begun.parent / "a-run/samples"
    samples.mkdir()
    (samples / "000001-1.png").write_text("of the run before")
    (begun.parent / "a-run/notes.txt").write_text("a user's own")
    assert train(recipe(steps=2), begun, force=True, save_every=2, cpu=True).steps == 2
    found = sorted(path.relative_to(begun.parent / "a-run").as_posix() for path in (begun.parent / "a-run").iterdir())
    assert found == ["checkpoints", "notes.txt"]
    assert [path.name for path in (begun.parent / "a-run/checkpoints").iterdir()] == ["000002"]


def test_data_that_cannot_be_read_cost_no_checkpoint(recipe, begun, photos):
    (photos / "red.png").write_text("no picture")
    with pytest.raises(ValueError, match="red"):
        train(recipe(steps=1), begun, force=True, cpu=True)
    assert newest_state(begun.parent / "a-run/checkpoints") is not None


def test_without_a_checkpoint_it_begins_at_the_first_step(recipe, tmp_path, capsys):
    train(recipe(steps=1), tmp_path / "a.safetensors", resume=True, cpu=True)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "Pictures: 4. Buckets: 1 of 24x40, 2 of 32x32, 1 of 40x24 pixels."
    assert second == f"There is no checkpoint in {tmp_path / 'a-run/checkpoints'}: beginning at the first step."
    assert third.startswith("Step 1 of 1: loss ")
    assert third.endswith(f", saved in {tmp_path / 'a-run/checkpoints/000001'}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"save_every": 0},
            "save_every=0 cannot be used. Allowed: a whole number of at least 1. The usual one is 250.",
        ),
        ({"keep": 0}, "keep=0 cannot be used. Allowed: a whole number of at least 1. The usual one is 2."),
    ],
)
def test_savings_that_cannot_be(recipe, tmp_path, says, options, text):
    with says(ValueError, text):
        train(recipe(), tmp_path / "a.safetensors", **options)


def test_samples_that_cannot_be(says):
    text = "sample_every=0 cannot be used. Allowed: a whole number of at least 1. The usual one is 250."
    with says(ValueError, text):
        Samples(every=0)


def test_names_that_cannot_be(recipe, tmp_path, says):
    says_so = f"out='{tmp_path / 'a.pt'}' does not end in .safetensors, the format of LoRAs."
    with says(ValueError, f"{says_so} Use {tmp_path / 'a.safetensors'}."):
        train(recipe(), tmp_path / "a.pt")
    remedy = f"Make the folder {tmp_path / 'no'} first."
    text = f"out='{tmp_path / 'no/a.safetensors'}' is in a folder that does not exist. {remedy}"
    with says(FileNotFoundError, text):
        train(recipe(), tmp_path / "no/a.safetensors")
