"""Trains a LoRA on a folder of pictures, with todome in the UNet while it learns.

    python train_lora.py photos --out my-lora --size 128 --batch 4 --steps 150 --learning-rate 2e-3
    accelerate launch --mixed_precision bf16 train_lora.py photos --out my-lora --size 768 \\
        --model stable-diffusion-v1-5/stable-diffusion-v1-5                      on a GPU, or on several

`photos` holds pictures, which are cropped to squares, and a caption for each: tulip.txt beside tulip.png. Without
--model the small model of todome-flowers learns, in minutes on two CPU cores; others are Stable Diffusion 1.x, 2.x, XL.
Ctrl+C saves and ends; the same command with --resume goes on, to the very weights it would have had otherwise.

With factor 2 a step of SD 1.5 on an H200 is 1.21x as fast at 768 px, 1.37x at 1024, of SDXL 1.05x (docs/training.md).
On small pictures it gains no time, but makes LoRAs a little better for drawing with todome. --factor 1 is without it.
"""

import argparse
import json
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import todome_flowers
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, DiffusionPipeline, StableDiffusionPipeline, StableDiffusionXLPipeline
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion_img2img import retrieve_latents
from diffusers.training_utils import cast_training_params, offload_models
from diffusers.utils import load_image
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from PIL import ImageOps
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

import todome

ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
LORA, SETTINGS = "pytorch_lora_weights.safetensors", "settings.json"  # load_lora_weights looks for the first
FREE = ("photos", "out", "resume", "save_every", "checkpointing", "batch", "accumulate")  # a resume may change these


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="a folder of pictures, each with its caption in NAME.txt")
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for the LoRA and a checkpoint")
    parser.add_argument("--model", help="a folder or a hub id; without it, the model of todome-flowers")
    parser.add_argument("--caption", help="the caption of pictures that have none")
    parser.add_argument("--size", type=int, help="the side of the pictures; without it, the model's own")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1, help="pictures in a batch of each process")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of each process that make one step")
    parser.add_argument("--rank", type=int, default=16, help="how much the LoRA can hold")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--factor", type=float, default=2, help="attend to 1 token in factor x factor")
    parser.add_argument("--phase", default="random", help="random: another token in every step; fixed: as ToDo does")
    parser.add_argument("--stop", type=float, default=1.0, help="0.9: full attention in the last tenth of the steps")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing: less memory, more time")
    parser.add_argument("--save-every", type=int, default=250, help="steps from checkpoint to checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same LoRA")
    return parser.parse_args()


def read_captions(folder: Path, default: str | None) -> dict[Path, str]:
    """The pictures of a folder with their captions, in the order of their names."""
    if not folder.is_dir():
        sys.exit(f"There is no folder {folder}. Name one that holds pictures.")
    texts = {path: path.with_suffix(".txt") for path in sorted(folder.iterdir()) if path.suffix.lower() in ENDINGS}
    if not texts:
        sys.exit(f"{folder} holds no pictures: no files that end in {', '.join(ENDINGS)}.")
    bare = [text for text in texts.values() if not text.is_file()]
    if bare and default is None:
        sys.exit(f"{len(bare)} of {len(texts)} pictures have no caption. Write {bare[0]}, or use --caption for all.")
    return {path: (default or "") if text in bare else text.read_text().strip() for path, text in texts.items()}


def open_pipeline(model: str | None) -> Any:
    """A pipeline whose UNet can learn, in float32."""
    pipe = DiffusionPipeline.from_pretrained(model or todome_flowers.path())
    if not isinstance(pipe, (StableDiffusionPipeline, StableDiffusionXLPipeline)):
        sys.exit(f"{model} is a {type(pipe).__name__}. Name a Stable Diffusion 1.x, 2.x or XL.")
    return pipe


