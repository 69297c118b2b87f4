"""Gates of reuse over steps: one before the model, and one before each deep stage.

The gate of the model asks whose run a call belongs to and of which kind its step is. In a full step everything runs and
what it gives is kept by the run. In a partial step the conditional half runs alone, deep stages give what follows from
their last two values, or nothing runs at all. A caller without what it needs is computed in full.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..hosts.stages import StagePart
from ..steps.kept import Caller, Kept, signature_of
from ..steps.law import CONDITIONAL, FULL, STAGES
from .attaching import first
from .compiling import is_compiling, is_graph, outside_graphs
from .halves import Run, conditional_half, denoised, output_of, rows_of, with_unconditional
from .root import find_latents, find_timestep
from .skipping import put_before
from .state import is_capturing, is_real

if TYPE_CHECKING:
    from .reuse import ReuseState


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


class ModelGate:
    """Stands before a model: computes it in full, in part, or not at all."""

    def __init__(self, model: nn.Module, state: "ReuseState") -> None:
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

    def __init__(self, part: StagePart, state: "ReuseState") -> None:
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


def is_cached_by_others(module: nn.Module) -> bool:
    """Whether DeepCache has replaced the forward of a model, or a cache of diffusers is on."""
    replaced = getattr(vars(module).get("forward"), "__module__", "").startswith("DeepCache")
    return replaced or getattr(module, "is_cache_enabled", False) is True
