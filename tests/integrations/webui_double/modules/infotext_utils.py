"""The text in a picture: written from the parameters of a generation, and pasted back into the controls of a tab."""

from typing import Any

from modules import script_callbacks, shared


def written(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in params.items() if value is not None)


def parsed(infotext: str) -> dict[str, Any]:
    return dict(pair.split(": ", 1) for pair in infotext.split(", "))


def paste(infotext: str, fields: list[Any]) -> dict[str, Any]:
    """Sets the controls, and returns the settings that are overridden because no control took them."""
    params = parsed(infotext)
    script_callbacks.call("infotext_pasted", infotext, params)
    for control, name in fields:
        if params.get(name) is not None:
            kind = type(control.value)
            control.value = False if kind is bool and params[name] == "False" else kind(params[name])
    handled = {name for _, name in fields}
    labels = shared.opts.data_labels.items()
    pasted = {key: params[info.infotext] for key, info in labels if info.infotext in {*params} - handled}
    cast = {key: shared.opts.cast_value(key, value) for key, value in pasted.items()}
    return {key: value for key, value in cast.items() if value != getattr(shared.opts, key)}