class Pictures(Dataset[dict[str, Tensor]]):
    """What is learnt from, in the order in which it is shown: encoded once, for only the UNet learns.

    Every place in it follows from the seed alone: after a resume too, and however many processes make a step.
    """

    @torch.no_grad()
    def __init__(self, pipe: Any, captions: dict[Path, str], args: argparse.Namespace, device: torch.device) -> None:
        self.pipe, self.args, self.device, self.captions = pipe, args, device, list(captions.values())
        self.side = args.size or pipe.unet.config.sample_size * pipe.vae_scale_factor
        encoders = [pipe.components.get(name) for name in ("vae", "text_encoder", "text_encoder_2")]
        with offload_models(*filter(None, encoders), device=device):
            self.latents = [self.encode(path) for path in tqdm(captions, "encoding", unit="picture", leave=False)]
            self.words = {caption: self.encode_words(caption) for caption in self.captions}

    def encode(self, path: Path) -> Tensor:
        """The middle of a picture, in the scale of the UNet: (channels, height, width)."""
        try:
            square = ImageOps.fit(load_image(str(path)), (self.side, self.side))
        except OSError:
            sys.exit(f"{path} cannot be opened as a picture. Repair it or remove it.")
        encoded = self.pipe.vae.encode(self.pipe.image_processor.preprocess(square).to(self.device))
        return retrieve_latents(encoded, sample_mode="argmax")[0].cpu() * self.pipe.vae.config.scaling_factor

    def encode_words(self, caption: str) -> dict[str, Tensor]:
        """What the UNet is given for a caption. SDXL is told sizes too, as if nothing had been cut off."""
        options = {"device": self.device, "num_images_per_prompt": 1, "do_classifier_free_guidance": False}
        text, _, *pooled = self.pipe.encode_prompt(caption, **options)
        sizes = torch.tensor([self.side, self.side, 0, 0, self.side, self.side], dtype=text.dtype)
        added = {"text_embeds": pooled[0][0].cpu(), "time_ids": sizes} if pooled else {}
        return {"text": text[0].cpu(), **added}

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        seed, count = self.args.seed, len(self.latents)
        number = random.Random(f"{seed}/{place // count}").sample(range(count), count)[place % count]  # of an epoch
        chance = torch.Generator().manual_seed(random.Random(f"{seed}/{place}").getrandbits(63))
        noise = torch.randn(self.latents[number].shape, generator=chance)
        time = torch.randint(self.pipe.scheduler.config.num_train_timesteps, (), generator=chance)
        return {"latents": self.latents[number], "noise": noise, "time": time, **self.words[self.captions[number]]}


