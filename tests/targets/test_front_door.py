"""The front door of `genus.targets`: modules of one shape, imported when they are used."""

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

from genus import targets
from genus.targets import (
    ArrowFilter,
    CanFilter,
    ClassDispatcher,
    CoapFilter,
    PythonFilter,
    SparkFilter,
    SubscriptionIndex,
    TopicFilter,
)

MADE = {
    "arrow": ArrowFilter,
    "can": CanFilter,
    "coap": CoapFilter,
    "dispatch": ClassDispatcher,
    "index": SubscriptionIndex,
    "python": PythonFilter,
    "spark": SparkFilter,
    "topics": TopicFilter,
}


@pytest.mark.parametrize("name", MADE)
def test_every_target_compiles_to_something_that_explains_itself(name: str) -> None:
    module = getattr(targets, name)
    assert isinstance(module, ModuleType)
    assert module.__name__ == f"genus.targets.{name}"
    assert {"compile", MADE[name].__name__} <= set(module.__all__)
    assert inspect.signature(module.compile).return_annotation in (MADE[name], MADE[name].__name__)
    assert callable(getattr(MADE[name], "explain", None))


def test_importing_the_package_imports_no_target() -> None:
    check = "import sys, genus.targets; print([name for name in sys.modules if name.startswith('genus.targets.')])"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'genus.targets' has no attribute 'flink'"):
        _ = targets.flink  # type: ignore[attr-defined]
