"""Reuse over steps: a gate before the model, which extrapolates guidance or the output, and one before each deep stage.

The gate of the model asks whose run a call belongs to and of which kind its step is. In a full step everything runs and
what it gives is kept by the run. In a partial step the conditional half runs alone, deep stages give what follows from
their last two values, or nothing runs at all. A caller without what it needs is computed in full.
"""

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NothingToReduce
from ..hosts.stages import Denoiser, StagePart, find_denoiser, splits_batch
from ..levers.reuse import Reuse
from ..steps import costs, law
from ..steps.choosing import Weights, by_hand, choose
from ..steps.kept import Caller, Kept, Report
from ..steps.law import CONDITIONAL, FULL, STAGES
from ..steps.run import Position
from .attaching import first
from .compiling import is_compiling, is_graph, outside_graphs
from .graphs import DeepSlots
from .halves import Run, conditional_half, denoised, is_guided, output_of, with_unconditional
from .patched import LeverState, PatchedModel
from .registry import Places, attaches
from .root import RootPart, find_timestep, latents_among
from .skipping import put_before
from .state import is_capturing

DEFAULT_GUIDANCE = 7.5  # where no pipeline tells
numbers = itertools.count()


class ReuseCall:
    """One call of a model: the kind of its step, its caller, and where in the run it is."""

    def __init__(self, kept: Kept, caller: Caller, letter: str, index: int, latents: Tensor) -> None:
        self.kept, self.caller, self.letter, self.index = kept, caller, letter, index
        self.place = kept.noise.places[index]
        self.share = kept.noise.noise_share(index)
        self.latents = latents
        self.cut = STAGES.get(letter)  # how many stages are computed; None: all
        self.halved = letter in CONDITIONAL
        self.recorded = tuple(kept.cuts) if letter == FULL else ()
        self.deep = self.predicted() if self.cut else None  # what goes up into the computed stages
        self.found: dict[int, Tensor] = {}  # the same of a full step, by the number of stages above

    def picture(self, output: Tensor) -> Tensor:
        """The picture that an output predicts, as far as that is known of these latents."""
        latents = denoised(self.latents, output)
        of_latents, of_output = self.kept.noise.clean(self.index)
        return output.float() if latents is None else output.float() * of_output + latents.float() * of_latents

    def predicted(self) -> Tensor:
        deep = self.caller.lines[self.cut].at(self.place)
        return deep[len(deep) // 2 :] if self.halved and self.kept.whole_rows else deep


class ReuseState(LeverState):
    """What the gates of one model share."""

    lever: Reuse

    def __init__(self, lever: Reuse, denoiser: Denoiser, patched: PatchedModel) -> None:
        super().__init__(lever, patched)
        self.number = next(numbers)  # under which a run keeps what is this model's; a copy has the same
        self.finest, self.extras = denoiser.finest, denoiser.extras
        self.stages = max((part.stage for part in denoiser.parts), default=0)
        self.name = type(denoiser.model).__name__
        self.graph = DeepSlots()
        self.report: Report | None = None  # of the last run

    def kept_by(self, position: Position) -> Kept | None:
        """What the run keeps for this model; None where no run, or none with falling noise levels, is known."""
        run = position.run
        if run is None:
            return None
        if self.number not in run.kept:
            noise = run.noise()
            run.kept[self.number] = None if noise is None or not noise.falls else Kept(noise, run.index)
        kept = run.kept[self.number]
        if kept is not None and run.index < kept.index:
            kept = run.kept[self.number] = Kept(kept.noise, run.index)  # the loop was begun again
        return kept

    def choose(self, kept: Kept, guided: bool, latents: Tensor, model: nn.Module) -> None:
        """Finds the kinds of the steps of a run."""
        shares, sigmas = self.shares(guided, latents, model), kept.noise.sigmas[kept.first :]
        kept.guided = guided
        if self.lever.keep is None:
            found = by_hand(self.lever, sigmas, kept.first, shares, guided)
        else:
            own = law.UNET if self.stages else law.TRANSFORMER
            weights = Weights(own, self.guidance() if guided else 1.0, kept.noise.order)
            found = choose(sigmas, tuple(shares.items()), weights, self.lever.keep)
        kept.schedule = kept.report.schedule = found
        self.report = kept.report

    def shares(self, guided: bool, latents: Tensor, model: nn.Module) -> dict[str, float]:
        """The cost of each kind of step that can be had."""
        if not self.stages:
            shares = {"o": costs.NOTHING, **costs.TRANSFORMER}
        else:
            shares = costs.unet_shares(self.finest, tuple(latents.shape[-2:]), len(latents) // (1 + guided))
        halves = guided and self.lever.guidance and not any(splits_batch(model))
        deepest = self.stages - 1
        return {
            letter: share
            for letter, share in shares.items()
            if (halves or letter not in CONDITIONAL) and (STAGES.get(letter) or 0) < max(deepest, 1)
        }

    def guidance(self) -> float:
        """The guidance scale of the pipeline that is followed."""
        for pipeline in list(self.patched.shared.runs.pipelines.values()):
            scale = getattr(pipeline, "guidance_scale", None)
            if isinstance(scale, (int, float)):
                return float(scale)
        return DEFAULT_GUIDANCE


class ModelGate:
    """Stands before a model: computes it in full, in part, or not at all."""

    def __init__(self, model: nn.Module, state: ReuseState) -> None:
        self.state, self.patched = state, state.patched
        put_before(model, self)

    def call(self, module: nn.Module, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_compiling():
            return run(*args, **kwargs)  # a part of a larger graph, which cannot tell steps apart
        call = self.begin(module, args, kwargs)
        if call is None:
            return run(*args, **kwargs)
        if call.letter == "o":
            return self.extrapolated(call)
        try:
            if call.halved:
                batch = len(first(args, kwargs))
                args, kwargs = conditional_half(args, batch), conditional_half(kwargs, batch)
            output = run(*args, **kwargs)
            return self.finish(call, output)
        finally:
            self.end()

    @outside_graphs
    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReuseCall | None:
        """The kind of the step that this call is in; None where nothing is known, and everything is computed."""
        latents, shared = latents_among((*args, *kwargs.values())), self.patched.shared
        if latents is None or torch.is_grad_enabled() or is_capturing(latents.device) or self.patched.is_closing:
            return None
        position = shared.runs.of(find_timestep(args, kwargs))
        kept = self.state.kept_by(position)
        if kept is None or is_cached_by_others(module):
            return None
        call = self.call_in(kept, position, latents, module, kwargs)
        if call is not None:
            shared.state.reuse = call
            self.state.graph.begin(call.cut, call.recorded, call.deep)
        return call

    def call_in(
        self, kept: Kept, position: Position, latents: Tensor, module: nn.Module, kwargs: dict[str, Any]
    ) -> ReuseCall | None:
        index = position.step if position.run is None else position.run.index
        number, caller = kept.caller(index, (tuple(latents.shape), latents.dtype, latents.device))
        if caller.asked < 2:  # pictures with one seed begin alike, and are no more alike after a step
            caller.asked += 1
            caller.guided = caller.guided is not False and is_guided(latents)
        if kept.schedule is None or (kept.guided and not caller.guided):
            self.state.choose(kept, bool(caller.guided), latents, module)
        letter = kept.kind(index)
        extras = any(kwargs.get(name) is not None for name in self.state.extras)
        if not caller.has(*names_for(letter)) or (extras and STAGES.get(letter)):
            letter = FULL
        if number == 1:
            kept.report.done[index] = letter
        return None if kept.is_dense else ReuseCall(kept, caller, letter, index, latents)

    @outside_graphs
    def end(self) -> None:
        self.patched.shared.state.reuse = None
        self.state.graph.end()

    def extrapolated(self, call: ReuseCall) -> Any:
        """Nothing of the model runs: the output goes on in its line; in a compiled model that is a graph of its own."""
        self.end()
        caller, line = call.caller, call.caller.lines["output"]
        of_latents, of_output = call.kept.noise.clean(call.index)
        numbers = (line.weight(call.place), 1 / of_output, -of_latents / of_output)
        weights = [torch.full((), number, device=line.value.device) for number in numbers]
        latents = denoised(call.latents, line.value)
        return caller.form.around(output_at(line.before[1], line.value, latents, *weights).to(caller.dtype))

    @outside_graphs
    def finish(self, call: ReuseCall, output: Any) -> Any:
        """Keeps what a full step gave; completes what a partial one gave."""
        found = output_of(output)
        if found is None:
            return output
        tensor, form = found
        if call.halved:
            difference = call.caller.lines["guidance"].at(call.place)
            return form.around(with_unconditional(tensor, difference, call.share))
        if call.letter == FULL:
            self.keep(call, tensor, form)
        return output

    def keep(self, call: ReuseCall, tensor: Tensor, form: Any) -> None:
        caller, kept = call.caller, call.kept
        if self.state.graph.traced:
            call.found |= self.state.graph.found()
        picture = call.picture(tensor)
        values: dict[Any, Tensor] = {"output": picture, **call.found}
        if caller.guided:
            unconditional, conditional = tensor.chunk(2)
            values["guidance"] = (conditional.float() - unconditional.float()).mul_(call.share).to(tensor.dtype)
            if not kept.whole_rows:
                values |= {cut: values[cut][len(values[cut]) // 2 :] for cut in call.recorded if cut in values}
        if "output" in caller.lines:
            kept.report.check(caller.lines["output"], kept.noise.sigmas[call.index], call.place, picture)
        caller.form, caller.dtype = form, tensor.dtype
        caller.note(call.place, values)


@is_graph
def output_at(
    before: Tensor, value: Tensor, latents: Tensor | None, weight: Tensor, of_picture: Tensor, of_latents: Tensor
) -> Tensor:
    """The output, in fp32, that the picture at the end of its line belongs to."""
    picture = torch.lerp(before, value, weight)
    return picture if latents is None else picture * of_picture + latents.float() * of_latents


def names_for(letter: str) -> tuple[Any, ...]:
    """The lines that a step of a kind needs."""
    if letter == FULL:
        return ()
    if letter == "o":
        return ("output",)
    deep = (STAGES[letter],) if STAGES.get(letter) else ()
    return (*deep, "guidance") if letter in CONDITIONAL else deep


class StageGate:
    """Stands before one module of a stage: runs it, or hands over what stands in for it."""

    def __init__(self, part: StagePart, state: ReuseState) -> None:
        self.stage, self.joint, self.stand_in = part.stage, part.joint, part.stand_in
        self.state, self.patched, self.graph = state, state.patched, state.graph
        put_before(part.module, self)

    def call(self, module: nn.Module, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_compiling():
            return self.call_in_graph(run, args, kwargs)
        call = self.patched.shared.state.reuse
        if call is not None and call.cut is not None and self.stage > call.cut:
            return call.deep if self.joint == call.cut else self.stand_in(first(args, kwargs))
        output = run(*args, **kwargs)
        if call is not None and self.joint in call.recorded:
            call.found[self.joint] = output
        return output

    def call_in_graph(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graph = self.graph
        if graph.cut is not None and self.stage > graph.cut:
            return graph.deep if self.joint == graph.cut else self.stand_in(first(args, kwargs))
        output = run(*args, **kwargs)
        if self.joint in graph.recorded:
            graph.write(self.joint, output)
        return output


@attaches(Reuse)
class ReusePlaces(Places):
    """The models among some that are called once a step."""

    def __init__(self, lever: Reuse, models: Sequence[nn.Module]) -> None:
        self.lever, self.looked_at = lever, models
        self.denoisers = {one.model: one for one in map(find_denoiser, models) if one is not None}
        self.models = list(self.denoisers)
        for model in self.models:
            refuse_other_caches(model)
        self.states: list[ReuseState] = []

    def refusal(self, target: str) -> Exception:
        allowed = "a UNet, or a transformer that is called with a timestep"
        return NothingToReduce(f"target={target} cannot be used with Reuse. Allowed: {allowed}. Leave it dense.")

    def attach(self, model: nn.Module, patched: PatchedModel) -> RootPart:
        state = ReuseState(self.lever, self.denoisers[model], patched)
        self.states.append(state)
        ModelGate(model, state)
        for part in self.denoisers[model].parts:
            if part.stage > 1:
                StageGate(part, state)
        return RootPart()  # it acts before any hook of the model does

    def lines(self) -> list[str]:
        return [line for state in self.states for line in told(state)]


def told(state: ReuseState) -> list[str]:
    """What was done in the last run, for people."""
    return [] if state.report is None else state.report.lines()


def is_cached_by_others(module: nn.Module) -> bool:
    """Whether DeepCache has replaced the forward of a model."""
    return getattr(vars(module).get("forward"), "__module__", "").startswith("DeepCache")


def refuse_other_caches(model: nn.Module) -> None:
    if is_cached_by_others(model):
        raise RuntimeError(
            "Reuse cannot be used beside DeepCache, which repeats what Reuse extrapolates. Call helper.disable() "
            "first, or leave Reuse out."
        )


def warn_once(state: ReuseState, key: str, text: str) -> None:
    if state.patched.shared.says_now(key):
        warnings.warn(text, stacklevel=2)
