"""What cannot be trained is refused before any work is done, in a sentence."""

import pytest
from diffusers import DDPMScheduler

from todome.tools.pipelines import open_pipeline

WHOLE = "a whole number of at least 1. The usual one is"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 0}, f"steps=0 cannot be used. Allowed: {WHOLE} 1000."),
        ({"batch": -1}, f"batch=-1 cannot be used. Allowed: {WHOLE} 1."),
        ({"rank": 2.5}, f"rank=2.5 cannot be used. Allowed: {WHOLE} 16."),
        ({"accumulate": True}, f"accumulate=True cannot be used. Allowed: {WHOLE} 1."),
        ({"size": 0}, f"size=0 cannot be used. Allowed: {WHOLE} 512."),
        ({"seed": -1}, "seed=-1 cannot be used. Allowed: a whole number of at least 0. The usual one is 0."),
        (
            {"learning_rate": 0},
            "learning_rate=0 cannot be used. Allowed: a number above 0. The usual one is 1e-4.",
        ),
        ({"alpha": -2}, "alpha=-2 cannot be used. Allowed: a number above 0. The usual one is the rank."),
        (
            {"precision": "int8"},
            "precision='int8' cannot be used. Allowed: auto, no, fp16, bf16. \"auto\" is the best there is.",
        ),
    ],
    ids=str,
)
def test_recipes_that_cannot_be(recipe, says, changes, text):
    with says(ValueError, text):
        recipe(**changes)


def test_what_the_model_or_the_device_cannot_do(recipe, trainer, says):
    with says(
        ValueError,
        "Width 60 does not work: this model needs multiples of 8. Try 56 or 64.",
    ):
        trainer(recipe(size=60))
    with says(
        ValueError,
        "precision='fp16' cannot be used. Allowed: no or bf16 on a CPU. bf16 needs no scaling of the loss.",
    ):
        trainer(recipe(precision="fp16"))


def test_pipelines_that_cannot_be_trained(recipe, trainer, tiny, tmp_path, monkeypatch, says):
    pipe = open_pipeline(tiny, "cpu", "float32")
    monkeypatch.setattr("todome.tools.training.trainer.open_pipeline", lambda *_: pipe)
    pipe.scheduler = DDPMScheduler(prediction_type="sample")
    text = (
        f"model='{tiny}' cannot be used. Allowed: one that predicts epsilon or v_prediction. This one predicts sample."
    )
    with says(ValueError, text):
        trainer(recipe())
    pipe.__class__ = type("PixArtAlphaPipeline", (type(pipe),), {})
    allowed = "Allowed: a StableDiffusionPipeline or a StableDiffusionXLPipeline. This one is a PixArtAlphaPipeline."
    with says(ValueError, f"model='{tiny}' cannot be used. {allowed}"):
        trainer(recipe())
