"""Options, the state of a run, and the loaded model."""

from types import SimpleNamespace
from typing import Any


class OptionInfo:
    def __init__(self, default=None, label="", component=None, component_args=None, infotext=None) -> None:
        self.default, self.label, self.component, self.component_args = default, label, component, component_args
        self.infotext, self.comment_after = infotext, ""
        self.section: tuple[str, str] | None = None

    def info(self, text: str) -> "OptionInfo":
        self.comment_after += f"({text})"
        return self


class Options:
    """Values that were set or saved, else the defaults of what is registered."""

    def __init__(self) -> None:
        self.__dict__["data"] = {"batch_cond_uncond": True}
        self.__dict__["data_labels"] = {}

    def add_option(self, key: str, info: OptionInfo) -> None:
        self.data_labels[key] = info
        self.data.setdefault(key, info.default)

    def __getattr__(self, key: str) -> Any:
        if key not in self.data:
            raise AttributeError(key)
        return self.data[key]

    def __setattr__(self, key: str, value: Any) -> None:
        self.data[key] = value

    def cast_value(self, key: str, value: Any) -> Any:
        kind = type(self.data_labels[key].default)
        return False if kind is bool and value == "False" else kind(value)


opts = Options()
state = SimpleNamespace(interrupted=False, sampling_step=0, sampling_steps=0)
sd_model: Any = None
