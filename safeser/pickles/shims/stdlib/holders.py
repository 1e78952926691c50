"""Reviewed functions for classes of the standard library that keep everything in ``__dict__``.

The one rule: every field is named here with the types that it may have; nothing else is ever set,
and what has a constructor goes through it.
"""

from __future__ import annotations

import argparse
import email._policybase
import email.message
import email.policy
import logging
import statistics
import string
import types
from collections import ChainMap, UserDict, UserList, UserString
from collections.abc import Callable
from typing import Any

from safeser.pickles.shims.site import Draft, Site, bad, begin, begun, plain
from safeser.types import stdlib as bounds

__all__ = ["SHIMS"]

_NONE = type(None)
# A field is looked at in Python, and one dict of them may be the state of any number of objects.
_FIELD_COST = 3


def _only_field(draft: Any, state: Any, field: str) -> Any:
    if type(draft) is not Draft or plain(state, dict).keys() != {field}:
        raise bad("state", "an object does not have exactly the fields of its class")
    return state[field]


def _chain_map(site: Site, draft: Any, state: Any) -> ChainMap[Any, Any]:
    maps = plain(_only_field(draft, state, "maps"), list)
    # The list itself, as its class keeps it; it must not get unchecked elements later.
    site.copied(maps)
    return bounds.chain_of(maps)


def _user_dict(_: Site, draft: Any, state: Any) -> UserDict[Any, Any]:
    made: UserDict[Any, Any] = UserDict()
    # The dict itself, not a copy: its keys are checked, and it may still be filled.
    made.data = plain(_only_field(draft, state, "data"), dict)
    return made


def _user_list(_: Site, draft: Any, state: Any) -> UserList[Any]:
    made: UserList[Any] = UserList()
    made.data = plain(_only_field(draft, state, "data"), list)
    return made


def _user_string(_: Site, name: str, *text: Any) -> Draft:
    if len(text) > 1:
        raise bad("arguments", "collections:UserString takes one text")
    return Draft(name, *text)


def _user_string_state(_: Site, draft: Any, state: Any) -> UserString:
    text = plain(_only_field(draft, state, "data"), str)
    if draft.parts not in ((), (text,)):
        raise bad("state", "a UserString is told two texts")
    return UserString(text)


def _template(_: Site, draft: Any, state: Any) -> string.Template:
    return string.Template(plain(_only_field(draft, state, "template"), str))


def _normal(_: Site, draft: Any, state: Any) -> statistics.NormalDist:
    begun(draft, "a NormalDist")
    # Its constructor makes numbers of any kind these; pickle would keep what else stands there.
    mu, sigma = (plain(part, float) for part in plain(state, tuple))
    return statistics.NormalDist(mu, sigma)


def _namespace(_: Site, name: str) -> Any:
    return argparse.Namespace() if name.startswith("argparse") else types.SimpleNamespace()


def _namespace_state(site: Site, made: Any, state: Any) -> Any:
    site.charge(_FIELD_COST * len(plain(state, dict)))
    bounds.check_attributes(state)
    for field in state:
        # repr() of an argparse.Namespace calls its _get_args and _get_kwargs.
        if hasattr(type(made), field):
            raise bad("state", "a namespace hides a part of its class")
    vars(made).update(state)
    return made


# -- log records -------------------------------------------------------------------------------

_TEXT = (str, _NONE)
_NUMBER = (int, float, _NONE)
# exc_info holds live tracebacks, which no pickle can; a handler would unpack whatever stands there.
_RECORD: dict[str, tuple[type, ...]] = {
    "args": (tuple, dict, _NONE),
    "asctime": _TEXT,
    "created": _NUMBER,
    "exc_info": (_NONE,),
    "exc_text": _TEXT,
    "filename": _TEXT,
    "funcName": _TEXT,
    "levelname": _TEXT,
    "levelno": (int,),
    "lineno": (int, _NONE),
    "message": _TEXT,
    "module": _TEXT,
    "msecs": _NUMBER,
    "msg": (str,),
    "name": _TEXT,
    "pathname": _TEXT,
    "process": (int, _NONE),
    "processName": _TEXT,
    "relativeCreated": _NUMBER,
    "stack_info": _TEXT,
    "taskName": _TEXT,
    "thread": (int, _NONE),
    "threadName": _TEXT,
}
# Formatters set two of these, and Python the third since 3.12.
_RECORD_NEEDS = _RECORD.keys() - {"asctime", "message", "taskName"}
# "%999999999d" of any of them: formatting a peer's record takes what the peer's text demands.
_ARGUMENTS = (str, bytes, int, float, bool, _NONE)


