"""The typing files are checked by `make check`; this one makes sure that a lost error would be noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TYPED = HERE / "breaker.py"

LOSSES = [
    # An error that goes away leaves a comment behind that ignores nothing.
    ('    pay("3", "account")  # type: ignore[arg-type]', '    pay(3, "account")  # type: ignore[arg-type]'),
    # A type that is lost is no longer the asserted one.
    ("@breaker\ndef rows", "@cast_away\ndef rows"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), LOSSES, ids=["error", "type"])
def test_mypy_notices_a_lost_error_and_a_lost_type(before: str, after: str, tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    source = TYPED.read_text()
    assert 1 == source.count(before)
    lost = tmp_path / "lost.py"
    helper = "\n\ndef cast_away(fn: Any) -> Any:\n    return fn\n\n\n@breaker\ndef pay("
    lost.write_text(source.replace(before, after).replace("\n\n@breaker\ndef pay(", helper))

    config = str(HERE.parents[1] / "pyproject.toml")
    out, err, code = api.run(["--config-file", config, "--cache-dir", str(tmp_path / "cache"), str(lost)])

    assert (1, "") == (code, err)
    assert "unused-ignore" in out or "assert-type" in out
