"""The C that docs/devices.md shows compiles with what its Python generates."""

import re
import subprocess
from pathlib import Path
from typing import Any

from .compiled import STRICT, needs_compiler, require_compiler

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
FUNCTION = """
void statements(uint32_t identifier, const uint8_t *data, uint16_t size, uint8_t sequence, uint8_t *payload);
void statements(uint32_t identifier, const uint8_t *data, uint16_t size, uint8_t sequence, uint8_t *payload)
{{
{body}
    (void)status; (void)length;
}}
"""


@needs_compiler
def test_the_c_on_the_page_compiles(tmp_path: Path) -> None:
    text = PAGE.read_text()
    names: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]), names)
    names["made"].write(tmp_path)
    whole, *parts = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    assert len(parts) == 2
    body = "\n".join(parts).replace("identifier & 0x3FFFU", "(uint16_t)(identifier & 0x3FFFU)")
    (tmp_path / "page.c").write_text(whole + FUNCTION.format(body=body))
    command = [require_compiler(), *STRICT, "-Wno-sizeof-pointer-div", "-fsyntax-only", str(tmp_path / "page.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
