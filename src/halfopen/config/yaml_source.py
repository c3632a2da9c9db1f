"""Read YAML into items, by its nodes: they know their lines, and a key given twice shows."""

from __future__ import annotations

from typing import Any

from halfopen.config.items import DEEPEST, Findings, Item, Path, is_endless

__all__ = ["read_yaml"]

MOST_VALUES = 100_000


def read_yaml(text: str, findings: Findings) -> list[Item] | None:
    """Return the items of each document of a YAML text, or None with a mistake noted."""
    try:
        import yaml
    except ModuleNotFoundError:
        findings.unreadable("YAML needs PyYAML; run: pip install 'halfopen[yaml]'")
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        reader = _Reader(loader, findings)
        documents: list[Item] = []
        while loader.check_node():
            documents.append(reader.item(loader.get_node(), ()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        findings.unreadable(f"not YAML: {error.problem or error.context}", None if mark is None else mark.line + 1)
        return None
    except yaml.YAMLError as error:
        findings.unreadable(f"not YAML: {str(error).splitlines()[0]}")
        return None
    except (RecursionError, _TooMuchError):
        findings.unreadable(f"not a configuration: nested too deeply, or more than {MOST_VALUES:,} values")
        return None
    finally:
        loader.dispose()
    return documents


class _TooMuchError(Exception):
    """More than a configuration can be, perhaps by aliases of aliases."""


class _Reader:
    def __init__(self, loader: Any, findings: Findings) -> None:
        self.loader = loader
        self.findings = findings
        self.count = 0
        self.known: dict[int, Any] = {}

    def item(self, node: Any, path: Path) -> Item:
        self.count += 1
        if self.count > MOST_VALUES or len(path) > DEEPEST:
            raise _TooMuchError
        line = node.start_mark.line + 1
        if node.id == "mapping":
            return Item(self.table(node, path), path, line)
        if node.id == "sequence":
            return Item([self.item(part, (*path, str(n))) for n, part in enumerate(node.value)], path, line)
        try:
            value = self.loader.construct_object(node)
            if is_endless(value):
                raise ValueError("a number of too many digits")
            return Item(value, path, line)
        except ValueError as error:  # of a date, or of a number of too many digits
            why = str(error).partition(";")[0]
            self.findings.wrong(
                Item(str(node.value)[:100], path, line), f"a value that can be read: {why}", "wrong_type"
            )
            return Item(None, path, line)

    def table(self, node: Any, path: Path) -> dict[str, Item]:
        if id(node) not in self.known:  # an alias leads here again
            self.known[id(node)] = node
            self.note_repeated(node, path)
            # Merge keys (<<) come first, so that what is given beside them counts.
            self.loader.flatten_mapping(node)
        result: dict[str, Item] = {}
        for key, value in node.value:
            if key.id != "scalar":
                self.findings.unreadable("a key has to be a text, not a list or a table", key.start_mark.line + 1)
                continue
            below = (*path, str(key.value))
            item = self.item(value, below)
            # The line of the key: a block of settings begins there for a reader.
            result[below[-1]] = Item(item.value, below, key.start_mark.line + 1)
        return result

    def note_repeated(self, node: Any, path: Path) -> None:
        lines: dict[Any, int] = {}
        first: list[tuple[Any, Any]] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id == "scalar" and key.value in lines and key.value != "<<":
                where = Item(None, (*path, str(key.value)), line)
                allowed = f"it is given twice; the first time in line {lines[key.value]}"
                self.findings.wrong(where, allowed, "conflict")
                continue
            if key.id == "scalar":
                lines[key.value] = line
            first.append((key, value))
        node.value = first
