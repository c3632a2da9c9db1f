"""
Read the YAML of resilience4j (Spring Boot) as our own document, its semantics kept.

An instance takes what it does not set from its `baseConfig`, else from the config `default`, else from resilience4j's
own defaults, as `Common…ConfigurationProperties` of resilience4j 2 does. Property names are compared as Spring does:
failureRateThreshold, failure-rate-threshold and failure_rate_threshold are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from halfopen._core.checking import nearest
from halfopen.config.items import Findings, Item, Path, dotted, plain
from halfopen.config.resilience4j_modules import MODULES, Module
from halfopen.config.resilience4j_properties import Properties, canonical
from halfopen.config.resilience4j_waits import inherited_waits

__all__ = ["Lost", "is_resilience4j", "translated"]

Lost = tuple[str, str, int | None]
"""A path, what has no exact twin there, and its line."""

ROOT = "resilience4j"
_THREAD_POOL = canonical("thread-pool-bulkhead")
_NO_EFFECT = "has no effect in resilience4j without the wait beside it; so here"
_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def is_resilience4j(documents: Iterable[Item]) -> bool:
    """Say whether any of the documents has settings of resilience4j."""
    return any(
        key == ROOT or key.startswith(ROOT + ".")
        for document in documents
        if document.is_table
        for key in document.value
    )


def translated(documents: list[Item], findings: Findings) -> tuple[Item, list[Lost]]:
    """Return what is set in our own notation, and the notes on what has no exact twin."""
    lost: list[Lost] = []
    tree: dict[str, Item] = {}
    for document in documents:
        profile = _profile(document)
        if profile is None:
            tree = _joined(tree, _spread(document))
        elif _settings(_spread(document)):
            lost.append((ROOT, f'the document for the profile "{profile}" is left out', document.line))
    reader = _Translation(findings, lost)
    whole = tree.get(ROOT)
    if whole is not None and not whole.is_table and whole.value is not None:
        findings.wrong(whole, "a table of modules, such as circuitbreaker")
    # Thread pools last: where a bulkhead has the same name, it is they that give way, however the file is ordered.
    for name, item in sorted(_settings(tree).items(), key=lambda module: canonical(module[0]) == _THREAD_POOL):
        reader.module(name, item)
    return Item(reader.root, ()), lost


def _settings(tree: dict[str, Item]) -> dict[str, Item]:
    item = tree.get(ROOT)
    return item.value if item is not None and item.is_table else {}


def _profile(document: Item) -> str | None:
    item: Item | None = Item(_spread(document), ())
    for key in ("spring", "config", "activate", "on-profile"):
        item = item.value.get(key) if item is not None and item.is_table else None
    return None if item is None else str(item.value)


def _spread(item: Item, path: Path = ()) -> dict[str, Item]:
    """Spread keys with dots over tables; ``[a.b]`` in a key is one part, as in Spring."""
    result: dict[str, Item] = {}
    for key, below in item.value.items() if item.is_table else ():
        parts = tuple(one or other for one, other in _PART.findall(key)) or (key,)
        place = (*path, *parts)
        value = Item(_spread(below, place) if below.is_table else below.value, place, below.line)
        for length in range(len(parts) - 1, 0, -1):
            value = Item({parts[length]: value}, (*path, *parts[:length]), below.line)
        result = _joined(result, {parts[0]: value})
    return result


def _joined(low: dict[str, Item], high: dict[str, Item]) -> dict[str, Item]:
    result = dict(low)
    for key, item in high.items():
        old = result.get(key)
        both = old is not None and old.is_table and item.is_table
        result[key] = Item(_joined(old.value, item.value), item.path, item.line) if both and old else item
    return result


@dataclass(slots=True)
class _Translation:
    findings: Findings
    lost: list[Lost]
    root: dict[str, Item] = field(default_factory=dict[str, Item])
    templates: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def module(self, name: str, item: Item) -> None:
        module = MODULES.get(canonical(name))
        if module is None:
            near = nearest(canonical(name), MODULES)
            self.lost.append((dotted(item.path), "not a module we know; left out", item.line))
            if near:
                self.findings.wrong(item, "no module of resilience4j", "unknown_key", suggestion=MODULES[near].name)
            return
        if not item.is_table and item.value is not None:
            self.findings.wrong(item, "a table with instances and configs")
        groups = {canonical(key): below for key, below in item.table.items()}
        configs = self._tables(groups.get("configs"))
        instances = {**self._tables(groups.get("backends")), **self._tables(groups.get("instances"))}
        for key, below in groups.items():
            if key not in ("configs", "instances", "backends"):
                self.lost.append((dotted(below.path), "has no twin here; left out", below.line))
        for config, below in configs.items():
            self._add("template", module, config, below, configs)
        for instance, below in instances.items():
            self._add("", module, instance, below, configs)

    def _tables(self, item: Item | None) -> dict[str, Item]:
        if item is None or item.value is None:
            return {}
        if not item.is_table:
            self.findings.wrong(item, "a table of names")
            return {}
        # An instance without settings is written as a bare name.
        tables: dict[str, Item] = {}
        for name, below in item.value.items():
            if below.is_table or below.value is None:
                tables[name] = Item(below.value or {}, below.path, below.line)
            else:
                self.findings.wrong(below, "a table of settings")
        return tables

    def _add(self, where: str, module: Module, name: str, item: Item, configs: dict[str, Item]) -> None:
        chain = self._chain(module, name, item, configs, where == "template")
        whole = self._translate(module, [below for _, below in chain], item, noting=True)
        target = self.root
        if where:
            target = target.setdefault(where, Item({}, (where,))).value
        elif chain[1:] and not self._cut(chain):
            base = self._translate(module, [below for _, below in chain[1:]], chain[1][1], noting=False)
            whole = {key: value for key, value in whole.items() if key not in base or not _same(base[key], value)}
            template = self.templates[module.name, chain[1][0]]
            whole = {"template": Item(template, item.path, item.line), **whole}
        section = target.setdefault(module.section, Item({}, (module.section,))).value
        ours = name
        while ours in section:  # a thread pool bulkhead beside a bulkhead
            ours += "-threads"
        if ours != name:
            self.lost.append((dotted(item.path), f'named "{ours}", as there is another bulkhead "{name}"', item.line))
        if where:
            self.templates[module.name, name] = ours
        section[ours] = Item(whole, item.path, item.line)

    def _cut(self, chain: list[tuple[str, Item]]) -> bool:
        """Say whether a chain ends at a config that, as a template, inherits more."""
        return chain[-1][0] == chain[0][0] and _property(chain[-1][1], "baseconfig") is not None

    def _chain(
        self, module: Module, name: str, item: Item, configs: dict[str, Item], is_config: bool
    ) -> list[tuple[str, Item]]:
        """Return the item and what it inherits from, nearest first."""
        chain = [(name, item)]
        while True:
            base = self._base(module, *chain[-1], configs, is_config or len(chain) > 1)
            if base is None:
                return chain
            if any(base is known for known, _ in chain[1:]) or (is_config and base == name):
                where = _property(item, "baseconfig") or item
                names = " → ".join([*(known for known, _ in chain), base])
                self.findings.wrong(where, f"configs go in a circle: {names}", "conflict")
                return chain
            chain.append((base, configs[base]))
            if base == name and not is_config:
                return chain  # an instance takes a config of its own name alone

    def _base(self, module: Module, name: str, item: Item, configs: dict[str, Item], is_config: bool) -> str | None:
        given = _property(item, "baseconfig")
        if given is not None:
            base = str(given.value)
            if base in configs:
                return base
            near = nearest(base, configs)
            self.findings.wrong(given, f"there is no config {base!r}", "missing", suggestion=near)
            return None
        if module.section == "breaker":
            # A config counts alone there; an instance of the same name takes it before the default.
            if is_config:
                return None
            if name in configs:
                return name
        return "default" if "default" in configs and not (is_config and name == "default") else None

    def _translate(self, module: Module, chain: list[Item], where: Item, *, noting: bool) -> dict[str, Item]:
        # A key without a value sets nothing.
        levels = [{canonical(k): b for k, b in item.value.items() if b.value is not None} for item in chain]
        properties: dict[str, Item] = {}
        for level in reversed(levels):
            properties.update(level)
        properties.pop("baseconfig", None)
        waits, without_effect = inherited_waits(module.section, levels)
        properties.update({name: item for name, item in waits.items() if item is not None})
        for name in [name for name, item in waits.items() if item is None]:
            properties.pop(name, None)
        own = {below.path for below in where.value.values()} if where.is_table else set[Path]()
        notes: list[Lost] = []
        report = Properties(properties, where, self.findings if noting else Findings(""), notes)
        if noting:
            self._check_known(module, where, report)
            notes += [(dotted(item.path), _NO_EFFECT, item.line) for item in without_effect]
        result = module.translate(report)
        if noting:
            # What was inherited has been told of with the config that sets it.
            paths = {dotted(path) for path in own}
            self.lost += [note for note in notes if note[0] in paths]
            told = {text for _, text, _ in self.lost}
            self.lost += [note for note in notes if note[0] == dotted(where.path) and note[1] not in told]
        return result

    def _check_known(self, module: Module, item: Item, report: Properties) -> None:
        for key, below in item.value.items():
            name = canonical(key)
            if name in module.twins or name == "baseconfig":
                continue
            if name in module.without_twin:
                report.note(name, module.without_twin[name])
                continue
            near = nearest(name, [canonical(known) for known in module.known])
            if near is None:
                report.note(name, "is no setting we know; left out")
                continue
            suggestion = next(known for known in module.known if canonical(known) == near)
            self.findings.wrong(below, "no setting of resilience4j", "unknown_key", suggestion=suggestion)


def _property(item: Item, name: str) -> Item | None:
    return next((below for key, below in item.value.items() if canonical(key) == name), None)


def _same(one: Item, other: Item) -> bool:
    return bool(plain(one) == plain(other))
