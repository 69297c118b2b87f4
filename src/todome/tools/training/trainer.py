"""Trainer: the pipeline, its UNet with the layers that learn, the reduction and the optimiser of a training."""

import copy
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import invalid_value
from ...patch import apply, remove
from ..devices import check_bfloat16
from ..pipelines import check_size, open_pipeline, size_step
from ..quiet import quiet_loading
from ..schedulers import make_scheduler
from .buckets import batch_at, bucket_sizes, group_by_size, nearest_bucket
from .checkpoints import check_same
from .dataset import Example, fingerprints, first_change
from .latents import Batch, encode_pictures, join_batches
from .learning import DTYPES, PREDICTIONS, train_step
from .metadata import lora_metadata
from .recipe import Precision, Recipe
from .samples import Samples, draw_samples
from .weights import add_lora, trainable_parameters, write_lora

TRAINABLE = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")
FREE = ("data", "caption", "accumulate", "checkpointing", "compile")  # what may be another one after a resume


class Trainer:
    """A training after some of its steps. What follows is a function of the recipe, the data and `step` alone.

    Args:
        recipe: What is wanted.
        examples: The pictures to learn from.
        accelerator: `accelerate.Accelerator(mixed_precision="no")`: which process this is, and on which device.
        state: State of a checkpoint to go on from.
    """

    def __init__(
        self, recipe: Recipe, examples: Sequence[Example], accelerator: Any, state: Mapping[str, Any] | None = None
    ) -> None:
        self.accelerator, self.pipe, self.step = accelerator, open_trainable(recipe.model), 0
        self.recipe = complete_recipe(recipe, self.pipe, accelerator.device)
        self.schedule = make_scheduler("ddpm", self.pipe.scheduler.config)
        self.fingerprints = fingerprints(examples, recipe.data)
        if state:
            self.check(state)
        self.encode(examples)
        self.unet = self.learning_unet()
        self.patch = apply(self.unet, self.recipe.reduction) if self.recipe.reduction else None
        self.model = accelerator.prepare_model(self.compile(self.unet) if recipe.compile else self.unet)
        self.optimiser = torch.optim.AdamW(trainable_parameters(self.unet).values(), lr=recipe.learning_rate)
        self.scaler = torch.amp.GradScaler(accelerator.device.type, enabled=self.recipe.precision == "fp16")
        if state:
            self.load(state)

    def encode(self, examples: Sequence[Example]) -> None:
        """Every picture in its bucket, before the autoencoder is cast to the precision of the training."""
        mirrored = [example._replace(mirrored=True) for example in examples] if self.recipe.flip else []
        buckets = bucket_sizes(self.recipe.size or 0, size_step(self.pipe))
        sizes = [nearest_bucket(example.size, buckets) for example in (*examples, *mirrored)]
        self.sizes, self.buckets = Counter(sizes), group_by_size(sizes)
        self.pictures = encode_pictures(self.pipe, [*examples, *mirrored], sizes, self.accelerator)

    def learning_unet(self) -> Any:
        """The UNet with layers that learn. It stays in evaluation mode: dropout would draw from a global generator."""
        recipe = self.recipe
        with quiet_loading():
            unet = self.pipe.to(DTYPES[recipe.precision]).unet
        add_lora(unet, recipe.rank, recipe.alpha or recipe.rank, recipe.seed)
        if recipe.checkpointing:
            unet.enable_gradient_checkpointing()
        return unet

    def compile(self, unet: Any) -> Any:
        """A graph for each bucket, and another one where a window closes."""
        config, graphs = torch._dynamo.config, 2 * len(self.buckets)
        config.recompile_limit = max(config.recompile_limit, graphs)  # pyright: ignore[reportAttributeAccessIssue]
        return torch.compile(unet, dynamic=False)

    @property
    def batches_per_step(self) -> int:
        return self.recipe.accumulate * self.accelerator.num_processes

    def take_step(self) -> Tensor:
        """One step of the optimiser; its loss is the mean of all processes."""
        first, processes = self.step * self.batches_per_step, self.accelerator.num_processes
        own = range(first + self.accelerator.process_index, first + self.batches_per_step, processes)
        if self.patch:
            self.patch.at(self.step, self.recipe.steps)
        batches, how = [self.batch(number) for number in own], {"precision": self.recipe.precision}
        loss = train_step(self.model, self.schedule, self.optimiser, batches, scaler=self.scaler, **how)
        self.step += 1
        return self.accelerator.reduce(loss, reduction="mean")

    def batch(self, number: int) -> tuple[Batch, torch.Generator]:
        """A batch of all that will ever be, whichever process takes it, and the generator of its noise."""
        chosen = batch_at(number, self.buckets, self.recipe.batch, self.recipe.seed)
        seed = random.Random(f"{self.recipe.seed}/{number}").getrandbits(63)
        batch = join_batches([self.pictures[i] for i in chosen], self.accelerator.device)
        return batch, torch.Generator().manual_seed(seed)

    def draw(self, samples: Samples, folder: Path) -> None:
        """Samples, without the reduction of the training, which stays on the UNet and in its compiled graphs."""
        self.pipe.unet = dense_copy(self.unet)
        try:
            draw_samples(self.pipe, self.recipe, samples, self.step, folder, self.accelerator)
        finally:
            self.pipe.unet = self.unet

    def state(self) -> dict[str, Any]:
        """All that a checkpoint needs to hold."""
        weights = {name: weight.detach().cpu() for name, weight in trainable_parameters(self.unet).items()}
        parts = {"weights": weights, "optimiser": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}
        return {**parts, "settings": self.settings(), "data": self.fingerprints}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuses the state of another training, before any work is done."""
        check_same(state["settings"], self.settings())
        if change := first_change(state["data"], self.fingerprints):
            allowed = "the pictures and captions with which this training began"
            raise invalid_value(
                "data", str(self.recipe.data), allowed, f"{change}: undo it, or train into another file"
            )

    def load(self, state: Mapping[str, Any]) -> None:
        """Becomes the trainer that saved this state."""
        self.unet.load_state_dict(state["weights"], strict=False)
        self.optimiser.load_state_dict(state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])
        self.step = state["step"]

    def settings(self) -> dict[str, Any]:
        """What must stay the same. Processes and batches that are accumulated may take each other's place."""
        fixed = {name: value for name, value in asdict(self.recipe).items() if name not in FREE}
        return {**fixed, "reduction": repr(self.recipe.reduction), "accumulate x processes": self.batches_per_step}

    def write(self, path: Path) -> None:
        """The LoRA as a file. It names the model, but no folder of this machine."""
        recipe, pictures = self.recipe, len(self.fingerprints)
        names = ("rank", "alpha", "learning_rate", "steps", "batch", "size", "precision", "seed")
        chosen = {name: getattr(recipe, name) for name in names}
        model = Path(recipe.model).name if Path(recipe.model).exists() else recipe.model
        how = {"model": model, "step": self.step, "pictures": pictures, "batches_per_step": self.batches_per_step}
        write_lora(self.unet, path, lora_metadata(recipe.reduction, **how, **chosen))


