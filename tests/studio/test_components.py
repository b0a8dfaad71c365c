"""The components of Studio's page for other pages: joined into one script, with what they need before them."""

import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files

import pytest

from genus.studio import bundle, stylesheet, vendor

PAGE = files("genus.studio").joinpath("page")
COMPONENTS = {
    path.name.removesuffix(".js"): path.read_text(encoding="utf-8")
    for path in PAGE.joinpath("components").iterdir()
    if path.name.endswith(".js")
}


def test_a_bundle_has_what_is_imported_before_what_imports_it() -> None:
    """Once each, also if several components import it."""
    text = bundle("timeline", "tree", "chart")
    assert text.count("function fillElement(") == 1
    assert text.index("function h(") < text.index("class BusAxis") < text.index("class Timeline")
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)


def test_a_bundle_gives_the_exports_of_the_components_that_were_asked_for() -> None:
    """And not those of what they import."""
    assert bundle("bits").splitlines()[-2] == "return { drawBits, bitsLegend };"


def test_an_unknown_component_is_named() -> None:
    """With the file that is missing."""
    with pytest.raises(ValueError, match=r"Studio's page has no components/clock\.js"):
        bundle("clock")
    with pytest.raises(ValueError, match="no vendor/jquery"):
        vendor("jquery")


def test_every_component_can_be_bundled() -> None:
    """All together in one scope: no name is defined twice, and imports have the one form that is followed."""
    names = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|let|class) +([A-Za-z_$][\w$]*)", re.MULTILINE)
    defined = Counter(name for text in COMPONENTS.values() for name in names.findall(text))
    assert [name for name, number in defined.items() if number > 1] == []
    for name, text in COMPONENTS.items():
        lines = [line for line in text.splitlines() if re.match(r"(import|export)\b", line)]
        form = r'import \{ [^}]+ \} from "\./[a-z-]+\.js";|export (async )?(function|const|class) .*'
        assert [line for line in lines if not re.fullmatch(form, line)] == [], name
    text = bundle(*COMPONENTS)
    assert "</script" not in text.lower()


def test_the_styles_of_the_design_and_of_the_pictures_are_there() -> None:
    """In this order: the second uses the tokens of the first."""
    text = stylesheet()
    assert 0 <= text.index("--vermilion:") < text.index(".timeline-area")


def test_components_need_no_server() -> None:
    """The report of an application uses them without the extra `studio`."""
    code = "import sys; from genus.studio import bundle; bundle('bits'); assert 'starlette' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
