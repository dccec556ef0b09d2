"""How a call of the synchronous API becomes one that is awaited: with the same signature, and the same text.

Nothing is done twice: what is awaited calls the synchronous method in one of the threads of the device.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)

_READ_AHEAD = 100


class Face(ABC, Generic[S_co]):
    """The awaited calls of an object of the synchronous API."""

    @abstractmethod
    async def do(self, act: Callable[[S_co], T]) -> T:
        """Have a thread do something with the object, and return its result."""


class OpenFace(Face[S_co]):
    """That of an object that is open until it is closed."""

    synchronous: S_co

    @abstractmethod
    async def close(self) -> None:
        """Close the object."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self.synchronous)


class _Closes(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class Opening(Generic[C]):
    """What is being opened: `await` it, or use it as `async with`, which closes it in the end."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._opened = opened
        self._found: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._opened().__await__()

    async def __aenter__(self) -> C:
        self._found = await self._opened()
        return self._found

    async def __aexit__(self, *_error: object) -> None:
        if self._found is not None:
            await self._found.close()


class Property(Generic[T]):
    """A property that has to be read from the store: `await` it."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read

    def __await__(self) -> Generator[Any, None, T]:
        return self._read().__await__()


def awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Face[S], P], Coroutine[Any, Any, T]]:
    """Return a method that awaits what a method of the synchronous API returns."""

    @functools.wraps(method)
    async def call(face: Face[S], /, *given: P.args, **named: P.kwargs) -> T:
        return await face.do(lambda synchronous: method(synchronous, *given, **named))

    return call


def iterated(
    method: Callable[Concatenate[S, P], Iterator[T]], ahead: int = _READ_AHEAD
) -> Callable[Concatenate[Face[S], P], AsyncIterator[T]]:
    """Return a method for `async for` over what a method of the synchronous API yields; so many are read at a time."""

    @functools.wraps(method)
    async def call(face: Face[S], /, *given: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        found = await face.do(lambda synchronous: method(synchronous, *given, **named))
        while part := await face.do(lambda _: list(itertools.islice(found, ahead))):
            for each in part:
                yield each

    return call
