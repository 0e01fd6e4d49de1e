"""Arguments of calls, added and replaced with the line breaks, commas and comments of those that stay."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

_NONE = cst.SimpleWhitespace("")


def keyword_of(call: cst.Call, name: str) -> cst.Arg | None:
    """The keyword argument of a name."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)


def with_argument(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """The call with a keyword argument: in the place of the one of that name, else behind the last."""
    given = keyword_of(call, name)
    if given is not None:
        return call.with_changes(args=[arg.with_changes(value=value) if arg is given else arg for arg in call.args])
    spaces: Sequence[cst.BaseParenthesizableWhitespace] = [cst.SimpleWhitespace(""), cst.SimpleWhitespace("")]
    usual = next((arg.equal for arg in call.args if isinstance(arg.equal, cst.AssignEqual)), None)
    equal = usual or cst.AssignEqual(whitespace_before=spaces[0], whitespace_after=spaces[1])
    if not call.args:
        return call.with_changes(args=[cst.Arg(value, keyword=cst.Name(name), equal=equal)])
    *before, last = call.args
    new = cst.Arg(
        value,
        keyword=cst.Name(name),
        equal=equal,
        comma=_uncommented(last.comma),
        whitespace_after_arg=_bare(last.whitespace_after_arg),
    )
    shape = before[-1].comma if before else cst.MaybeSentinel.DEFAULT
    gap = shape.whitespace_after if isinstance(shape, cst.Comma) else call.whitespace_before_args
    if not before and isinstance(gap, cst.SimpleWhitespace):
        gap = cst.SimpleWhitespace(" ")
    gap = _bare(gap)
    comment = _comment(last)
    if comment is not None:
        below = (
            gap
            if isinstance(gap, cst.ParenthesizedWhitespace)
            else cst.ParenthesizedWhitespace(last_line=cst.SimpleWhitespace("    "))
        )
        gap = below.with_changes(first_line=comment)
    kept = last.with_changes(comma=cst.Comma(whitespace_after=gap), whitespace_after_arg=_NONE)
    return call.with_changes(args=[*before, kept, new])


def _comment(arg: cst.Arg) -> cst.TrailingWhitespace | None:
    """The rest of the line behind an argument, where it holds a comment."""
    for space in (arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else None, arg.whitespace_after_arg):
        if isinstance(space, cst.ParenthesizedWhitespace) and space.first_line.comment is not None:
            return space.first_line
    return None


def _bare(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """White space without its comments and empty lines."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=cst.TrailingWhitespace(newline=space.first_line.newline), empty_lines=[])
    return space


def _uncommented(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma | cst.MaybeSentinel:
    return comma.with_changes(whitespace_after=_bare(comma.whitespace_after)) if isinstance(comma, cst.Comma) else comma


def without_argument(call: cst.Call, name: str) -> cst.Call:
    """The call without a keyword argument; the white space before the closing bracket stays."""
    index = next(index for index, arg in enumerate(call.args) if arg.keyword is not None and arg.keyword.value == name)
    args = list(call.args)
    removed = args.pop(index)
    if args and index == len(args):
        args[-1] = args[-1].with_changes(comma=removed.comma, whitespace_after_arg=removed.whitespace_after_arg)
    return call.with_changes(args=args)
