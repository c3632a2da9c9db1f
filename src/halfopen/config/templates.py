"""Templates: settings written once, and the policies and templates that inherit them."""

from __future__ import annotations

from collections.abc import Mapping

from halfopen.config.items import DEEPEST, Findings, Item

__all__ = ["Templates", "merged"]

KEY = "template"


class Templates:
    """
    The templates of a file, by kind and name.

    ``template = "base"`` inherits from one, ``template = ["base", "slow"]`` from several, of which a later one counts
    more; what is given beside it counts most. Tables such as `half_open` are merged, everything else is replaced.
    """

    def __init__(self, root: Item | None, findings: Findings) -> None:
        self._findings = findings
        self._cycles: set[frozenset[str]] = set()
        # What a template comes to with all it inherits, worked out once, and through how many others it does.
        self._whole: dict[tuple[str, str], tuple[dict[str, Item], int]] = {}
        self.tables: dict[str, dict[str, Item]] = {}
        for section, of_kind in _tables(root, findings, "a table of templates by kind and name").items():
            allowed = f"a table of templates by name: [template.{section}.NAME]"
            self.tables[section] = dict(_tables(of_kind, findings, allowed))

    def inherited(self, section: str, item: Item, chain: tuple[str, ...] = ()) -> dict[str, Item]:
        """Return the settings of *item* with those of its templates below them."""
        return self._inherited(section, item, chain)[0]

    def _inherited(self, section: str, item: Item, chain: tuple[str, ...]) -> tuple[dict[str, Item], int]:
        own = {key: below for key, below in item.table.items() if key != KEY}
        bases: dict[str, Item] = {}
        height = 0
        for name_item in _names(item.table.get(KEY), self._findings):
            base = self._find(section, name_item, chain)
            if base is None:
                continue
            below, deep = self._base(section, str(name_item.value), base, chain)
            if deep >= DEEPEST:
                self._findings.wrong(name_item, f"templates inherit through at most {DEEPEST} others", "conflict")
                continue
            bases = merged(bases, below)
            height = max(height, deep + 1)
        return merged(bases, own), height

    def _base(self, section: str, name: str, base: Item, chain: tuple[str, ...]) -> tuple[dict[str, Item], int]:
        if (section, name) not in self._whole:
            if len(chain) > DEEPEST:
                return {}, DEEPEST
            self._whole[section, name] = self._inherited(section, base, (*chain, name))
        return self._whole[section, name]

    def _find(self, section: str, item: Item, chain: tuple[str, ...]) -> Item | None:
        name = str(item.value)
        known = self.tables.get(section, {})
        if name in chain:
            self._note_cycle(item, (*chain[chain.index(name) :], name))
        elif name in known and known[name].is_table:
            return known[name]
        elif name not in known:
            near = self._findings.nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            allowed = f"there is no template.{section}.{name}{hint}"
            self._findings.wrong(item, allowed, "missing", suggestion=near)
        return None

    def _note_cycle(self, item: Item, cycle: tuple[str, ...]) -> None:
        if frozenset(cycle) not in self._cycles:
            self._cycles.add(frozenset(cycle))
            self._findings.wrong(item, "templates go in a circle: " + " → ".join(cycle), "conflict")


def merged(low: Mapping[str, Item], high: Mapping[str, Item]) -> dict[str, Item]:
    """Return the settings of both; where both have one, that of *high*, and tables merged."""
    result = dict(low)
    for key, item in high.items():
        below = result.get(key)
        both = below is not None and below.is_table and item.is_table
        result[key] = Item(merged(below.table, item.table), item.path, item.line) if below and both else item
    return result


def _names(given: Item | None, findings: Findings) -> list[Item]:
    if given is None:
        return []
    parts = given.parts if given.is_list else [given]
    if all(isinstance(part.value, str) for part in parts):
        return parts
    findings.wrong(given, "the name of a template, or a list of names")
    return []


def _tables(item: Item | None, findings: Findings, allowed: str) -> Mapping[str, Item]:
    if item is None:
        return {}
    if item.is_table:
        return item.table
    findings.wrong(item, allowed)
    return {}
