"""Programs that tables need, of the list of `genus doctor`."""

from genus.cli._doctor import PROGRAMS, find_program


class MissingTool(RuntimeError):
    """A compiler, a broker, a browser or a simulator is not installed."""


def check_tools(*names: str) -> None:
    """Raises MissingTool with what to install."""
    if missing := [name for name in names if find_program(name) is None]:
        packages = " ".join(PROGRAMS[name][1] for name in missing)
        raise MissingTool(f"not installed: {', '.join(missing)}. apt install {packages}")
