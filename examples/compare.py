# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What attention costs, and what it need not
#
# A diffusion model draws by comparing every token of a picture with every other, at every step: that is attention. A
# token is a small square of the picture. This notebook shows what attention costs on this machine, what happens to a
# picture when most of the comparisons are left out, and why it matters *which* are left out.
#
# It runs offline, on `todome-flowers`, the small model that comes with todome. [Your own model](#Your-own-model) is
# an environment variable away.

# %%
import math
import os
import time
from functools import partial
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import todome_flowers
import torch
from diffusers import DiffusionPipeline
from diffusers.utils import logging as diffusers_log
from IPython.display import Markdown, display
from matplotlib.colors import ListedColormap
from PIL import ImageChops
from torch.nn import functional as F
from transformers.utils import logging as transformers_log

import todome

for log in (diffusers_log, transformers_log):
    log.set_verbosity_error()
    log.disable_progress_bar()

own = os.environ.get("TODOME_MODEL")  # None is the embedded model
prompt = os.environ.get("TODOME_PROMPT", "white daisies")
steps = int(os.environ.get("TODOME_STEPS", 25))
guidance = 7.5 if own else 3.0

device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
pipe: Any = DiffusionPipeline.from_pretrained(own or todome_flowers.path(), dtype=dtype).to(device)
pipe.set_progress_bar_config(disable=True)

side = pipe.unet.config.sample_size * pipe.vae_scale_factor
width, height = map(int, (os.environ.get("TODOME_SIZE", str(side)).split("x") * 2)[:2])
machine = torch.cuda.get_device_name() if device == "cuda" else f"a CPU with {torch.get_num_threads()} threads"
print(f"{own or 'todome-flowers'} on {machine}: {prompt!r}, {width}x{height} pixels, {steps} steps")

# %%
BLUE, LIGHT, YELLOW, GREY = "#0969da", "#54aeff", "#bf8700", "#57606a"
plt.rcParams.update({"figure.dpi": 90, "axes.spines.top": False, "axes.spines.right": False})
plt.rcParams.update({"axes.grid": True, "grid.color": "#d0d7de", "grid.linewidth": 0.6, "legend.frameon": False})

# %% [markdown]
# ## Why attention is the cost
#
# The UNet of Stable Diffusion 1.5 has one token for every 8 x 8 pixels at its finest level. Twice the side is four
# times the tokens and sixteen times the comparisons, while the rest of the model grows with the tokens alone. The
# last three columns are what `todome.apply(pipe)` does unless told otherwise: every token still asks, but only some
# are looked at (the keys), 1 in factor x factor. It takes the smallest whole factor that leaves at most 4,096 keys.

