"""From a folder of photos to a pipeline: every stage on drawn flowers, cuts in between, and files that stay whole."""

import argparse
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import autoencoder
import checkpoints
import diffusion
import evaluate
import export
import prepare
import pytest
import todome_flowers
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from diffusion import Prompts, Size, Stage, Trainer
from models import TEXT_CHANNELS, make_tokenizer
from photos import SIDE, cut, load_photos
from PIL import Image, ImageDraw
from prepared import Entry, read_entries, read_prompts
from probe import Probe, cross_validated
from safetensors.torch import load_file, save_file
from torch import Tensor
from words import KINDS, vocabulary

from todome.metrics import LPIPS
from todome.pipelines import quiet_loading

COLOUR = {"daisy": "white", "dandelion": "yellow", "rose": "red", "sunflower": "yellow", "tulip": "red"}
EACH = 3  # photos of each kind
STAGES = [
    Stage("small", (Size(32, 32, 2, 2, False),), (diffusion.WHOLE, 1.8), 3, (6e-4, 4e-4)),
    Stage("mixed", (Size(64, 64, 2, 1, False), Size(32, 64, 2, 1, False)), (1.1, 1.1), 2, (4e-4, 2e-5)),
]
ITERATIONS = 5  # of both


def draw_flower(colour: str, radius: int) -> Image.Image:
    photo = Image.new("RGB", (300, 280), (40, 120, 40))
    ImageDraw.Draw(photo).ellipse((150 - radius, 140 - radius, 150 + radius, 140 + radius), fill=colour)
    return photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for kind, (_, plural) in KINDS.items():
        (folder / plural).mkdir()
        for i in range(EACH):
            draw_flower(COLOUR[kind], 90 + 5 * i).save(folder / plural / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def lpips(tmp_path_factory: pytest.TempPathFactory) -> LPIPS:
    """Random weights, by way of a file like the one that a user has."""
    torch.manual_seed(0)
    network = LPIPS()
    tensors = {f"l{i}": torch.rand_like(head) for i, head in enumerate(network.heads)}
    for i in range(len(network.convolutions)):
        for short, name in (("w", "weight"), ("b", "bias")):
            tensors[f"c{i}.{short}"] = network.get_parameter(f"convolutions.{i}.{name}").detach()
    path = tmp_path_factory.mktemp("weights") / "lpips.safetensors"
    save_file(tensors, path)
    return LPIPS.load(path).requires_grad_(False)


@pytest.fixture(scope="module")
def ready(photos: Path, lpips: LPIPS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder in which everything is done but diffusion."""
    run = tmp_path_factory.mktemp("ready") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["prepare.py", str(photos), "--run", str(run), "--device", "cpu"])
        prepare.main()
    torch.manual_seed(0)
    autoencoder.train(load_photos(sorted(photos.glob("*/*"))), lpips, run, iterations=2, batch=2)
    return run


@pytest.fixture(scope="module")
def trained(ready: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of the real networks from the first stage to the last."""
    run = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(ready, run)
    trainer = Trainer(run, "cpu")
    diffusion.train(trainer, STAGES, photos, math.inf)
    trainer.save()
    yield run
    shutil.rmtree(run)  # a quarter of a gigabyte


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "pipeline"
    export.export(export.assemble(trained), folder)
    return folder


def tiny_unet() -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        attention_head_dim=2,
        cross_attention_dim=TEXT_CHANNELS,
    )


@pytest.fixture
def run(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ready for diffusion, with a UNet that takes no time."""
    monkeypatch.setattr(diffusion, "make_unet", tiny_unet)
    return shutil.copytree(ready, tmp_path / "run")


def begun(run: Path) -> Trainer:
    """As every start of the program begins."""
    torch.manual_seed(0)
    trainer = Trainer(run, "cpu")
    trainer.resume()
    return trainer


def train_until(trainer: Trainer, photos: Path, iteration: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with a clock that counts iterations, and leave as the program does when its time is up."""
    monkeypatch.setattr(diffusion, "time", SimpleNamespace(monotonic=lambda: trainer.iteration))
    diffusion.train(trainer, STAGES, photos, deadline=iteration - 0.5)
    trainer.save()


def logged(run: Path, name: str = "diffusion") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def state_of(run: Path, name: str = "diffusion") -> dict[str, Any]:
    state = checkpoints.read_state(run, name)
    assert state is not None
    return state


def test_labels_say_what_was_drawn(ready, photos):
    entries = read_entries(ready)
    assert len(entries) == EACH * len(KINDS)
    assert {(entry.kind, entry.colour, entry.view) for entry in entries} == {
        (kind, colour, "close-up") for kind, colour in COLOUR.items()
    }
    assert all((photos / entry.file).is_file() for entry in entries)


def test_prompts_are_captions_of_their_label(ready):
    prompts, tokenizer = read_prompts(ready), make_tokenizer(vocabulary())
    assert prompts.shape == (len(KINDS), prepare.CAPTIONS, prepare.LENGTH)
    for entry in read_entries(ready):
        said = tokenizer.batch_decode(prompts[entry.label].tolist(), skip_special_tokens=True)
        assert sum(entry.kind in text or KINDS[entry.kind][1] in text for text in said) > 0.9 * len(said)


def test_a_run_that_was_not_prepared_is_refused(tmp_path):
    with pytest.raises(SystemExit) as error:
        read_entries(tmp_path)
    assert str(error.value) == f"{tmp_path / 'labels.json'} is missing. Run prepare.py with --run {tmp_path} first."


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 96), (288, 160)])
@pytest.mark.parametrize("zoom", [1.0, 1.7])
def test_cuts_have_the_size_and_range_asked_for(photos, height, width, zoom):
    pictures = load_photos(sorted(photos.glob("*/0.png"))[:2])
    assert pictures.shape == (2, 3, SIDE, SIDE)
    parts = cut(pictures, height, width, zoom)
    assert parts.shape == (2, 3, height, width)
    assert parts.abs().max() <= 1


