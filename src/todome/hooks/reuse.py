"""Reuse over steps: a gate before the model, which extrapolates guidance or the output, and one before each deep stage.

The gate of the model asks whose run a call belongs to and of which kind its step is. In a full step everything runs and
what it gives is kept by the run. In a partial step the conditional half runs alone, deep stages give what follows from
their last two values, or nothing runs at all. A caller without what it needs is computed in full.
"""

import uuid
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NothingToReduce
from ..hosts.stages import Denoiser, StagePart, find_denoiser, mixes_rows, shows_attention
from ..levers.reuse import Reuse
from ..steps import costs, law
from ..steps.choosing import Schedule, Weights, by_hand, choose, whole
from ..steps.kept import Caller, Kept, Report, signature_of
from ..steps.law import CONDITIONAL, FULL, STAGES
from .attaching import first
from .compiling import is_compiling, is_graph, outside_graphs
from .graphs import DeepSlots
from .halves import (
    Run,
    conditional_half,
    denoised,
    is_guided,
    output_of,
    rows_of,
    with_unconditional,
    without_pictures,
)
from .patched import LeverState, PatchedModel
from .registry import Places, attaches
from .root import RootPart, find_latents, find_timestep
from .skipping import loads_ahead, put_before
from .state import is_capturing, is_real

DEFAULT_GUIDANCE = 7.5  # where no pipeline tells


