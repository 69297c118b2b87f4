"""An evaluation in a folder, drawn in a moment: gradients, and the same with more or less noise."""

from pathlib import Path

import numpy as np
from PIL import Image

from todome.tools.measuring.runs import Closeness, Evaluation, EvaluationPlan, EvaluationRow, save_results
from todome.tools.pipelines import Size

SCRIPT = "a <script>alert('rose')</script> & more"
NOISE = {"dense": 0, "todome:2": 2, "dense:20": 4, "todo:2": 8, "tome:0.5": 24}  # the closest to dense first
SPEED = {"dense": 1.0, "todome:2": 1.24, "dense:20": 1.26, "todo:2": 1.23, "tome:0.5": 1.1}
SIZES = ((48, 32), (64, 64))
PICTURES = 5


def small_run(folder: Path) -> Evaluation:
    """Finished: every method at two sizes. Picture 3 is the worst of each method, then 1, 4, 0, 2."""
    plan = EvaluationPlan(
        [SCRIPT, "tulips"], tuple(NOISE), model="some/flowers", sizes=SIZES, pictures=PICTURES, seed=70
    )
    rows = [row(size, method) for size in SIZES for method in NOISE]
    run = Evaluation(plan, {"gpu": "A GPU", "versions": {"todome": "0.1.0", "torch": "2"}}, rows, folder)
    for one in rows:
        for i in range(PICTURES):
            path = run.picture(one.size, one.method, i)
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn(one.size, NOISE[one.method], i).save(path)
    save_results(run)
    return run


def row(size: Size, method: str) -> EvaluationRow:
    psnr = [50 - NOISE[method] - loss for loss in (2, 6, 1, 15.5, 4)]
    lpips = [NOISE[method] * (i + 1) / 1000 for i in range(PICTURES)]
    detail = [1 + NOISE[method] / 100] * PICTURES
    closeness = Closeness() if method == "dense" else Closeness(psnr=psnr, lpips=lpips, detail=detail)
    steps = 20 if method == "dense:20" else 25
    return EvaluationRow(size, method, PICTURES, steps, 2 / SPEED[method], SPEED[method], closeness=closeness)


def drawn(size: Size, noise: int, i: int) -> Image.Image:
    width, height = size
    across, down = np.meshgrid(np.linspace(40, 200, width), np.linspace(40, 200, height))
    picture = np.stack([across, down, np.full_like(across, 40 * i)], axis=-1)
    picture += noise * np.random.default_rng(i).standard_normal(picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))
