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
# A diffusion model draws by comparing every token of a picture with every other, at every step. This notebook shows
# what that costs on this machine, what happens to a picture when most of the comparisons are left out, and why it
# matters *which* are left out.
#
# It runs offline, on `todome-flowers`, the small model that comes with todome. [Your own model](#Your-own-model) is
# an environment variable away.

# %%
import io
import os
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import torch
from IPython.display import Image, Markdown, display
from matplotlib.colors import ListedColormap
from torch.nn import functional as F

import todome
from todome import Downsample
from todome.reductions import AUTO_KEYS, Reduction
from todome.tokens.grid import kept_count, kept_rows, smallest_factor
from todome.tools.demo import as_sheet, as_table, compare
from todome.tools.generate import Generated, make_picture, recommended_settings
from todome.tools.machine import chip
from todome.tools.measuring.subjects import own_size
from todome.tools.metrics import psnr
from todome.tools.pictures import as_tensor
from todome.tools.pipelines import EMBEDDED, format_size, open_pipeline
from todome.tools.timing import measuring, milliseconds, spread

model = os.environ.get("TODOME_MODEL", EMBEDDED)
pipe = open_pipeline(model)
pipe.set_progress_bar_config(disable=True)
usual = recommended_settings(model)

prompt = os.environ.get("TODOME_PROMPT", "white daisies")
size = os.environ.get("TODOME_SIZE", format_size(usual.size or own_size(pipe)))
steps = int(os.environ.get("TODOME_STEPS", usual.steps or 25))

width, height = map(int, size.split("x"))
settings = replace(usual, prompt=prompt, size=(width, height), steps=steps, seed=3, reduction=None)
print(f"{model} on {chip(pipe.device)}: {prompt!r}, {size} pixels, {steps} steps")

# %%
BLUE, LIGHT, YELLOW, GREY = "#0969da", "#54aeff", "#bf8700", "#57606a"
plt.rcParams.update({"figure.dpi": 90, "axes.spines.top": False, "axes.spines.right": False})
plt.rcParams.update({"axes.grid": True, "grid.color": "#d0d7de", "grid.linewidth": 0.6, "legend.frameon": False})

# %% [markdown]
# ## Why attention is the cost
#
# The UNet of Stable Diffusion 1.5 has one token for every 8 x 8 pixels at its finest level. Twice the side is four
# times the tokens and sixteen times the comparisons, while the rest of the model grows with the tokens alone. The
# last three columns are what `todome.apply(pipe)` does unless told otherwise: it takes the smallest whole factor that
# leaves at most 4,096 keys.