# %%
lines = ["| picture | tokens | comparisons | factor | keys | comparisons left |", "|---|---|---|---|---|---|"]
for pixels in (512, 768, 1024, 1536, 2048):
    tokens, factor = (pixels // 8) ** 2, math.ceil(pixels / 8 / 64)
    keys = tokens // factor**2
    lines.append(f"| {pixels} px | {tokens:,} | {tokens**2:,} | {factor} | {keys:,} | {keys / tokens:.0%} |")
display(Markdown("\n".join(lines)))

# %% [markdown]
# How much of a step is that? `todome.explain` measures it on the model at hand: it times a step with full attention
# (*dense*), reduced, and with next to no keys at each level. The time that is left then is what no reduction of keys
# can save.

# %%
explanation = todome.explain(pipe, height, width, todome.Downsample(2), name=own or "todome-flowers")
print(explanation)

# %% [markdown]
# Attention alone, on this machine, with 8 heads of 40 channels, as SD 1.5 has at its finest level. Both axes are
# logarithmic: a line of slope 2 is work that grows with the square of the tokens. A factor does not bend the line, it
# moves it down.


# %%
def milliseconds(call: Any) -> float:
    """The median of some calls, after one that is not timed."""
    times = []
    for _ in range(8):
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
    return float(np.median(times[1:]))


def attention_ms(tokens: int, keys: int) -> float:
    """How long so many tokens take to attend to so many keys."""
    queries = torch.randn(1, 8, tokens, 40, device=device, dtype=dtype)
    kept = queries[:, :, :keys].contiguous()
    return milliseconds(partial(F.scaled_dot_product_attention, queries, kept, kept))


rows, columns = explanation.levels[0].grid
numbers = [int(min(rows, columns) * times) ** 2 for times in (0.25, 0.5, 1, 1.5, 2)]
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for factor, name, colour in ((1, "all keys", GREY), (2, "1 key in 4", BLUE), (4, "1 key in 16", LIGHT)):
    axes.plot(numbers, [attention_ms(n, n // factor**2) for n in numbers], "o-", color=colour, label=name)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=f"milliseconds on {machine}")
axes.set_xticks(numbers, [f"{n:,}" for n in numbers], minor=False)
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## One picture, four ways
#
# The same noise, the same steps, the same model:
#
# - **dense**: every token attends to every other;
# - **ToMe** ([arXiv 2303.17604](https://arxiv.org/abs/2303.17604)) averages similar tokens before attention and copies
#   the result to all of them, so that some tokens no longer ask for themselves;
# - **ToDo** ([arXiv 2402.13573](https://arxiv.org/abs/2402.13573)) lets every token ask, and look at the same corner
#   of each 2 x 2 tokens at every step;
# - **todome** looks at a different quarter of the picture at every step.
#
# PSNR says how close a picture is to the dense one: 6 dB more is half the difference, and above 45 dB there is no
# visible difference.


# %%
class Drawn(NamedTuple):
    """A picture, how long it took, and what was reduced."""

    picture: Any
    seconds: float
    reduced: str


def draw(reduction: Any) -> Drawn:
    """The picture of these settings with a reduction, or dense."""
    patch = todome.apply(pipe, reduction) if reduction else None
    asked = {"width": width, "height": height, "num_inference_steps": steps, "guidance_scale": guidance}
    began = time.perf_counter()
    picture = pipe(prompt, **asked, generator=torch.Generator().manual_seed(3)).images[0]
    seconds = time.perf_counter() - began
    todome.remove(pipe)
    return Drawn(picture, seconds, str(patch or "dense"))


def psnr(picture: Any, reference: Any) -> float:
    """In dB."""
    difference = np.asarray(picture).astype(float) - np.asarray(reference)
    return 10 * math.log10(255**2 / max(1e-6, np.mean(difference**2)))


draw(None)  # the first picture on a machine is slow whatever it is
methods = {
    "dense": None,
    "ToMe": todome.Merge(0.5),
    "ToDo": todome.Downsample(2, phase="fixed"),
    "todome": todome.Downsample(2),
}
made = {reduction: draw(reduction) for reduction in methods.values()}
dense = made[None]

lines = ["| method | seconds | speed-up | PSNR to dense |", "|---|---|---|---|"]
for name, reduction in methods.items():
    one = made[reduction]
    close = f"{psnr(one.picture, dense.picture):.1f} dB" if reduction else ""
    lines.append(f"| {name} | {one.seconds:.1f} | {dense.seconds / one.seconds:.2f}x | {close} |")
display(Markdown("\n".join(lines)))

# %% [markdown]
# The pictures, and below them where they differ from the dense one, 8 times as bright.

# %%
figure, panels = plt.subplots(2, 4, figsize=(10, 5.3), layout="constrained")
for (name, reduction), above, below in zip(methods.items(), *panels, strict=True):
    picture = made[reduction].picture
    above.imshow(picture)
    above.set_title(name)
    if reduction:
        below.imshow(ImageChops.difference(picture, dense.picture).point(lambda value: min(255, 8 * value)))
for panel in panels.flat:
    panel.axis("off")
plt.show()

# %% [markdown]
# ## What each step sees
#
# Blue is what a corner of 8 x 8 tokens offers as keys at factor 2. ToDo looks at the same quarter of the picture at
# every step; tokens it skips are skipped in every step, so the error accumulates. Dithered, every cell of 2 x 2 goes
# through its four tokens in an order of its own: each step is wrong too, but each in another way.
#
# To see it, we watch the first attention layer: which of its tokens arrive where keys are computed.


# %%
def watch(reduction: Any, steps: int) -> list[set[int]]:
    """The numbers of the tokens that are keys in each step, in the first attention layer."""
    layer = next(module for name, module in pipe.unet.named_modules() if name.endswith("attn1"))
    everything: list[Any] = []
    seen: list[set[int]] = []

    def remember(module: Any, args: Any) -> None:
        everything.append(args[0][0].float().cpu().numpy())  # (tokens, channels)

    def compare(module: Any, args: Any) -> None:
        number = {token.tobytes(): i for i, token in enumerate(everything[-1])}
        seen.append({number[token.tobytes()] for token in args[0][0].float().cpu().numpy()})

    with todome.apply(pipe, reduction):
        hooks = [layer.register_forward_pre_hook(remember), layer.to_k.register_forward_pre_hook(compare)]
        asked = {"width": width, "height": height, "num_inference_steps": steps, "output_type": "latent"}
        pipe(prompt, **asked, generator=torch.Generator().manual_seed(3))
        for hook in hooks:
            hook.remove()
    return seen[:steps]


figure, panels = plt.subplots(2, 4, figsize=(7.5, 4), layout="constrained")
for row, name in zip(panels, ("ToDo", "todome"), strict=True):
    for step, (panel, keys) in enumerate(zip(row, watch(methods[name], 4), strict=True)):
        corner = [[i * columns + j in keys for j in range(8)] for i in range(8)]
        panel.pcolormesh(corner, cmap=ListedColormap(["#eaeef2", BLUE]), edgecolors="white", linewidth=1)
        panel.set(title=f"{name}, step {step + 1}", aspect="equal", xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.invert_yaxis()
plt.show()

# %% [markdown]
# How much of the picture has been looked at, at least once? Dithering has seen everything after factor x factor
# steps. Random choices get there late.

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
reductions = {
    "todome, factor 2": (todome.Downsample(2), BLUE, "o-"),
    "todome, factor 4": (todome.Downsample(4), LIGHT, "o-"),
    "random, factor 2": (todome.Downsample(2, phase="random"), GREY, "d-"),
    "ToDo, factor 2": (todome.Downsample(2, phase="fixed"), YELLOW, "s-"),
}
for name, (reduction, colour, marks) in reductions.items():
    keys = watch(reduction, 18)
    shares = [100 * len(set.union(*keys[: step + 1])) / (rows * columns) for step in range(18)]
    axes.plot(range(1, 19), shares, marks, color=colour, markersize=4, label=name)
axes.set(xlabel="steps", ylabel="tokens looked at, %", ylim=(0, 105), xticks=range(2, 19, 2))
axes.legend(loc="center right", bbox_to_anchor=(1, 0.45))
plt.show()

# %% [markdown]
# ## How much is too much
#
# A larger factor looks at fewer tokens at a time: 1 in 4, 9, 16, 64. At factor 8 a run of 25 steps is over before
# every token has been looked at once. The time falls quickly at first and then hardly at all, because attention is no
# longer what takes it.
#
# This is one picture. [docs/quality.md](../docs/quality.md) has the mean and the worst of 200.


# %%
def picture_with(reduction: Any) -> Drawn:
    """Each is drawn once."""
    if reduction not in made:
        made[reduction] = draw(reduction)
        print(f"{reduction}: {made[reduction].seconds:.1f} s")
    return made[reduction]


def closeness(reduction: Any) -> float:
    return psnr(picture_with(reduction).picture, dense.picture)


factors = (2, 3, 4, 8)
curves = {
    "todome": ([todome.Downsample(factor) for factor in factors], BLUE, "o-"),
    "ToDo": ([todome.Downsample(factor, phase="fixed") for factor in factors], YELLOW, "s-"),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, (reductions, colour, marks) in curves.items():
    left.plot(factors, [closeness(reduction) for reduction in reductions], marks, color=colour, label=name)
    right.plot(factors, [picture_with(reduction).seconds for reduction in reductions], marks, color=colour, label=name)
right.axhline(dense.seconds, color=GREY, linestyle="--", label="dense")
left.set(xlabel="factor", ylabel="PSNR to the dense picture, dB", xticks=factors)
left.legend()
right.set(xlabel="factor", ylabel="seconds for the picture", xticks=factors, ylim=(0, None))
right.legend()
plt.show()

# %% [markdown]
# ## When to reduce
#
# A reduction need not be on all the time: `Downsample(2, stop=0.8)` draws the last fifth of the steps with full
# attention, `start=0.2` the first. The gain shrinks in proportion. What does the picture win? Over 200 pictures of the
# embedded model, `stop=0.8` is worth 2.1 dB ([docs/quality.md](../docs/quality.md)).

# %%
shares = (0.4, 0.6, 0.8, 1.0)
windows = {
    "todome, dense at the end": ([todome.Downsample(2, stop=share) for share in shares], BLUE, "o-"),
    "todome, dense at the start": ([todome.Downsample(2, start=round(1 - share, 1)) for share in shares], LIGHT, "o--"),
    "ToDo, dense at the end": ([todome.Downsample(2, phase="fixed", stop=share) for share in shares], YELLOW, "s-"),
}
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, (reductions, colour, marks) in windows.items():
    axes.plot(shares, [closeness(reduction) for reduction in reductions], marks, color=colour, label=name)
axes.set(xlabel="share of the steps that are reduced", xticks=shares, ylabel="PSNR to the dense picture, dB")
axes.legend()
plt.show()

# %% [markdown]
# ## Your own model
#
# Everything above runs on any text-to-image pipeline of diffusers with a UNet. Name a folder or an id on the Hugging
# Face hub before the notebook starts:
#
# ```
# TODOME_MODEL=stable-diffusion-v1-5/stable-diffusion-v1-5 TODOME_SIZE=1024 TODOME_PROMPT="a lighthouse at dusk" \
#     jupyter execute --output=mine compare.ipynb
# ```
#
# `TODOME_STEPS` sets the number of steps. In your own code it is one line:
#
# ```python
# todome.apply(pipe)  # or todome.apply(pipe, todome.Downsample(factor=2, stop=0.8))
# ```
#
# More: [how it works](../docs/how-it-works.md), [speed](../docs/speed.md), [quality](../docs/quality.md), and
# [measuring](../docs/measuring.md), which does all this over many pictures and writes a report.
