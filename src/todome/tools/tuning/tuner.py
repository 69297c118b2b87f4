"""`todome.tune`: the plan that reaches a goal on one model, at one size, on this machine.

    plan = todome.tune(pipe, height=512, width=512, keep=45, prompts=["a harbour", "a fox", "a street", "a bowl"])
    plan.save("plan.json")
    todome.apply(pipe, plan)

With `out` the same call goes on where it was interrupted.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...errors import invalid_value
from ...hooks.attaching import unwrapped
from ...levers.downsample import Downsample
from ...levers.plan import Plan
from ...patch import apply, is_compiled
from ..engines import Engine
from ..files import check_out_folder
from ..machine import about, chip
from ..measuring.attention_costs import reduced_levels
from ..measuring.drawing import PictureMaker
from ..measuring.evaluation import check_parts, name_of, plan_for
from ..measuring.explanation import NOISY
from ..measuring.runs import EvaluationPlan
from ..measuring.subjects import denoiser_call
from ..pipelines import EMBEDDED, check_size, denoiser, format_size, open_pipeline, weights_of
from ..suspending import suspended
from ..timing import measuring
from .drawings import Control, Drawings, closeness, decibels, draw_control
from .goal import Goal
from .layer_times import FACTORS, LayerTimes, layer_times, time_levels, time_plan
from .layers import TunedLayers, fingerprint, tuned_layers
from .options import Options
from .progress import Progress
from .records import Records
from .search import Search, Trial
from .sensitivity import Sensitivity, measure_probes, probes

LEAST_GAIN = 1.03  # times as fast, below which there is nothing to gain
BESIDE = 4  # drawings that are none of the search's: dense, fewer steps, and other pictures dense and with the plan
ALIKE = " There was no time to measure single layers, so those of a level are alike: allow more minutes."


def tune(
    model: Any = EMBEDDED,
    prompts: Sequence[str] | None = None,
    *,
    height: int | None = None,
    width: int | None = None,
    keep: float | None = None,
    faster: float | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    scheduler: str | None = None,
    calibration: int = 3,
    held_out: int = 8,
    batch: int = 1,
    seed: int = 0,
    minutes: float | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    loras: Sequence[str] = (),
    vae: str | None = None,
    engine: Engine | None = None,
    progress: bool = False,
    options: Options = Options(),  # noqa: B008
) -> Plan:
    """Finds the fastest plan that stays close to dense (full attention), or the closest one that is so fast.

    It measures what each layer's attention costs here and what reducing it changes, chooses a factor for each, draws
    the choice on prompts that were not used for it, and chooses again until it keeps the budget there.

    Args: Important
        model: The folder of a pipeline, a .safetensors checkpoint, a hub id, or a pipeline that is open, which is left
            as it was.
        prompts: What to draw, as users of the model would: at least two, better ten or more. Those that layers are
            measured with are not those that plans are measured with. The embedded model has its own.
        height: Of the pictures, in pixels.
        width: Of the pictures, in pixels.
        keep: dB to dense that the mean error must keep: from 45 no difference is visible, from 35 it is hard to see.
        faster: Times as fast as dense, instead of `keep`.

    Args: To tinker with
        steps: Of a picture, 25 unless given. A plan is for about as many.
        guidance: As in the pipeline; its own unless given.
        scheduler: One of `todome.tools.schedulers.SCHEDULERS`; the pipeline's own unless given.
        calibration: Pictures to measure single layers with.
        held_out: Pictures to choose plans with. As many more check the one that is chosen.
        batch: Pictures drawn at once, in the drawings and in the timing of a step.
        seed: Of the noise of the first picture.
        minutes: After so many it ends with the best plan that was found until then.
        out: A folder that keeps every measurement: the same call goes on where it was interrupted, and one with another
            budget measures little more.
        device: Of a model that is to be opened. "auto" takes the GPU if there is one.
        dtype: Of a model that is to be opened. "auto" is float16 on a GPU and float32 on a CPU.
        loras: LoRAs to add to a model that is to be opened: "style.safetensors:0.8".
        vae: File or folder of another autoencoder for it.
        engine: Who draws: `todome.tools.engines.on_ray.OnRay(...)` for a cluster; this process unless given. Times are
            those of this machine in any case.
        progress: Show a bar.
        options: How far it goes, a `todome.tools.tuning.options.Options`.
    """
    goal = Goal(keep, faster)
    if out is not None:
        check_out_folder(Path(out))
    check_counts(calibration=calibration, held_out=held_out, batch=batch)
    name = model if isinstance(model, str) else name_of(model)
    sizes = checked_sizes(height, width)
    parts: dict[str, Any] = {"loras": list(loras), "vae": vae}
    asked = {"sizes": sizes, "steps": steps, "guidance": guidance, "scheduler": scheduler, "seed": seed}
    drawn = plan_for(name, prompts, **asked, **parts)
    check_parts(drawn, None if isinstance(model, str) else model)
    apart = prompts_apart(drawn.prompts, calibration, held_out)
    drawn = replace(drawn, prompts=apart, batch=batch, pictures=calibration + held_out)
    if engine is not None and engine.remote and not isinstance(model, str):
        allowed = "the folder of a pipeline, a checkpoint or a hub id, with an engine in other processes"
        raise invalid_value("model", type(model).__name__, allowed, "Name what each of them is to open", TypeError)
    pipe = opened(model, device, dtype, parts) if isinstance(model, str) else model
    bar = Progress(minutes, progress)
    return carry_out(pipe, drawn, goal, calibration, None if out is None else Path(out), bar, engine, options)


def carry_out(
    pipe: Any,
    drawn: EvaluationPlan,
    goal: Goal,
    calibration: int,
    folder: Path | None,
    bar: Progress,
    engine: Engine | None = None,
    options: Options = Options(),  # noqa: B008
) -> Plan:
    """Tunes a pipeline, which is left as it was.

    Args:
        drawn: What is drawn, as evaluations plan it: `calibration` pictures, and those that are held out, whose
            prompts are others (`prompts_apart`).
        folder: Keeps every measurement.
        bar: Shows how far it is, and ends it when its time is over.
        engine: Who draws; this process unless given.
        options: How far it goes.
    """
    check_denoiser(denoiser(pipe))
    with suspended(pipe):
        apply(pipe).remove()  # refuses a model without layers, before anything is drawn
        maker = PictureMaker(replace(drawn, methods=()), Path(), pipe)
        maker.plan = maker.sized_plan()
        check_size(pipe, maker.plan.sizes[0])
        try:
            return Tuner(pipe, maker, goal, calibration, folder, bar, engine, options).run()
        finally:
            bar.close()


def check_denoiser(model: Any) -> None:
    if any(weight.is_meta for weight in model.parameters()):
        allowed = "one whose weights stay where they are; sequential offloading fetches these for each layer"
        remedy = "Tune it without offloading: the plan is good for the offloaded model too"
        raise invalid_value("model", type(model).__name__, allowed, remedy)
    if is_compiled(model):
        warnings.warn(
            "This model is compiled, and is compiled again for every plan that is tried, which takes long. Tune it "
            "first, and compile it then.",
            stacklevel=4,
        )


def prompts_apart(prompts: Sequence[str], calibration: int, held_out: int) -> list[str]:
    """A prompt for each picture: to calibrate with, held out, to check. No prompt to calibrate with is used again."""
    different = list(dict.fromkeys(prompts))
    if len(different) < 2:
        allowed = "at least two: some that layers are measured with, others that plans are measured with"
        raise invalid_value("prompts", list(prompts), allowed, "Name what users of the model draw")
    first = min(calibration, len(different) // 2)
    parts = (different[:first], calibration), (different[first:], 2 * held_out)
    return [part[i % len(part)] for part, count in parts for i in range(count)]


def check_counts(**counts: Any) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise invalid_value(name, count, "a whole number of at least 1", f"Leave {name} out")


def checked_sizes(height: int | None, width: int | None) -> tuple[tuple[int, int], ...] | None:
    if (height is None) != (width is None):
        raise invalid_value("(height, width)", (height, width), "both or none", "Give both")
    return None if height is None or width is None else ((width, height),)


def opened(model: str, device: str, dtype: str, parts: dict[str, Any]) -> Any:
    pipe = open_pipeline(model, device, dtype, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def measured_of(
    trial: Trial, control: Control | None, noise: float, others: Sequence[float] = (), keep: float | None = None
) -> dict[str, Any]:
    """What a plan says of its closeness and speed.

    Args:
        others: The errors of pictures that did not choose the plan, where they were drawn.
        keep: The budget in dB, where that was the goal.
    """
    found = closeness(trial.errors) | {"speedup": round(trial.speedup, 3), "noise": round(noise, 3)}
    said = [f"{found['psnr']:.1f} dB to dense, {trial.speedup:.2f}x as fast."]
    if others:
        found["others"] = closeness(others)
        said.append(f"{found['others']['psnr']:.1f} dB on {len(others)} other pictures, which did not choose the plan.")
        if keep is not None and found["others"]["psnr"] < keep:
            said.append("Pictures differ: ask for more, or hold out more of them, to keep the budget on most.")
    if control is not None:
        found["control"] = control._asdict()
        said.append(control.verdict(found["psnr"]))
    if noise > NOISY:
        said.append(f"Something else is using this machine: times vary by {noise:.0%}, so do not trust the speed.")
    return found | {"verdict": " ".join(said)}


def sampling_of(scheduler: Any) -> dict[str, Any]:
    """What a scheduler is set to. Which settings are defaults is left out: every process has them in another order."""
    return {name: value for name, value in scheduler.config.items() if name != "_use_default_values"}


class Tuner:
    """One tuning: the measurements in their order, and what is made of them."""

    def __init__(
        self,
        pipe: Any,
        maker: PictureMaker,
        goal: Goal,
        calibration: int,
        folder: Path | None,
        bar: Progress,
        engine: Engine | None = None,
        options: Options = Options(),  # noqa: B008
    ) -> None:
        self.pipe, self.maker, self.goal, self.bar, self.options = pipe, maker, goal, bar, options
        (self.size,), pictures = maker.plan.sizes, range(maker.plan.pictures)
        cheap_steps = max(1, -(-maker.plan.steps // 2))
        if engine is not None and engine.remote:  # each process opens a pipeline of its own
            maker = PictureMaker(maker.plan, Path(), None, "auto", str(pipe.dtype).removeprefix("torch."))
        self.drawings = Drawings(maker, pictures[:calibration], pictures[calibration:], cheap_steps, engine)
        self.drawings.on_steps = bar.advance
        patience = min(options.timing.patience, bar.limit / 20)  # up to six timings are to take a third of the time
        self.timing = replace(options.timing, patience=patience)
        self.machine = about(pipe.device, "diffusers")
        self.records = Records(self.conditions(), folder)

    def conditions(self) -> dict[str, Any]:
        """What measurements depend on. Whatever differs here is measured anew."""
        plan, tuned = asdict(self.maker.plan), self.tuned_model()
        own = {name: plan[name] for name in ("prompts", "sizes", "pictures", "seed", "steps", "guidance", "batch")}
        own |= {"calibration": len(self.drawings.calibration), "scheduler": plan["scheduler"]}
        own |= {"sampler": type(self.pipe.scheduler).__name__, "sampling": str(sampling_of(self.pipe.scheduler))}
        own |= {"model": tuned.pop("class"), **tuned}
        return own | {"dtype": str(self.pipe.dtype), "versions": self.machine["versions"]}

    def tuned_model(self) -> dict[str, Any]:
        """Which model it is, with what in it, and where it computes."""
        plan, given = self.maker.plan, denoiser(self.pipe)
        model = unwrapped(given)
        own = {"class": type(model).__name__, "fingerprint": fingerprint(model), "device": chip(self.pipe.device)}
        own |= {name: getattr(plan, name) for name in ("loras", "vae") if getattr(plan, name)}
        return own | ({"compiled": True} if is_compiled(given) else {})

    def run(self) -> Plan:
        self.bar.expect("timing", 0)
        with measuring():
            self.call = denoiser_call(self.pipe, self.size, self.maker.plan.batch)
            levels = reduced_levels(self.call, Downsample())
            layers = tuned_layers(self.pipe, levels)
            what = {"times": list(FACTORS)}
            found = self.records.measure(what, lambda: time_levels(self.call, levels, self.timing))
        times = layer_times(found, layers)
        if times.bound(layers) < LEAST_GAIN:
            return self.nothing_to_gain(layers, times)
        search = Search(layers, times, Sensitivity(), self.drawings, self.records, self.time_plan, self.options)
        self.measure_layers(search)
        self.bar.expect("drawing plans", (self.options.rounds + BESIDE) * self.search_steps)
        best = search.run(self.goal, lambda: self.may_go_on(search))
        self.bar.show(search)
        if best is None and not search.trials and not self.bar.has_time_for(0):
            raise invalid_value(
                "minutes", self.bar.limit / 60, "enough to draw a plan", "Allow more, or fewer pictures"
            )
        return self.plan_of(search, best)

    def may_go_on(self, search: Search) -> bool:
        self.bar.show(search)
        return self.bar.has_time_for(self.search_steps)

    @property
    def search_steps(self) -> int:
        return self.maker.plan.steps * len(self.drawings.held_out)

    def time_plan(self, plan: Plan) -> dict[str, float]:
        with measuring():
            return time_plan(self.call, plan, self.timing)

    def measure_layers(self, search: Search) -> None:
        """As many single layers as there is time for, with some left to draw plans."""
        wanted = probes(search.layers, search.times, self.options.worth)
        each = self.drawings.cheap_steps * len(self.drawings.calibration)
        reserve = 3  # plans that are to be drawn and timed
        self.bar.expect("layers", len(wanted) * each + (self.options.rounds + BESIDE) * self.search_steps)
        self.bar.show(search)
        for _ in measure_probes(wanted, search.layers, self.drawings, self.records, search.sensitivity):
            self.bar.show(search)
            if not self.bar.has_time_for(each + reserve * self.search_steps, reserve * self.timing.patience):
                break

    def nothing_to_gain(self, layers: TunedLayers, times: LayerTimes) -> Plan:
        text = (
            "Nothing to gain here: with all layers at the largest factor that is tried, a step would be "
            f"{times.bound(layers):.2f}x as fast."
        )
        return layers.plan({}, **self.about(), speedup=1.0, verdict=text)

    def plan_of(self, search: Search, best: Trial | None) -> Plan:
        """The plan of the best trial, with what was measured; a dense one where nothing closer was found."""
        if best is None or (self.goal.keep is not None and best.speedup < LEAST_GAIN):
            return search.layers.plan({}, **self.about(), speedup=1.0, verdict=self.missed(search))
        control = draw_control(self.drawings, self.records, best.speedup)
        noise = max(search.times.noise, best.noise)
        found = measured_of(best, control, noise, self.errors_of_others(search, best), self.goal.keep)
        if not search.is_measured():
            found["verdict"] += ALIKE
        return search.layers.plan(best.choices, **self.about(), **found, share=self.share(search))

    def errors_of_others(self, search: Search, best: Trial) -> list[float]:
        """Errors of pictures that did not choose the plan: those that did favour it. None without time to draw them."""
        what = {"picture errors, others": best.choices}
        if what not in self.records and not self.bar.has_time_for(2 * self.search_steps):
            return []
        plan, others = search.layers.plan(best.choices), self.drawings.others
        return self.records.measure(what, lambda: self.drawings.picture_errors(plan, numbers=others))

    def missed(self, search: Search) -> str:
        """For a budget that no plan keeps; where a speed was wanted, that is an error."""
        reached = [f"{decibels(t.error):.1f} dB at {t.speedup:.2f}x" for t in search.trials]
        if self.goal.keep is not None:
            drawn = f"what was drawn is {', '.join(reached)}" if reached else "no layer alone saves enough to be drawn"
            drawn += ". All stays dense."
            if not self.bar.has_time_for(self.search_steps):
                return f"The time was over before a plan with {self.goal} was found: {drawn}"
            if len(search.trials) == self.options.rounds:
                return f"No plan with {self.goal} was found in {len(search.trials)} drawings: {drawn}"
            return f"Nothing to gain at {self.goal.keep:g} dB: {drawn}"
        bound = search.times.bound(search.layers)
        allowed = f"up to about {bound:.2f} on this model, at {format_size(self.size)}, on this machine"
        drawn = f"What was drawn: {', '.join(reached)}" if reached else "Nothing is as fast, so nothing was drawn"
        raise invalid_value("faster", self.goal.faster, allowed, drawn)

    def share(self, search: Search) -> float:
        """Of a step's time, that fewer keys can save at most."""
        return round(1 - 1 / search.times.bound(search.layers), 3)

    def about(self) -> dict[str, Any]:
        """What the plan was measured on."""
        plan = self.maker.plan
        own = {"model": plan.model, **self.tuned_model(), **weights_of(plan.model)}
        own |= {"size": list(self.size), "scheduler": plan.scheduler or type(self.pipe.scheduler).__name__}
        own |= {"steps": plan.steps, "guidance": plan.guidance, "batch": plan.batch}
        return own | {"dtype": str(self.pipe.dtype).removeprefix("torch."), "goal": str(self.goal), **self.machine}