def test_the_whole_training_ends_in_a_pipeline(exported):
    with quiet_loading():
        pipe = StableDiffusionPipeline.from_pretrained(exported)
    pipe.set_progress_bar_config(disable=True)
    made: Any = pipe("a red tulip", height=64, width=64, num_inference_steps=2)
    assert made.images[0].size == (64, 64)


def described(folder: Path) -> dict[str, Any]:
    """Every file of a pipeline with what it says, but for weights and the order of the tokens."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    told: dict[str, Any] = dict.fromkeys(files)
    told |= {name: json.loads(file.read_text()) for name, file in files.items() if file.suffix == ".json"}
    told["tokenizer/tokenizer.json"] = sorted(told["tokenizer/tokenizer.json"]["model"]["merges"])
    told["tokenizer/vocab.json"] = sorted(told["tokenizer/vocab.json"])
    return told


def test_it_is_built_like_the_one_that_is_shipped(exported):
    assert described(exported) == described(todome_flowers.path())


def test_every_step_of_the_training_numbers_words_alike(exported):
    vocabularies = [make_tokenizer(vocabulary()).get_vocab() for _ in range(4)]
    assert all(other == vocabularies[0] for other in vocabularies)
    assert json.loads((exported / "tokenizer" / "vocab.json").read_text()) == vocabularies[0]


def test_the_exported_weights_are_the_averages(trained, exported):
    kept = load_file(exported / "unet" / "diffusion_pytorch_model.safetensors")
    average, state = checkpoints.read_weights(trained, "unet"), state_of(trained)["unet"]
    assert kept.keys() == average.keys() == state.keys()
    assert all(kept[name].equal(average[name].half()) for name in kept)
    assert not all(average[name].equal(state[name]) for name in state)


def test_a_failed_export_leaves_the_old_one(trained, exported, monkeypatch):
    before = sorted(exported.parent.rglob("*"))

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(export, "drop_derived", fail)
    with pytest.raises(OSError, match="disk full"):
        export.export(export.assemble(trained), exported)
    assert sorted(exported.parent.rglob("*")) == before


def test_diffusion_goes_on_where_it_was_cut(run, photos, monkeypatch):
    monkeypatch.setattr(diffusion, "LOG_EVERY", 1)
    train_until(begun(run), photos, 4, monkeypatch)
    assert state_of(run)["iteration"] == 4
    trainer = begun(run)
    assert trainer.iteration == 4
    train_until(trainer, photos, math.inf, monkeypatch)
    state = state_of(run)
    assert state["iteration"] == ITERATIONS
    assert {int(entry["step"]) for entry in state["optimiser"]["state"].values()} == {ITERATIONS}
    assert [(line["stage"], line["iteration"]) for line in logged(run)] == [
        *(("small", i) for i in (1, 2, 3)),
        *(("mixed", i) for i in (4, 5)),
    ]


def test_a_run_that_is_done_does_nothing_more(run, photos, monkeypatch):
    train_until(begun(run), photos, math.inf, monkeypatch)
    before = state_of(run)["unet"]
    train_until(begun(run), photos, math.inf, monkeypatch)
    state = state_of(run)
    assert state["iteration"] == ITERATIONS
    assert all(before[name].equal(state["unet"][name]) for name in before)


def test_nothing_is_lost_between_two_starts(run, photos, monkeypatch):
    first = begun(run)
    train_until(first, photos, 2, monkeypatch)
    second = begun(run)
    for a, b in ((first.parameters, second.parameters), (first.average, second.average)):
        assert all(x.equal(y) for x, y in zip(a, b, strict=True))
    moments = [trainer.optimiser.state_dict()["state"] for trainer in (first, second)]
    assert all(moments[0][i]["exp_avg"].equal(moments[1][i]["exp_avg"]) for i in moments[0])
    averaged = iter(first.average)
    for name in ("unet", "text_encoder"):
        weights = checkpoints.read_weights(run, name)
        assert all(weights[key].equal(next(averaged)) for key, _ in getattr(first, name).named_parameters())


def test_a_resumed_run_draws_noise_of_its_own(run):
    first = begun(run)
    drawn = torch.rand(4)
    first.iteration = 2
    first.save()
    begun(run)
    resumed = torch.rand(4)
    assert not resumed.equal(drawn)
    begun(run)
    assert resumed.equal(torch.rand(4))  # and the same one every time


def test_the_logged_loss_is_the_mean_of_what_this_start_saw(run, photos, monkeypatch):
    monkeypatch.setattr(diffusion, "LOG_EVERY", 3)
    monkeypatch.setattr(Trainer, "loss", lambda *_: torch.ones((), requires_grad=True) * 2)
    train_until(begun(run), photos, 2, monkeypatch)
    train_until(begun(run), photos, math.inf, monkeypatch)
    assert [(line["iteration"], line["loss"]) for line in logged(run)] == [(3, 2.0)]


def test_the_rate_warms_up_and_falls():
    rates = [diffusion.rate_at(diffusion.STAGES[0], i, i) for i in range(diffusion.STAGES[0].iterations)]
    assert rates[0] < rates[100] < rates[diffusion.WARM_UP] <= 6e-4
    assert rates[diffusion.WARM_UP :] == sorted(rates[diffusion.WARM_UP :], reverse=True)
    assert rates[-1] == pytest.approx(4e-4, rel=1e-3)


def test_stages_as_the_command_line_asks_for_them():
    stages = diffusion.asked_stages(argparse.Namespace(iterations=[1, 2, 3], share=0.001, eager=True))
    assert [stage.iterations for stage in stages] == [1, 2, 3]
    assert {(size.batch, size.compiled) for stage in stages for size in stage.sizes} == {(1, False)}
    unchanged = diffusion.asked_stages(argparse.Namespace(iterations=None, share=1.0, eager=False))
    assert tuple(unchanged) == diffusion.STAGES


def test_prompts_of_a_batch_are_captions_or_empty(ready):
    tokenizer, rows = make_tokenizer(vocabulary()), read_prompts(ready)
    torch.manual_seed(0)
    prompts = Prompts(rows, tokenizer, "cpu")
    tokens = prompts.of(torch.full((500,), 2))
    empty = (tokens == prompts.empty).all(dim=1)
    assert 0.05 < empty.double().mean() < 0.15
    captions = {tuple(row) for row in rows[2].tolist()}
    assert all(tuple(row[: rows.shape[2]]) in captions for row in tokens[~empty].tolist())
    assert tokens[:, rows.shape[2] :].unique().tolist() == [tokenizer.eos_token_id]


def test_the_autoencoder_goes_on_where_it_was_cut(run, photos, lpips, monkeypatch):
    seen: list[Tensor] = []
    monkeypatch.setattr(autoencoder, "CUT", 32)
    monkeypatch.setattr(
        autoencoder, "cut_for_training", lambda chosen: seen.append(cut(chosen, 32, 32, 1.5)) or seen[-1]
    )
    pictures = load_photos(sorted(photos.glob("*/*")))
    for name in ("autoencoder.state", "vae.safetensors"):
        (run / name).unlink()
    for iterations in (2, 4):
        torch.manual_seed(0)
        autoencoder.train(pictures, lpips, run, iterations, batch=2)
        assert state_of(run, "autoencoder")["iteration"] == iterations
    assert len(seen) == 4
    assert not seen[0].equal(seen[2])  # cuts of its own, not those of the beginning
    weights = checkpoints.read_weights(run, "vae")
    assert all(weights[name].equal(value) for name, value in state_of(run, "autoencoder")["vae"].items())


def half_written(*args: Any) -> None:
    """Fails as a full disk does, with a part of the file written. The path is the second argument of both writers."""
    Path(args[1]).write_bytes(b"half")
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("writer", "write", "read"),
    [
        ("checkpoints.save_file", checkpoints.write_weights, checkpoints.read_weights),
        ("torch.save", checkpoints.write_state, checkpoints.read_state),
    ],
)
def test_a_file_is_never_half_written(tmp_path, monkeypatch, writer, write, read):
    write(tmp_path, "part", {"x": torch.ones(3)})
    with monkeypatch.context() as patch:
        patch.setattr(writer, half_written)
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path, "part", {"x": torch.zeros(3)})
    assert read(tmp_path, "part")["x"].tolist() == [1, 1, 1]
    write(tmp_path, "part", {"x": torch.zeros(3)})
    assert read(tmp_path, "part")["x"].tolist() == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 1


def separable(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features of five kinds, each around a place of its own."""
    kinds = torch.arange(count) % 5
    noise = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    return 3 * torch.eye(5, 16)[kinds] + 0.3 * noise, kinds