def dense_copy(model: Any) -> Any:
    """Copy of a model without todome's hooks, whose parameters and buffers are those of the model itself."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    remove(copied)
    return copied


def open_trainable(model: str) -> Any:
    """A pipeline whose UNet can learn, on the CPU and in float32."""
    pipe = open_pipeline(model, "cpu", "float32")
    kind, prediction = type(pipe).__name__, pipe.scheduler.config.get("prediction_type")
    if kind not in TRAINABLE:
        raise invalid_value("model", model, f"a {' or a '.join(TRAINABLE)}", f"This one is a {kind}")
    if prediction not in PREDICTIONS:
        raise invalid_value(
            "model", model, f"one that predicts {' or '.join(PREDICTIONS)}", f"This one predicts {prediction}"
        )
    return pipe


def complete_recipe(recipe: Recipe, pipe: Any, device: torch.device) -> Recipe:
    """The recipe with what it leaves to the model and the device filled in."""
    side = recipe.size or pipe.unet.config.sample_size * pipe.vae_scale_factor
    check_size(pipe, (side, side))
    return replace(recipe, size=side, precision=usable_precision(recipe.precision, device))


def usable_precision(precision: Precision, device: torch.device) -> Precision:
    if precision == "fp16" and device.type == "cpu":
        raise invalid_value("precision", precision, "no or bf16 on a CPU", "bf16 needs no scaling of the loss")
    if precision == "bf16":
        check_bfloat16(device, "precision", precision, instead="no")
    if precision != "auto":
        return precision
    if device.type != "cuda":
        return "no"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
