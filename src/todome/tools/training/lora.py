"""`train`: a LoRA from a folder of pictures, with attention on fewer tokens.

    from todome import Downsample
    from todome.tools.training.lora import Recipe, train

    recipe = Recipe("photos", model="stable-diffusion-v1-5/stable-diffusion-v1-5", size=768,
                    reduction=Downsample(2, phase="random", stop=0.9))
    train(recipe, "photos.safetensors")

The kept keys are a function of the seed and the step: the same in all batches of a step, on all processes, after a
resume and where gradient checkpointing computes a block again. `accelerate launch` starts it on several processes.
"""

import math
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ...errors import invalid_value
from ..devices import explain_out_of_memory
from ..files import check_out
from ..pipelines import format_size
from .checkpoints import checkpoints_in, newest_state, save_checkpoint
from .dataset import read_examples
from .recipe import Recipe, check_at_least
from .samples import Samples
from .trainer import Trainer

__all__ = ["Interrupted", "Recipe", "Samples", "Trained", "train"]


class Interrupted(KeyboardInterrupt):
    """The training was asked to stop. Its last step is saved."""


class Trained(NamedTuple):
    """A LoRA, and how it went."""

    path: Path
    steps: int  # that were taken now
    seconds: float
    loss: float  # of the last step
    is_main: bool  # whether this is the process that speaks for all


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    save_every: int = 250,
    keep: int = 2,
    samples: Samples | None = None,
    cpu: bool = False,
) -> Trained:
    """Trains a LoRA and writes it to a file that `pipe.load_lora_weights` reads.

    Args:
        recipe: What is wanted.
        out: The file, NAME.safetensors. Checkpoints and samples go to the folder NAME-run beside it.
        resume: Go on from the newest checkpoint there; from the beginning where there is none.
        force: Start over and overwrite what is there.
        save_every: Number of steps from checkpoint to checkpoint.
        keep: Number of checkpoints to keep.
        samples: Pictures to draw on the way.
        cpu: Leave a GPU alone.
    """
    from accelerate import Accelerator

    out, samples = Path(out), samples or Samples()
    check_at_least("save_every", save_every, 1, 250)
    check_at_least("keep", keep, 1, 2)
    run = check_place(out, resume, force)
    examples = read_examples(recipe.data, recipe.caption)
    accelerator = Accelerator(cpu=cpu, mixed_precision="no")  # the trainer casts by itself
    remedy = "Lower the batch or the size, use checkpointing, or a larger factor"
    state = newest_state(run / "checkpoints") if resume else None
    with explain_out_of_memory(f"this training on {accelerator.device}", remedy):
        trainer = Trainer(recipe, examples, accelerator, state)
        begin(trainer, run, resume, force)
        trained = take_all_steps(trainer, run, save_every, keep, samples)
    if accelerator.is_main_process:
        trainer.write(out)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return trained._replace(path=out)


def check_place(out: Path, resume: bool, force: bool) -> Path:
    """The folder of the run. Refuses to begin where something would be lost."""
    check_out(out, ending=".safetensors", force=force or resume)
    run = out.with_name(f"{out.stem}-run")
    begun = [*(run / "samples").glob("*.png"), *checkpoints_in(run / "checkpoints")]
    if begun and not (resume or force):
        remedy = f"{begun[-1]} is there: go on with --resume, or start over with --force"
        raise invalid_value("out", str(out), "a file whose training has not begun", remedy, FileExistsError)
    return run


def begin(trainer: Trainer, run: Path, resume: bool, force: bool) -> None:
    """Says what will be done; by force, that takes the place of the run that was there."""
    say, checkpoints = printer(trainer), run / "checkpoints"
    sizes = ", ".join(f"{count} of {format_size(size)}" for size, count in sorted(trainer.sizes.items()))
    say(f"Pictures: {len(trainer.fingerprints)}. Buckets: {sizes} pixels.")
    if trainer.step:
        say(f"Going on after step {trainer.step} of {trainer.recipe.steps}.")
    elif resume:
        say(f"There is no checkpoint in {checkpoints}: beginning at the first step.")
    if force and not resume and trainer.accelerator.is_main_process:
        for folder in (checkpoints, run / "samples"):
            shutil.rmtree(folder, ignore_errors=True)


def printer(trainer: Trainer) -> Any:
    """Function that prints a line above the progress bar, in one of the processes."""
    return tqdm.write if trainer.accelerator.is_main_process else lambda _: None


def take_all_steps(trainer: Trainer, run: Path, save_every: int, keep: int, samples: Samples) -> Trained:
    """Takes the steps that are left, with checkpoints and samples on the way."""
    began, first, steps, loss = time.perf_counter(), trainer.step, trainer.recipe.steps, float("nan")
    say, main = printer(trainer), trainer.accelerator.is_main_process
    bar = tqdm(total=steps, desc="training", unit="step", initial=first, disable=None if main else True)
    with bar, catch_stop_signals(trainer.accelerator) as asked_to_stop:
        while trainer.step < steps:
            loss = check_loss(float(trainer.take_step()), trainer)
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update()
            stop, last = asked_to_stop(), trainer.step == steps
            if stop or last or trainer.step % save_every == 0:
                path = save(trainer, run, keep)
                say(f"Step {trainer.step} of {steps}: loss {loss:.4f}, saved in {path}")
            if stop and not last:
                raise Interrupted(f"step {trainer.step} of {steps}")
            if samples.prompts and (last or trainer.step % samples.every == 0):
                trainer.draw(samples, run / "samples")
    seconds = time.perf_counter() - began
    return Trained(run, trainer.step - first, seconds, loss, main)


def check_loss(loss: float, trainer: Trainer) -> float:
    """Refuses to go on, and to save, where learning has failed: older checkpoints are worth more."""
    if not math.isfinite(loss):
        allowed = "a rate at which the loss stays a number"
        remedy = f"It is {loss} in step {trainer.step}: lower the rate, or use another precision than fp16"
        raise invalid_value("learning_rate", trainer.recipe.learning_rate, allowed, remedy)
    return loss


def save(trainer: Trainer, run: Path, keep: int) -> Path:
    """One process saves, and all wait for it: where one ended before, the launcher would end the others."""
    folder = run / "checkpoints"
    if trainer.accelerator.is_main_process:
        save_checkpoint(folder, trainer.step, trainer.state(), trainer.write, keep)
    trainer.accelerator.wait_for_everyone()
    return folder / f"{trainer.step:06d}"


@contextmanager
def catch_stop_signals(accelerator: Any) -> Iterator[Any]:
    """Function that says whether any process was asked to stop by SIGINT or SIGTERM since.

    A second signal acts as it always does.
    """
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(*_: Any) -> None:
        accelerator.set_trigger()
        restore()

    for number in signals:
        signal.signal(number, ask)
    try:
        yield accelerator.check_trigger
    finally:
        restore()
