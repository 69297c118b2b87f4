"""What the tests of the guarantees share: over which hosts they run, and what they compare."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from zoo import ZOO, Host, host_named, model_of, reduced_everywhere, run, unet_inputs

import todome
from todome import Downsample, Merge

QUICK = {"sd1", "sdxl", "gligen", "animatediff", "svd", "ldm1", "sgm"}  # hosts that `make test` tries, one of each kind
both = pytest.mark.parametrize("kind", [Downsample, Merge])


def over(hosts: Iterable[Host]) -> Any:
    cases = [host if host.name in QUICK else pytest.param(host, marks=pytest.mark.thorough) for host in hosts]
    return pytest.mark.parametrize("host", cases, ids=str)


over_zoo = over(ZOO)
# One host of each kind of code. Guarantees 1 to 3 are enough for those whose sizes or wrapper alone differ.
BLOCKS = [host for host in ZOO if host.name not in ("sd1", "sd2", "ldm1-wrapped")]
over_blocks = over(BLOCKS)


def among(*names: str) -> Any:
    return over(map(host_named, names))


def reduced(host: Host, target: Any, kind: type, step: int = 3, **changes: Any) -> Tensor:
    """The output in one step under a patch that is taken off again."""
    with todome.apply(target, reduced_everywhere(kind, host, **changes)) as patch:
        patch.at(step, 10)
        return host.run(target)


def pickled(target: Any) -> Any:
    return pickle.loads(pickle.dumps(target))


def assert_copy_stands_alone(host: Host, target: Any, reduction: Any, copied: Callable[[Any], Any]) -> None:
    """It is reduced as the first one was, in the step of then; neither of them takes part in what the other does."""
    dense = host.run(target)
    patch = todome.apply(target, reduction)
    patch.at(7, 10)
    expected = host.run(target)
    twin = copied(target)
    patch.at(2, 10)  # the copy's clock is its own
    assert not torch.equal(host.run(target), expected)
    assert torch.equal(host.run(twin), expected)
    patch.at(7, 10)
    todome.remove(twin)
    assert torch.equal(host.run(twin), dense)
    assert not any(hooks for _, hooks in hook_tables(twin))
    assert torch.equal(host.run(target), expected)
    again = copied(target)
    patch.remove()
    assert torch.equal(host.run(target), dense)
    assert torch.equal(host.run(again), expected)
    todome.apply(again, reduction).at(7, 10)  # the patch of a copy can be replaced like any other
    assert torch.equal(host.run(again), expected)


def steps_of(model: Any, patch: todome.Patch, steps: int = 5, **inputs: Any) -> list[Tensor]:
    """The outputs of a run of the model over so many steps."""
    outputs = []
    for step in range(steps):
        patch.at(step, steps)
        outputs.append(run(model, **(inputs or unet_inputs())))
    return outputs


def assert_same_run(compiled: list[Tensor], eager: list[Tensor]) -> None:
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def snapshot(target: Any) -> dict[str, Any]:
    """Every attribute of every module, with what is in the tables among them: hooks, parameters, children."""
    return {
        name: {attr: dict(value) if isinstance(value, dict) else value for attr, value in vars(module).items()}
        | {"class": type(module)}
        for name, module in model_of(target).named_modules()
    }


def hook_tables(target: Any) -> list[tuple[str, dict[int, Any]]]:
    return [(name, table) for name, table in tables_of(snapshot(target)) if name.endswith("_hooks")]


def tables_of(attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    return [item for module in attributes.values() for item in module.items()]


def gradients(model: Any, inputs: list[dict[str, Any]]) -> list[Tensor]:
    """Of a loss over one call for each of the inputs, before one backward pass."""
    outputs = [model(**given) for given in inputs]
    loss = torch.stack([tensor.square().mean() for output in outputs for tensor in tensors_in(output)]).sum()
    return list(torch.autograd.grad(loss, used_parameters(model), allow_unused=False))


def tensors_in(output: Any) -> list[Tensor]:
    output = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [output] if isinstance(output, Tensor) else [t for part in output for t in tensors_in(part)]


def used_parameters(model: nn.Module) -> list[Tensor]:
    """Those of every attention: they feel a wrong choice first."""
    return [parameter for name, parameter in model.named_parameters() if ".to_k." in name or ".to_v." in name]