def _record(site: Site, draft: Any, state: Any) -> logging.LogRecord:
    if type(draft) is not Draft or not plain(state, dict).keys() >= _RECORD_NEEDS:
        raise bad("state", "a log record does not have the fields of its class")
    site.charge(_FIELD_COST * len(state))
    bounds.check_attributes(state)
    for field, value in state.items():
        kinds = _RECORD.get(field)
        if kinds is None and hasattr(logging.LogRecord, field):
            raise bad("state", "a log record hides a part of its class")
        plain(value, *(kinds or _ARGUMENTS))
    made = logging.LogRecord("", 0, "", 0, "", None, None)
    vars(made).clear()
    vars(made).update(state)
    return made


# -- mail --------------------------------------------------------------------------------------

_MAIL: dict[str, tuple[type, ...]] = {
    "_charset": (_NONE,),
    "_default_type": (str,),
    "_headers": (list,),
    "_payload": (str, list, _NONE),
    "_unixfrom": _TEXT,
    "defects": (list,),
    "epilogue": _TEXT,
    "policy": (email.policy.EmailPolicy, email._policybase.Compat32),
    "preamble": _TEXT,
}
_POLICIES = {
    "email._policybase:Compat32": email._policybase.Compat32,
    "email.policy:EmailPolicy": email.policy.EmailPolicy,
}
_MESSAGES = (email.message.Message, email.message.EmailMessage)


def _mail_policy(_: Site, name: str) -> Any:
    # Without __init__, as unpickling does: it would add a factory that the default has not.
    kind: Any = _POLICIES[name]
    return kind.__new__(kind)


def _mail_policy_state(_: Site, made: Any, state: Any) -> Any:
    # Only the defaults: a factory of headers is a callable, and a policy has few other fields.
    if state is not None and plain(state, dict):
        raise bad("state", "a mail policy takes no state here")
    return made


def _mail(site: Site, draft: Any, state: Any) -> email.message.Message:
    if type(draft) is not Draft or plain(state, dict).keys() != _MAIL.keys():
        raise bad("state", "a mail does not have the fields of its class")
    for field, kinds in _MAIL.items():
        plain(state[field], *kinds)
    if state["defects"]:
        raise bad("state", "a mail has defects, which are objects of the parser")
    for part in state["_payload"] if type(state["_payload"]) is list else ():
        plain(part, *_MESSAGES)
    for pair in state["_headers"]:
        _check_header(pair)
    made = _MESSAGES[draft.kind.endswith("EmailMessage")](policy=state["policy"])
    for part in (state["_headers"], state["_payload"], state["defects"]):
        # What the stream adds to them later would be unchecked.
        if type(part) is list:
            site.copied(part)
    vars(made).update(state)
    return made


def _check_header(pair: Any) -> None:
    name, value = plain(pair, tuple)
    for part in (plain(name, str), plain(value, str)):
        if part.splitlines() not in ([], [part]):
            raise bad("state", "a mail's header has a line end, which would begin another one")


SHIMS: dict[str, Callable[..., Any]] = {
    "begin": begin,
    "chain_map": _chain_map,
    "mail": _mail,
    "mail_policy": _mail_policy,
    "mail_policy_state": _mail_policy_state,
    "namespace": _namespace,
    "namespace_state": _namespace_state,
    "normal": _normal,
    "record": _record,
    "template": _template,
    "user_dict": _user_dict,
    "user_list": _user_list,
    "user_string": _user_string,
    "user_string_state": _user_string_state,
}
