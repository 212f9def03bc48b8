"""What a function takes, with the options that it takes as ``**options: Unpack[…]`` spelled out."""

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["signature_of"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; each of its typed options is a parameter of its own."""
    signature = inspect.signature(function)
    return signature.replace(parameters=[*_spelled_out(function, signature)])


def _spelled_out(
    function: Callable[..., Any], signature: inspect.Signature
) -> Iterator[inspect.Parameter]:
    for parameter in signature.parameters.values():
        options = _options_of(function, parameter)
        for name, kind in options.items():
            yield inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
            )
        if not options:
            yield parameter


def _options_of(function: Callable[..., Any], parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.kind is not parameter.VAR_KEYWORD:
        return {}
    kind = typing.get_type_hints(function).get(parameter.name)
    return typing.get_type_hints(typing.get_args(kind)[0]) if typing.get_args(kind) else {}