# %%
lines = ["| picture | tokens | comparisons | factor | keys | comparisons left |", "|---|---|---|---|---|---|"]
for side in (512, 768, 1024, 1536, 2048):
    grid = (side // 8, side // 8)
    tokens, factor = grid[0] * grid[1], smallest_factor(grid, AUTO_KEYS)
    keys = kept_count(grid, factor, "dither")
    lines.append(f"| {side} px | {tokens:,} | {tokens**2:,} | {factor} | {keys:,} | {keys / tokens:.0%} |")
display(Markdown("\n".join(lines)))

# %% [markdown]
# How much of a step is that? `todome.explain` measures it on the model at hand: it times a step dense, reduced, and
# with next to no keys at each level. The time that is left then is what no reduction of keys can save.

# %%
explanation = todome.explain(pipe, height, width, Downsample(2), name=model)
print(explanation)

# %% [markdown]
# Attention alone, on this machine, with 8 heads of 40 channels, as SD 1.5 has at its finest level. Both axes are
# logarithmic: a line of slope 2 is work that grows with the square of the tokens. A factor does not bend the line, it
# moves it down.


# %%
def attention_ms(tokens: int, keys: int) -> float:
    """How long so many tokens take to attend to so many keys."""
    queries = torch.randn(1, 8, tokens, 40, device=pipe.device, dtype=pipe.dtype)
    kept = queries[:, :, :keys].contiguous()
    call = partial(F.scaled_dot_product_attention, queries, kept, kept)
    return spread(milliseconds(call, pipe.device, seconds=0.1)).median


grid = explanation.levels[0].grid
numbers = [int(min(grid) * times) ** 2 for times in (0.25, 0.5, 1, 1.5, 2)]
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
with measuring():
    for factor, name, colour in ((1, "all keys", GREY), (2, "1 key in 4", BLUE), (4, "1 key in 16", LIGHT)):
        axes.plot(numbers, [attention_ms(n, n // factor**2) for n in numbers], "o-", color=colour, label=name)
axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=f"milliseconds on {chip(pipe.device)}")
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
# - **ToMe** ([arXiv 2303.17604](https://arxiv.org/abs/2303.17604)) averages alike tokens before attention and copies
#   the result apart again, so that queries are lost too;
# - **ToDo** ([arXiv 2402.13573](https://arxiv.org/abs/2402.13573)) leaves every query in place and lets it see the
#   same corner of each 2 x 2 tokens at every step;
# - **todome** lets it see another one of the four at every step.
#
# PSNR says how close a picture is to the dense one; 6 dB more is half the difference.

# %%
results = compare(pipe, settings)
display(as_table(results))

# %%
sheet = io.BytesIO()
as_sheet(results).save(sheet, "JPEG", quality=85)
display(Image(sheet.getvalue()))

# %% [markdown]
# ## What each step sees
#
# Blue is what a query of an 8 x 8 grid can see at factor 2. ToDo keeps the same quarter of the picture for ever;
# three quarters are never anybody's key, and what that gets wrong adds up step by step. Dithered, every cell goes
# through its four members in an order of its own. Each step is wrong too, but each in another way.

# %%
todo, dithered, drawn = (Downsample(2, phase=phase) for phase in ("fixed", "dither", "random"))


def kept(reduction: Downsample, grid: tuple[int, ...], step: int) -> torch.Tensor:
    """The rows of a grid that are keys in this step, in a layer with seed 0."""
    return kept_rows(reduction.build_table(grid, reduction.levels(1)[1], seed=0), reduction.phase_index(step))


figure, panels = plt.subplots(2, 4, figsize=(7.5, 4), layout="constrained")
for row, (name, reduction) in zip(panels, {"ToDo": todo, "todome": dithered}.items(), strict=True):
    for step, panel in enumerate(row):
        keys = torch.zeros(64).index_fill(0, kept(reduction, (8, 8), step), 1).view(8, 8)
        panel.pcolormesh(keys, cmap=ListedColormap(["#eaeef2", BLUE]), edgecolors="white", linewidth=1)
        panel.set(title=f"{name}, step {step + 1}", aspect="equal", xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.invert_yaxis()
plt.show()

# %% [markdown]
# How much of the grid has been a key at least once, on the finest level of the model at hand? Dithering has shown
# everything after factor x factor steps. Random draws get there late.

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
seen = {
    "todome, factor 2": (dithered, BLUE, "o-"),
    "todome, factor 4": (Downsample(4), LIGHT, "o-"),
    "random, factor 2": (drawn, GREY, "d-"),
    "ToDo, factor 2": (todo, YELLOW, "s-"),
}
for name, (reduction, colour, marks) in seen.items():
    rows = [kept(reduction, grid, step) for step in range(18)]
    shares = [100 * len(torch.cat(rows[: step + 1]).unique()) / (grid[0] * grid[1]) for step in range(18)]
    axes.plot(range(1, 19), shares, marks, color=colour, markersize=4, label=name)
axes.set(xlabel="steps", ylabel="keys seen at least once, %", ylim=(0, 105), xticks=range(2, 19, 2))
axes.legend(loc="center right", bbox_to_anchor=(1, 0.45))
plt.show()

# %% [markdown]
# ## How much is too much
#
# A larger factor sees fewer keys at a time: 1 in 4, 9, 16, 64. At factor 8 a run of 25 steps is over before every key
# has been seen once. The time falls quickly at first and then hardly at all, because attention over keys is no longer
# what takes it.
#
# This is one picture. [docs/quality.md](../docs/quality.md) has the mean and the worst of 200.

# %%
made: dict[Reduction | None, Generated] = {result.made.settings.reduction: result.made for result in results}
dense = made[None]


def picture_with(reduction: Reduction) -> Generated:
    """The picture drawn with a reduction; each is drawn once."""
    if reduction not in made:
        made[reduction] = make_picture(replace(settings, reduction=reduction), pipe)
        print(f"{reduction}: {made[reduction].seconds:.1f} s")
    return made[reduction]


def closeness(reduction: Reduction) -> float:
    """PSNR to the dense picture, in dB."""
    return psnr(as_tensor(picture_with(reduction).picture), as_tensor(dense.picture)).item()


factors = (2, 3, 4, 8)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
methods = {
    "todome": ([Downsample(factor) for factor in factors], BLUE, "o-"),
    "ToDo": ([Downsample(factor, phase="fixed") for factor in factors], YELLOW, "s-"),
}
for name, (reductions, colour, marks) in methods.items():
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
# A reduction need not be on all the time: `Downsample(2, stop=0.8)` draws the last fifth of the steps dense,
# `start=0.2` the first. The gain shrinks in proportion. What does the picture win? Over 200 pictures of the embedded
# model, `stop=0.8` is worth 2.7 dB ([docs/quality.md](../docs/quality.md)).

# %%
shares = (0.4, 0.6, 0.8, 1.0)
windows = {
    "todome, dense at the end": ([Downsample(2, stop=share) for share in shares], BLUE, "o-"),
    "todome, dense at the start": ([Downsample(2, start=round(1 - share, 1)) for share in shares], LIGHT, "o--"),
    "ToDo, dense at the end": ([Downsample(2, phase="fixed", stop=share) for share in shares], YELLOW, "s-"),
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
# Everything above runs on any text-to-image pipeline of diffusers whose attention todome can reduce. Name a folder or
# an id on the Hugging Face hub before the notebook starts:
#
# ```
# TODOME_MODEL=stable-diffusion-v1-5/stable-diffusion-v1-5 TODOME_SIZE=1024x1024 TODOME_PROMPT="a lighthouse at dusk" \
#     jupyter execute --output=mine examples/compare.ipynb
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
