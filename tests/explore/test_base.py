"""The Python face: stable state, one figure to a key, errors that help."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from pe_lab import explore
from tests.explore.conftest import NAMES


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> Any:
    """Each explorable class in turn."""
    return getattr(explore, request.param)


def test_two_constructions_give_the_same_state(kind: Any) -> None:
    states = []
    for _ in range(2):
        figure = kind()
        states.append((figure.model_id, figure._get_embed_state(), repr(figure)))
        states[-1] += (figure.layout.model_id, figure.layout._get_embed_state())
    assert states[0] == states[1]
    assert re.fullmatch(r"pe-[a-z]+(-[a-z]+)*", states[0][0])


def test_repr_builds_the_same_figure_again(kind: Any) -> None:
    text = repr(kind())
    again = eval(text, {kind.__name__: kind})
    assert repr(again) == text
    assert len(text) < 130


def test_the_front_end_stands_alone(kind: Any) -> None:
    module = kind()._esm
    assert not re.search(r'from\s+"\.', module)
    assert "export default" in module


def test_it_says_what_it_shows(kind: Any) -> None:
    assert len(kind().about) > 40
    for word in ("Move:", "Notice:"):
        assert word in kind.__doc__


def test_every_setting_can_be_set(kind: Any) -> None:
    figure = kind()
    assert kind.settings()
    for name in kind.settings():
        value = getattr(figure, name)
        assert getattr(kind(**{name: value}), name) == value


def test_a_new_figure_replaces_the_one_with_its_key(kind: Any) -> None:
    old, other = kind(key="one"), kind(key="two")
    new = kind(key="one")
    assert old.comm is None
    assert new.comm is not None and other.comm is not None
    del old  # its end must not close the channel of the new one
    assert new.model_id == "pe-one"


def test_an_unknown_setting_is_named_with_those_that_exist(kind: Any) -> None:
    with pytest.raises(TypeError, match="has no setting 'wdith'; it has: "):
        kind(wdith=3)


@pytest.mark.parametrize("key", ["Two Words", "", 3, "a--b", "é"])
def test_a_key_that_cannot_be_an_identifier_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="key needs lower-case words"):
        explore.KernelShape(key=key)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="KernelShape"):
        explore.Kernel  # noqa: B018


def test_without_anywidget_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['anywidget'] = None\n"
        "from pe_lab import explore\n"
        "explore.KernelShape\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "ImportError: Explorables need anywidget" in done.stderr
    assert 'pip install "pe-lab[book]"' in done.stderr
