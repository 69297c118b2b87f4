"""A token lever on one model: what its layers share, and what happens at each call of the model as a whole."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..levers.checks import format_grid
from ..levers.downsample import AUTO_KEYS
from ..levers.lever import Parts, TokenLever
from ..steps.run import Position
from ..tokens.tables import Table, TableCache
from .compiling import assume_constant_result, real_tensors
from .graphs import FallingInGraph, GraphInputs
from .patched import LeverState, PatchedModel
from .root import RootPart
from .state import PHASE, ModelCall, TokenCall

REMEDY = (
    "Apply to the pipeline that runs it, or use apply(..., scheduler=...) and call set_timesteps before each run, or "
    "call patch.at(step, steps) before each step"
)


class TokenState(LeverState):
    """What the layers of one model share: the setting of each in each part of a run, their tables, what graphs read."""

    lever: TokenLever

    def __init__(self, lever: TokenLever, parts: Parts, tables: TableCache, patched: PatchedModel) -> None:
        self.parts, self.tables, self.graph = parts, tables, GraphInputs()
        super().__init__(lever, patched)  # last: from then on other threads move it

    def call_at(self, position: Position) -> TokenCall:
        """What a call in this step of a run does."""
        step, steps = position.step, position.steps
        part = self.parts.part_after(0) if steps is None else self.parts.at(step, steps)
        return TokenCall(part, self.lever.phase_index(step))

    def check_window(self, position: Position) -> None:
        """Raises where there is a window and nobody knows the end of the run."""
        if position.steps is None and self.parts.cuts:
            raise self.lever.window_error("where the model is called outside of a run that todome can follow", REMEDY)

    def current_call(self) -> TokenCall:
        """That of the call that is being made, or would be made now."""
        call = self.patched.shared.state.call
        return call.tokens if call is not None else self.call_at(self.patched.shared.runs.now())

    def run_moved(self) -> None:
        runs = self.patched.shared.runs
        self.graph.move(self.call_at(runs.now()), runs.is_driven)

    def tables_of(self, layer: int, grid: Any, device: torch.device, pin: bool = False) -> list[Table | None]:
        """The tables of a layer in each part of a run."""
        keys = [None if setting is None else (layer, setting) for setting in self.parts.settings[layer]]
        return [None if key is None else self.tables.at_hand(key, grid, device, pin) for key in keys]

    def note_graph(self) -> None:
        """A graph is being traced: what it reads is there, now and in each call from now on."""
        if not self.graph.traced:
            self.graph.traced = True
            with real_tensors():
                call = self.patched.shared.state.call
                self.graph.begin_call(self.current_call(), self.graph.phase.device if call is None else call.device)


class TokenPart(RootPart):
    """Shows each call of a model to what its graphs read, and says once where nothing was reduced."""

    def __init__(self, state: TokenState, readers: Sequence[Any]) -> None:
        self.state, self.readers = state, list(readers)
        self.layers = [layer for reader in readers for layer in reader.layers]
        self.warns = getattr(state.lever, "factor", None) == "auto"

    def adopt(self, root: nn.Module) -> None:
        vars(root)[PHASE] = self.state.graph.phase

    def before(self, call: ModelCall) -> None:
        state = self.state
        if call.capturing and state.parts.cuts:
            raise state.lever.window_error("in a CUDA graph, which cannot change with the step", "Leave it out there")
        if call.is_reduced:
            state.check_window(call.position)
            call.tokens = state.call_at(call.position)
        state.graph.begin_call(call.tokens, call.device)
        for layer in self.layers:
            layer.refresh()
        if state.graph.traced:
            for reader in self.readers:
                reader.expect(call)

    def after(self, succeeded: bool) -> None:
        self.state.graph.calls.release()
        if succeeded and self.warns and len(self.state.patched.levers) == 1:
            self.warn_if_dense()

    def before_in_graph(self, timestep: Any) -> None:
        """Inside of a larger graph, where nobody drives the run: the graph follows the falling timestep itself."""
        if not self.state.graph.driven and timestep is not None:
            self.follow_in_graph(timestep.device if isinstance(timestep, Tensor) else torch.device("cpu"))
            graph = self.state.graph
            if graph.falling is not None:
                graph.phase.copy_(graph.falling.advance(timestep))

    @assume_constant_result
    def follow_in_graph(self, device: torch.device) -> None:
        """Runs while a graph is traced, and never again."""
        state = self.state
        state.check_window(Position(0))
        with real_tensors():
            state.graph.falling = state.graph.falling or FallingInGraph(state.lever.phase_index, device)
            if state.graph.phase.device != device:
                state.graph.phase = state.graph.new_phase(device)

    def warn_if_dense(self) -> None:
        """Says once where "auto" found nothing to do; a silent no-op is what users of the peers suffer from."""
        tables = self.state.tables
        if tables.grids and not tables.reduces and self.state.patched.shared.says_now("dense"):
            finest = max(grid for grid, _ in list(tables.grids))
            warnings.warn(
                f'factor="auto" leaves this model dense: its finest grid has {format_grid(finest)} tokens, and "auto" '
                f"reduces grids of more than {AUTO_KEYS}. Use todome.Downsample(factor=2) to reduce it all the same.",
                stacklevel=2,
            )
