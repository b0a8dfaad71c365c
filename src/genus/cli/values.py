"""What click's types of values derive from."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParamType = click.ParamType
else:

    class ParamType(click.ParamType):
        """click's own, which can be written with the type of its values only since click 8.5."""

        def __class_getitem__(cls, of: Any) -> type:
            return cls
