"""An index of patterns: which of them include a given one, and which does it include, without a test of each pair.

The patterns stand in a tree by their chunks before the first wildcard for any number of chunks. A wide pattern includes
a narrow one only if the narrow one has each text of these chunks of the wide one in the same place: a wildcard there
would match other texts, too. What the tree finds is tested by `Dialect.includes`, which is exact but slower.
"""

from collections.abc import Iterator

from genus.targets.topics import Dialect

_WILD = None


class _Node:
    """State: the patterns whose chunks end here, and those that go on, by the next chunk."""

    __slots__ = ("following", "patterns")

    def __init__(self) -> None:
        self.patterns: dict[str, None] = {}
        self.following: dict[str | None, _Node] = {}

    def all(self) -> Iterator[str]:
        yield from self.patterns
        for node in self.following.values():
            yield from node.all()


class PatternIndex:
    """State: patterns of a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._root = _Node()

    def add(self, pattern: str) -> None:
        """Add a pattern, if it is not there."""
        node = self._root
        for chunk in self._head(pattern):
            node = node.following.setdefault(chunk, _Node())
        node.patterns[pattern] = None

    def discard(self, pattern: str) -> None:
        """Remove a pattern, if it is there."""
        node, path = self._root, []
        for chunk in self._head(pattern):
            path.append((node, chunk))
            if chunk not in node.following:
                return
            node = node.following[chunk]
        node.patterns.pop(pattern, None)
        for before, chunk in reversed(path):
            node = before.following[chunk]
            if node.patterns or node.following:
                return
            del before.following[chunk]

    def including(self, narrow: str) -> Iterator[str]:
        """The patterns that include one, itself if it is there."""
        nodes, head = [self._root], self._head(narrow)
        while nodes:
            yield from (each for node in nodes for each in node.patterns if self._dialect.includes(each, narrow))
            chunk = head.pop(0) if head else _WILD
            nodes = [node.following[each] for node in nodes for each in {chunk, _WILD} if each in node.following]

    def included_in(self, wide: str) -> list[str]:
        """The patterns that one includes, itself if it is there."""
        return [each for each in self._perhaps_included_in(wide) if self._dialect.includes(wide, each)]

    def _perhaps_included_in(self, wide: str) -> Iterator[str]:
        nodes = [self._root]
        for chunk in self._head(wide):
            if chunk is _WILD:
                yield from (each for node in nodes for each in node.patterns)
                nodes = [each for node in nodes for each in node.following.values()]
            else:
                nodes = [node.following[chunk] for node in nodes if chunk in node.following]
        for node in nodes:
            yield from node.all()

    def _head(self, pattern: str) -> list[str | None]:
        """The chunks before the first wildcard for any number of them; None for those with a wildcard."""
        chunks, dialect = self._dialect.split(pattern), self._dialect
        if dialect.rest in chunks:
            chunks = chunks[: chunks.index(dialect.rest)]
        part = dialect.part
        return [_WILD if chunk == dialect.one or (part and part in chunk) else chunk for chunk in chunks]
