"""The command and the snippet of a picture are run, and the picture is the same."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_page import LIMITS, OFFER, SMALL
from typer.testing import CliRunner

from todome import Plan
from todome.plan import PlannedLayer
from todome.tools.app.limits import Limits
from todome.tools.app.models import Models
from todome.tools.app.reproduce import command, settings_to_repeat, snippet
from todome.tools.app.store import PictureStore
from todome.tools.app.worker import DrawWorker, Finished, Visitor
from todome.tools.commands import app
from todome.tools.generate import Settings

FORMS = {
    "much": SMALL._replace(
        prompt="-o 'a' \"tulip\"\n$HOME \\ ünïcode",
        negative="--grey",
        method="ToDo",
        factor=1.5,
        factor2=2,
        start=0.25,
        stop=0.75,
        scheduler="dpm++-sde",
        guidance=2.5,
    ),
    "merged": SMALL._replace(method="ToMe", ratio=0.25),
    "stride": SMALL._replace(method="ToMe", ratio=0.8, stride="3"),
    "dense": SMALL._replace(prompt="", method="dense"),
}


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


@pytest.mark.parametrize("name", FORMS)
def test_recipes_make_the_picture_again(name, flowers, tmp_path, monkeypatch):
    form = FORMS[name]
    base = Settings(device="cpu", dtype="float32")
    order = form.order(Limits(**LIMITS), base, OFFER)
    worker, store = DrawWorker(Models(base, flowers), waiting=1, per_address=1), PictureStore(tmp_path, 10**6)

    def save(drawings, check_stop):
        return store.save_run(form, order, 1, [(one, 1) for one in drawings], check_stop)

    *_, end = worker.draw(Visitor("a"), order, save)
    worker.close()
    assert isinstance(end, Finished)
    run = end.result
    settings, file = settings_to_repeat(run.result), run.result.file
    monkeypatch.chdir(run.folder if name == "stride" else tmp_path)
    monkeypatch.setattr("todome.tools.pipelines.open_pipeline", lambda *_, **__: flowers)
    words = shlex.split(command(settings, file.name))
    result = CliRunner().invoke(app, words[1:], prog_name="todome")
    assert result.exit_code == 0, result.output
    again = Path(words[words.index("-o") + 1])
    assert (pixels(again) == pixels(file)).all()
    again.unlink()
    if name in ("much", "stride"):
        monkeypatch.chdir(tmp_path)
        exec(snippet(settings, file.name), {})
        assert (pixels(file.name) == pixels(file)).all()


def test_what_they_look_like():
    settings = SMALL._replace(method="ToDo", stop=0.8).settings(Limits(**LIMITS), Settings(device="cpu"), OFFER)
    options = "--size=64x64 --steps=2 --guidance=3.0 --seed=5 --factor=2 --phase=fixed --stop=0.8 --device=cpu"
    assert command(settings, "rose.png") == f"todome generate {options} -o rose.png -- 'a rose'"
    assert snippet(settings, "rose.png") == (
        "import diffusers\n"
        "import todome\n"
        "import todome_flowers\n"
        "import torch\n"
        "\n"
        'pipe = diffusers.DiffusionPipeline.from_pretrained(todome_flowers.path(), dtype=torch.float32).to("cpu")\n'
        "todome.apply(pipe, todome.Downsample(factor=2, phase='fixed', stop=0.8))\n"
        "picture = pipe(\n"
        '    "a rose",\n'
        "    width=64,\n"
        "    height=64,\n"
        "    num_inference_steps=2,\n"
        "    guidance_scale=3.0,\n"
        "    generator=torch.Generator().manual_seed(5),\n"
        ").images[0]\n"
        'picture.save("rose.png")\n'
    )


def test_a_plan_is_read_from_the_picture_or_from_its_file():
    plan = Plan({"up.1.0": PlannedLayer(2, 2, 64, (8, 8))})
    settings = Settings("a tulip", reduction=plan, device="cpu")
    assert command(settings, "a.png") == "todome generate --like a.png -o again-a.png"
    assert 'todome.apply(pipe, todome.Plan.load("plan.json"))' in snippet(settings, "a.png")
