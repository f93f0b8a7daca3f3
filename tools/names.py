"""Find names that are pronouns: ``names.py FOLDER…`` lists them, and fails on any.

A name says what a thing is. These words may stand in comments and sentences; as names of parameters,
variables, attributes, functions and classes they make a reader look up what they stand for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PRONOUNS = frozenset({"one", "own", "found", "made", "there", "other", "both"})
#: Fields and properties that are a stage, or a key of the JSON that scripts rely on.
FIELDS = frozenset({"other", "found"})


def names_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that the code gives to something, with its line."""
    fields = {id(part) for node in ast.walk(tree) for part in _fields_of(node)}
    for node in ast.walk(tree):
        if id(node) in fields:
            continue
        line = getattr(node, "lineno", 0)
        for name in _given_by(node):
            yield name, line


def _given_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name


def _fields_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the fields and properties of a class that may have such a name."""
    for part in node.body if isinstance(node, ast.ClassDef) else ():
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
