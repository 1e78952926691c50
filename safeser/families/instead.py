"""Say what to return in place of an object that no family carries, after trying that on the object.

The one rule: what is printed was done with the object that could not be sent, and what came of it
can be sent. Only what would use the object up, as taking all of an iterator, is not tried.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, registry
from safeser.families.tree import parse
from safeser.gate.values import Limits

Sent = tuple[dict[str, Any], list[Any]]

__all__ = ["INSTEAD", "Instead", "instead_of", "is_record", "known_instead", "registers"]


class Instead(NamedTuple):
    """What to return in place of the objects of one class.

    :param expression: what to return, as Python, where *x* is the object.
    :param of: the same, as a function; None where trying it would use the object up.
    :param again: how the receiver makes the object again, or what is lost.
    """

    expression: str
    of: Callable[[Any], Any] | None
    again: str = ""

    def __str__(self) -> str:
        again = f" {self.again}" if self.again else ""
        return f"In place of the object x, return {self.expression}.{again}"


_SPLINE = Instead("(x.c, x.x)", lambda x: (x.c, x.x), "scipy.interpolate.PPoly(*parts) takes them.")
_HULL = Instead("x.points", lambda x: x.points, "Its class makes it again of them.")
_ROOT = Instead(
    "{k: v for k, v in x.items() if k != 'sol'}",
    lambda x: x["sol"] and {key: value for key, value in x.items() if key != "sol"},
    "Evaluate x.sol where it was made.",
)
_LIST = Instead("list(x)", None)


def _wkb(found: str, of: Callable[[Any], Any], made: str = "{}") -> Instead:
    """Return what to return in place of geometries, which *found* spells and *of* returns.

    They do not travel: shapely 2.2 ends the process over some that its own reader accepts.
    """
    return Instead(
        f"shapely.to_wkb({found}, include_srid=True)",
        lambda x: sys.modules["shapely"].to_wkb(of(x), include_srid=True),
        f"{made.format('shapely.from_wkb(part)')} makes it again; both functions take arrays too.",
    )


#: By ``module:qualname`` of a class, for the objects of it and of classes derived from it.
INSTEAD = {
    "scipy.interpolate._interpolate:PPoly": _SPLINE,
    "scipy.interpolate._bsplines:BSpline": Instead(
        "x.tck", lambda x: x.tck, "scipy.interpolate.BSpline(*parts) takes them."
    ),
    "scipy.interpolate._interpolate:interp1d": Instead(
        "(x.x, x.y)", lambda x: (x.x, x.y), "scipy.interpolate.interp1d(*parts) takes them."
    ),
    "scipy.stats._distn_infrastructure:rv_frozen": Instead(
        "(x.dist.name, x.args, x.kwds)",
        lambda x: (x.dist.name, x.args, x.kwds),
        "getattr(scipy.stats, name)(*args, **kwds) makes it again.",
    ),
    "scipy.stats._kde:gaussian_kde": Instead(
        "(x.dataset, x.factor, x.weights)",
        lambda x: (x.dataset, x.factor, x.weights),
        "scipy.stats.gaussian_kde(*parts) makes it again.",
    ),
    "scipy.stats._survival:ECDFResult": Instead(
        "(x.cdf.quantiles, x.cdf.probabilities)",
        lambda x: (x.cdf.quantiles, x.cdf.probabilities),
    ),
    "scipy.stats._morestats:AndersonResult": Instead("tuple(x)", tuple),
    "scipy.stats._fit:GoodnessOfFitResult": Instead(
        "(x.statistic, x.pvalue)", lambda x: (x.statistic, x.pvalue)
    ),
    "scipy.stats._sensitivity_analysis:SobolResult": Instead(
        "(x.first_order, x.total_order)", lambda x: (x.first_order, x.total_order)
    ),
    "scipy.integrate._cubature:CubatureResult": Instead(
        "(x.estimate, x.error, x.status)", lambda x: (x.estimate, x.error, x.status)
    ),
    "scipy.optimize._optimize:OptimizeResult": _ROOT,
    "scipy.spatial._qhull:_QhullUser": _HULL,
    "scipy.spatial.transform._rotation:Rotation": Instead(
        "x.as_quat()", lambda x: x.as_quat(), "Rotation.from_quat(part) makes it again."
    ),
    "xarray.core.datatree:DataTree": Instead(
        "x.to_dict()", lambda x: x.to_dict(), "xarray.DataTree.from_dict(part) makes it again."
    ),
    "pandas.core.groupby.groupby:BaseGroupBy": Instead(
        "x.obj", lambda x: x.obj, "Group it on the receiver, or return what is computed of groups."
    ),
    "matplotlib.artist:Artist": Instead(
        "(x.figure.savefig(png := io.BytesIO()), png.getvalue())[1]",
        # Drawing it may take seconds; what it gives is bytes.
        lambda x: callable(x.figure.savefig) and b"",
    ),
    "PIL.Image:Image": Instead(
        "(x.convert('RGBA').tobytes(), x.size)",
        lambda x: (x.convert("RGBA").tobytes(), x.size),
        "PIL.Image.frombytes('RGBA', size, data) makes it again.",
    ),
    "shapely.lib:Geometry": _wkb("x", lambda x: x),
    "shapely.geometry.polygon:LinearRing": _wkb("x", lambda x: x, "shapely.LinearRing({})"),
    "shapely.prepared:PreparedGeometry": _wkb(
        "x.context", lambda x: x.context, "shapely.prepared.prep({})"
    ),
    "shapely.strtree:STRtree": _wkb("x.geometries", lambda x: x.geometries, "shapely.STRtree({})"),
    "shapely.coords:CoordinateSequence": Instead("list(x)", list),
    "geopandas.array:GeometryArray": Instead(
        "(geopandas.array.to_wkb(x), x.crs and x.crs.to_wkt())",
        lambda x: (sys.modules["geopandas.array"].to_wkb(x), x.crs and x.crs.to_wkt()),
        "geopandas.array.from_wkb(*parts) makes it again.",
    ),
    "geopandas.base:GeoPandasBase": Instead(
        "(x.to_wkb(), x.crs and x.crs.to_wkt())",
        lambda x: (x.to_wkb(), x.crs and x.crs.to_wkt()),
        "geopandas.GeoSeries.from_wkb(column, crs=crs) makes each column of geometries again.",
    ),
    "pyproj.crs.crs:CRS": Instead("x.to_wkt()", lambda x: x.to_wkt(), "pyproj.CRS(part) makes it."),
    **dict.fromkeys(("builtins:zip", "builtins:map", "builtins:filter"), _LIST),
    **dict.fromkeys(("builtins:enumerate", "builtins:reversed", "builtins:generator"), _LIST),
    **dict.fromkeys((f"builtins:{kind}_iterator" for kind in ("list", "tuple", "set")), _LIST),
    "builtins:module": Instead("x.__name__", lambda x: x.__name__),
}


def known_instead(kind: type) -> Instead | None:
    """Return what is listed for *kind*, or for the nearest class that it derives from."""
    names = (f"{base.__module__}:{base.__qualname__}" for base in kind.__mro__)
    return next((INSTEAD[name] for name in names if name in INSTEAD), None)


def instead_of(error: Unencodable, sends: Callable[[Any], object]) -> str:
    """Return what to return in place of what *error* refused, or of what holds it.

    :param sends: raises what keeps a value from being sent.
    """
    for x in (error.value, *error.within):
        known = known_instead(type(x))
        if known is None:
            continue
        works = known.of is None
        with suppress(Exception):  # the object's own code runs, and may raise anything
            if known.of is not None:
                sends(known.of(x))
                works = True
        if works:
            return str(known)
    return ""


def registers(x: Any, sends: Callable[[str, Parts], Sent], limits: Limits) -> bool:
    """Tell whether *x* would come back as its class, were that registered by itself.

    :param sends: returns header and frames of the parts of *x*, under the name of its class.
    """
    typed = registry.for_writing(type(x))
    if typed is None:
        return False
    try:
        parts = typed.encode(x, limits)
        node = parse(*sends(typed.name, parts), limits=limits)[0]
        typed.check(node, limits)
        return type(typed.decode(node, [child for _, child in parts.children])) is type(x)
    except Exception:  # the object's own code runs, and may raise anything
        return False


def is_record(kind: type) -> bool:
    """Whether *kind* is of those that ``register_class`` takes."""
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    model = any(
        base.__module__ == "pydantic.main" and base.__name__ == "BaseModel" for base in kind.__mro__
    )
    return named or model or issubclass(kind, enum.Enum) or dataclasses.is_dataclass(kind)
