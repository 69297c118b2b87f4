"""What a user can set, and what it means. Names, ranges and infotext of the older extension are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple

import todome
from todome import Downsample, Merge, Plan
from todome.errors import invalid_value
from todome.hosts.comfy import token_lever
from todome.levers.lever import TokenLever

TITLE = "Token Downsampling (todome)"
SECTION = ("token_downsampling", TITLE)
PREFIX = "token_downsampling_"
SAME, OFF = "same", "off"
AUTO: Final = "auto"
VERSION = "todome"  # in the infotext: which one drew it
DOWNSAMPLING, MERGING = "downsampling", "merging"

FACTOR = {"minimum": 1.0, "maximum": 5.0, "step": 0.5}
FRACTION = {"minimum": 0.0, "maximum": 1.0, "step": 0.1}
RATIO = {"minimum": 0.0, "maximum": 0.75, "step": 0.05}
OWN_FACTOR = {"choices": [SAME, OFF, AUTO, *(f"{half / 2:g}" for half in range(3, 11))]}


class Control(NamedTuple):
    """How a setting is shown: in the settings and the accordion, in the infotext, as an axis of the XYZ plot."""

    component: str  # of gradio
    limits: Mapping[str, Any]
    label: str
    info: str
    infotext: str
    axis: str


def shown(default: Any, *control: Any) -> Any:
    return field(default=default, metadata={"control": Control(*control)})


@dataclass(frozen=True)
class Settings:
    """What is asked for. As long as both factors are 1, nothing else is set, and nothing is done."""

    factor: float = shown(
        1.0,
        *("Slider", FACTOR, "Token downsampling factor"),
        "1 = disable. Keeps 1 key in factor x factor at the finest level that has self-attention",
        *("ToDo factor", "[ToDo] Downsampling factor"),
    )
    factor2: float = shown(
        1.0,
        *("Slider", FACTOR, "Token downsampling factor 2"),
        "1 = disable. The next level: faster still, at a loss of quality",
        *("ToDo factor2", "[ToDo] Downsampling factor 2"),
    )
    disable_after: float = shown(
        1.0,
        *("Slider", FRACTION, "Token downsampling disable after"),
        "The fraction of the steps of each pass after which it is off; 0.8 draws the last details dense",
        *("ToDo disable after", "[ToDo] Disable after"),
    )
    auto: bool = shown(
        False,
        *("Checkbox", {}, "Token downsampling automatic factor"),
        "Instead of both factors: what leaves at most 4096 keys, so 1 at 512 px, 2 at 1024, 4 at 2048 on SD 1.x",
        *("ToDo auto", "[ToDo] Automatic factor"),
    )
    factor_hr: str = shown(
        SAME,
        *("Dropdown", OWN_FACTOR, "Token downsampling factor for the hires pass"),
        "same = as in the first pass",
        *("ToDo hires factor", "[ToDo] Hires factor"),
    )
    factor_img2img: str = shown(
        SAME,
        *("Dropdown", OWN_FACTOR, "Token downsampling factor for img2img"),
        "same = as in txt2img",
        *("ToDo img2img factor", "[ToDo] img2img factor"),
    )
    phase: Literal["dither", "fixed"] = shown(
        "dither",
        *("Radio", {"choices": ["dither", "fixed"]}, "Token downsampling phase"),
        "dither keeps other keys at every step and is closer to the dense picture; fixed keeps the same, as ToDo does",
        *("ToDo phase", "[ToDo] Phase"),
    )
    method: str = shown(
        DOWNSAMPLING,
        *("Radio", {"choices": [DOWNSAMPLING, MERGING]}, "Token downsampling method"),
        "merging averages alike tokens instead (ToMe), in every pass whose own factor is not off",
        *("ToDo method", "[ToDo] Method"),
    )
    ratio: float = shown(
        0.5,
        *("Slider", RATIO, "Token downsampling merging ratio"),
        "0 = disable. The share of tokens that the method merging merges",
        *("ToDo merging ratio", "[ToDo] Merging ratio"),
    )
    plan: str = shown(
        "",
        *("Textbox", {}, "Token downsampling plan file"),
        "Instead of the factors: a factor for each layer, as todome tune wrote it for this model. Empty = no plan",
        *("ToDo plan", "[ToDo] Plan file"),
    )

    def off(self, own: str) -> bool:
        """Whether a pass with this own factor stays as it is."""
        if own == OFF or self.disable_after == 0:
            return True
        if self.method == MERGING:
            return self.ratio == 0
        return own == SAME and not self.auto and not self.plan and (self.factor, self.factor2) == (1, 1)

    def planned(self, own: str) -> bool:
        """Whether a pass with this own factor is drawn with the plan."""
        return bool(self.plan) and self.method == DOWNSAMPLING and own == SAME

    def factor_with(self, own: str) -> float | tuple[float, float] | Literal["auto"]:
        if own == AUTO or (own == SAME and self.auto):
            return AUTO
        factor = self.factor if own == SAME else as_factor(own)
        return factor if self.factor2 == 1 else (factor, self.factor2)  # a model may have no second level

    def lever(self, own: str) -> TokenLever:
        """What todome is to do in a pass with this own factor. It refuses what is out of range."""
        if self.method == MERGING:
            return Merge(self.ratio, stop=self.disable_after)
        if self.method != DOWNSAMPLING:
            raise invalid_value(
                "method", self.method, f'"{DOWNSAMPLING}" or "{MERGING}"', "The first is closer to dense"
            )
        if self.planned(own):
            return token_lever(Plan.load(self.plan).within(stop=self.disable_after))
        return Downsample(self.factor_with(own), self.phase, stop=self.disable_after)

    def infotext(self, own: Sequence[str]) -> dict[str, Any]:
        """What makes the picture again, whatever is set there; `own` are the fields of own factors that matter."""
        names = ["factor", "factor2", "auto", "phase", "method", "disable_after", *own]
        if self.method == MERGING:
            names = ["method", "ratio", "disable_after", *own]
        elif self.plan:
            names = ["plan", "method", "disable_after", *own]
        elif self.auto:
            names.remove("factor")
        return {CONTROLS[name].infotext: getattr(self, name) for name in names} | {VERSION: todome.__version__}


CONTROLS: dict[str, Control] = {one.name: one.metadata["control"] for one in fields(Settings)}
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(Settings)}


def as_factor(own: str) -> float:
    try:
        return float(own)
    except ValueError:
        raise invalid_value(
            "factor", own, f'"{SAME}", "{OFF}", "{AUTO}" or a number of at least 1', "The default is the first"
        ) from None


def chosen(opts: Any, p: Any, override: bool, values: Sequence[Any]) -> Settings:
    """The settings; instead of them, if ticked, those of the accordion; over both, what the XYZ plot put on `p`."""
    found = {name: getattr(opts, PREFIX + name) for name in CONTROLS}
    if override:
        found = dict(zip(CONTROLS, values, strict=True))
    plotted = {name: getattr(p, PREFIX + name) for name in CONTROLS if hasattr(p, PREFIX + name)}
    if "factor" in plotted:
        found |= {"auto": False, "plan": ""}
    found |= plotted
    return Settings(**found | {"plan": str(found["plan"] or "").strip()})


def complete(infotext: str, pasted: dict[str, Any]) -> None:
    """Fills in what a picture's infotext leaves out because it was the default, and whether to override with it."""
    pasted["ToDo override"] = any(control.infotext in pasted for control in CONTROLS.values())
    if pasted["ToDo override"]:
        for name, control in CONTROLS.items():
            pasted.setdefault(control.infotext, DEFAULTS[name])