def add_lora(unet: Any, args: argparse.Namespace, precision: str) -> None:
    """Freezes the UNet, and gives its attention the layers that learn, in float32."""
    unet.requires_grad_(False)
    if precision != "no":
        unet.to({"fp16": torch.float16, "bf16": torch.bfloat16}[precision])
    torch.manual_seed(args.seed)
    unet.add_adapter(LoraConfig(r=args.rank, lora_alpha=args.rank, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    cast_training_params(unet, torch.float32)
    if args.checkpointing:
        unet.enable_gradient_checkpointing()


def loss_of(model: Any, schedule: Any, latents: Tensor, noise: Tensor, time: Tensor, text: Tensor, **added: Any) -> Any:
    """The squared error of what the UNet predicts: the noise, or the velocity."""
    wanted = {"epsilon": noise, "v_prediction": schedule.get_velocity(latents, noise, time)}
    predicted = model(schedule.add_noise(latents, noise, time), time, text, added_cond_kwargs=added).sample
    return F.mse_loss(predicted.float(), wanted[schedule.config.prediction_type])


def keep_lora_alone(accelerator: Accelerator, pipe: Any) -> None:
    """Checkpoints hold the LoRA, in a file that can be tried, and not the whole UNet."""

    def save(models: list[Any], weights: list[Any], folder: str) -> None:
        if accelerator.is_main_process:
            pipe.save_lora_weights(folder, get_peft_model_state_dict(pipe.unet), weight_name=LORA)
        weights.clear()

    def load(models: list[Any], folder: str) -> None:
        saved = load_file(Path(folder, LORA))
        set_peft_model_state_dict(pipe.unet, {name.removeprefix("unet."): part for name, part in saved.items()})
        models.clear()

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)


def checkpoints_in(out: Path) -> list[Path]:
    return sorted(file.parent for file in out.glob(f"step-*/{SETTINGS}"))


def find_checkpoint(args: argparse.Namespace, settings: dict[str, Any]) -> Path | None:
    """What to go on from. Refuses to begin where something is, and to go on with other settings."""
    if not args.resume and args.out.exists() and any(args.out.iterdir()):
        sys.exit(f"{args.out} is not empty. Go on with the training in it by --resume, or name another folder.")
    for checkpoint in checkpoints_in(args.out)[-1:]:
        before = json.loads((checkpoint / SETTINGS).read_text())
        if changed := [name for name, value in settings.items() if before[name] != value]:
            sys.exit(f"{checkpoint} has other {', '.join(changed)}. Give those it began with, or name another folder.")
        return checkpoint
    return None


def save_checkpoint(accelerator: Accelerator, out: Path, step: int, settings: dict[str, Any]) -> None:
    """A checkpoint gets its name when it is whole, and only then those before it go."""
    older, unfinished = checkpoints_in(out), out / "unfinished"
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (unfinished / SETTINGS).write_text(json.dumps(settings))
        unfinished.rename(out / f"step-{step:07}")
        for checkpoint in older:
            shutil.rmtree(checkpoint)


def main() -> None:
    args = read_options()
    captions = read_captions(args.photos, args.caption)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate)
    in_step = args.batch * args.accumulate * accelerator.num_processes
    settings = {name: value for name, value in vars(args).items() if name not in FREE}
    settings |= {"precision": accelerator.mixed_precision, "pictures in a step": in_step}
    settings["captions"] = {path.name: text for path, text in captions.items()}
    checkpoint = find_checkpoint(args, settings)
    step = int(checkpoint.name.removeprefix("step-")) if checkpoint else 0
    args.out.mkdir(parents=True, exist_ok=True)

    pipe = open_pipeline(args.model)
    schedule = DDPMScheduler.from_config(pipe.scheduler.config)
    pictures = Pictures(pipe, captions, args, accelerator.device)
    add_lora(pipe.unet, args, accelerator.mixed_precision)
    patch = todome.apply(pipe.unet, todome.Downsample(args.factor, phase=args.phase, stop=args.stop, seed=args.seed))
    optimiser = torch.optim.AdamW(filter(lambda w: w.requires_grad, pipe.unet.parameters()), lr=args.learning_rate)
    shown = DataLoader(pictures, args.batch, sampler=range(step * in_step, args.steps * in_step))
    model, optimiser, shown = accelerator.prepare(pipe.unet, optimiser, shown)
    keep_lora_alone(accelerator, pipe)
    if checkpoint:
        accelerator.load_state(str(checkpoint))

    signal.signal(signal.SIGINT, lambda *_: accelerator.set_trigger())
    bar = tqdm(total=args.steps, initial=step, desc="training", unit="step", disable=not accelerator.is_main_process)
    for batch in shown:
        patch.at(step, args.steps)  # which tokens are kept follows from the seed and the step
        with accelerator.accumulate(model):
            loss = loss_of(model, schedule, **batch)
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
        if not accelerator.sync_gradients:
            continue
        if not loss.isfinite():
            sys.exit(f"The loss is {loss.item()} in step {step + 1}. Use a lower --learning-rate, or not fp16.")
        step += 1
        bar.set_postfix(loss=f"{loss.item():.4f}", refresh=False)
        bar.update()
        stop = accelerator.check_trigger()
        if stop or step == args.steps or step % args.save_every == 0:
            save_checkpoint(accelerator, args.out, step, settings)
        if stop:
            break
    bar.close()
    if step < args.steps:
        accelerator.print(f"Interrupted after step {step}, which is saved: the same command with --resume goes on.")
        sys.exit(130)
    if accelerator.is_main_process:
        shutil.copyfile(checkpoints_in(args.out)[-1] / LORA, args.out / "unfinished").replace(args.out / LORA)
    accelerator.print(f"{args.out / LORA}: rank {args.rank}, {args.steps} steps, {patch.levers[0]}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
