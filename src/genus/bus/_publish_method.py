"""`publish` of a collection: one function for the whole life of the collection, whose code is replaced.

Publishing to one handler takes about as long as three calls of Python functions, so that a step in between would be a
third of the time. Two tricks avoid it, which are all here and in `targets.dispatch.embed`:

* Each collection has a class of its own, with a function `publish` of its own: Python calls a method of a class quicker
  than a function in an attribute of the object.
* The function stays, and its `__code__` becomes the generated code of the first class that is published; other classes
  have functions in `publishers`. So `p = collection.publish` is as quick as any other way to call it, whether it was
  taken before the first event, before a change of subscriptions, or later. Generated code has all that it uses as
  constants, its counter included, as a function's globals and outer variables cannot be replaced with its code. A
  thread that is in old code goes on with what was current when it began, and counts there.
"""

from types import CodeType, FunctionType
from typing import Any


class PublishMethod:
    """State: the function `publish` of one collection."""

    def __init__(self, like: FunctionType) -> None:
        """Make a function that does what another one does, with its name and docstring."""
        self.function = FunctionType(like.__code__, like.__globals__, like.__name__)
        self.function.__qualname__, self.function.__doc__ = like.__qualname__, like.__doc__
        self._first_code = like.__code__

    def use(self, code: CodeType) -> None:
        """Run generated code from the next call on."""
        self.function.__code__ = code

    def reset(self) -> None:
        """Run the first code from the next call on."""
        self.function.__code__ = self._first_code


def new_class(base: type, publish: Any) -> "tuple[type, PublishMethod]":
    """Return a subclass with a function `publish` of its own, which does what that of the base does, and its method."""
    method = PublishMethod(publish)
    names = {"__doc__": base.__doc__, "__module__": base.__module__, "publish": method.function}
    return type(base.__name__, (base,), names), method
