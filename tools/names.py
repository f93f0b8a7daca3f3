"""Find names that are pronouns: ``names.py FOLDER…`` lists them, and fails on any.

A name says what a thing is. These words may stand in comments and sentences; as names of parameters,
variables, attributes, functions and classes they make a reader look up what they stand for.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

PRONOUNS = frozenset({"one", "own", "found", "made", "there", "other", "both"})
#: Fields and properties that are a stage, or a key of the JSON that scripts rely on.
FIELDS = frozenset({"other", "found"})


STORED = ast.Store()
#: What of a node is a name that the code gives to something.
GIVEN = {
    ast.arg: "arg",
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.alias: "asname",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
}


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that the code gives to something, with its line."""
    fields: set[ast.AST] = set()
    # A class comes before its fields.
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields.update(_fields_of(node))
        given = GIVEN.get(type(node))
        if given is None or node in fields:
            continue
        name = getattr(node, given)
        # Names and attributes that are only read have been given elsewhere.
        if name and isinstance(getattr(node, "ctx", STORED), ast.Store):
            yield name, getattr(node, "lineno", 0)


def _fields_of(node: ast.ClassDef) -> Iterator[ast.AST]:
    """Yield the fields and properties of a class that may have such a name."""
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            if part.target.id in FIELDS:
                yield part.target
        elif isinstance(part, ast.FunctionDef) and part.name in FIELDS:
            yield part


def pronouns_in(path: Path) -> list[str]:
    """Return a line for each name in a file that is a pronoun."""
    return [
        f"{path}:{line}: {name}: name the thing"
        for name, line in names_in(ast.parse(path.read_text(), str(path)))
        if name.strip("_") in PRONOUNS
    ]


def main() -> int:
    # Trees refer to no parents: nothing is garbage that is not freed at once.
    gc.disable()
    # Folders that are linked into src/ are read where they are.
    files = [path for folder in sys.argv[1:] for path in sorted(Path(folder).rglob("*.py"))]
    if not files:
        print(f"no Python files in {' '.join(sys.argv[1:]) or 'no folder'}", file=sys.stderr)
        return 2
    lines = [line for path in files for line in pronouns_in(path)]
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
