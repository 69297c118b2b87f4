"""What the tests of the extension share."""

from collections.abc import Iterator

import pytest
from webui_world import WebUI, ldm_model, own_modules


@pytest.fixture
def webui() -> Iterator[WebUI]:
    with own_modules():
        yield WebUI(ldm_model())