class ReuseCall:
    """One call of a model: the kind of its step, its caller, and where in the run it is."""

    def __init__(
        self, kept: Kept, caller: Caller, signature: Hashable, letter: str, latents: Tensor, sign: int
    ) -> None:
        self.kept, self.caller, self.signature = kept, caller, signature
        self.letter, self.index = letter, kept.index
        self.place = kept.noise.places[self.index]
        self.share = kept.noise.noise_share(self.index)
        self.latents = latents
        of_latents, of_output = kept.noise.clean(self.index)
        self.clean = of_latents, of_output * sign  # what latents and output weigh in the picture that is predicted
        self.cut = STAGES.get(letter)  # how many stages are computed; None: all
        self.halved = letter in CONDITIONAL
        self.recorded = tuple(caller.cuts) if letter == FULL else ()
        self.deep = self.predicted() if self.cut else None  # what goes up into the computed stages
        self.found: dict[int, Tensor] = {}  # the same of a full step, by the number of stages above

    def picture(self, output: Tensor) -> Tensor:
        """The picture that an output predicts, as far as that is known of these latents."""
        latents = denoised(self.latents, output)
        of_latents, of_output = self.clean
        exact = output.float()
        return exact.clone() if latents is None else exact * of_output + latents.float() * of_latents

    def predicted(self) -> Tensor:
        deep = self.caller.lines[self.cut].at(self.place)
        return deep[len(deep) // 2 :] if self.halved and self.caller.keeps_both_halves else deep

    def rows_kept(self, deep: Tensor) -> Tensor:
        """Of deep features what is kept, as a copy: blocks may change what they are given (FreeU)."""
        return (deep if self.caller.keeps_both_halves else deep[len(deep) // 2 :]).clone()

    def is_made(self) -> None:
        self.kept.calls[self.signature] += 1


class ReuseState(LeverState):
    """What the gates of one model share."""

    lever: Reuse

    def __init__(self, lever: Reuse, denoiser: Denoiser, patched: PatchedModel) -> None:
        super().__init__(lever, patched)
        self.key = uuid.uuid4()  # under which a run keeps what is this model's; a copy has the same
        self.finest, self.channels, self.sign = denoiser.finest, denoiser.channels, denoiser.sign
        self.is_adapted = denoiser.is_adapted
        self.stages = max((part.stage for part in denoiser.parts), default=0)
        self.name = type(denoiser.model).__name__
        self.graph = DeepSlots()
        self.report: Report | None = None  # of the last run

    def kept_by(self, run: Any) -> Kept | None:
        """What a run keeps for this model; None where it is of no falling noise levels."""
        kept = run.kept.get(self.key)
        if self.key not in run.kept or (kept is not None and run.index < kept.index):  # or the loop was begun again
            noise = run.noise()
            kept = None if noise is None or not noise.falls else Kept(noise, run.index)
            run.kept[self.key] = kept
        return kept if kept is not None and run.index < len(kept.noise.places) else None

    def ask(self, caller: Caller, kept: Kept, run: Any, latents: Tensor, model: nn.Module) -> None:
        """Looks whether the batch of a caller is guided, and how its model is offloaded."""
        caller.asked += 1
        noise = without_pictures(latents, self.channels)
        guided = caller.guided is not False and is_guided(noise) and not mixes_rows(model)
        caller.loads_ahead = loads_ahead(model)
        if guided != caller.guided:
            caller.guided, caller.shares = guided, self.shares(guided, latents)
            caller.schedule = self.choose(caller, kept, run, model)
            self.report = kept.report

    def choose(self, caller: Caller, kept: Kept, run: Any, model: nn.Module) -> Schedule:
        """Finds the kinds of the steps of a caller."""
        sigmas, guided = kept.noise.sigmas[kept.first :], bool(caller.guided)
        if shows_attention(model):
            return whole(sigmas)
        if self.lever.keep is None:
            return by_hand(self.lever, sigmas, kept.first, caller.shares, guided)
        own = law.UNET if self.stages else law.TRANSFORMER
        weights = Weights(own, self.guidance(run), kept.noise.order)
        return choose(sigmas, tuple(caller.shares.items()), weights, self.lever.keep)

    def shares(self, guided: bool, latents: Tensor) -> dict[str, float]:
        """The cost of each kind of step that can be had."""
        if not self.stages:
            shares = {"o": costs.NOTHING, **costs.TRANSFORMER}
        else:
            shares = costs.unet_shares(self.finest, tuple(latents.shape[-2:]), len(latents) // (1 + guided))
        halves = guided and self.lever.guidance
        deepest = self.stages - 1
        return {
            letter: share
            for letter, share in shares.items()
            if (halves or letter not in CONDITIONAL) and (STAGES.get(letter) or 0) < max(deepest, 1)
        }

    def guidance(self, run: Any) -> float:
        """The largest guidance scale of the pipelines that the scheduler of a run is in."""
        found = [getattr(pipeline, "guidance_scale", None) for pipeline in self.patched.shared.runs.pipelines_of(run)]
        return max((float(scale) for scale in found if isinstance(scale, (int, float))), default=DEFAULT_GUIDANCE)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"report": None}


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
                rows = rows_of(call.latents)
                args, kwargs = conditional_half(args, rows), conditional_half(kwargs, rows)
            output = run(*args, **kwargs)
            return self.finish(call, output)
        finally:
            self.end()

    @outside_graphs
    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReuseCall | None:
        """The kind of the step that this call is in; None where nothing is known, and everything is computed."""
        may_act = self.patched.begin_call()
        call = self.call_of(module, args, kwargs) if may_act and not torch.is_grad_enabled() else None
        if call is None:
            self.patched.end_call()
            return None
        self.patched.shared.state.reuse = call
        self.state.graph.begin(call.cut, call.recorded, call.deep)
        return call

    def call_of(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReuseCall | None:
        latents = find_latents(args, kwargs)
        if latents is None or latents.ndim < 3 or not is_real(latents):
            return None
        if is_capturing(latents.device) or is_cached_by_others(module):
            return None
        run = self.patched.shared.runs.of(find_timestep(args, kwargs)).run
        kept = None if run is None else self.state.kept_by(run)
        if run is None or kept is None:
            return None
        signature = signature_of((args, kwargs))
        caller = kept.caller(run.index, signature)
        if caller.asked < 2:  # pictures with one seed begin alike, and are no more alike after a step
            self.state.ask(caller, kept, run, latents, module)
        call = ReuseCall(kept, caller, signature, self.kind(kept, caller, kwargs), latents, self.state.sign)
        kept.tell(caller, call.letter)
        if caller.is_dense:
            call.is_made()
        return None if caller.is_dense else call

    def kind(self, kept: Kept, caller: Caller, kwargs: dict[str, Any]) -> str:
        """The kind of a call: as it was chosen, where the caller has what it needs."""
        letter = kept.kind(caller, kept.index)
        if STAGES.get(letter) and (caller.loads_ahead or self.state.is_adapted(kwargs)):
            letter = "f" if letter in CONDITIONAL else FULL
        return letter if kept.has(caller, names_for(letter)) else FULL

    @outside_graphs
    def end(self) -> None:
        self.patched.shared.state.reuse = None
        self.state.graph.end()
        self.patched.end_call()

    def extrapolated(self, call: ReuseCall) -> Any:
        """Nothing of the model runs: the output goes on in its line; in a compiled model that is a graph of its own."""
        call.is_made()
        self.end()
        caller, line = call.caller, call.caller.lines["output"]
        _, before = line.before or (line.sigma, line.value)
        of_latents, of_output = call.clean
        numbers = (line.weight(call.place), 1 / of_output, -of_latents / of_output)
        weights = [torch.full((), number, device=line.value.device) for number in numbers]
        latents = denoised(call.latents, line.value)
        return caller.form.around(output_at(before, line.value, latents, *weights).to(caller.dtype))

    @outside_graphs
    def finish(self, call: ReuseCall, output: Any) -> Any:
        """Keeps what a full step gave; completes what a partial one gave."""
        call.is_made()
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
            call.found |= {cut: call.rows_kept(deep) for cut, deep in self.state.graph.found().items()}
        picture = call.picture(tensor)
        values: dict[Any, Tensor] = {"output": picture, **call.found}
        if caller.guided:
            unconditional, conditional = tensor.chunk(2)
            values["guidance"] = (conditional.float() - unconditional.float()).mul_(call.share).to(tensor.dtype)
        if "output" in caller.lines:
            kept.report.check(caller.lines["output"], kept.noise.sigmas[call.index], call.place, picture)
        caller.form, caller.dtype = form, tensor.dtype
        kept.note(caller, call.index, values)


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
            call.found[self.joint] = call.rows_kept(output)
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
        allowed = "a UNet, or a transformer that is called with latents and a timestep"
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
