"""The programs that the integrations are tried in."""

from collections.abc import Iterator
from typing import Any

import pytest
from comfy_host import comfyui, load_nodes
from webui_world import ForgeUI, WebUI, own_modules


@pytest.fixture(scope="session")
def comfy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with comfyui(tmp_path_factory.mktemp("comfyui")) as modules:
        yield modules


@pytest.fixture(scope="session")
def nodes() -> Any:
    return load_nodes()


@pytest.fixture
def webui() -> Iterator[WebUI]:
    with own_modules():
        yield WebUI()


@pytest.fixture
def forge(comfy: Any) -> Iterator[ForgeUI]:
    with own_modules():
        yield ForgeUI(comfy)


@pytest.fixture(params=["webui", "forge"])
def either(request: pytest.FixtureRequest) -> Any:
    """AUTOMATIC1111's webui, whose model is hooked, or Forge, whose UNet calls patches."""
    return request.getfixturevalue(request.param)
