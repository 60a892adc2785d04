"""A small validator of JSON Schema."""

from __future__ import annotations

import re
from typing import Any

TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


class Validator:
    """As much of draft 2020-12 as the schema uses."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def accepts(self, value: Any) -> bool:
        return self.evaluate(self.root, value) is not None

    def evaluate(self, rule: Any, value: Any) -> set[str] | None:
        """The keys that the rule has looked at; None where it refuses."""
        if isinstance(rule, bool):
            return set() if rule else None
        seen: set[str] = set()
        parts = [rule.get("allOf", []), [self.resolve(rule["$ref"])] if "$ref" in rule else []]
        for inner in [part for group in parts for part in group]:
            looked = self.evaluate(inner, value)
            if looked is None:
                return None
            seen |= looked
        if "anyOf" in rule:
            passed = [looked for inner in rule["anyOf"] if (looked := self.evaluate(inner, value)) is not None]
            if not passed:
                return None
            seen |= set().union(*passed)
        if "if" in rule:
            branch = "then" if self.evaluate(rule["if"], value) is not None else "else"
            looked = self.evaluate(rule.get(branch, True), value)
            if looked is None:
                return None
            seen |= looked
        if not self.fits(rule, value):
            return None
        return self.keys(rule, value, seen) if isinstance(value, dict) else seen

    def fits(self, rule: dict[str, Any], value: Any) -> bool:
        if "type" in rule and not any(
            self.is_of(value, t) for t in ([rule["type"]] if isinstance(rule["type"], str) else rule["type"])
        ):
            return False
        if "enum" in rule and not any(value == c and type(value) is type(c) for c in rule["enum"]):
            return False
        if "const" in rule and value != rule["const"]:
            return False
        if isinstance(value, str) and "pattern" in rule and not re.search(rule["pattern"], value):
            return False
        return not isinstance(value, list) or self.items(rule, value)

    def items(self, rule: dict[str, Any], value: list[Any]) -> bool:
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            return False
        first = rule.get("prefixItems", [])
        pairs = [*zip(first, value, strict=False), *((rule.get("items", True), item) for item in value[len(first) :])]
        return all(self.evaluate(inner, item) is not None for inner, item in pairs)

    def keys(self, rule: dict[str, Any], value: dict[str, Any], seen: set[str]) -> set[str] | None:
        if any(key not in value for key in rule.get("required", [])):
            return None
        own = {key for key in value if key in rule.get("properties", {})}
        if any(self.evaluate(rule["properties"][key], value[key]) is None for key in own):
            return None
        seen |= own
        for word, rest in (("additionalProperties", set(value) - own), ("unevaluatedProperties", set(value) - seen)):
            if word in rule:
                if any(self.evaluate(rule[word], value[key]) is None for key in rest):
                    return None
                seen |= rest
        return seen

    def resolve(self, reference: str) -> Any:
        found: Any = self.root
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        return found

    @staticmethod
    def is_of(value: Any, name: str) -> bool:
        if name != "boolean" and isinstance(value, bool):
            return False
        return isinstance(value, TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())
