"""What a visitor sees of a run while it is drawn."""

from typing import Any

from ..pipelines import Size
from . import views
from .estimates import TimeLeft, in_words
from .form import Order
from .layout import Results
from .presets import name_of
from .worker import DrawWorker, Event, Opening, Progress, Waiting


class ProgressView:
    """What is seen of a run while it is drawn: bars, the time left, and the last preview."""

    def __init__(self, worker: DrawWorker, order: Order, known: set[int]) -> None:
        self.pictures, self.known, self.several = order.pictures(), known, len(order.alone) > 1
        self.size: Size = order.alone[0].size or (1, 1)
        expected = [0.0 if at in known else worker.estimates.seconds(one) for at, one in enumerate(self.pictures)]
        self.time = TimeLeft([time and time * order.extras.strength for time in expected])
        self.now = Progress(-1, 0, order.alone[0].steps or 1)

    def changes(self, event: Event, results: Results) -> dict[Any, Any]:
        """The stage changes with each preview alone: until the first one, the picture before is seen."""
        if isinstance(event, Progress):
            self.now = event
            self.time.step(event.at, event.done, event.steps)
        bars = views.bars(self.pictures, self.known, self.now.at, self.now.done, self.now.steps)
        left = self.time.seconds()
        told = "" if left is None else f"About {in_words(left)} left."
        changed = {results.progress: views.progress(self.said(event), told, bars)}
        if isinstance(event, Progress) and event.preview:
            changed[results.stage] = views.sketch(event.preview, self.size)
        return changed

    def said(self, event: Event) -> str:
        if isinstance(event, Opening):
            return f"Opening {views.shown_model(event.model)}."
        if self.now.at < 0:
            before = event.before if isinstance(event, Waiting) else 0
            return f"{before} run{'s' * (before != 1)} of others before yours." if before else "Getting ready."
        drawn = self.pictures[self.now.at]
        which = f", seed {drawn.seed}" if self.several else ""
        return f"Drawing with {name_of(drawn.reduction)}{which}."