def test_the_probe_is_right_on_what_it_has_not_seen():
    probe = Probe(*separable(100, seed=0))
    features, kinds = separable(50, seed=1)
    assert probe(features).argmax(-1).equal(kinds)
    assert probe(features).sum(-1).tolist() == pytest.approx([1] * 50)


def test_a_photo_of_something_else_is_found():
    features, kinds = separable(100, seed=0)
    assert cross_validated(features, kinds).min() > 0.5
    kinds[7] = 0  # it is a 2
    own = cross_validated(features, kinds)
    assert own[7] < prepare.LEAST_LIKELY
    assert own[torch.arange(100) != 7].min() > 0.5


def test_the_only_photo_of_a_kind_is_no_obstacle():
    features, kinds = separable(40, seed=0)
    kinds = torch.where(kinds == 4, 3, kinds)
    kinds[4] = 4
    assert cross_validated(features, kinds)[4] < prepare.LEAST_LIKELY


def test_pictures_are_asked_for_plainly():
    assert evaluate.prompt_of(Entry("", "tulip", "red", "close-up", 0)) == "a photo of a red tulip, close-up"
    assert evaluate.prompt_of(Entry("", "rose", None, None, 0)) == "a photo of a rose"


def test_a_contact_sheet(flowers, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluate, "STEPS", 1)
    monkeypatch.setattr(evaluate, "BATCH", 2)
    made = evaluate.pictures(flowers, ["a rose"] * 3, range(3), 64, 96)
    assert (made.shape, made.dtype) == ((3, 3, 64, 96), torch.uint8)
    evaluate.contact_sheet([made, made[:1]], tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * 100, 2 * 68)
