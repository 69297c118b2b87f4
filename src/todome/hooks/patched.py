"""A patch on one model: what its hooks share, and which threads are in the middle of a call."""

import threading
import weakref
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from torch import nn

from ..levers.lever import Lever
from ..steps.runs import Runs
from .state import ThreadState

PATIENCE = 60.0  # seconds for calls that other threads make to end, before a patch is taken off


class LeverState:
    """What one lever shares among its hooks on one model. It holds nothing of the model."""

    def __init__(self, lever: Lever, patched: "PatchedModel") -> None:
        self.lever, self.patched = lever, patched
        patched.levers.append(self)

    def run_moved(self) -> None:
        """A scheduler or a host moved the run of this thread."""


class Shared:
    """What the models of one patch share, from `apply` to `remove`.

    Attributes:
        runs: In which the models are called.
        state: Of the calls that are being made, by thread.
        said: Which warnings were given.
        models: The models that the patch is on.
    """

    def __init__(self, runs: Runs | None = None, state: ThreadState | None = None, said: Iterable[str] = ()) -> None:
        self.runs, self.state, self.said = runs or Runs(), state or ThreadState(), set(said)
        self.runs.on_move = self.show_moves
        self.models: WeakSet[PatchedModel] = WeakSet()

    def show_moves(self) -> None:
        """Moves what graphs read: no hook runs when a captured graph is replayed."""
        for model in list(self.models):
            for lever in model.levers:
                lever.run_moved()

    def leave(self, model: "PatchedModel") -> None:
        """No hook of the patch is on this model any more. After the last one, every scheduler is as it was."""
        self.models.discard(model)
        if not self.models:
            self.runs.detach()

    def says_now(self, warning: str) -> bool:
        """Whether a warning is to be given, which is once."""
        known = warning in self.said
        self.said.add(warning)
        return not known

    def __getstate__(self) -> dict[str, Any]:
        return {"runs": self.runs, "state": self.state, "said": self.said}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)


class PatchedModel:
    """A patch on one model. It holds nothing of the model: a part that is copied takes its hooks along, no more."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.levers: list[LeverState] = []
        self.join()

    def join(self) -> None:
        """Makes the patch know of it: of a new one, or of a copy."""
        self.root: weakref.ref[nn.Module] | None = None  # the model, as far as it was called or hooked
        self.calling: set[threading.Thread] = set()
        self.ended = threading.Condition()
        self.attach()

    def attach(self) -> None:
        """The hooks are on the model, and may act."""
        self.is_closing = False
        self.shared.models.add(self)
        self.shared.runs.attached = True

    def begin_call(self) -> bool:
        """Whether the hooks may act in a call that this thread makes; in no new one while they are being taken off."""
        mine = threading.current_thread()
        with self.ended:
            may_act = not self.is_closing or mine in self.calling
            self.calling.add(mine)
            return may_act

    def end_call(self) -> None:
        with self.ended:
            self.calling.discard(threading.current_thread())
            self.ended.notify_all()

    def close(self) -> bool:
        """Waits until no other thread is in the middle of a call; new calls are dense from now on."""
        self.is_closing = True
        with self.ended:
            return self.ended.wait_for(lambda: not self.others_calling(), PATIENCE)

    def others_calling(self) -> bool:
        mine = threading.current_thread()
        return any(thread is not mine and thread.is_alive() for thread in self.calling)

    def __getstate__(self) -> dict[str, Any]:
        return {"shared": self.shared, "levers": self.levers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.join()
